"""How the memory index finds its open clusters: by exact hash, by postings, by permuted tables.

Each open cluster has a *handle*, by which it is found: an owner number, the exact hashes that lead
to it, its entries in the tables, and the postings of the one-off index that name it (see
`postings`). The tables know only owner numbers, so a search that meets many clusters reads from a
list whether they are live and touches no object for those that are not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from stream_dedup.clustering.linkage import Candidate, Linkage
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint import bands
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.memory.posting_lists import Handle
from stream_dedup.index.memory.postings import Postings
from stream_dedup.tables.planner import MEMORY, choose
from stream_dedup.tables.store import (
    Bands,
    BandTables,
    Found,
    Tables,
    make_band_tables,
    make_tables,
)

_LEAST_PLACES, _MOST_PLACES = 1 << 16, 1 << 22


class Lookup:
    """Finds open clusters.

    Args:
        recipe: what counts as near.
        limits: for how many clusters the tables are laid out, and how far a search goes.

    Attributes:
        truncated: searches that met more than the limits allow; and clusters of bands that more
            than half of their keys do not lead to, as they were full.
        postings: the one-off index.
    """

    def __init__(self, recipe: Recipe, limits: Limits) -> None:
        self.truncated = 0
        self._limits = limits
        self.postings = Postings(recipe.match.learn)
        self._aliases = recipe.match.aliases
        self._linkage = Linkage(recipe)
        # An attacker may send lines that are all near each other and none alike: what a search does
        # with the near ones is bounded.
        self._most_near, self._most_verified = 4 * limits.max_verified, limits.max_verified
        self._band_tables: BandTables | None = None
        if recipe.fingerprint.kind == "bands":
            self._band_tables = make_band_tables(Bands(bands.BANDS, bands.KEY_BYTES, bands.CROWD))
            self._tables: Tables = self._band_tables
        else:
            plan = choose(recipe.fingerprint.width, recipe.match.k, limits.max_clusters, MEMORY)
            self._tables = make_tables(plan.layout)
        self._by_exact: dict[tuple[str, int], Handle] = {}
        self._handles: list[Handle | None] = []  # by owner
        self._live_until_us: list[int] = []  # by owner: the last event time for which it is live
        self._sketches: list[bytes] = []  # by owner
        self._free_owners: list[int] = []
        self._groups: dict[str, int] = {"": 0}
        self._group_uses: dict[str, int] = {}
        self._free_groups: list[int] = []

    @property
    def fingerprints(self) -> int:
        """Fingerprints in the tables, each counted once, however many tables hold it."""
        return len(self._tables)

    @property
    def nbytes(self) -> int:
        """Bytes that the tables take."""
        return self._tables.nbytes()

    # ------------------------------------------------------------ searching

    def distance(self, handle: Handle, query: Query) -> int:
        """Return the distance of a query from the cluster's representative."""
        return self._linkage.distance(handle.fingerprint, query.fingerprint)

    def is_live(self, handle: Handle, time_us: int) -> bool:
        """Return whether the cluster takes an event of that time."""
        return self._live_until_us[handle.owner] >= time_us

    def by_exact_hash(self, query: Query) -> Handle | None:
        """Return the cluster that the exact hash leads to, live or not."""
        return self._by_exact.get((query.group, query.exact))

    def by_fingerprint(self, query: Query) -> Handle | None:
        """Return the best live cluster within k bits; of bands, of those that share a key."""
        group = self._groups.get(query.group)
        if group is None:
            return None
        near = self._near(query, group)
        if self._band_tables is not None and len(near) == 1:
            handle = self._handle(next(iter(near)))
            if handle.sketch:  # else the tables have not verified it
                return handle
        ours, linkage = query.sketch, self._linkage
        admitted: dict[Candidate, Handle] = {}
        for owner in near:
            handle = self._handle(owner)
            theirs = handle.sketch
            similarity = linkage.jaccard(ours, theirs) if linkage.verifies else 0.0
            if similarity < linkage.least:
                continue
            distance = linkage.distance(handle.fingerprint, query.fingerprint)
            if linkage.admits(ours, theirs, similarity, distance):
                admitted[Candidate(similarity, distance, handle.opened_us, handle.cluster)] = handle
        best = linkage.best(admitted)
        return None if best is None else admitted[best]

    def _near(self, query: Query, group: int) -> set[int]:
        """Return the owners of near live clusters, as many as may be verified.

        The tables of bands verify all: at most a crowd shares each key.
        """
        # Many may have passed their window and wait for stream time: each costs a comparison.
        live_until_us, first_us = self._live_until_us, query.first_us
        if self._band_tables is not None:
            alike = self._band_tables.similar(
                query.fingerprint, group, query.sketch, self._sketches, self._linkage.least
            )
            return {owner for owner in alike.owners if live_until_us[owner] >= first_us}
        found = self._tables.query(query.fingerprint, group, self._limits.max_candidates)
        near = found.owners[: self._most_near]
        owners = {owner for owner in near if live_until_us[owner] >= first_us}
        too_many = len(owners) > self._most_verified
        self.truncated += found.truncated or too_many or len(found.owners) > self._most_near
        return self._nearest(found, owners) if too_many else owners

    def _nearest(self, found: Found, owners: set[int]) -> set[int]:
        """Choose the owners to verify, as many as the limits allow.

        Those with the nearest fingerprint come first; of equally near ones the oldest cluster.

        Args:
            found: what the search of the tables has found; an owner may have several entries.
            owners: of live clusters, more than may be verified.
        """
        nearest: dict[int, int] = {}
        for owner, distance in zip(found.owners, found.distances, strict=True):
            if owner in owners and distance <= nearest.get(owner, distance):
                nearest[owner] = distance
        ranked = []
        for owner, distance in nearest.items():
            handle = self._handle(owner)
            ranked.append((distance, handle.opened_us, handle.cluster, owner))
        ranked.sort()
        return {owner for *_, owner in ranked[: self._most_verified]}

    def _handle(self, owner: int) -> Handle:
        handle = self._handles[owner]
        assert handle is not None
        return handle

    # ------------------------------------------------------------ changing

    def add(self, cluster: int, query: Query, live_until_us: int) -> Handle:
        """Add a cluster that this query opens.

        Args:
            cluster: its id.
            query: of its representative.
            live_until_us: the last event time for which it is live.
        """
        handle = Handle(
            -1, cluster, query.group, query.fingerprint, query.sketch, query.first_us, query.one_off
        )  # fmt: skip
        near = [query.fingerprint] if query.near else []
        crowded = self._tables.crowded
        self.restore(handle, [query.exact], near, live_until_us)
        self.truncated += self._tables.crowded - crowded
        return handle

    def restore(
        self,
        handle: Handle,
        exacts: Iterable[int],
        fingerprints: Iterable[int],
        live_until_us: int,
    ) -> None:
        """Add a cluster with its exact hashes and fingerprints, as `leads` has returned them."""
        if self._free_owners:
            handle.owner = self._free_owners.pop()
        else:
            handle.owner = len(self._handles)
            self._handles.append(None)
            self._sketches.append(b"")
            self._live_until_us.append(0)
        self._handles[handle.owner] = handle
        self._sketches[handle.owner] = handle.sketch
        self._live_until_us[handle.owner] = live_until_us
        self._use_group(handle.group)
        for exact in exacts:
            self._add_exact((handle.group, exact), handle)
        for fingerprint in fingerprints:
            self._add_fingerprint(fingerprint, handle)

    def leads(self, handle: Handle) -> tuple[list[int], list[int]]:
        """Return what leads to a cluster: exact hashes, and fingerprints."""
        exacts = [key[1] for key in handle.exacts if self._by_exact.get(key) is handle]
        return exacts, [self._tables.fingerprint(entry) for entry in handle.entries]

    def add_alias(self, query: Query, handle: Handle, *, searchable: bool = True) -> None:
        """Let a query's exact hash lead to a cluster, up to the cap on aliases.

        Its fingerprint too if it is `searchable`: if a similar one would else not be found. Keys of
        bands are not: they would take sixteen entries an alias.
        """
        if len(handle.exacts) > self._aliases:
            return
        self._add_exact((handle.group, query.exact), handle)
        # Without verification an alias's fingerprint leads to nothing that the representative's
        # own does not lead to. A representative of too few words is compared with nothing.
        searchable = searchable and self._linkage.verifies and self._band_tables is None
        if searchable and handle.entries and handle.fingerprint != query.fingerprint:
            self._add_fingerprint(query.fingerprint, handle)

    def extend(self, handle: Handle, live_until_us: int) -> None:
        """Keep a cluster live for longer."""
        self._live_until_us[handle.owner] = live_until_us

    def merge(self, loser: Handle, root: Handle, looks: int) -> None:
        """Let exact hashes and postings that lead to a cluster lead to another, up to the caps.

        Args:
            loser: the cluster.
            root: the other one.
            looks: so many posting lists are looked at, at most.
        """
        for key in loser.exacts:
            if self._by_exact.get(key) is loser and len(root.exacts) <= self._aliases:
                self._add_exact(key, root)
        self.postings.move(loser, root, looks)

    def remove(self, handle: Handle) -> None:
        """Remove a cluster and everything that leads to it."""
        for entry in handle.entries:
            self._tables.delete(entry)
        for key in handle.exacts:
            if self._by_exact.get(key) is handle:
                del self._by_exact[key]
        self.postings.remove(handle)
        self._handles[handle.owner] = None
        self._sketches[handle.owner] = b""
        self._free_owners.append(handle.owner)
        self._leave_group(handle.group)

    def _add_exact(self, key: tuple[str, int], handle: Handle) -> None:
        """Let an exact hash lead to the cluster, and no longer to another one."""
        self._by_exact[key] = handle
        handle.exacts.append(key)

    def _add_fingerprint(self, fingerprint: int, handle: Handle) -> None:
        group = self._groups[handle.group]
        handle.entries.append(self._tables.insert(fingerprint, group, handle.owner))

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


