"""Leader linkage: which cluster an event joins.

Every member is compared with the representative, the first event of its cluster, and never with
another member, so likeness does not drift from event to event (no chaining). An alias (the
fingerprint of a joined event) may lead the search to a cluster; the representative decides.

Among the clusters that qualify the most similar wins, then the nearest, then the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from stream_dedup.features.recipe import Match
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.model import Position


class Candidate(NamedTuple):
    """A live cluster that the search led to.

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
    """When an event may join, and which cluster it joins."""

    match: Match

    @property
    def verifies(self) -> bool:
        """Whether likeness is verified on the sketches."""
        return self.match.jaccard > 0

    def admits(self, similarity: float, distance: int) -> bool:
        """Whether an event that close to a representative belongs to its cluster.

        With verification the sketches decide, and the distance only had to lead the search
        there; without, the distance to the representative itself must be within k.
        """
        if self.verifies:
            return similarity >= self.match.jaccard
        return distance <= self.match.k

    @staticmethod
    def best(candidates: Iterable[Candidate]) -> Candidate | None:
        """The most similar, then the nearest, then the oldest (then the least id)."""
        return min(
            candidates,
            key=lambda c: (-c.similarity, c.distance, c.opened_us, c.cluster),
            default=None,
        )


def cluster_id(namespace: str, position: Position) -> int:
    """The id of the cluster that the event at `position` would represent.

    It depends on nothing else, so an event that is delivered again finds itself.

    >>> f"{cluster_id('logs', Position('app.log', 0, 17)):016x}"
    'e3e788ec37ce54a9'
    """
    text = f"{namespace}\0{position.source}\0{position.partition}\0{position.offset}"
    return hash128(text.encode("utf-8", "surrogateescape"))[0]
