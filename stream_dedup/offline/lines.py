"""Clusters of numbered lines: of fingerprints, and of texts.

Near fingerprints of texts only nominate pairs: those of long texts are near whatever the texts
say. So a pair connects two texts only if the recipe's verification confirms it, as in a stream: the
Jaccard index of their sketches, equal variants, and enough features on both sides. Recipes without
verification connect all that is near.

Equal texts (by their exact hash) are one *node*. Texts with the same fingerprint or, of bands, with
the same key may be many: a bounded number of them is compared with each further one. So is what a
cluster may miss: two of its texts that only such a crowd would connect.

Memory: 24 bytes a line, and for each distinct text its sketch (512 bytes at most) and some 200
bytes more; of bands 258 and 450.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint import bands
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.offline import kernel
from stream_dedup.offline.pairs import Effort, Progress, no_progress, pair_words
from stream_dedup.offline.reference import Bytes, Components, packed, unpacked
from stream_dedup.offline.sorting import SortedWords, Sorter
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import offline_layout
from stream_dedup.tables.store import Bands, make_band_tables

CROWD = 64
"""Distinct texts of one fingerprint that others are compared with."""

_BATCH = 4096
_NODE_BITS = 64


def connected(
    words: SortedWords,
    layout: Layout,
    effort: Effort,
    progress: Progress = no_progress,
    into: Components | None = None,
) -> Components:
    """Join all pairs within k bits, in `into` or in new components."""
    components = kernel.Components(layout.width) if into is None else into
    for found in pair_words(words, layout, effort, progress):
        components.join(found)
    return components


class LineClusters:
    """Clusters of numbered lines with one word each; lines with equal words are one cluster.

    Memory: the sorted words, 12 bytes a line and 20 to 56 bytes for each distinct word.
    """

    def __init__(self, width: int, memory_bytes: int) -> None:
        self._width = width
        self._components = kernel.Components(width)
        self._sorter = Sorter(width, memory_bytes)
        self._ids: array[int] = array("I")
        self._lines: array[int] = array("Q")

    def add(self, words: Bytes, lines: Iterable[int]) -> None:
        """Add words, with the number of the line of each."""
        self._ids += self._components.numbers(words)
        self._lines.extend(lines)
        self._sorter.add(words)

    def find(
        self,
        k: int,
        blocks: int | None,
        effort: Effort,
        progress: Progress = no_progress,
    ) -> tuple[array[int], array[int]]:
        """Return the lines of each cluster of two or more, ascending; and where each ends."""
        with self._sorter.finish() as words:
            layout = offline_layout(self._width, k, words.count, blocks)
            connected(words, layout, effort, progress, self._components)
        positions, ends = self._components.grouped(self._ids)
        return array("Q", map(self._lines.__getitem__, positions)), ends


class TextClusters:
    """Clusters of numbered lines of text by one recipe.

    Args:
        recipe: what counts as near and alike.
        memory_bytes: for sorting fingerprints.
    """

    def __init__(self, recipe: Recipe, memory_bytes: int) -> None:
        self._recipe = recipe
        self._fingerprinter = Fingerprinter(recipe, HashKey.random())
        self._found: LineClusters | _Alike
        if recipe.fingerprint.kind == "bands":
            self._found = _AlikeByBands(recipe)
        elif recipe.match.jaccard:
            self._found = _AlikeBySimhash(recipe, memory_bytes)
        else:
            self._found = LineClusters(recipe.fingerprint.width, memory_bytes)

    def add(self, texts: list[bytes], lines: Sequence[int]) -> None:
        """Add texts, with the number of the line of each; those without features are left out."""
        fingerprinter = self._fingerprinter
        documents = [_document(text) for text in texts] if fingerprinter.takes_fields else None
        numbers = fingerprinter.fingerprints(fingerprinter.prepare(texts, documents), full=True)
        chosen = [index for index, words in enumerate(numbers.words) if words]
        found, kept = self._found, [lines[index] for index in chosen]
        if isinstance(found, LineClusters):
            words = packed(map(numbers.fingerprint, chosen), self._recipe.fingerprint.width)
            found.add(words, kept)
        else:
            found.add(numbers, chosen, kept)

    def find(
        self,
        k: int | None = None,
        blocks: int | None = None,
        effort: Effort | None = None,
        progress: Progress = no_progress,
    ) -> tuple[array[int], array[int]]:
        """Return the lines of each cluster of two or more, ascending; and where each ends.

        Args:
            k: the largest distance; the recipe's own by default. Bands have none.
            blocks: blocks that fingerprints are cut into; by default the planner chooses.
            effort: threads and shards.
            progress: called with the ranges that are compared.
        """
        k = self._recipe.match.k if k is None else k
        return self._found.find(k, blocks, effort or Effort(), progress)


class _Alike(ABC):
    """Distinct texts as numbered nodes, and which of them belong together."""

    def __init__(self, recipe: Recipe) -> None:
        self._linkage = Linkage(recipe)
        self._least = recipe.match.min_features
        self._nodes: dict[int, int] = {}  # by exact hash
        self._sketches: list[bytes] = []
        self._variants = array("Q")
        self._node_of = array("Q")  # of each line
        self._lines = array("Q")
        self._pairs: list[int] = []
        self._components = kernel.Components(_NODE_BITS)

    def add(self, numbers: Fingerprints, chosen: Iterable[int], lines: Iterable[int]) -> None:
        """Add the events of a batch that are `chosen`."""
        self._lines.extend(lines)
        first, new = len(self._sketches), []
        for index in chosen:
            node = self._nodes.setdefault(numbers.exact[index], len(self._sketches))
            self._node_of.append(node)
            if node == len(self._sketches):
                self._sketches.append(numbers.sketches[index])
                self._variants.append(numbers.variants[index])
                new.append(index)
        self._place(first, numbers, new)
        self._join()

    @abstractmethod
    def _place(self, first: int, numbers: Fingerprints, new: Sequence[int]) -> None:
        """Take new nodes, numbered from `first` on: these events of a batch.

        Those with too few features match nothing.
        """

    def find(
        self, k: int, blocks: int | None, effort: Effort, progress: Progress
    ) -> tuple[array[int], array[int]]:
        """See `TextClusters.find`."""
        del k, blocks, effort, progress
        numbers = array("I")
        for start in range(0, len(self._node_of), _BATCH):
            batch = self._node_of[start : start + _BATCH]
            numbers += self._components.numbers(packed(batch, _NODE_BITS))
        positions, ends = self._components.grouped(numbers)
        return array("Q", map(self._lines.__getitem__, positions)), ends

    def _connect(self, one: int, other: int) -> bool:
        """Connect two nodes if they are alike; return whether they are."""
        if self._variants[one] != self._variants[other]:
            return False
        ours, theirs = self._sketches[one], self._sketches[other]
        similarity = self._linkage.jaccard(ours, theirs)
        if not self._linkage.admits(ours, theirs, similarity, 0):
            return False
        self._pairs += (one, other)
        if len(self._pairs) >= _BATCH:
            self._join()
        return True

    def _join(self) -> None:
        self._components.join(packed(self._pairs, _NODE_BITS))
        self._pairs.clear()


class _AlikeByBands(_Alike):
    """Pairs by common keys, found as each text is added."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._tables = make_band_tables(Bands(bands.BANDS, bands.KEY_BYTES, bands.CROWD))

    def _place(self, first: int, numbers: Fingerprints, new: Sequence[int]) -> None:
        keys = [numbers.bands[i] if numbers.words[i] >= self._least else b"" for i in new]
        found = self._tables.connect(keys, first, self._sketches, self._linkage.least)
        for one, other in zip(found[::2], found[1::2], strict=True):
            if self._variants[one] == self._variants[other]:
                self._pairs += (one, other)


