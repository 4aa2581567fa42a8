"""Pairs of alike texts under a recipe of bands.

Who shares a key with an earlier text is found by `BandPairs`, and then compared by its sketch. A
sketch costs more than all else of a text, and most texts share no key with any. So of a short text
its prepared form is kept, which is smaller than its sketch, and the sketch is computed when it is
first compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import TypeVar

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.fingerprint import bands
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Prepared, is_plain
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.offline import kernel
from stream_dedup.tables.sketches import SKETCH, fastest_alike

T = TypeVar("T")

SKETCH_BYTES = 2 * (SKETCH + 1)
"""Of a sketch at most, and of a text that is kept instead of it."""


class TextPairs:
    """Texts, numbered in the order in which they are added.

    Memory of a text: its 16 keys and 258 bytes, or the prepared text if that is shorter and has met
    no other.

    Args:
        fingerprinter: of a recipe of bands.
    """

    def __init__(self, fingerprinter: Fingerprinter) -> None:
        self._fingerprinter = fingerprinter
        self._least = fingerprinter.recipe.match.min_features
        self._jaccard = Linkage(fingerprinter.recipe).least
        self._met = kernel.BandPairs(bands.BANDS, bands.CROWD)
        self._kept: list[bytes] = []  # sketches, or prepared texts
        self._sketched = bytearray()  # of each, whether it is a sketch
        self._alike = fastest_alike()

    def __len__(self) -> int:
        return len(self._kept)

    def hash(self, prepared: Prepared) -> Fingerprints:
        """Return what `add` takes. Threads may share this method."""
        return self._fingerprinter.fingerprints(prepared, True, SKETCH_BYTES)

    def add(self, prepared: Prepared, numbers: Fingerprints, chosen: Sequence[int]) -> array[int]:
        """Add texts of a batch.

        Args:
            prepared: the batch.
            numbers: what `hash` returned of it.
            chosen: the indexes of the texts.

        Returns:
            Two numbers for each pair of alike texts, the earlier one first. Texts with too few
            features are alike to none.
        """
        first = len(self)
        self._keep(prepared, numbers, chosen)
        owners = array("I", range(first, len(self)))
        searched = chosen
        if min(numbers.words, default=self._least) < self._least:
            enough = [numbers.words[index] >= self._least for index in chosen]
            searched, owners = list(compress(chosen, enough)), array("I", compress(owners, enough))
        keys = numbers.bands
        if len(searched) < len(numbers.words):
            keys = b"".join(map(numbers.keys, searched))
        met = self._met.add(keys, owners)
        self._sketch(met)
        return self._alike(met, self._kept, self._jaccard)

    def _keep(self, prepared: Prepared, numbers: Fingerprints, chosen: Sequence[int]) -> None:
        """Keep the texts that are shorter than a sketch can be, and the sketches of the others."""
        kept = _rows(numbers.sketches, chosen)
        sketched = b"\1" * len(kept)
        if is_plain(prepared):
            texts = _rows(prepared, chosen)
            if max(map(len, texts), default=0) < SKETCH_BYTES:
                kept, sketched = texts, bytes(len(texts))
            else:
                sketched = bytes([len(text) >= SKETCH_BYTES for text in texts])
                both = zip(texts, kept, sketched, strict=True)
                kept = [sketch if is_sketch else text for text, sketch, is_sketch in both]
        self._kept += kept
        self._sketched += sketched

    def _sketch(self, numbers: array[int]) -> None:
        """Replace texts by their sketches."""
        wanted = [number for number in set(numbers) if not self._sketched[number]]
        if wanted:
            texts = [self._kept[number] for number in wanted]
            for number, sketch in zip(wanted, self._fingerprinter.sketches(texts), strict=True):
                self._kept[number] = sketch
                self._sketched[number] = True


def _rows(column: Sequence[T], chosen: Sequence[int]) -> Sequence[T]:
    """Return the chosen rows of a column, which ascend."""
    return column if len(chosen) == len(column) else [column[index] for index in chosen]
