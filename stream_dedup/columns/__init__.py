"""Columns that say the same few things over and over, taken apart and put together again.

In a log storm a batch of thousands of events ends in some hundred clusters, and an object stands
once for each of its events. So a column is taken apart into the objects that differ and a *place*
for each row, what is to be done is done once an object, and the places spread it over the rows::

    column     a a b a c b          distinct → values a b c, places 0 0 1 0 2 1
    places     0 0 1 0 2 1
    times      5 7 6 4 9 8          spans    → a: 3 rows, 4 to 7; b: 2 rows, 6 to 8; c: 1 row, 9
    values     A B C                spread   → A A B A C B
    times      5 7 6 4 9 8          scaled   → 50 70 60 40 90 80, by ten
    wanted     n y n                rows_of  → 2 5, the rows of b

Of a column of bytes, `outline` says what its values begin with, how long the longest is and how
many bytes they have together: one look at all, which mostly spares a look at each.

Native (`_native`, Cython), or in plain Python (`reference`) where that was not built or the
environment variable ``STREAM_DEDUP_PURE_PYTHON`` is set; property tests hold them equal. Natively a
row costs some 5 ns a call, a tenth of what the shortest loop does.
"""

import os

from stream_dedup.columns import reference as _serving

if not os.environ.get("STREAM_DEDUP_PURE_PYTHON"):
    try:
        from stream_dedup.columns import _native as _serving  # type: ignore[no-redef]
    except ImportError:
        pass  # `fingerprint.kernel` warns: the extensions are built together, or none is

distinct = _serving.distinct
outline = _serving.outline
rows_of = _serving.rows_of
scaled = _serving.scaled
spans = _serving.spans
spread = _serving.spread

__all__ = ["distinct", "outline", "rows_of", "scaled", "spans", "spread"]
