"""Columns in plain Python: the reference for the native functions."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

WORD_ENDINGS = b".!"

_ALL_64 = (1 << 64) - 1

NARROW = 1 << 16
"""Up to so many different values a code has two bytes, type ``H``; with more four, type ``I``.
Stored journals hold codes in this form."""


def dictionary_encode(column: Sequence[T]) -> tuple[list[T], array[int]]:
    """Split a column into its different values and a code for each row.

    Objects are compared by identity.

    Returns:
        The values in order of first appearance; and for each row the index of its value.
    """
    ids = list(map(id, column))
    by_id = dict(zip(ids, column, strict=True))
    codes = dict(zip(by_id, range(len(by_id)), strict=True))
    typecode = "H" if len(by_id) <= NARROW else "I"
    return list(by_id.values()), array(typecode, map(codes.__getitem__, ids))


def encode_numbers(numbers: array[int]) -> tuple[list[int], array[int]]:
    """Do the same with numbers of 64 bits, type ``Q``, compared by value."""
    codes = {number: code for code, number in enumerate(dict.fromkeys(numbers))}
    typecode = "H" if len(codes) <= NARROW else "I"
    return list(codes), array(typecode, map(codes.__getitem__, numbers))


def rows_of(codes: array[int], wanted: list[bool]) -> list[int]:
    """Return the rows whose code is wanted, ascending."""
    return [row for row, code in enumerate(codes) if wanted[code]]


def group_min_max(
    codes: array[int], numbers: Sequence[int], count: int
) -> list[tuple[int, int, int]]:
    """Return for each of `count` codes its number of rows, and their least and greatest number.

    All three are 0 for a code without rows.

    Raises:
        ValueError: there is not one number for each row.
    """
    rows, least, most = [0] * count, [0] * count, [0] * count
    for code, number in zip(codes, numbers, strict=True):
        if not rows[code]:
            least[code] = most[code] = number
        elif number < least[code]:
            least[code] = number
        elif number > most[code]:
            most[code] = number
        rows[code] += 1
    return list(zip(rows, least, most, strict=True))


def group_sizes(codes: array[int], column: Sequence[bytes | None], count: int) -> list[int]:
    """Return the bytes of each group of rows together.

    Args:
        codes: the group of each row.
        column: a value of each row; None has no bytes.
        count: groups.
    """
    sizes = [0] * count
    for code, value in zip(codes, column, strict=True):
        sizes[code] += len(value or b"")
    return sizes


def take(values: list[T], codes: array[int]) -> list[T]:
    """Return the column of these values and codes."""
    return list(map(values.__getitem__, codes))


class ColumnStats(NamedTuple):
    """A column of bytes, described.

    Attributes:
        begins: the first bytes of its values: one byte each, none of an empty value, None for None.
        longest: the length of the longest value.
        size: the bytes of all values together.
    """

    begins: set[bytes | None]
    longest: int
    size: int


def column_stats(column: Sequence[bytes | None]) -> ColumnStats:
    """Describe a column of bytes."""
    begins = {value if value is None else value[:1] for value in column}
    sizes = [len(value) for value in column if value is not None]
    return ColumnStats(begins, max(sizes, default=0), sum(sizes))


def rows_beginning(column: Sequence[bytes], begins: bytes) -> list[int]:
    """Return the rows of bytes whose first byte is one of `begins`, ascending."""
    return [row for row, value in enumerate(column) if value and value[0] in begins]


def split_quoted(
    column: Sequence[bytes], opens: bytes, closes: bytes, most: int
) -> tuple[list[int], list[bytes], list[bytes]]:
    """Split bytes that begin with something in quotes.

    Args:
        column: any bytes.
        opens: what is before that.
        closes: what is behind it.
        most: both are in so many of the first bytes.

    Returns:
        The rows that begin so, ascending; what is in their quotes; and what is behind these.

    Raises:
        ValueError: a quote is empty.
    """
    if not opens or not closes:
        raise ValueError("quotes are empty")
    rows: list[int] = []
    quoted: list[bytes] = []
    rest: list[bytes] = []
    begin = len(opens)
    for row, value in enumerate(column):
        if value.startswith(opens):
            end = value.find(closes, begin, most)
            if end > begin:
                rows.append(row)
                quoted.append(value[begin:end])
                rest.append(value[end + len(closes) :])
    return rows, quoted, rest


def rows_containing(column: Sequence[bytes], byte: bytes) -> list[int]:
    """Return the rows of bytes that contain a byte, ascending.

    Raises:
        ValueError: `byte` is not one byte.
    """
    if len(byte) != 1:
        raise ValueError("one byte is looked for")
    return [row for row, value in enumerate(column) if byte in value]


def replace_words(
    column: Sequence[bytes], words: frozenset[bytes], separators: bytes, by: bytes
) -> list[bytes]:
    """Replace words in bytes, wherever they appear between separators.

    Case, and full stops and exclamation marks behind a word, do not count.

    Args:
        column: any bytes.
        words: in lower case, ASCII; none ends with `WORD_ENDINGS`.
        separators: bytes between words.
        by: what takes the place of each, and of what is behind it.
    """

    def replaced(match: re.Match[bytes]) -> bytes:
        word = match.group()
        return by if word.rstrip(WORD_ENDINGS).lower() in words else word

    between = re.compile(b"[^%b]+" % re.escape(separators))
    return [between.sub(replaced, text) for text in column]


def rows_by_chance(numbers: Sequence[int], seed: int, below: int) -> list[tuple[int, int]]:
    """Return the rows whose numbers hash to less than a bound, and these hashes.

    The hash is one step of SplitMix64, from the number and the seed.

    Args:
        numbers: of the rows, each from -2^63 to 2^63 - 1.
        seed: 64 bits.
        below: 2^64 for all rows, 2^60 for one in sixteen.
    """
    found = []
    for row, number in enumerate(numbers):
        mixed = (number + seed + 0x9E3779B97F4A7C15) & _ALL_64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _ALL_64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _ALL_64
        mixed ^= mixed >> 31
        if mixed < below:
            found.append((row, mixed))
    return found


def multiplied(numbers: Sequence[int], factor: int) -> list[int]:
    """Multiply each number by a factor."""
    return [number * factor for number in numbers]
