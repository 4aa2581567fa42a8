"""What goes into a kernel and what comes out of it: columns of numbers, one entry an event."""

from __future__ import annotations

from array import array
from typing import NamedTuple

SKETCH_SIZE = 64
"""Hashes in a sketch: Jaccard is exact below it, estimated from the least 64 above."""

MAX_WEIGHT = (1 << 32) - 1
"""Of one feature that `Kernel.fold` takes: the votes of 2^24 such fit the native counters."""


class Segments(NamedTuple):
    """Texts that make up the events of a batch, where an event has several parts.

    Attributes:
        texts: the parts of all events, in order.
        ends: for each event, the index behind its last part.
        weights: for each part, what its features' weights are multiplied by.
        salts: for each part, 64 bits that tell its features from those of other fields.
    """

    texts: list[bytes]
    ends: array[int]
    weights: array[int]
    salts: array[int]


class Fingerprints(NamedTuple):
    """What the kernel says of each event of a batch.

    Attributes:
        exact: 64-bit hash of the masked token sequence; of the text as it stands where that has
            no words; that of no tokens where there is nothing at all.
        words: number of features that are not placeholders, repeats included.
        low: the fingerprint's low 64 bits; empty when only exact hashes were asked for.
        high: its high 64 bits; empty unless the width is 128.
        sketches: the distinct hashes of the features that are not placeholders, ascending, the
            least `SKETCH_SIZE` of them, eight bytes each in native byte order.
    """

    exact: array[int]
    words: array[int]
    low: array[int]
    high: array[int]
    sketches: list[bytes]

    def fingerprint(self, index: int) -> int:
        """The fingerprint of one event."""
        return self.low[index] | self.high[index] << 64 if self.high else self.low[index]