class _AlikeBySimhash(_Alike):
    """Pairs within k bits, found when all texts are known."""

    def __init__(self, recipe: Recipe, memory_bytes: int) -> None:
        super().__init__(recipe)
        self._width = recipe.fingerprint.width
        self._sorter = Sorter(self._width, memory_bytes)
        self._crowds: dict[int, list[int]] = {}  # by fingerprint

    def _place(self, first: int, numbers: Fingerprints, new: Sequence[int]) -> None:
        for node, index in enumerate(new, first):
            if numbers.words[index] < self._least:
                continue
            fingerprint = numbers.fingerprint(index)
            crowd = self._crowds.setdefault(fingerprint, [])
            if not crowd:
                self._sorter.add(packed([fingerprint], self._width))
            alike = [self._connect(other, node) for other in crowd]
            if len(crowd) < CROWD and not any(alike):
                crowd.append(node)

    def find(
        self, k: int, blocks: int | None, effort: Effort, progress: Progress
    ) -> tuple[array[int], array[int]]:
        with self._sorter.finish() as words:
            layout = offline_layout(self._width, k, words.count, blocks)
            for found in pair_words(words, layout, effort, progress):
                numbers = unpacked(found, self._width)
                for one, other in zip(numbers[::2], numbers[1::2], strict=True):
                    for ours in self._crowds[one]:
                        for theirs in self._crowds[other]:
                            self._connect(ours, theirs)
        self._join()
        return super().find(k, blocks, effort, progress)


def _document(line: bytes) -> Any:  # noqa: ANN401 -- whatever JSON holds
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
