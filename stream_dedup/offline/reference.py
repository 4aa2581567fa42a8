"""Fingerprints as words, and the kernel that matches whole files of them in plain Python.

Fingerprints are stored side by side as *words*: unsigned integers in native byte order, of 64 bits
each, or of 128 where fingerprints have more than 64.

Everything from `parse` on is also in the native module `_native`, many times as fast; property
tests compare the two.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby

from stream_dedup.tables.permutation import Layout

Bytes = bytes | bytearray | memoryview
"""Words or text, as arguments."""

TOP_BITS = 16
"""A table is divided by the first bits of its prefix: this many, or all where it has fewer."""

_KEY_BYTES = 4
_BLANKS = b" \t\r"
_DECIMAL = re.compile(rb"[0-9]+")
_HEXADECIMAL = re.compile(rb"(?:0[xX])?([0-9a-fA-F]+)")


def word_bytes(width: int) -> int:
    """Return the bytes of a word.

    >>> word_bytes(32), word_bytes(64), word_bytes(128)
    (8, 8, 16)
    """
    return 8 if width <= 64 else 16


def packed(numbers: Iterable[int], width: int) -> bytearray:
    """Pack integers as words.

    Raises:
        OverflowError: a number is negative or has more bits than a word.
    """
    size = word_bytes(width)
    if size == 8:
        return bytearray(array("Q", numbers))
    return bytearray().join(number.to_bytes(size, sys.byteorder) for number in numbers)


def unpacked(words: Bytes, width: int) -> list[int]:
    """Unpack words as integers."""
    view = memoryview(words).cast("B")
    if word_bytes(width) == 8:
        return view.cast("Q").tolist()
    return [
        int.from_bytes(view[start : start + 16], sys.byteorder) for start in range(0, len(view), 16)
    ]


def parse(text: Bytes, hexadecimal: bool, width: int) -> tuple[bytearray, int]:
    """Read lines of numbers, each `[0-9]+` or `(0x)?[0-9a-f]+` in either case, as words.

    Blanks around a number are ignored.

    Returns:
        The words before the first line that is not a number of `width` bits, and the index of that
        line; -1 where all lines are numbers.
    """
    numbers: list[int] = []
    lines = bytes(text).split(b"\n")
    if not lines[-1]:
        lines.pop()
    for index, line in enumerate(lines):
        bare = line.strip(_BLANKS)
        match = (_HEXADECIMAL if hexadecimal else _DECIMAL).fullmatch(bare)
        if match is None:
            return packed(numbers, width), index
        digits = (match[1] if hexadecimal else bare).lstrip(b"0")
        number = int(digits or b"0", 16 if hexadecimal else 10) if len(digits) <= 40 else -1
        if not 0 <= number < 1 << width:
            return packed(numbers, width), index
        numbers.append(number)
    return packed(numbers, width), -1


def rows(words: Bytes, ends: array[int] | None, width: int, hexadecimal: bool, json: bool) -> bytes:
    """Write words as lines of text.

    Args:
        words: the numbers to write.
        ends: where each row ends; None for rows of two, which get their distance in TSV.
        width: bits of a fingerprint.
        hexadecimal: write hexadecimal numbers, with leading zeros and, in JSON, in quotes.
        json: write rows as JSON arrays; otherwise separated by tabs.
    """
    numbers = unpacked(words, width)
    texts = [f"{n:0{width // 4}x}" if hexadecimal else str(n) for n in numbers]
    if json and hexadecimal:
        texts = [f'"{text}"' for text in texts]
    lines = []
    start = 0
    for end in ends if ends is not None else range(2, len(numbers) + 1, 2):
        row = texts[start:end]
        if json:
            lines.append(f"[{', '.join(row)}]\n")
        else:
            if ends is None:
                row.append(str((numbers[start] ^ numbers[start + 1]).bit_count()))
            lines.append("\t".join(row) + "\n")
        start = end
    return "".join(lines).encode()


def sort_distinct(words: bytearray, width: int) -> int:
    """Sort in place, ascending, and keep each word once.

    Returns:
        The number of words kept. The bytes after them are undefined.
    """
    numbers = sorted(set(unpacked(words, width)))
    words[: len(numbers) * word_bytes(width)] = packed(numbers, width)
    return len(numbers)


def count_up_to(words: Bytes, bound: int, width: int) -> int:
    """Count the words that are not above `bound`, in sorted words."""
    return sum(number <= bound for number in unpacked(words, width))


def histogram(words: Bytes, layout: Layout, table: int) -> array[int]:
    """Count the words by the first `TOP_BITS` bits of their prefix in a table."""
    bits = min(layout.prefix_bits[table], TOP_BITS)
    counts = array("Q", bytes(8 << bits))
    for number in unpacked(words, layout.width):
        counts[layout.permute(number, table) >> layout.width - bits] += 1
    return counts


def taken(words: Bytes, positions: array[int], width: int) -> bytearray:
    """Return the words at these positions."""
    numbers = unpacked(words, width)
    return packed([numbers[position] for position in positions], width)


class Part:
    """A contiguous range of one table: filled, then sorted, then compared step by step.

    Args:
        layout: the tables.
        table: which of them.
        low: the first `TOP_BITS` bits of a prefix where the range begins.
        high: the same where it ends; not part of it.

    Attributes:
        done: whether all words have been compared.
        compared: comparisons made so far.
    """

    def __init__(self, layout: Layout, table: int, low: int, high: int) -> None:
        self._layout = layout
        self._table = table
        self._range = range(low, high)
        self._numbers: list[tuple[int, int]] = []  # the prefix, the number itself
        self._pairs = self._compare()
        self.done = False
        self.compared = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, words: Bytes) -> None:
        """Add those words whose prefix lies in the range.

        All words, over all calls, must be ascending and distinct: then the first word of a pair is
        the smaller, and the order of pairs is fixed.
        """
        width, prefix_bits = self._layout.width, self._layout.prefix_bits[self._table]
        below_top = prefix_bits - min(prefix_bits, TOP_BITS)
        for number in unpacked(words, width):
            prefix = self._layout.permute(number, self._table) >> width - prefix_bits
            if prefix >> below_top in self._range:
                self._numbers.append((prefix, number))

    def sort(self) -> None:
        """Sort by prefix. Nothing can be added after this."""
        self._numbers.sort()
        self.done = not self._numbers

    def step(self, max_pairs: int, max_compared: int) -> bytes:
        """Compare until about that many pairs are found or compared, or all are.

        Returns:
            Pairs of words within k bits, by prefix, then by first and second word. A pair that an
            earlier table also finds is left out, so each pair is returned once over all tables.
        """
        found: list[int] = []
        last = self.compared + max_compared
        while len(found) < 2 * max_pairs and self.compared < last:
            pair = next(self._pairs, None)
            if pair is None:
                self.done = True
                break
            found += pair
        return bytes(packed(found, self._layout.width))

    def _compare(self) -> Iterator[tuple[int, ...]]:
        """Yield each pair compared; an empty one if it is not near or another table reports it."""
        earlier = self._layout.masks[: self._table]
        for _, run in groupby(self._numbers, key=lambda entry: entry[0]):
            numbers = [number for _, number in run]
            for at, first in enumerate(numbers):
                for second in numbers[at + 1 :]:
                    self.compared += 1
                    apart = first ^ second
                    near = apart.bit_count() <= self._layout.k
                    yield (first, second) if near and all(apart & m for m in earlier) else ()


class BandPairs:
    """Fingerprints of bands, added one after the other; who shares a key with an earlier one.

    A key leads to the first `crowd` that have it, and no further.

    Args:
        keys: of a fingerprint, 1 to 64 of them.
        crowd: see above.
    """

    def __init__(self, keys: int, crowd: int) -> None:
        self._keys = keys
        self._crowd = crowd
        self._owners: dict[tuple[int, bytes], list[int]] = {}

    def add(self, fingerprints: Bytes, owners: array[int]) -> array[int]:
        """Add fingerprints.

        Args:
            fingerprints: the keys of each, of four bytes, side by side.
            owners: of each a number below 2^32 - 1, ascending, which no other one has.

        Returns:
            Two owners for each pair that shares a key, the earlier one first; each pair once, those
            of an owner together.

        Raises:
            ValueError: the number of bytes does not fit the number of owners.
        """
        size = _KEY_BYTES * self._keys
        if len(fingerprints) != size * len(owners):
            raise ValueError(f"fingerprints have {size} bytes each")
        pairs = array("I")
        for at, owner in enumerate(owners):
            data = bytes(fingerprints[at * size : (at + 1) * size])
            met: dict[int, None] = {}
            for key in range(self._keys):
                there = self._owners.setdefault(
                    (key, data[key * _KEY_BYTES : (key + 1) * _KEY_BYTES]), []
                )
                met |= dict.fromkeys(there)
                if len(there) < self._crowd:
                    there.append(owner)
            pairs.extend(number for other in met for number in (other, owner))
        return pairs


class Components:
    """Words and their connected components. Words are numbered in the order in which they come."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._numbers: dict[int, int] = {}
        self._parents: list[int] = []

    def __len__(self) -> int:
        return len(self._parents)

    def numbers(self, words: Bytes) -> array[int]:
        """Return the number of each word; unknown words are added."""
        return array("I", map(self._number, unpacked(words, self._width)))

    def join(self, pairs: Bytes) -> None:
        """Connect the two words of each pair."""
        numbers = self.numbers(pairs)
        for first, second in zip(numbers[::2], numbers[1::2], strict=True):
            roots = sorted((self._root(first), self._root(second)))
            self._parents[roots[1]] = roots[0]

    def words(self) -> bytearray:
        """Return all words in the order of their numbers."""
        return packed(self._numbers, self._width)

    def grouped(self, numbers: array[int]) -> tuple[array[int], array[int]]:
        """Group a sequence of numbers, as returned by `numbers`, into clusters.

        Returns:
            The positions in the sequence, cluster by cluster in the order of their first
            positions, ascending in each; and where each cluster ends. Clusters of one position
            are left out.
        """
        clusters: dict[int, list[int]] = {}
        for position, number in enumerate(numbers):
            clusters.setdefault(self._root(number), []).append(position)
        positions = array("Q")
        ends = array("Q")
        for members in clusters.values():
            if len(members) > 1:
                positions.extend(members)
                ends.append(len(positions))
        return positions, ends

    def _number(self, word: int) -> int:
        number = self._numbers.setdefault(word, len(self._parents))
        if number == len(self._parents):
            self._parents.append(number)
        return number

    def _root(self, number: int) -> int:
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number
