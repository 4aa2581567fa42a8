"""Columns that say the same few things over and over, taken apart and put together again.

In a log storm a batch of thousands of events ends in some hundred clusters, and an object stands
once for each of its events. So a column is taken apart into the objects that differ and a *place*
for each row, what is to be done is done once an object, and the places take it over the rows::

    column     a a b a c b    dictionary_encode → values a b c, places 0 0 1 0 2 1
    places     0 0 1 0 2 1
    times      5 7 6 4 9 8    group_min_max     → a: 3 rows, 4 to 7; b: 2, 6 to 8; c: 1, 9
    values     A B C          take              → A A B A C B
    times      5 7 6 4 9 8    multiplied        → 50 70 60 40 90 80, by ten
    wanted     n y n          rows_of           → 2 5, the rows of b

`column_stats` returns what the values of a column of bytes begin with, the length of the longest
and the sum of all lengths: one pass that mostly saves a look at each value.

Native (`_native`, Cython), or in plain Python (`reference`) where that was not built or the
environment variable ``STREAM_DEDUP_PURE_PYTHON`` is set; property tests hold them equal. Natively a
row costs some 5 ns a call, a tenth of what the shortest loop does.
"""

import os

from stream_dedup.columnar import reference as _serving

if not os.environ.get("STREAM_DEDUP_PURE_PYTHON"):
    try:
        from stream_dedup.columnar import _native as _serving  # type: ignore[no-redef]
    except ImportError:
        pass  # `fingerprint.kernel` warns: the extensions are built together, or none is

dictionary_encode = _serving.dictionary_encode
column_stats = _serving.column_stats
rows_of = _serving.rows_of
multiplied = _serving.multiplied
group_min_max = _serving.group_min_max
take = _serving.take

__all__ = ["column_stats", "dictionary_encode", "group_min_max", "multiplied", "rows_of", "take"]
