"""Clusters of numbered lines: of fingerprints, and of texts.

Near fingerprints of texts only nominate pairs: those of long texts are near whatever the texts
say. So a pair connects two texts only if the recipe's verification confirms it, as in a stream: the
Jaccard index of their sketches, equal variants, and enough features on both sides. Recipes without
verification connect all that is near.

Equal texts (by their exact hash) are one *node*. Texts with the same fingerprint or, of bands, with
the same key may be many: a bounded number of them is compared with each further one. So is what a
cluster may miss: two of its texts that only such a crowd would connect.

Memory: 16 bytes a line, and for each distinct text its sketch (512 bytes at most) and some 150
bytes more; of bands 258 at most, less of short texts (`text_pairs`), and 300 to 500.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.features.fields import decoded
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Prepared
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.offline import kernel
from stream_dedup.offline.pairs import Effort, Progress, no_progress, pair_words
from stream_dedup.offline.reference import Bytes, Components, packed, unpacked
from stream_dedup.offline.sorting import SortedWords, Sorter
from stream_dedup.offline.text_pairs import TextPairs
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import offline_layout

CROWD = 64
"""Distinct texts of one fingerprint that others are compared with."""

_BATCH = 4096
_NODE_BITS = 64

_Hashed = tuple[Prepared, Fingerprints]


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
        threads: that hash texts; more than one of them beside the thread that adds.
        key: of the hashes that decide; random by default.
    """

    def __init__(
        self, recipe: Recipe, memory_bytes: int, threads: int = 1, key: HashKey | None = None
    ) -> None:
        self._recipe = recipe
        self._fingerprinter = Fingerprinter(recipe, key or HashKey.random())
        self._found: LineClusters | _Alike
        if recipe.fingerprint.kind == "bands":
            self._found = _AlikeByBands(self._fingerprinter)
        elif recipe.match.jaccard:
            self._found = _AlikeBySimhash(recipe, memory_bytes)
        else:
            self._found = LineClusters(recipe.fingerprint.width, memory_bytes)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._hashing: deque[tuple[Future[_Hashed], Sequence[int]]] = deque()

    def add(self, texts: list[bytes], lines: Sequence[int]) -> None:
        """Add texts, with the number of the line of each; those without features are left out."""
        if self._pool is None:
            self._take(self._hash(texts), lines)
            return
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH], lines[start : start + _BATCH]
            self._hashing.append((self._pool.submit(self._hash, some[0]), some[1]))
            self._drain(self._threads)

    def _hash(self, texts: list[bytes]) -> _Hashed:
        fingerprinter = self._fingerprinter
        documents = list(map(decoded, texts)) if fingerprinter.takes_fields else None
        prepared = fingerprinter.prepare(texts, documents)
        if isinstance(self._found, _AlikeByBands):
            return prepared, self._found.texts.hash(prepared)
        return prepared, fingerprinter.fingerprints(prepared, full=True)

    def _take(self, hashed: _Hashed, lines: Sequence[int]) -> None:
        prepared, numbers = hashed
        chosen: Sequence[int] = range(len(lines))
        if 0 in numbers.words:
            chosen = [index for index, words in enumerate(numbers.words) if words]
            lines = [lines[index] for index in chosen]
        found = self._found
        if isinstance(found, LineClusters):
            words = packed(map(numbers.fingerprint, chosen), self._recipe.fingerprint.width)
            found.add(words, lines)
        else:
            found.add(prepared, numbers, chosen, lines)

    def _drain(self, most: int) -> None:
        """Take what is hashed, until at most so many batches are left."""
        while len(self._hashing) > most:
            hashed, lines = self._hashing.popleft()
            self._take(hashed.result(), lines)

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
        self._drain(0)
        k = self._recipe.match.k if k is None else k
        return self._found.find(k, blocks, effort or Effort(), progress)


