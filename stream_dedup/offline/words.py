"""Fingerprints side by side as *words*: 64 bits each, or 128 where fingerprints have more than 64.

They are whole numbers in native byte order.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

Bytes = bytes | bytearray | memoryview
"""Words, or text, to be read."""

TOP_BITS = 16
"""A range of a table is cut by so many bits of its prefix, or by all where it has fewer."""


def word_bytes(width: int) -> int:
    """The bytes of a word.

    >>> word_bytes(32), word_bytes(64), word_bytes(128)
    (8, 8, 16)
    """
    return 8 if width <= 64 else 16


def packed(numbers: Iterable[int], width: int) -> bytearray:
    """Whole numbers as words.

    Raises:
        OverflowError: a number is negative, or takes more bits than a word.
    """
    size = word_bytes(width)
    if size == 8:
        return bytearray(array("Q", numbers))
    return bytearray().join(number.to_bytes(size, sys.byteorder) for number in numbers)


def unpacked(words: Bytes, width: int) -> list[int]:
    """Words as whole numbers."""
    if word_bytes(width) == 8:
        return memoryview(words).cast("B").cast("Q").tolist()
    view = memoryview(words)
    return [
        int.from_bytes(view[start : start + 16], sys.byteorder) for start in range(0, len(view), 16)
    ]
