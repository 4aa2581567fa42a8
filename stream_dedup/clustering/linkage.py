"""Leader linkage: which cluster an event joins.

Every member is compared with the representative, the first event of its cluster, and never with
another member, so similarity does not drift from event to event (no chaining). An alias (the
fingerprint of an event that joined) may lead the search to a cluster; the representative decides.
Among the clusters that admit the event the most similar wins, then the nearest, then the oldest.

Similarity is the Jaccard index of two events' features, computed from their sketches. A sketch
holds the least distinct feature hashes of an event, up to `SKETCH_SIZE`, eight bytes each,
ascending. Below that size it is the whole set and the index is exact. Above, the least hashes of
the union are a random sample of it (Broder, 1997), and the share of the sample that both sketches
hold estimates the index. Bands have sketches of their own (`tables.sketches`), and of two events
with few features more must be common.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint import bands, simhash
from stream_dedup.fingerprint.kernel import SKETCH_SIZE
from stream_dedup.native import native_or
from stream_dedup.tables import sketches


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


class Linkage:
    """Decides whether an event may join a cluster, and which one it joins.

    Attributes:
        least: the recipe's threshold of the Jaccard index; 0 if it does not verify.
        verifies: whether similarity is verified by the sketches.
        jaccard: returns the Jaccard index of two sketches.
        distance: returns the distance of two fingerprints.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._match = recipe.match
        self._bands = recipe.fingerprint.kind == "bands"
        self.least = recipe.match.jaccard
        self.verifies = recipe.match.jaccard > 0
        self.jaccard = sketches.fastest_jaccard() if self._bands else fastest_jaccard()
        self.distance = bands.differing_keys if self._bands else simhash.distance

    def admits(self, left: bytes, right: bytes, similarity: float, distance: int) -> bool:
        """Return whether an event that close to a representative belongs to its cluster.

        With verification the sketches decide, and the distance only led the search there. Without,
        the distance to the representative must be within k.

        Args:
            left: the sketch of one of the two.
            right: the sketch of the other.
            similarity: the Jaccard index of the sketches, where they are verified.
            distance: of the fingerprints.
        """
        if not self.verifies:
            return distance <= self._match.k
        if self._bands:
            few = min(sketches.features(left), sketches.features(right))
            return similarity >= sketches.threshold(self._match.jaccard, few)
        return similarity >= self._match.jaccard

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
    if len(ours) >= SKETCH_SIZE or len(theirs) >= SKETCH_SIZE:
        union = set(sorted(union)[:SKETCH_SIZE])
    return len(union & ours & theirs) / len(union)


def fastest_jaccard() -> Callable[[bytes, bytes], float]:
    """Return the native function of the same result, where the kernel was built."""
    return native_or("fingerprint._kernel", "jaccard", reference_jaccard)


def reference_admitting(
    sketch: bytes, owners: list[int], sketches: list[bytes], least: float
) -> list[int]:
    """Return those owners whose sketch is not known (empty), or is similar enough.

    >>> a, b = (array("Q", hashes).tobytes() for hashes in ([1, 2, 3], [2, 3, 4]))
    >>> reference_admitting(a, [0, 1, 3], [a, b, b, b""], 0.6)
    [0, 3]
    """
    return [
        owner
        for owner in owners
        if not sketches[owner] or reference_jaccard(sketch, sketches[owner]) >= least
    ]


def fastest_admitting() -> Callable[[bytes, list[int], list[bytes], float], list[int]]:
    """Return the native function of the same result, where the kernel was built."""
    return native_or("fingerprint._kernel", "admitting", reference_admitting)
