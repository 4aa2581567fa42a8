"""The kernel's interface: a batch of texts in, arrays of numbers out.

The native kernel (`_kernel`, Cython) handles a whole batch in one call without the GIL; the
reference (`reference`) computes the same in plain Python, and property tests compare the two.
Recipes that reproduce other systems' fingerprints always use the reference (`is_native`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stream_dedup.features.prepare import Part
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.bands import BITS
from stream_dedup.fingerprint.simhash import WIDTHS
from stream_dedup.fingerprint.siphash import HashKey

SKETCH_SIZE = 64
"""Hashes in a sketch: Jaccard is exact below it, and estimated from the least 64 above."""

BAND_BYTES = BITS // 8
"""Of an event's keys."""

MAX_WEIGHT = (1 << 32) - 1
"""Maximum weight of a feature in `Kernel.fold`."""

MAX_VOTES = (1 << 56) - 1
"""Maximum sum of the weights that vote on a simhash: the native counters hold no more. The first
feature that would exceed it, and those after it, do not vote."""


class Segments(NamedTuple):
    """The texts of a batch whose events have several parts.

    Attributes:
        texts: the parts of all events, in order.
        ends: for each event, the index after its last part.
        weights: for each part, the factor for its features' weights.
        salts: for each part, 64 bits that keep its features apart from those of other fields: XORed
            into the votes.
        identity_salts: likewise, XORed into the identities; they are keyed.
    """

    texts: list[bytes]
    ends: array[int]
    weights: array[int]
    salts: array[int]
    identity_salts: array[int]


class Fingerprints(NamedTuple):
    """The numbers of each event of a batch.

    Attributes:
        exact: 64-bit keyed hash of the masked token sequence, and of the variant if there is one.
            Of an event without words, the hash of its text as it is; of an event without tokens,
            the hash of an empty sequence.
        words: number of features that are not placeholders, with repeats.
        low: the fingerprint's low 64 bits; empty if only exact hashes were asked for, and for
            bands.
        high: its high 64 bits; empty unless the width is 128.
        sketches: the distinct keyed hashes of the features that are not placeholders, ascending,
            the least `SKETCH_SIZE` of them, eight bytes each in native byte order. Empty where the
            recipe does not verify (`match.jaccard` is 0): nothing compares them. With bands, see
            `tables.sketches`.
        chosen: the keyed hash of the features that a minhash is made of; 0 if there are none. Empty
            for other kinds.
        variants: keyed hash of the words that make the variant, XORed with that of the frames of a
            stack trace; 0 if there are neither.
        one_offs: the keys by which patterns that differ in a word find each other (`one_off`);
            nothing for an event that has too few words, or too many. Empty unless the recipe
            learns.
        bands: the fingerprints of bands, 64 bytes an event: its keys in order, big-endian. Empty
            for other kinds.
    """

    exact: array[int]
    words: array[int]
    low: array[int]
    high: array[int]
    sketches: list[bytes]
    chosen: array[int]
    variants: array[int]
    one_offs: list[bytes]
    bands: bytes

    def one_off(self, index: int) -> bytes:
        """Return the keys of one event; nothing if it has none."""
        return self.one_offs[index] if self.one_offs else b""

    def keys(self, index: int) -> bytes:
        """Return the fingerprint of bands of one event as bytes; nothing for other kinds."""
        return self.bands[BAND_BYTES * index : BAND_BYTES * (index + 1)]

    def fingerprint(self, index: int) -> int:
        """Return the fingerprint of one event."""
        if self.bands:
            return int.from_bytes(self.keys(index), "big")
        return self.low[index] | self.high[index] << 64 if self.high else self.low[index]


class Kernel(Protocol):
    """Turns texts into numbers. Nothing that it remembers changes them; threads may share it.

    Exact hashes, sketches and `Fingerprints.chosen`, which decide, depend on the key. Fingerprints,
    which only nominate candidates, do not, except for bands: who knows them can aim at them.
    """

    def __init__(self, recipe: Recipe, key: HashKey) -> None: ...

    def scan(self, texts: Sequence[bytes], full: bool, sketch_from_bytes: int = 0) -> Fingerprints:
        """Process texts of one part each, with the recipe's own extractor (words or characters).

        Args:
            texts: any bytes.
            full: whether to compute fingerprints and sketches, or exact hashes alone.
            sketch_from_bytes: with bands, the sketch of a text of fewer bytes is left empty: most
                of the work, for nothing where it is never compared.
        """

    def exact_of(self, text: bytes) -> int:
        """Return the exact hash of one text, as `scan` does, which takes ten times as long."""

    def sketches(self, texts: Sequence[bytes]) -> list[bytes]:
        """Compute the sketches of bands alone, those of `scan`.

        Raises:
            ValueError: the recipe is none of bands.
        """

    def scan_segments(self, segments: Segments, full: bool) -> Fingerprints:
        """Process events of several parts in the same way."""

    def fold(self, events: Sequence[Sequence[Part]], full: bool) -> Fingerprints:
        """Process (feature, weight, salt) triples that another extractor has taken.

        Raises:
            TypeError: a feature is not bytes.
            ValueError: a weight is not an integer from 0 to `MAX_WEIGHT`.
        """


def is_native(recipe: Recipe) -> bool:
    """Return whether the native kernel supports everything that a recipe asks for."""
    features, fingerprint = recipe.features, recipe.fingerprint
    return (
        (fingerprint.hash, fingerprint.tie) == ("murmur3", "zero")
        and fingerprint.width in WIDTHS
        and features.window == "full"
        and features.delimiters != "space"
    )
