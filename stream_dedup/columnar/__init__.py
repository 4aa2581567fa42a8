"""Columns of many equal objects, dictionary-encoded.

In a log storm a batch of thousands of events belongs to some hundred clusters, and a column of the
batch holds the same object for many events. `dictionary_encode` splits such a column into its
different *values* and a *code* for each row, the index of the row's value. What has to be done is
then done once for each value, and the codes carry the result to the rows (`encode_numbers` does so
with numbers)::

    column     a a b a c b    dictionary_encode → values a b c, codes 0 0 1 0 2 1
    codes      0 0 1 0 2 1
    times      5 7 6 4 9 8    group_min_max     → a: 3 rows, 4 to 7; b: 2, 6 to 8; c: 1, 9
    values     A B C          take              → A A B A C B
    wanted     n y n          rows_of           → 2 5, the rows of b
    lines      6 bytes each   group_sizes       → a: 18, b: 12, c: 6

Some functions need no codes: `column_stats` describes a column of bytes in one pass (first bytes,
longest, total size), `rows_beginning` and `rows_containing` find rows by their bytes,
`split_quoted` splits off what they begin with, `replace_words` replaces words in them,
`rows_by_chance` chooses rows by a hash of their numbers, and `multiplied` multiplies each number by
a factor.

Served natively (`_native`, Cython), or by plain Python (`reference`) where the extension was not
built or the environment variable ``STREAM_DEDUP_PURE_PYTHON`` is set; property tests compare the
two. A native call costs some 5 ns a row, a tenth of the shortest Python loop.
"""

from typing import TYPE_CHECKING

from stream_dedup.columnar import reference
from stream_dedup.native import module_or

if TYPE_CHECKING:
    _serving = reference
else:
    _serving = module_or("columnar._native", reference)

dictionary_encode = _serving.dictionary_encode
encode_numbers = _serving.encode_numbers
column_stats = _serving.column_stats
rows_of = _serving.rows_of
rows_beginning = _serving.rows_beginning
rows_containing = _serving.rows_containing
split_quoted = _serving.split_quoted
replace_words = _serving.replace_words
rows_by_chance = _serving.rows_by_chance
multiplied = _serving.multiplied
group_min_max = _serving.group_min_max
group_sizes = _serving.group_sizes
take = _serving.take

__all__ = [
    "column_stats",
    "dictionary_encode",
    "encode_numbers",
    "group_min_max",
    "group_sizes",
    "multiplied",
    "replace_words",
    "rows_beginning",
    "rows_by_chance",
    "rows_containing",
    "rows_of",
    "split_quoted",
    "take",
]
