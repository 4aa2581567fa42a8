"""What pairs within k bits connect: clusters of fingerprints, and of lines of text.

A cluster is a connected component: each member is within k bits of another, though two members may
be farther apart (unlike the clusters of a stream, whose members are all compared with the first).
Pairs go straight into a union-find and are kept nowhere, so memory grows with the fingerprints
that have a twin, not with the pairs: 20 to 40 bytes each (28 to 56 beyond 64 bits), as the tables
double.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise
from typing import Any

import msgspec

from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.offline.kernel import Components, kernel
from stream_dedup.offline.pairs import Effort, pair_words, sorted_words
from stream_dedup.offline.planning import layout_for
from stream_dedup.offline.spill import Sorter, Words
from stream_dedup.offline.words import Bytes, packed, unpacked
from stream_dedup.tables.permutation import Layout

_BATCH = 4096


def _ignore(_done: int, _all: int) -> None:
    """Tell nobody of progress."""


def connected(
    words: Words,
    layout: Layout,
    effort: Effort,
    progress: Callable[[int, int], None] = _ignore,
    into: Components | None = None,
) -> Components:
    """Join all pairs within k bits.

    Args:
        words: what is searched.
        layout: the tables.
        effort: threads, memory, and shards.
        progress: is told how many ranges are done, of how many.
        into: what the pairs are added to; something new where not given.
    """
    components = kernel().Components(layout.width) if into is None else into
    for found in pair_words(words, layout, effort, progress):
        components.join(found)
    return components


def cluster_words(components: Components, width: int) -> tuple[bytearray, array[int]]:
    """The clusters as words, each ascending, by their smallest; and where each ends."""
    native = kernel()
    members = components.words()
    native.sort_distinct(members, width)
    positions, ends = components.grouped(components.numbers(members))
    return native.taken(members, positions, width), ends


def find_clusters(
    fingerprints: Iterable[int],
    k: int,
    *,
    width: int = 64,
    blocks: int | None = None,
    effort: Effort | None = None,
) -> list[list[int]]:
    """The clusters of two or more distinct fingerprints, each ascending, by their smallest.

    >>> find_clusters([8, 9, 255, 11, 254], k=1)
    [[8, 9, 11], [254, 255]]

    Args:
        fingerprints: whole numbers, in any order; repeats count once.
        k: the largest distance that connects.
        width: bits of a fingerprint, at most 128.
        blocks: into which fingerprints are cut; the planner's choice where not given.
        effort: threads, memory, and shards, whose clusters `merge_clusters` makes whole.

    Raises:
        ValueError: a number is no fingerprint, or width, k and blocks do not go together.
    """
    effort = effort or Effort()
    if not 1 <= width <= 128:
        raise ValueError(f"fingerprints have 1 to 128 bits, not {width}")
    layout_for(width, k, 1, blocks)
    with sorted_words(fingerprints, width, effort.memory_bytes) as words:
        layout = layout_for(width, k, words.count, blocks)
        return lists(*cluster_words(connected(words, layout, effort), width), width)


def merge_clusters(parts: Iterable[Sequence[int]], *, width: int = 64) -> list[list[int]]:
    """The clusters that clusters (or pairs) with common members make together.

    >>> merge_clusters([[1, 2], [7, 8], [2, 3]])
    [[1, 2, 3], [7, 8]]
    """
    components = kernel().Components(width)
    merge_into(components, parts, width)
    return lists(*cluster_words(components, width), width)


def merge_into(components: Components, parts: Iterable[Sequence[int]], width: int) -> None:
    """Connect the members of each part."""
    pairs = (pair for part in parts for pair in pairwise(part))
    while batch := list(islice(pairs, _BATCH)):
        components.join(packed((member for pair in batch for member in pair), width))


def lists(words: Bytes, ends: Iterable[int], width: int) -> list[list[int]]:
    """Clusters as lists of whole numbers."""
    return cut(unpacked(words, width), ends)


def cut(members: Sequence[int], ends: Iterable[int]) -> list[list[int]]:
    """A sequence in lists that end where `ends` says."""
    out = []
    start = 0
    for end in ends:
        out.append(list(members[start:end]))
        start = end
    return out


class LineClusters:
    """Lines by number, one word or none each, and their clusters: equal ones go together.

    Holds, beside the sorted words, 12 bytes a line and 20 to 56 for each distinct word.
    """

    def __init__(self, width: int, memory_bytes: int) -> None:
        self._width = width
        self._components = kernel().Components(width)
        self._sorter = Sorter(width, memory_bytes)
        self._ids: array[int] = array("I")
        self._lines: array[int] = array("Q")

    def add(self, words: Bytes, lines: Iterable[int]) -> None:
        """Take in words, and the number of the line of each."""
        self._ids += self._components.numbers(words)
        self._lines.extend(lines)
        self._sorter.add(words)

    def find(
        self,
        k: int,
        blocks: int | None,
        effort: Effort,
        progress: Callable[[int, int], None] = _ignore,
    ) -> tuple[array[int], array[int]]:
        """The lines of each cluster of two or more, ascending, by first; where each ends."""
        with self._sorter.finish() as words:
            layout = layout_for(self._width, k, words.count, blocks)
            connected(words, layout, effort, progress, self._components)
        positions, ends = self._components.grouped(self._ids)
        return array("Q", map(self._lines.__getitem__, positions)), ends


def text_words(fingerprinter: Fingerprinter, lines: list[bytes]) -> tuple[Bytes, list[int]]:
    """The fingerprints of those lines that have words, and the lines' indexes."""
    documents = [_document(line) for line in lines] if fingerprinter.takes_fields else None
    numbers = fingerprinter.fingerprints(fingerprinter.prepare(lines, documents), full=True)
    chosen = [index for index, words in enumerate(numbers.words) if words]
    width = fingerprinter.recipe.fingerprint.width
    return packed(map(numbers.fingerprint, chosen), width), chosen


def find_line_clusters(
    lines: Iterable[bytes],
    recipe: str | Recipe = "logs",
    *,
    k: int | None = None,
    effort: Effort | None = None,
) -> list[list[int]]:
    """From text straight to clusters: the indexes, from 0, of lines that say the same.

    >>> find_line_clusters([b"took 3 ms", b"took 14 ms", b"nothing like it"])
    [[0, 1]]

    Args:
        lines: any bytes; lines without words are in no cluster.
        recipe: what decides the fingerprint: a shipped recipe's name, a file's, or a recipe.
        k: the largest distance that connects; the recipe's own where not given. Its verification
            takes no part.
        effort: threads, memory, and shards.
    """
    chosen = load_recipe(recipe) if isinstance(recipe, str) else recipe
    effort = effort or Effort()
    fingerprinter = Fingerprinter(chosen)
    found = LineClusters(chosen.fingerprint.width, effort.memory_bytes)
    source = iter(lines)
    start = 0
    while batch := list(islice(source, _BATCH)):
        words, indexes = text_words(fingerprinter, batch)
        found.add(words, (start + index for index in indexes))
        start += len(batch)
    return cut(*found.find(chosen.match.k if k is None else k, None, effort))


def _document(line: bytes) -> Any:  # noqa: ANN401 -- whatever JSON holds
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
