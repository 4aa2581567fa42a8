"""Pairs of alike texts under a recipe of bands.

Who shares a key with an earlier text is found by `BandPairs`, and then compared by its sketch. A
sketch costs more than all else of a text, and most texts share no key with any. So of a short text
its prepared form is kept, which is smaller than its sketch, and the sketch is computed when it is
first compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeGuard

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.fingerprint import bands
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Prepared
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.offline import kernel
from stream_dedup.tables.sketches import SKETCH, fastest_alike

SKETCH_BYTES = 2 * (SKETCH + 1)
"""Of a sketch at most, and of a text that is kept instead of it."""


class TextPairs:
    """Texts, numbered in the order in which they are added.

    Memory of a text: its 16 keys, and the lesser one of the prepared text and 258 bytes.

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
        first, words = len(self), numbers.words
        self._keep(prepared, numbers, chosen)
        searched = [index for index in chosen if words[index] >= self._least]
        owners = array("I", range(first, len(self)))
        if len(searched) < len(chosen):
            places = zip(owners, chosen, strict=True)
            owners = array("I", [owner for owner, i in places if words[i] >= self._least])
        met = self._met.add(b"".join([numbers.bands[index] for index in searched]), owners)
        self._sketch(met)
        return self._alike(met, self._kept, self._jaccard)

    def _keep(self, prepared: Prepared, numbers: Fingerprints, chosen: Sequence[int]) -> None:
        """Keep the lesser one of each text and its sketch."""
        sketches = numbers.sketches
        if _is_plain(prepared):
            lasting = [len(prepared[index]) >= SKETCH_BYTES for index in chosen]
            kept = zip(chosen, lasting, strict=True)
            self._kept += [sketches[i] if is_sketch else prepared[i] for i, is_sketch in kept]
            self._sketched += bytes(lasting)
        else:
            self._kept += [sketches[index] for index in chosen]
            self._sketched += b"\1" * len(chosen)

    def _sketch(self, numbers: array[int]) -> None:
        """Replace texts by their sketches."""
        wanted = sorted(number for number in set(numbers) if not self._sketched[number])
        if wanted:
            texts = [self._kept[number] for number in wanted]
            sketches = self._fingerprinter.fingerprints(texts, True).sketches
            for number, sketch in zip(wanted, sketches, strict=True):
                self._kept[number] = sketch
                self._sketched[number] = True


def _is_plain(prepared: Prepared) -> TypeGuard[Sequence[bytes]]:
    return isinstance(prepared, list) and (not prepared or isinstance(prepared[0], bytes))
