"""What leads to the open clusters of the memory index: exact hashes and permuted tables.

Each open cluster has a *place*: a slot, the exact hashes that lead to it and its entries in the
tables. To the tables a slot is a small number, so that a search which meets many clusters need not
touch an object for each: whether they are live is read off a list.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from stream_dedup.clustering.linkage import Candidate, Linkage
from stream_dedup.clustering.verification import fastest_jaccard
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits, Query
from stream_dedup.tables.planner import MEMORY, choose
from stream_dedup.tables.store import Found, make_tables


@dataclass(slots=True, eq=False)
class Place:
    """How one open cluster is found.

    Attributes:
        slot: its owner number in the tables.
        cluster: its id.
        group: only events of this group find it.
        fingerprint: of its representative.
        sketch: of its representative.
        opened_us: event time at which it was opened.
        exacts: what leads to it by equality, with the group; its representative's first.
        entries: its entries in the tables.
    """

    slot: int
    cluster: int
    group: str
    fingerprint: int
    sketch: bytes
    opened_us: int
    exacts: list[tuple[str, int]] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)


class Finder:
    """Finds open clusters.

    Args:
        recipe: what counts as near.
        limits: for how many clusters the tables are laid out, and how far a search goes.

    Attributes:
        truncated: searches that met more than the limits let them look at.
    """

    def __init__(self, recipe: Recipe, limits: Limits) -> None:
        self.truncated = 0
        self._limits = limits
        self._aliases = recipe.match.aliases
        self._linkage = Linkage(recipe.match)
        self._jaccard = fastest_jaccard()
        plan = choose(recipe.fingerprint.width, recipe.match.k, limits.max_clusters, MEMORY)
        self._tables = make_tables(plan.layout)
        self._by_exact: dict[tuple[str, int], tuple[Place, int]] = {}  # → (place, distance)
        self._places: list[Place | None] = []  # by slot
        self._until_us: list[int] = []  # by slot: the last event time for which it is live
        self._free_slots: list[int] = []
        self._groups: dict[str, int] = {"": 0}
        self._group_uses: dict[str, int] = {}
        self._free_groups: list[int] = []

    @property
    def fingerprints(self) -> int:
        """Entries of clusters, each counted once, however many tables hold it."""
        return len(self._tables)

    @property
    def nbytes(self) -> int:
        """Bytes that the tables take."""
        return self._tables.nbytes()

    # ------------------------------------------------------------ finding

    def takes(self, place: Place, time_us: int) -> bool:
        """Whether the cluster is live for an event of that time."""
        return self._until_us[place.slot] >= time_us

    def named(self, query: Query) -> tuple[Place, int] | None:
        """The cluster that an exact hash leads to, live or not, and the distance then measured."""
        return self._by_exact.get((query.group, query.exact))

    def near(self, query: Query) -> tuple[Place, int] | None:
        """The live cluster that a query belongs to by its fingerprint, and its distance."""
        group = self._groups.get(query.group)
        if group is None:
            return None
        found = self._tables.query(query.fingerprint, group, self._limits.max_candidates)
        # Many may have passed their window and wait for stream time: they cost a comparison each.
        until_us, first_us = self._until_us, query.first_us
        slots = {slot for slot in found.owners if until_us[slot] >= first_us}
        crowded = len(slots) > self._limits.max_verified
        if crowded:
            slots = self._nearest(found, slots)
        self.truncated += found.truncated or crowded
        admitted: dict[Candidate, Place] = {}
        for slot in slots:
            place = self._places[slot]
            assert place is not None
            distance = (place.fingerprint ^ query.fingerprint).bit_count()
            similarity = (
                self._jaccard(place.sketch, query.sketch) if self._linkage.verifies else 0.0
            )
            if self._linkage.admits(similarity, distance):
                admitted[Candidate(similarity, distance, place.opened_us, place.cluster)] = place
        best = self._linkage.best(admitted)
        return None if best is None else (admitted[best], best.distance)

    def _nearest(self, found: Found, slots: set[int]) -> set[int]:
        """Of too many clusters those with the nearest fingerprints, the oldest first."""
        ranked: dict[int, tuple[int, int, int]] = {}
        for slot, distance in zip(found.owners, found.distances, strict=True):
            place = self._places[slot]
            if slot in slots and place is not None:
                rank = (distance, place.opened_us, place.cluster)
                ranked[slot] = min(rank, ranked.get(slot, rank))
        return set(heapq.nsmallest(self._limits.max_verified, ranked, key=ranked.__getitem__))

    # ------------------------------------------------------------ being found

    def add(self, cluster: int, query: Query, until_us: int) -> Place:
        """Have a cluster be found: it was opened by this query.

        Args:
            cluster: its id.
            query: of its representative.
            until_us: the last event time for which it is live.
        """
        if self._free_slots:
            slot = self._free_slots.pop()
        else:
            slot = len(self._places)
            self._places.append(None)
            self._until_us.append(0)
        place = Place(slot, cluster, query.group, query.fingerprint, query.sketch, query.first_us)
        self._places[slot] = place
        self._until_us[slot] = until_us
        self._use_group(query.group)
        self._name(query, place, 0)
        if query.near:
            self._insert(query, place)
        return place

    def add_alias(self, query: Query, place: Place, distance: int) -> None:
        """Have a query's exact hash and fingerprint lead to a cluster too, while it takes more."""
        if len(place.exacts) > self._aliases:
            return
        self._name(query, place, distance)
        # Without verification an alias's fingerprint could lead to nothing the
        # representative's own does not.
        if self._linkage.verifies and distance:
            self._insert(query, place)

    def extend(self, place: Place, until_us: int) -> None:
        """A cluster is live for longer."""
        self._until_us[place.slot] = until_us

    def remove(self, place: Place) -> None:
        """Take a cluster out of all that leads to it."""
        for entry in place.entries:
            self._tables.delete(entry)
        for key in place.exacts:
            known = self._by_exact.get(key)
            if known is not None and known[0].cluster == place.cluster:
                del self._by_exact[key]
        self._places[place.slot] = None
        self._free_slots.append(place.slot)
        self._leave_group(place.group)

    def _name(self, query: Query, place: Place, distance: int) -> None:
        """Make the query's exact hash the cluster's, if need be instead of one that expired."""
        key = (query.group, query.exact)
        self._by_exact[key] = (place, distance)
        place.exacts.append(key)

    def _insert(self, query: Query, place: Place) -> None:
        group = self._groups[query.group]
        place.entries.append(self._tables.insert(query.fingerprint, group, place.slot))

    # ------------------------------------------------------------ groups

    def _use_group(self, group: str) -> None:
        if group not in self._groups:
            number = self._free_groups.pop() if self._free_groups else len(self._groups)
            self._groups[group] = number
        self._group_uses[group] = self._group_uses.get(group, 0) + 1

    def _leave_group(self, group: str) -> None:
        self._group_uses[group] -= 1
        if group and not self._group_uses[group]:
            del self._group_uses[group]
            self._free_groups.append(self._groups.pop(group))
