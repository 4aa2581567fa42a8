"""Finds the cluster of each query, or opens one; and merges clusters that turn out to be one."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from stream_dedup.clustering.learning import MAX_POSTING_LISTS
from stream_dedup.clustering.openings import OpenedPatterns
from stream_dedup.errors import IndexFull
from stream_dedup.index.base import Limits, Query, Resolution, max_waiting, opening, too_many_wait
from stream_dedup.index.groups import opened_id
from stream_dedup.index.memory.cluster import Cluster
from stream_dedup.index.memory.clusters import Clusters
from stream_dedup.index.memory.posting_lists import Handle, IsLive
from stream_dedup.index.memory.word_search import Found, Ready
from stream_dedup.model import Closing, FoundBy


class Resolver:
    """Resolves queries; see `base.Index.resolve`.

    Args:
        clusters: all clusters.
        openings: the patterns that have opened clusters.
        namespace: makes cluster ids, with positions.
        limits: how many clusters the index holds.
        cap_waiting: as of `MemoryIndex`.
        each_call: as of `MemoryIndex`.

    Attributes:
        namespace: as given, or of the index that was restored.
        taught: as of `MemoryIndex`.
    """

    def __init__(
        self,
        clusters: Clusters,
        openings: OpenedPatterns,
        namespace: str,
        limits: Limits,
        *,
        cap_waiting: bool,
        each_call: bool,
    ) -> None:
        self.namespace = namespace
        self.taught: list[bool] = []
        self._clusters = clusters
        self._lookup = clusters.lookup
        self._openings = openings
        self._max_waiting = max_waiting(limits.max_clusters)
        self._cap_waiting = cap_waiting
        self._each_call = each_call
        self._just_merged: dict[int, int] = {}  # in the current call: cluster → where it went

    @property
    def knows_combinations(self) -> bool:
        """See `base.Index`."""
        return self._lookup.postings.has_combinations and self._clusters.open_count > 0

    def may_fit(self, one_off: bytes) -> bool:
        """See `base.Index`."""
        return self._lookup.postings.lists_combinations(array("Q", one_off))

    def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        """Return the cluster of each query."""
        self._just_merged.clear()
        self.taught = [True] * len(queries)
        answers = [self._resolve(row, query, now_us) for row, query in enumerate(queries)]
        if self._just_merged:
            for row, (query, answer) in enumerate(zip(queries, answers, strict=True)):
                root = answer.cluster
                while not self._clusters.is_open(root):
                    root = self._just_merged[root]
                if root != answer.cluster:
                    answers[row] = self._join(query, self._clusters[root], FoundBy.LEARNED)
        for row, answer in enumerate(answers):
            learned = self._clusters[answer.cluster].handle.learned
            if learned:
                answers[row] = answer._replace(learned=learned)
        if self._each_call:
            self._compare(opening(queries, answers))
        return answers

    def _resolve(self, row: int, query: Query, now_us: int) -> Resolution:
        identity = opened_id(self.namespace, query.group, query.position)
        own = self._clusters.get(identity)
        if (
            own is not None
            and own.closing is None
            and self._lookup.is_live(own.handle, query.first_us)
            and own.handle.fingerprint == query.fingerprint
        ):  # opened for it before; others may be as near
            self.taught[row] = False
            return self._join(query, own, FoundBy.NEW)
        known = self._lookup.by_exact_hash(query)
        if known is not None and self._lookup.is_live(known, query.first_us):
            self.taught[row] = False
            return self._join(query, self._clusters[known.cluster], FoundBy.EXACT)
        if query.one_off:
            return self._resolve_by_words(row, identity, query, now_us)
        found = self._lookup.by_fingerprint(query) if query.near else None
        if found is None:
            return self._open(identity, query, now_us)
        self._lookup.add_alias(query, found)
        return self._join(query, self._clusters[found.cluster], FoundBy.FINGERPRINT)

    def _join(self, query: Query, cluster: Cluster, found_by: FoundBy) -> Resolution:
        self._clusters.see(cluster, query.last_us)
        handle = cluster.handle
        return Resolution(
            cluster.identity,
            self._lookup.distance(handle, query),
            cluster.position == query.position,
            handle.opened_us,
            cluster.last_us,
            not cluster.provisional,
            found_by,
        )

    def _open(self, identity: int, query: Query, now_us: int) -> Resolution:
        former = self._clusters.get(identity)
        if former is not None:
            # Opened under this position before: its window has passed, its final summary waits, or
            # the text is another one (the topic was created again, the file rewritten).
            self._clusters.reopen(former, query)
            return self._join(query, former, FoundBy.NEW)
        if self._cap_waiting and self._clusters.waiting > self._max_waiting:
            raise IndexFull(too_many_wait(self._clusters.waiting))
        self._clusters.open(identity, query, now_us)
        # As `_join` would answer, at less cost.
        return Resolution(
            identity,
            0,
            new=True,
            opened_us=query.first_us,
            last_us=query.last_us,
            found_by=FoundBy.NEW,
        )

    # ------------------------------------------------------------ learned words

    def _resolve_by_words(self, row: int, identity: int, query: Query, now_us: int) -> Resolution:
        """Resolve a query whose exact hash is unknown and whose words are learned."""

        def is_live(handle: Handle) -> bool:
            return self._lookup.is_live(handle, query.first_us)

        known = self._lookup.postings.find(query.group, query.one_off, is_live)
        if known.is_variable:
            return self._join_by_variable(row, query, known, is_live)
        found, found_by = known.owner, FoundBy.WORDS
        if found is None and query.near:
            found, found_by = self._lookup.by_fingerprint(query), FoundBy.FINGERPRINT
        if found is None:  # if its values complete a slot, it joins the clusters found there
            found_by = FoundBy.LEARNED
        ready = self._lookup.postings.ready(known, is_live)
        root = self._merged(found, ready)
        if root is None:
            return self._open_by_words(identity, query, known, is_live, now_us)
        self._lookup.add_alias(query, root.handle, searchable=found_by is FoundBy.FINGERPRINT)
        answer = self._join(query, root, found_by)
        self._note_values(query, root.handle, found_by, known, ready, is_live)
        return answer

    def _join_by_variable(
        self, row: int, query: Query, known: Found, is_live: IsLive
    ) -> Resolution:
        """Let a query join whose own word is a known variable: no values are noted."""
        postings, found = self._lookup.postings, known.owner
        assert found is not None
        shown = found.learned
        ready = postings.ready(known, is_live)
        root = self._merged(found, ready)
        assert root is not None
        self._lookup.add_alias(query, root.handle, searchable=False)
        answer = self._join(query, root, FoundBy.LEARNED)
        learned = postings.learn(known.seen, root.handle, ready, is_live)
        learned |= postings.note_together(query.one_off, root.handle, known, ready, is_live)
        learned |= root.handle.learned != shown
        self.taught[row] = learned or not ready.merging.keys() <= {found.cluster}
        return answer

    def _open_by_words(
        self, identity: int, query: Query, known: Found, is_live: IsLive, now_us: int
    ) -> Resolution:
        """Open a cluster, note the values of its pattern, and compare that with earlier ones."""
        answer = self._open(identity, query, now_us)
        handle = self._clusters[identity].handle
        self._lookup.postings.open(handle, is_live)
        self._lookup.postings.assume(handle, known, is_live)
        if not self._each_call:
            self._compare([query])
        return answer

    def _note_values(
        self,
        query: Query,
        handle: Handle,
        found_by: FoundBy,
        known: Found,
        ready: Ready,
        is_live: IsLive,
    ) -> None:
        """Note the values of a pattern that has joined a cluster."""
        postings, learned = self._lookup.postings, found_by is FoundBy.LEARNED
        postings.note(query.one_off, handle, ready, is_live, outside=not learned)
        if learned:
            postings.note_together(query.one_off, handle, known, ready, is_live)

    def _compare(self, queries: Sequence[Query]) -> None:
        """Compare patterns that have opened clusters with those before; note which words vary."""
        patterns = ((query.group, query.one_off, query.first_us) for query in queries)
        for place, combination in self._openings.add_all(patterns).items():
            self._combine(queries[place], combination)

    def _combine(self, query: Query, combination: int) -> None:
        """Note which words vary together in the pattern of the cluster that a query has opened."""
        cluster = self._clusters.get(opened_id(self.namespace, query.group, query.position))
        if cluster is None or not cluster.is_open:
            return
        handle = cluster.handle
        if handle.group == query.group and handle.fingerprint == query.fingerprint:
            self._lookup.postings.combine(
                query.one_off,
                handle,
                combination,
                lambda other: self._lookup.is_live(other, query.first_us),
            )

    # ------------------------------------------------------------ merging

    def _merged(self, found: Handle | None, ready: Ready) -> Cluster | None:
        """Merge the cluster that was found and those of learned slots; return what is left."""
        if found is None and not ready.merging:
            return None
        ids = {*ready.merging} if found is None else {found.cluster, *ready.merging}
        merging = [self._clusters[identity] for identity in ids]
        root = min(
            merging,
            key=lambda c: (c.provisional, c.handle.opened_us, c.position.offset, c.identity),
        )
        looks = MAX_POSTING_LISTS
        for loser in sorted(merging, key=lambda c: (c.handle.opened_us, c.identity)):
            if loser is not root:
                had = len(loser.handle.posting_keys)
                self._just_merged[loser.identity] = root.identity
                self._clusters.merge(loser, root, looks)
                looks = max(0, looks - had)
        ready.show(root.handle)
        return root

    def merge_fitting(self, identity: int, query: Query) -> int | None:
        """Merge a closed cluster whose final summary is claimed; see `base.Index.merge_fitting`."""
        cluster = self._clusters.get(identity)
        if cluster is None or cluster.snapshot is None or cluster.is_open:
            return None
        if identity != opened_id(self.namespace, query.group, query.position):
            return None
        claimed = cluster.snapshot
        if claimed.closing is None or claimed.count != cluster.count:
            return None  # it was open then
        if cluster.may_be_sent or cluster.closing is Closing.MERGED:
            return claimed.merged_into
        cluster.may_be_sent = True
        if cluster.handle.group != query.group or claimed.revision > 1:
            return None
        root = self._fitted_by(cluster, query.one_off, query.first_us)
        if root is None:
            return None
        self._clusters.merge_closing(cluster, root)
        cluster.snapshot = replace(claimed, closing=Closing.MERGED, merged_into=root.identity)
        return root.identity

    def merge_all_fitting(self) -> None:
        """Merge all clusters that fit, before all of them close."""
        for cluster in list(self._clusters):
            if cluster.revision or cluster.provisional or cluster.closing is Closing.MERGED:
                continue
            root = self._fitted_by(cluster, cluster.handle.one_off, cluster.last_us)
            if root is not None:
                self._clusters.merge_closing(cluster, root)

    def _fitted_by(self, cluster: Cluster, one_off: bytes, time_us: int) -> Cluster | None:
        """Return the open cluster whose pattern that of another one, with these keys, fits.

        It was opened while the other one could still have taken its first event.
        """
        handle, until_us = cluster.handle, self._clusters.live_until_us(cluster)
        if handle.learned or not one_off:
            return None

        def is_live(other: Handle) -> bool:
            recorded = other is not handle and not self._clusters[other.cluster].provisional
            in_time = self._lookup.is_live(other, time_us) and other.opened_us <= until_us
            return recorded and in_time

        found = self._lookup.postings.find_fitting(handle.group, one_off, is_live)
        return None if found is None else self._clusters[found.cluster]
