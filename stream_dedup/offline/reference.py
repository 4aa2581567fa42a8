"""Matching whole files of fingerprints, in plain Python; `_native` says the same, much faster.

See `kernel` for what each function and class promises. A line of text is a number if
`[0-9]+` (or `(0x)?[0-9a-f]+`, in either case) is all that is left without the blanks around it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import groupby

from stream_dedup.offline.words import TOP_BITS, Bytes, packed, unpacked, word_bytes
from stream_dedup.tables.permutation import Layout

_BLANKS = b" \t\r"
_DECIMAL = re.compile(rb"[0-9]+")
_HEXADECIMAL = re.compile(rb"(?:0[xX])?([0-9a-fA-F]+)")


def parse(text: Bytes, hexadecimal: bool, width: int) -> tuple[bytearray, int]:
    """Lines of decimal or hexadecimal numbers as words; see `Kernel.parse`."""
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
    """Words as lines of text; see `Kernel.rows`."""
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
    """Sort in place, ascending, equal ones once; returns how many are left."""
    numbers = sorted(set(unpacked(words, width)))
    words[: len(numbers) * word_bytes(width)] = packed(numbers, width)
    return len(numbers)


def count_up_to(words: Bytes, bound: int, width: int) -> int:
    """How many of the sorted words are not above `bound`."""
    return sum(number <= bound for number in unpacked(words, width))


def histogram(words: Bytes, layout: Layout, table: int) -> array[int]:
    """How many words have each beginning of a table's prefix; see `Kernel.histogram`."""
    bits = min(layout.prefix_bits[table], TOP_BITS)
    counts = array("Q", bytes(8 << bits))
    for number in unpacked(words, layout.width):
        counts[layout.permute(number, table) >> layout.width - bits] += 1
    return counts


def taken(words: Bytes, positions: array[int], width: int) -> bytearray:
    """The words at these positions."""
    numbers = unpacked(words, width)
    return packed([numbers[position] for position in positions], width)


class Part:
    """A contiguous range of one table; see `kernel.Part` for the methods."""

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
        """Take in those words whose prefix lies in the range."""
        width, prefix_bits = self._layout.width, self._layout.prefix_bits[self._table]
        below_top = prefix_bits - min(prefix_bits, TOP_BITS)
        for number in unpacked(words, width):
            prefix = self._layout.permute(number, self._table) >> width - prefix_bits
            if prefix >> below_top in self._range:
                self._numbers.append((prefix, number))

    def sort(self) -> None:
        """Bring equal prefixes together; nothing can be added any more."""
        self._numbers.sort()
        self.done = not self._numbers

    def step(self, max_pairs: int, max_compared: int) -> bytes:
        """Compare on; see `kernel.Part.step`."""
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
        """After each comparison the pair, or nothing where it is none or was shown before."""
        earlier = self._layout.masks[: self._table]
        for _, run in groupby(self._numbers, key=lambda entry: entry[0]):
            numbers = [number for _, number in run]
            for at, first in enumerate(numbers):
                for second in numbers[at + 1 :]:
                    self.compared += 1
                    apart = first ^ second
                    near = apart.bit_count() <= self._layout.k
                    shown = near and all(apart & mask for mask in earlier)
                    yield (first, second) if shown else ()


class Components:
    """What is connected by pairs; see `kernel.Components` for the methods."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._numbers: dict[int, int] = {}
        self._parents: list[int] = []

    def __len__(self) -> int:
        return len(self._parents)

    def numbers(self, words: Bytes) -> array[int]:
        """The number of each word; those not known get one."""
        return array("I", map(self._number, unpacked(words, self._width)))

    def join(self, pairs: Bytes) -> None:
        """Connect the two words of each pair."""
        numbers = self.numbers(pairs)
        for first, second in zip(numbers[::2], numbers[1::2], strict=True):
            roots = sorted((self._root(first), self._root(second)))
            self._parents[roots[1]] = roots[0]

    def words(self) -> bytearray:
        """All words, in the order of their numbers."""
        return packed(self._numbers, self._width)

    def grouped(self, numbers: array[int]) -> tuple[array[int], array[int]]:
        """Put a sequence of numbers into clusters; see `kernel.Components.grouped`."""
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
