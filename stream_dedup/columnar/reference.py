"""Columns in plain Python; what the native ones are held against."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

NARROW = 1 << 16
"""Places have two bytes each, type ``H``; where there are more values, four, ``I``. Stored journals
hold them so."""


def dictionary_encode(column: Sequence[T]) -> tuple[list[T], array[int]]:
    """Take a column apart.

    Returns:
        The objects that differ, by identity, in the order in which they first come; and for each
        row the place of its own among them.
    """
    ids = list(map(id, column))
    by_id = dict(zip(ids, column, strict=True))
    places = dict(zip(by_id, range(len(by_id)), strict=True))
    typecode = "H" if len(by_id) <= NARROW else "I"
    return list(by_id.values()), array(typecode, map(places.__getitem__, ids))


def rows_of(places: array[int], wanted: list[bool]) -> list[int]:
    """The rows whose place is wanted, ascending."""
    return [row for row, place in enumerate(places) if wanted[place]]


def group_min_max(
    places: array[int], numbers: Sequence[int], count: int
) -> list[tuple[int, int, int]]:
    """How many rows each of `count` places has, and the least and the greatest of their numbers.

    All is 0 where it has none.

    Raises:
        ValueError: there is not a number for each row.
    """
    rows, least, most = [0] * count, [0] * count, [0] * count
    for place, number in zip(places, numbers, strict=True):
        if not rows[place]:
            least[place] = most[place] = number
        elif number < least[place]:
            least[place] = number
        elif number > most[place]:
            most[place] = number
        rows[place] += 1
    return list(zip(rows, least, most, strict=True))


def take(values: list[T], places: array[int]) -> list[T]:
    """Put a column together: for each row the value at its place."""
    return list(map(values.__getitem__, places))


class ColumnStats(NamedTuple):
    """What a column of bytes is like, from afar.

    Attributes:
        begins: what its values begin with: the first byte of each, nothing of an empty one, None
            for None.
        longest: the length of the longest.
        size: the bytes of all together.
    """

    begins: set[bytes | None]
    longest: int
    size: int


def column_stats(column: Sequence[bytes | None]) -> ColumnStats:
    """Look at a column of bytes from afar."""
    begins = {value if value is None else value[:1] for value in column}
    sizes = [len(value) for value in column if value is not None]
    return ColumnStats(begins, max(sizes, default=0), sum(sizes))


def multiplied(numbers: Sequence[int], factor: int) -> list[int]:
    """Each number times a factor."""
    return [number * factor for number in numbers]