class _Alike(ABC):
    """Distinct texts as numbered nodes, and which of them belong together."""

    def __init__(self) -> None:
        self._components = kernel.Components(_NODE_BITS)  # of exact hashes: their numbers are nodes
        self._exact = array("Q")
        self._variants = array("Q")
        self._node_of = array("I")  # of each line
        self._lines = array("Q")
        self._pairs = array("Q")

    def add(
        self, prepared: Prepared, numbers: Fingerprints, chosen: Sequence[int], lines: Iterable[int]
    ) -> None:
        """Add the events of a batch that are `chosen`."""
        self._lines.extend(lines)
        exact = numbers.exact
        if len(chosen) < len(exact):
            exact = array("Q", [exact[index] for index in chosen])
        nodes = self._components.numbers(memoryview(exact).cast("B"))
        self._node_of += nodes
        first = count = len(self._exact)
        new = []
        for index, node in zip(chosen, nodes, strict=True):
            if node == count:
                new.append(index)
                count += 1
        self._exact.extend([numbers.exact[index] for index in new])
        self._variants.extend([numbers.variants[index] for index in new])
        self._place(first, prepared, numbers, new)
        self._join()

    @abstractmethod
    def _place(
        self, first: int, prepared: Prepared, numbers: Fingerprints, new: Sequence[int]
    ) -> None:
        """Take new nodes, numbered from `first` on: these events of a batch.

        Those with too few features match nothing.
        """

    def find(
        self, k: int, blocks: int | None, effort: Effort, progress: Progress
    ) -> tuple[array[int], array[int]]:
        """See `TextClusters.find`."""
        del k, blocks, effort, progress
        positions, ends = self._components.grouped(self._node_of)
        return array("Q", map(self._lines.__getitem__, positions)), ends

    def _connect(self, one: int, other: int) -> None:
        """Connect two nodes that are alike, but for their variants."""
        if self._variants[one] == self._variants[other]:
            self._pairs.extend((self._exact[one], self._exact[other]))
            if len(self._pairs) >= _BATCH:
                self._join()

    def _join(self) -> None:
        self._components.join(memoryview(self._pairs).cast("B"))
        self._pairs = array("Q")


class _AlikeByBands(_Alike):
    """Pairs by common keys, found as each text is added."""

    def __init__(self, fingerprinter: Fingerprinter) -> None:
        super().__init__()
        self.texts = TextPairs(fingerprinter)

    def _place(
        self, first: int, prepared: Prepared, numbers: Fingerprints, new: Sequence[int]
    ) -> None:
        assert first == len(self.texts)
        found = self.texts.add(prepared, numbers, new)
        for one, other in zip(found[::2], found[1::2], strict=True):
            self._connect(one, other)


class _AlikeBySimhash(_Alike):
    """Pairs within k bits, found when all texts are known."""

    def __init__(self, recipe: Recipe, memory_bytes: int) -> None:
        super().__init__()
        self._linkage = Linkage(recipe)
        self._least = recipe.match.min_features
        self._sketches: list[bytes] = []
        self._width = recipe.fingerprint.width
        self._sorter = Sorter(self._width, memory_bytes)
        self._crowds: dict[int, list[int]] = {}  # by fingerprint

    def _place(
        self, first: int, prepared: Prepared, numbers: Fingerprints, new: Sequence[int]
    ) -> None:
        del prepared
        self._sketches += [numbers.sketches[index] for index in new]
        for node, index in enumerate(new, first):
            if numbers.words[index] < self._least:
                continue
            fingerprint = numbers.fingerprint(index)
            crowd = self._crowds.setdefault(fingerprint, [])
            if not crowd:
                self._sorter.add(packed([fingerprint], self._width))
            alike = [self._connect_alike(other, node) for other in crowd]
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
                            self._connect_alike(ours, theirs)
        self._join()
        return super().find(k, blocks, effort, progress)

    def _connect_alike(self, one: int, other: int) -> bool:
        """Connect two nodes if they are alike; return whether they are."""
        ours, theirs = self._sketches[one], self._sketches[other]
        similarity = self._linkage.jaccard(ours, theirs)
        if self._variants[one] != self._variants[other] or not self._linkage.admits(
            ours, theirs, similarity, 0
        ):
            return False
        self._connect(one, other)
        return True
