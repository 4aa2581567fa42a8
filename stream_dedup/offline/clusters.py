"""Clusters of fingerprints, and of numbered lines, that pairs within k bits connect.

A cluster is a connected component: each member is within k bits of another, but two members may be
farther apart (in a stream's cluster every member is compared with the first). Pairs go into a
union-find structure and are not stored, so memory grows with the fingerprints that have a near
one, not with the pairs: 20 to 40 bytes each (28 to 56 beyond 64 bits), as the tables double.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.offline import kernel
from stream_dedup.offline.lines import TextClusters, connected
from stream_dedup.offline.pairs import Effort, sorted_words
from stream_dedup.offline.reference import Bytes, Components, packed, unpacked
from stream_dedup.tables.planner import offline_layout

_BATCH = 4096


def cluster_words(components: Components, width: int) -> tuple[bytearray, array[int]]:
    """Return the clusters as words, each ascending, by their smallest; and where each ends."""
    members = components.words()
    kernel.sort_distinct(members, width)
    positions, ends = components.grouped(components.numbers(members))
    return kernel.taken(members, positions, width), ends


def find_clusters(
    fingerprints: Iterable[int],
    k: int,
    *,
    width: int = 64,
    blocks: int | None = None,
    effort: Effort | None = None,
) -> list[list[int]]:
    """Find the clusters of two or more distinct fingerprints, each ascending, by their smallest.

    >>> find_clusters([8, 9, 255, 11, 254], k=1)
    [[8, 9, 11], [254, 255]]

    Args:
        fingerprints: integers in any order; repeats count once.
        k: the largest distance that connects.
        width: bits of a fingerprint, at most 128.
        blocks: blocks that fingerprints are cut into; by default the planner chooses.
        effort: threads, memory, and shards; `merge_clusters` joins the clusters of shards.

    Raises:
        ValueError: a number is not a fingerprint, or width, k and blocks do not fit together.
    """
    effort = effort or Effort()
    if not 1 <= width <= 128:
        raise ValueError(f"fingerprints have 1 to 128 bits, not {width}")
    offline_layout(width, k, 1, blocks)
    with sorted_words(fingerprints, width, effort.memory_bytes) as words:
        layout = offline_layout(width, k, words.count, blocks)
        return _lists(*cluster_words(connected(words, layout, effort), width), width)


def merge_clusters(parts: Iterable[Sequence[int]], *, width: int = 64) -> list[list[int]]:
    """Join clusters (or pairs) that have members in common.

    >>> merge_clusters([[1, 2], [7, 8], [2, 3]])
    [[1, 2, 3], [7, 8]]
    """
    components = kernel.Components(width)
    merge_into(components, parts, width)
    return _lists(*cluster_words(components, width), width)


def merge_into(components: Components, parts: Iterable[Sequence[int]], width: int) -> None:
    """Connect the members of each part."""
    pairs = (pair for part in parts for pair in pairwise(part))
    while batch := list(islice(pairs, _BATCH)):
        components.join(packed((member for pair in batch for member in pair), width))


def _lists(words: Bytes, ends: Iterable[int], width: int) -> list[list[int]]:
    return split(unpacked(words, width), ends)


def split(members: Sequence[int], ends: Iterable[int]) -> list[list[int]]:
    """Split a sequence into lists that end at `ends`."""
    out = []
    start = 0
    for end in ends:
        out.append(list(members[start:end]))
        start = end
    return out


def find_line_clusters(
    lines: Iterable[bytes],
    recipe: str | Recipe = "logs",
    *,
    k: int | None = None,
    effort: Effort | None = None,
) -> list[list[int]]:
    """Cluster lines of text; return the indexes, from 0, of the lines of each cluster.

    >>> find_line_clusters([b"took 3 ms", b"took 14 ms", b"nothing like it"])
    [[0, 1]]

    Args:
        lines: any bytes; lines without words are in no cluster.
        recipe: makes the fingerprints and verifies pairs: a shipped recipe's name, a file's path,
            or a recipe.
        k: the largest distance that connects; the recipe's own by default.
        effort: threads, memory, and shards.

    Raises:
        ValueError: the recipe is one of bands, and k or shards are given.
    """
    chosen = load_recipe(recipe) if isinstance(recipe, str) else recipe
    effort = effort or Effort()
    if chosen.fingerprint.kind == "bands" and (k is not None or effort.shards > 1):
        raise ValueError(f"recipe {chosen.name} has bands, which take neither k nor shards")
    found = TextClusters(chosen, effort.memory_bytes, effort.threads)
    for first, batch in _batches(lines):
        found.add(batch, range(first, first + len(batch)))
    return split(*found.find(k, None, effort))


def _batches(lines: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    source = iter(lines)
    first = 0
    while batch := list(islice(source, _BATCH)):
        yield first, batch
        first += len(batch)
