"""Leader linkage: which cluster an event joins.

Every member is compared with the representative, the first event of its cluster, and never with
another member, so similarity does not drift from event to event (no chaining). An alias (the
fingerprint of an event that joined) may lead the search to a cluster; the representative decides.
Among the clusters that admit the event the most similar wins, then the nearest, then the oldest.

Similarity is the Jaccard index of two events' features, computed from their sketches. A sketch
holds the least distinct feature hashes of an event, up to `SKETCH_SIZE`, eight bytes each,
ascending. Below that size it is the whole set and the index is exact. Above, the least hashes of
the union are a random sample of it (Broder, 1997), and the share of the sample that both sketches
hold estimates the index.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from stream_dedup.features.recipe import Match
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.fingerprint.kernel import SKETCH_SIZE, native_module
from stream_dedup.model import Position

SKETCH_BYTES = SKETCH_SIZE * 8
"""A sketch of this size may have been cut."""


class Candidate(NamedTuple):
    """A live cluster that the search found.

    Attributes:
        similarity: Jaccard index with the representative; 0 where the recipe does not verify.
        distance: bits between the event's fingerprint and the representative's.
        opened_us: event time at which the cluster was opened.
        cluster: its id.
    """

    similarity: float
    distance: int
    opened_us: int
    cluster: int


@dataclass(frozen=True, slots=True)
class Linkage:
    """Decides whether an event may join a cluster, and which one it joins."""

    match: Match

    @property
    def verifies(self) -> bool:
        """Whether similarity is verified by the sketches."""
        return self.match.jaccard > 0

    def admits(self, similarity: float, distance: int) -> bool:
        """Return whether an event that close to a representative belongs to its cluster.

        With verification the sketches decide, and the distance only led the search there. Without,
        the distance to the representative must be within k.
        """
        if self.verifies:
            return similarity >= self.match.jaccard
        return distance <= self.match.k

    @staticmethod
    def best(candidates: Iterable[Candidate]) -> Candidate | None:
        """Return the most similar, then the nearest, then the oldest (then the least id)."""
        return min(
            candidates,
            key=lambda c: (-c.similarity, c.distance, c.opened_us, c.cluster),
            default=None,
        )


def reference_jaccard(left: bytes, right: bytes) -> float:
    """Return the Jaccard index of two sketches; two empty ones are equal.

    >>> a, b = (array("Q", hashes).tobytes() for hashes in ([1, 2, 3], [2, 3, 4]))
    >>> reference_jaccard(a, b)
    0.5
    """
    if left == right:
        return 1.0
    ours, theirs = set(array("Q", left)), set(array("Q", right))
    union = ours | theirs
    if len(left) >= SKETCH_BYTES or len(right) >= SKETCH_BYTES:
        union = set(sorted(union)[:SKETCH_SIZE])
    return len(union & ours & theirs) / len(union)


def fastest_jaccard() -> Callable[[bytes, bytes], float]:
    """Return the native function of the same result, where the kernel was built."""
    native = native_module()
    return native.jaccard if native else reference_jaccard


def cluster_id(namespace: str, position: Position) -> int:
    """Return the id of the cluster that the event at `position` would represent.

    The id depends on nothing else, so an event that is delivered again gets the same one.

    >>> f"{cluster_id('logs', Position('app.log', 0, 17)):016x}"
    'e3e788ec37ce54a9'
    """
    text = f"{namespace}\0{position.source}\0{position.partition}\0{position.offset}"
    return hash128(text.encode("utf-8", "surrogateescape"))[0]