class EvictedKeys:
    """The exact hashes of clusters that were closed for lack of room.

    Each hash has one place in a table of 16 bytes a place, eight places for each cluster that may
    be open. A later hash takes the place of an earlier one, so memory is bounded, and a few are not
    found again.

    Args:
        max_clusters: clusters that may be open.
    """

    def __init__(self, max_clusters: int) -> None:
        wanted = 1 << (8 * max_clusters - 1).bit_length()
        self._mask = min(max(wanted, _LEAST_PLACES), _MOST_PLACES) - 1
        self._hashes = array("q")  # filled when the first cluster is evicted
        self._live_until_us = array("q")

    def add(self, handle: Handle, live_until_us: int) -> None:
        """Add the keys of a cluster that is closed though it would have been live until then."""
        if not self._hashes:
            self._hashes = array("q", bytes(8 * (self._mask + 1)))
            self._live_until_us = array("q", bytes(8 * (self._mask + 1)))
        for key in handle.exacts:
            number = hash(key)
            self._hashes[number & self._mask] = number
            self._live_until_us[number & self._mask] = live_until_us

    def take(self, query: Query) -> bool:
        """Return whether the query would have found a cluster that was evicted; forget it then."""
        if not self._hashes:
            return False
        number = hash((query.group, query.exact))
        place = number & self._mask
        if self._hashes[place] != number:
            return False
        self._hashes[place] = 0
        return self._live_until_us[place] >= query.first_us
