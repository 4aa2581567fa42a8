"""The kernel's port: words in, pairs and clusters out. Native, or the reference.

The native kernel (`_native`, Cython) and the reference (`reference`, plain Python) are modules with
the same contents, those of `Kernel`; property tests hold them equal.
"""

from __future__ import annotations

from array import array
from typing import Protocol, cast

from stream_dedup.native import extension, warn_if_not_compiled
from stream_dedup.offline import reference
from stream_dedup.offline.words import Bytes
from stream_dedup.tables.permutation import Layout


class Part(Protocol):
    """A contiguous range of one table: filled, then sorted, then compared step by step.

    Args:
        layout: the tables.
        table: which of them.
        low: the range's first beginning of a prefix, as a number of at most `TOP_BITS` bits.
        high: the beginning behind its last.
    """

    def __init__(self, layout: Layout, table: int, low: int, high: int) -> None: ...

    def __len__(self) -> int:
        """How many words are in it."""

    @property
    def done(self) -> bool:
        """Whether all has been compared."""

    @property
    def compared(self) -> int:
        """How many comparisons were made."""

    def add(self, words: Bytes) -> None:
        """Take in those words whose prefix lies in the range.

        All words that are ever added are to be ascending and distinct. A pair's first word is then
        the smaller, and the order of pairs is fixed.
        """

    def sort(self) -> None:
        """Bring equal prefixes together; nothing can be added any more."""

    def step(self, max_pairs: int, max_compared: int) -> bytes:
        """Compare on, until about that many pairs are found or compared, or all are.

        Returns:
            Pairs of words within k bits, by prefix, then by first and second word. A pair that an
            earlier table shows too is left out, so every pair comes once over all tables.
        """


class Components(Protocol):
    """Words, and which of them are connected; each has a number, in the order in which they came.

    Args:
        width: bits of a fingerprint.
    """

    def __init__(self, width: int) -> None: ...

    def __len__(self) -> int:
        """How many words are known."""

    def numbers(self, words: Bytes) -> array[int]:
        """The number of each word; those not known get one."""

    def join(self, pairs: Bytes) -> None:
        """Connect the two words of each pair."""

    def words(self) -> bytearray:
        """All words, in the order of their numbers."""

    def grouped(self, numbers: array[int]) -> tuple[array[int], array[int]]:
        """Put a sequence of numbers (as of `numbers`) into clusters.

        Returns:
            The positions in the sequence, cluster by cluster in the order of their first
            positions, ascending in each; and where each cluster ends. Clusters of one position
            are left out.
        """


class Kernel(Protocol):
    """The contents of either module."""

    @property
    def Part(self) -> type[Part]:  # noqa: N802 -- it is a class
        """See `Part`."""

    @property
    def Components(self) -> type[Components]:  # noqa: N802 -- as above
        """See `Components`."""

    def parse(self, text: Bytes, hexadecimal: bool, width: int) -> tuple[bytearray, int]:
        """Lines of decimal or hexadecimal numbers as words; blanks around numbers do not count.

        Returns:
            The words up to the first line that is no number of `width` bits, and that line's
            index; -1 where all lines are.
        """

    def rows(
        self, words: Bytes, ends: array[int] | None, width: int, hexadecimal: bool, json: bool
    ) -> bytes:
        """Words as lines of text.

        Args:
            words: what to write.
            ends: where each row ends; None for rows of two, which get their distance in TSV.
            width: bits of a fingerprint.
            hexadecimal: whether numbers are hexadecimal, with leading zeros and, in JSON, quoted.
            json: whether rows are JSON arrays, or parted by tabs.
        """

    def sort_distinct(self, words: bytearray, width: int) -> int:
        """Sort in place, ascending, equal ones once; returns how many are left.

        What stands behind them has no meaning.
        """

    def count_up_to(self, words: Bytes, bound: int, width: int) -> int:
        """How many of the sorted words are not above `bound`."""

    def histogram(self, words: Bytes, layout: Layout, table: int) -> array[int]:
        """How many words have each beginning of a table's prefix, of `TOP_BITS` at most."""

    def taken(self, words: Bytes, positions: array[int], width: int) -> bytearray:
        """The words at these positions."""


def kernel() -> Kernel:
    """The native kernel, or the reference where that was not built or is not wanted."""
    warn_if_not_compiled()
    return cast(Kernel, extension("offline._native") or reference)
