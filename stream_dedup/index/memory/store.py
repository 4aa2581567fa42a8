"""The index in memory: for the embedded engine, for one worker, and as the model of the others.

Theory of operation
-------------------
A cluster is *open* (it has a handle in the `Lookup` and takes events), then *closed* (nothing leads
to it, its final summary waits), then gone (a tombstone keeps its revision and count for a while)::

    resolve ──► provisional ──record──► open ──expired, …, merged──► closed ──confirm──► gone
                 │      ▲                                                 │                  │
                 │      └────── its representative's position is resolved again ─────────────┘
                 └──► what it was before: not stored, closed or gone

Where nobody reads summaries (`Summaries.final` is false), a cluster that expires or is evicted is
gone at once.

An opening counts once it is recorded: by the commit that holds the representative, which is the
first to count events. Until then the cluster is *provisional*. A commit of others that names it is
refused, and closes it. (Over Redis it waits a while: the opener may only be slower.)

Size: `record` closes the least recently seen clusters above `max_clusters`, so the index holds at
most that many open clusters and those of the commit at hand. Closed ones wait for `claim` and
`confirm`; while too many wait (`base.max_waiting`), `resolve` opens no others.

Memory: some 1.7 kB a cluster, and 0.1 kB for each of its words where words are learned, besides the
values kept (docs/choosing-k.md).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from stream_dedup.clustering.learning import MAX_POSTING_LISTS
from stream_dedup.clustering.openings import OpenedPatterns
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import StreamTime, Windows
from stream_dedup.errors import (
    AlreadyRecorded,
    IndexFull,
    PartitionUnclaimed,
    StaleFence,
)
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import (
    MAX_MERGED_NAMED,
    ClusterDelta,
    Commit,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Representative,
    Resolution,
    check_width,
    max_waiting,
    opening,
    recorded_before,
    too_many_wait,
)
from stream_dedup.index.groups import opened_id, plain_group
from stream_dedup.index.memory.lookup import EvictedKeys, Lookup
from stream_dedup.index.memory.posting_lists import Handle, IsLive
from stream_dedup.index.memory.queues import LazyHeap
from stream_dedup.index.memory.saved import Name, SavedCluster, SavedIndex, saved_bytes
from stream_dedup.index.memory.word_search import Found, Ready
from stream_dedup.model import Closing, Decision, FoundBy, Partition, Position, Summary
from stream_dedup.rules.keeping import KeptCounts

T = TypeVar("T")

SAMPLED_BYTES = 130
"""Of an event that a cluster keeps by chance, besides its value."""

MAX_SAMPLED_BYTES = 64 << 20
"""Of the events that clusters keep by chance, all together; above it they keep no others."""


class _Tombstone(NamedTuple):
    """What is left of a closed cluster, until `until_us`."""

    revision: int
    events: int
    until_us: int


@dataclass(slots=True, eq=False)
class _Cluster:
    """One cluster's state.

    Attributes:
        identity: its id.
        position: of its representative.
        handle: how it is found; of a closed one, how it was.
        last_us: when it was last seen, by what was resolved or recorded; its window goes by this.
        first_us: earliest event time recorded.
        latest_us: latest event time recorded.
        count: events recorded.
        initial_count: the count at opening; while `count` equals it, the cluster is provisional.
        reported: the count in its last confirmed summary.
        reported_us: stream time of that.
        revision: of its last summary.
        since_us: earliest event time recorded since that was claimed; None if nothing was.
        due: whether it is in the queue of due summaries.
        before: why it was closed before it was opened; None if it was not stored.
        snapshot: its claimed summary.
        merged_into: the cluster into which it merged when it closed.
        merged: clusters that merged into it since its last confirmed summary, with their counts.
        sampled: as `Summary.sampled`.
        may_be_sent: whether its claimed summary may have been sent, so that it never changes.
    """

    identity: int
    position: Position
    handle: Handle
    last_us: int
    first_us: int
    latest_us: int
    count: int = 0
    initial_count: int = 0
    reported: int = 0
    reported_us: int = 0
    revision: int = 0
    since_us: int | None = None
    representative: bytes = b""
    samples: tuple[bytes, ...] = ()
    due: bool = False
    closing: Closing | None = None
    before: Closing | None = None
    snapshot: Summary | None = None
    merged_into: int | None = None
    merged: tuple[tuple[int, int], ...] = ()
    sampled: tuple[tuple[int, bytes], ...] = ()
    may_be_sent: bool = False

    @property
    def provisional(self) -> bool:
        """Whether nothing was counted since it was opened."""
        return self.count == self.initial_count


@dataclass(slots=True)
class _PartitionState:
    fence: int = 0
    high_water: int = -1
    committed: int = 0
    journal: dict[int, Decision] = field(default_factory=dict)
    identity: str = ""
    kept: KeptCounts = field(default_factory=dict)

    def commit(self, offset: int) -> None:
        """Forget the decisions of events before an offset, which are not read again."""
        self.committed = offset
        for before in [each for each in self.journal if each < offset]:
            del self.journal[before]

    def ownership(self) -> Ownership:
        """Return what its owner learns."""
        committed = None if self.high_water < 0 else self.committed
        journal = dict(self.journal)
        return Ownership(self.fence, self.high_water, journal, committed=committed, kept=self.kept)


class MemoryIndex:
    """The index in memory; see `base.Index` for the methods.

    Not safe to share by threads. Its coroutines never suspend.

    Args:
        recipe: what counts as near.
        namespace: makes cluster ids, with positions; the recipe's name by default.
        windows: when clusters close.
        summaries: how often summaries are due.
        limits: how much it holds.
        key: of the hashes that decide; a random one by default.
        cap_waiting: refuse to open clusters while too many closed ones wait for their final
            summary; if not, the caller has to claim them in time.
        each_call: compare patterns that have opened clusters after each call of `resolve`, as an
            index does that is shared, and not after each of its queries.

    Attributes:
        taught: for each query of the last call of `resolve`: false if it only repeated what the
            index knew, an equal event or a learned variable. An index whose clusters never close
            learns the same words without it.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        namespace: str = "",
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        limits: Limits | None = None,
        key: HashKey | None = None,
        cap_waiting: bool = True,
        each_call: bool = False,
    ) -> None:
        check_width(recipe)
        self.recipe = recipe
        self.key = key or HashKey.random()
        self._cap_waiting = cap_waiting
        self._each_call = each_call
        self.resets = self.mirrored = 0  # nothing of it is remote
        self._namespace = namespace or recipe.name
        self._windows = windows or Windows()
        self._openings = OpenedPatterns(recipe.match.learn, self._windows.idle_us)
        self._summaries = summaries or Summaries()
        self._limits = limits or Limits()
        self._lookup = Lookup(recipe, self._limits)
        self._clusters: dict[int, _Cluster] = {}
        self._open_count = 0
        self._partitions: dict[Partition, _PartitionState] = {}
        self._time = StreamTime(self._windows)
        self._expiry = LazyHeap(self._expires_us, self._clusters)
        self._recency: LazyHeap | None = None  # made when the first has to be evicted
        self._due = LazyHeap(self._due_us, self._clusters)
        self._finals: dict[int, None] = {}
        self._leases: dict[int, int] = {}  # claimed cluster → when its lease ends (clock)
        self._tombstones: OrderedDict[int, _Tombstone] = OrderedDict()
        self._sampled_bytes = 0
        self._evicted = self._expired = self._new_again = 0
        self._evicted_keys = EvictedKeys(self._limits.max_clusters)
        self.taught: list[bool] = []
        self._just_merged: dict[int, int] = {}  # in the current call: cluster → where it went

    @property
    def waiting(self) -> int:
        """Closed clusters whose final summary is not confirmed."""
        return len(self._clusters) - self._open_count

    @property
    def knows_combinations(self) -> bool:
        """See `base.Index`."""
        return self._lookup.postings.has_combinations and self._open_count > 0

    def may_fit(self, group: str, one_off: bytes) -> bool:
        """See `base.Index`."""
        del group
        return self._lookup.postings.lists_combinations(array("Q", one_off))

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int, identity: str = ""
    ) -> Ownership:
        del now_us
        state = self._partitions.setdefault(partition, _PartitionState())
        state.fence += 1
        created_again = bool(identity and state.identity) and identity != state.identity
        state.identity = identity or state.identity
        reset = created_again or (end_offset is not None and state.high_water >= end_offset)
        if reset:
            state.high_water, state.committed, state.kept = -1, 0, {}
            state.journal.clear()
        return state.ownership()._replace(reset=reset, created_again=created_again)

    async def read_partition(self, partition: Partition, fence: int) -> Ownership:
        return self._claimed(partition, fence).ownership()

    def _claimed(self, partition: Partition, fence: int) -> _PartitionState:
        """Return the state of a partition that is claimed under this fence."""
        state = self._partitions.get(partition)
        if state is None:
            raise PartitionUnclaimed(f"{partition}: nobody has claimed it")
        if fence != state.fence:
            raise StaleFence(
                f"{partition}: fence {fence} is not the latest, which is {state.fence}"
            )
        return state

    async def note_committed(self, partition: Partition, fence: int, offset: int) -> None:
        state = self._partitions.get(partition)
        if state is not None and state.fence == fence:
            state.commit(max(state.committed, min(offset, state.high_water + 1)))

    async def release_partition(self, partition: Partition) -> None:
        self._time.release(partition)

    # ------------------------------------------------------------ deciding

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        self._just_merged.clear()
        self.taught = [True] * len(queries)
        answers = [self._resolve(row, query, now_us) for row, query in enumerate(queries)]
        if self._just_merged:
            for row, (query, answer) in enumerate(zip(queries, answers, strict=True)):
                root = answer.cluster
                while not self.is_open(root):
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
        identity = opened_id(self._namespace, query.group, query.position)
        own = self._clusters.get(identity)
        if (
            own is not None
            and own.closing is None
            and self._lookup.is_live(own.handle, query.first_us)
            and own.handle.fingerprint == query.fingerprint
        ):
            self.taught[row] = False
            return self._join(
                query, own, FoundBy.NEW
            )  # opened for it before; others may be as near
        known = self._lookup.by_exact_hash(query)
        if known is not None and self._lookup.is_live(known, query.first_us):
            self.taught[row] = False
            return self._join(query, self._clusters[known.cluster], FoundBy.EXACT)
        if query.one_off:
            return self._resolve_by_words(row, identity, query, now_us)
        found = self._lookup.by_fingerprint(query) if query.near else None
        if found is None:
            return self._open_cluster(identity, query, now_us)
        self._lookup.add_alias(query, found)
        return self._join(query, self._clusters[found.cluster], FoundBy.FINGERPRINT)

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
        answer = self._open_cluster(identity, query, now_us)
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
        cluster = self._clusters.get(opened_id(self._namespace, query.group, query.position))
        if cluster is None or cluster.closing is not None:
            return
        handle = cluster.handle
        if handle.group == query.group and handle.fingerprint == query.fingerprint:
            self._lookup.postings.combine(
                query.one_off,
                handle,
                combination,
                lambda other: self._lookup.is_live(other, query.first_us),
            )

    def _merged(self, found: Handle | None, ready: Ready) -> _Cluster | None:
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
                self._merge(loser, root, looks)
                looks = max(0, looks - had)
        ready.show(root.handle)
        return root

    def _merge(self, loser: _Cluster, root: _Cluster, looks: int) -> None:
        self._just_merged[loser.identity] = root.identity
        self._lookup.merge(loser.handle, root.handle, looks)
        self._see(root, loser.last_us)
        if not loser.provisional:
            self._count_merged(loser, root)
        self._close(loser.identity, Closing.MERGED)

    def _count_merged(self, loser: _Cluster, root: _Cluster) -> None:
        """Let the summaries of two clusters say that one has merged into the other."""
        loser.merged_into = root.identity
        if len(root.merged) < MAX_MERGED_NAMED:
            root.merged += ((loser.identity, loser.count),)
        self._keep_sampled(root, loser.sampled)

    def _see(self, cluster: _Cluster, last_us: int) -> None:
        """Note that an open cluster was seen."""
        if last_us > cluster.last_us:
            cluster.last_us = last_us
            self._lookup.extend(cluster.handle, self._live_until_us(cluster))

    def _live_until_us(self, cluster: _Cluster) -> int:
        return self._windows.expires_us(cluster.handle.opened_us, cluster.last_us)

    def _join(self, query: Query, cluster: _Cluster, found_by: FoundBy) -> Resolution:
        self._see(cluster, query.last_us)
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

    def _open_cluster(self, identity: int, query: Query, now_us: int) -> Resolution:
        former = self._clusters.get(identity)
        if former is not None:
            # Opened under this position before: its window has passed, its final summary waits, or
            # the text is another one (the topic was created again, the file rewritten).
            self._reopen(former, query)
            return self._join(query, former, FoundBy.NEW)
        if self._cap_waiting and self.waiting > max_waiting(self._limits.max_clusters):
            raise IndexFull(too_many_wait(self.waiting))
        cluster = _Cluster(
            identity, query.position, self._add_to_lookup(identity, query), query.last_us,
            query.first_us, query.first_us, reported_us=query.first_us,
        )  # fmt: skip
        if self._tombstones:
            self._restore(cluster, now_us)
        self._new_again += self._evicted_keys.take(query)
        self._clusters[identity] = cluster
        self._queue_closing(cluster)
        # As `_join` would answer, at less cost.
        return Resolution(
            identity,
            0,
            new=True,
            opened_us=query.first_us,
            last_us=query.last_us,
            found_by=FoundBy.NEW,
        )

    def _add_to_lookup(self, identity: int, query: Query) -> Handle:
        until_us = self._windows.expires_us(query.first_us, query.last_us)
        return self._lookup.add(identity, query, until_us)

    def _queue_closing(self, cluster: _Cluster) -> None:
        """Put an opened cluster into the queues by which it closes."""
        self._open_count += 1
        self._expiry.push(self._live_until_us(cluster), cluster.identity)
        if self._recency is not None:
            self._recency.push(cluster.last_us, cluster.identity)

    def _reopen(self, cluster: _Cluster, query: Query) -> None:
        """Open a cluster again; its revisions and counts go on."""
        if cluster.closing is None:
            self._remove_from_lookup(cluster)
        if not (cluster.closing is None and cluster.provisional):
            cluster.before = cluster.closing or Closing.EXPIRED
        cluster.closing, cluster.initial_count = None, cluster.count
        cluster.handle = self._add_to_lookup(cluster.identity, query)
        cluster.last_us = query.last_us
        self._finals.pop(cluster.identity, None)
        self._queue_closing(cluster)

    def _restore(self, cluster: _Cluster, now_us: int) -> None:
        """Continue from the tombstone of a representative that is delivered again late."""
        # The tombstone stays until it is replaced: if nothing is recorded, the cluster closes
        # silently.
        tombstone = self._tombstones.get(cluster.identity)
        if tombstone is not None and tombstone.until_us >= now_us:
            cluster.revision, cluster.count = tombstone.revision, tombstone.events
            cluster.reported = cluster.initial_count = cluster.count

    # ------------------------------------------------------------ counting

    async def record(self, commit: Commit, now_us: int) -> frozenset[int]:
        state = self._claimed(commit.partition, commit.fence)
        if commit.first_offset <= state.high_water:
            raise AlreadyRecorded(recorded_before(commit))
        closed = self._closed(commit.deltas)
        self._time.record(commit.partition, commit.last_us, now_us)
        if closed:
            for identity in closed:
                if self.is_open(identity):  # provisional
                    self._close(identity, Closing.ENDED)
            return closed
        for delta in commit.deltas:
            self._count(delta)
        state.high_water = commit.last_offset
        if commit.kept is not None:
            state.kept = commit.kept
        state.journal.update(zip(commit.offsets, commit.decisions, strict=True))
        state.commit(commit.committed)
        self._advance(now_us)
        self._evict(now_us)
        return closed

    def is_open(self, identity: int) -> bool:
        """Return whether a cluster takes events."""
        cluster = self._clusters.get(identity)
        return cluster is not None and cluster.closing is None

    def _closed(self, deltas: Iterable[ClusterDelta]) -> frozenset[int]:
        """Return those that may not count: a provisional one counts its first event first."""
        clusters, closed = self._clusters, []
        for delta in deltas:
            cluster = clusters.get(delta.cluster)
            if (
                cluster is None
                or cluster.closing is not None
                or (cluster.provisional and delta.representative is None)
            ):
                closed.append(delta.cluster)
        return frozenset(closed)

    def _count(self, delta: ClusterDelta) -> None:
        cluster = self._clusters[delta.cluster]
        limit = self._summaries.max_value_bytes
        # Values of an earlier window give way, unless a claimed summary holds them.
        if cluster.provisional and cluster.snapshot is None:
            cluster.representative, cluster.samples = (delta.representative or b"")[:limit], ()
            self._drop_sampled(cluster)
        first_us, last_us = delta.first_us, delta.last_us
        cluster.count += delta.count
        if first_us < cluster.first_us:  # noqa: PLR1730 -- min() costs a call
            cluster.first_us = first_us
        if last_us > cluster.latest_us:  # noqa: PLR1730 -- likewise
            cluster.latest_us = last_us
        if cluster.since_us is None or first_us < cluster.since_us:
            cluster.since_us = first_us
        if last_us > cluster.last_us:
            self._see(cluster, last_us)
        if delta.samples:
            room = max(0, self._summaries.samples - len(cluster.samples))
            cluster.samples += tuple(sample[:limit] for sample in delta.samples[:room])
        if delta.sampled:
            self._keep_sampled(cluster, delta.sampled)
        if not cluster.due and self._summaries.every_us is not None:
            self._queue_summary(cluster)

    def _keep_sampled(self, cluster: _Cluster, sampled: Iterable[tuple[int, bytes]]) -> None:
        """Keep the events of least priority, unless too much is kept of all clusters."""
        if self._sampled_bytes > MAX_SAMPLED_BYTES:
            return
        least = sorted({**dict(cluster.sampled), **dict(sampled)}.items())
        self._drop_sampled(cluster)
        cluster.sampled = tuple(least[: self._summaries.values])
        self._sampled_bytes += _sampled_bytes(cluster)

    def _drop_sampled(self, cluster: _Cluster) -> None:
        self._sampled_bytes -= _sampled_bytes(cluster)
        cluster.sampled = ()

    def _queue_summary(self, cluster: _Cluster) -> None:
        """Queue the next summary of an open cluster, if there is news."""
        # The first event is sent by itself: as a rule, there is news from the second on.
        shown = 0 if self._summaries.of_single else 1
        if cluster.count > max(shown, cluster.reported):
            due_us = self._summaries.due_us(cluster.reported_us)
            if due_us is not None:
                cluster.due = True
                self._due.push(due_us, cluster.identity)

    # ------------------------------------------------------------ closing

    async def expire(self, now_us: int) -> None:
        self._advance(now_us)
        self._evict(now_us)

    async def finish(self, now_us: int) -> None:
        for identity in [i for i, c in self._clusters.items() if c.closing is None]:
            self._let_go(identity, Closing.ENDED, now_us)

    def _advance(self, now_us: int) -> None:
        stream_us = self._time.advance(now_us)
        if stream_us is None:
            return
        for identity in self._expiry.pop_until(stream_us - 1, self._limits.sweep):
            cluster = self._clusters[identity]
            self._expired += not cluster.provisional
            self._let_go(identity, Closing.EXPIRED, now_us)

    def _evict(self, now_us: int) -> None:
        if self._open_count > self._limits.max_clusters and self._recency is None:
            self._recency = LazyHeap(self._seen_us, self._clusters)
            for cluster in self._clusters.values():
                if cluster.closing is None:
                    self._recency.push(cluster.last_us, cluster.identity)
        while self._recency is not None and self._open_count > self._limits.max_clusters:
            least = self._recency.least()
            if least is None:  # pragma: no cover -- every open cluster is in the heap
                return
            self._evicted += 1
            cluster = self._clusters[least[1]]
            self._evicted_keys.add(cluster.handle, self._live_until_us(cluster))
            self._let_go(least[1], Closing.EVICTED, now_us)

    def _let_go(self, identity: int, reason: Closing, now_us: int) -> None:
        """Close a cluster; where nobody reads final summaries, only its tombstone is left."""
        self._close(identity, reason)
        cluster = self._clusters.get(identity)
        if cluster is None or cluster.provisional or cluster.snapshot is not None:
            return
        if not self._summaries.final:
            self._bury(identity, cluster, now_us)

    def _close(self, identity: int, reason: Closing) -> None:
        cluster = self._clusters[identity]
        self._remove_from_lookup(cluster)
        if not cluster.provisional:
            cluster.closing = reason
        elif cluster.before is not None:
            cluster.closing = cluster.before
        else:
            del self._clusters[identity]
            return
        self._finals[identity] = None

    def _remove_from_lookup(self, cluster: _Cluster) -> None:
        """Let nothing lead to an open cluster any more; the queues drop it by themselves."""
        self._lookup.remove(cluster.handle)
        self._open_count -= 1

    # ------------------------------------------------------------ summaries

    async def claim(self, limit: int, now_us: int) -> list[Summary]:
        leases, until_us = self._leases, now_us + self._summaries.lease_us
        taken = [i for i, until in leases.items() if until <= now_us][:limit]
        for identity in list(islice(self._finals, limit + len(leases))):
            if len(taken) >= limit:
                break
            del self._finals[identity]
            if identity not in leases:
                leases[identity] = until_us
                taken.append(identity)
        stream_us = self._time.value_us
        if stream_us is not None and len(taken) < limit:
            for identity in self._due.pop_until(stream_us, len(self._due)):
                cluster = self._clusters[identity]
                if cluster.closing is not None:
                    cluster.due = False  # its final summary waits
                elif identity not in leases:
                    leases[identity] = until_us
                    taken.append(identity)
                    if len(taken) == limit:
                        break
        leases.update((identity, until_us) for identity in taken)
        return [self._snapshot(identity) for identity in taken]

    def _snapshot(self, identity: int) -> Summary:
        cluster = self._clusters[identity]
        cluster.may_be_sent = cluster.snapshot is not None
        if cluster.snapshot is None:
            cluster.revision += 1
            since_us = cluster.latest_us if cluster.since_us is None else cluster.since_us
            summary = self._summary(cluster, cluster.revision)
            cluster.snapshot, cluster.since_us = replace(summary, since_us=since_us), None
        return cluster.snapshot

    def _summary(self, cluster: _Cluster, revision: int) -> Summary:
        return Summary(
            cluster=cluster.identity,
            revision=revision,
            closing=cluster.closing,
            count=cluster.count,
            new_count=cluster.count - cluster.reported,
            first_time_us=cluster.first_us,
            last_time_us=cluster.latest_us,
            position=cluster.position,
            representative=cluster.representative,
            samples=cluster.samples,
            group=plain_group(cluster.handle.group),
            merged_into=cluster.merged_into if cluster.closing is Closing.MERGED else None,
            merged=cluster.merged,
            learned=cluster.handle.learned,
            sampled=cluster.sampled,
        )

    def summary(self, identity: int) -> Summary | None:
        """Return the summary that a cluster would have now; it is not claimed.

        None if the cluster is gone, or nothing of it was recorded.
        """
        cluster = self._clusters.get(identity)
        if cluster is None or not cluster.count:
            return None
        return self._summary(cluster, cluster.revision + 1)

    async def merge_fitting(
        self, clusters: Sequence[int], queries: Sequence[Query], now_us: int
    ) -> list[int | None]:
        del now_us
        return [self._merge_fitting(*each) for each in zip(clusters, queries, strict=True)]

    def _merge_fitting(self, identity: int, query: Query) -> int | None:
        cluster = self._clusters.get(identity)
        if cluster is None or cluster.snapshot is None or cluster.closing is None:
            return None
        if identity != opened_id(self._namespace, query.group, query.position):
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
        cluster.closing = Closing.MERGED
        self._count_merged(cluster, root)
        cluster.snapshot = replace(claimed, closing=Closing.MERGED, merged_into=root.identity)
        return root.identity

    def merge_all_fitting(self) -> None:
        """Merge clusters as `merge_fitting` does, before all of them close (`finish`).

        Those that were restored stay as they are: the keys of their patterns are not stored.
        """
        if not self._summaries.final:
            return
        for cluster in list(self._clusters.values()):
            if cluster.revision or cluster.provisional or cluster.closing is Closing.MERGED:
                continue
            root = self._fitted_by(cluster, cluster.handle.one_off, cluster.last_us)
            if root is None:
                continue
            self._count_merged(cluster, root)
            if cluster.closing is None:
                self._close(cluster.identity, Closing.MERGED)
            cluster.closing = Closing.MERGED

    def _fitted_by(self, cluster: _Cluster, one_off: bytes, time_us: int) -> _Cluster | None:
        """Return the open cluster whose pattern that of another one, with these keys, fits.

        It was opened while the other one could still have taken its first event.
        """
        handle, until_us = cluster.handle, self._live_until_us(cluster)
        if handle.learned or not one_off:
            return None

        def is_live(other: Handle) -> bool:
            recorded = other is not handle and not self._clusters[other.cluster].provisional
            in_time = self._lookup.is_live(other, time_us) and other.opened_us <= until_us
            return recorded and in_time

        found = self._lookup.postings.find_fitting(handle.group, one_off, is_live)
        return None if found is None else self._clusters[found.cluster]

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        for identity, revision in summaries:
            cluster = self._clusters.get(identity)
            if cluster is None or cluster.snapshot is None:
                continue
            if cluster.snapshot.revision != revision:
                continue
            del self._leases[identity]
            self._confirm(identity, cluster, cluster.snapshot, now_us)

    def _confirm(self, identity: int, cluster: _Cluster, sent: Summary, now_us: int) -> None:
        cluster.snapshot = None
        cluster.reported = sent.count
        cluster.reported_us = max(cluster.reported_us, self._time.value_us or 0)
        cluster.due = False
        cluster.merged = cluster.merged[len(sent.merged) :]
        if cluster.closing is None:
            self._queue_summary(cluster)
        elif sent.final and sent.count == cluster.count:
            self._bury(identity, cluster, now_us)
        else:  # closed, or opened and closed again, while this summary was claimed
            self._finals[identity] = None

    def _bury(self, identity: int, cluster: _Cluster, now_us: int) -> None:
        """Leave only the tombstone of a closed cluster."""
        del self._clusters[identity]
        self._drop_sampled(cluster)
        self._finals.pop(identity, None)
        until = now_us + self._summaries.retention_us
        self._tombstones[identity] = _Tombstone(cluster.revision, cluster.count, until)
        self._tombstones.move_to_end(identity)
        while len(self._tombstones) > self._limits.max_clusters:
            self._tombstones.popitem(last=False)

    # ------------------------------------------------------------ reading

    async def representatives(self, clusters: Sequence[int]) -> list[Representative | None]:
        found = (self._clusters.get(identity) for identity in clusters)
        return [Representative(c.representative, c.handle.learned) if c else None for c in found]

    async def size(self) -> IndexSize:
        return IndexSize(
            clusters=self._open_count,
            fingerprints=self._lookup.fingerprints,
            waiting=self.waiting,
            evicted=self._evicted,
            expired=self._expired,
            truncated=self._lookup.truncated,
            table_bytes=self._lookup.nbytes,
            new_again=self._new_again,
            stream_us=self._time.value_us,
        )

    # ------------------------------------------------------------ saving

    def saved(self) -> tuple[SavedIndex, Iterator[SavedCluster]]:
        """Return all it holds but journals, to be used before it changes again."""
        heads, stream_us, seen_us = self._time.saved()
        index = SavedIndex(
            namespace=self._namespace,
            partitions=[(_saved(p), state.high_water) for p, state in self._partitions.items()],
            heads=[(_saved(p), head_us, active_us) for p, (head_us, active_us) in heads.items()],
            stream_us=stream_us,
            seen_us=seen_us,
            tombstones=[(identity, *kept) for identity, kept in self._tombstones.items()],
            evicted=self._evicted,
            expired=self._expired,
            new_again=self._new_again,
            truncated=self._lookup.truncated,
        )
        return index, filter(None, map(self._saved_cluster, self._clusters.values()))

    def _saved_cluster(self, cluster: _Cluster) -> SavedCluster | None:
        """Return a cluster as it was before it became provisional; None if it was nothing then."""
        handle, position, closing = cluster.handle, cluster.position, cluster.closing
        if closing is None and cluster.provisional:
            closing = cluster.before
            if closing is None:
                return None
        exacts, fingerprints = self._lookup.leads(handle) if closing is None else ([], [])
        width = saved_bytes(self.recipe)
        return SavedCluster(
            identity=cluster.identity,
            partition=_saved(Partition(position.source, position.partition)),
            offset=position.offset,
            group=_bytes(handle.group),
            fingerprint=handle.fingerprint.to_bytes(width, "big"),
            sketch=handle.sketch,
            opened_us=handle.opened_us,
            last_us=cluster.last_us,
            first_us=cluster.first_us,
            latest_us=cluster.latest_us,
            count=cluster.count,
            reported=cluster.reported,
            reported_us=cluster.reported_us,
            revision=cluster.revision,
            representative=cluster.representative,
            samples=cluster.samples,
            closing=closing,
            exacts=exacts,
            fingerprints=[number.to_bytes(width, "big") for number in fingerprints],
            postings=self._lookup.postings.leads(handle) if closing is None else [],
            learned=handle.learned,
            merged_into=cluster.merged_into,
            merged=cluster.merged,
            sampled=cluster.sampled,
            since_us=cluster.since_us,
        )

    def restore(self, saved: SavedIndex, clusters: Iterable[SavedCluster]) -> None:
        """Take over what another index held; this one must be new.

        Raises:
            ValueError: it is not what an index with this recipe can hold.
        """
        for name, high_water in saved.partitions:
            state = _PartitionState(high_water=high_water, committed=high_water + 1)
            self._partitions[_loaded(name)] = state
        heads = {_loaded(name): (head_us, seen_us) for name, head_us, seen_us in saved.heads}
        self._time.restore(heads, saved.stream_us, saved.seen_us)
        self._tombstones.update(
            (identity, _Tombstone(*kept)) for identity, *kept in saved.tombstones
        )
        self._namespace = saved.namespace
        self._evicted, self._expired = saved.evicted, saved.expired
        self._new_again, self._lookup.truncated = saved.new_again, saved.truncated
        for cluster in clusters:
            cluster.check(self.recipe)
            if cluster.identity in self._clusters:
                raise ValueError(f"cluster {cluster.identity:016x} is there twice")
            self._restore_cluster(cluster)
        self._evict(saved.seen_us or 0)

    def _restore_cluster(self, saved: SavedCluster) -> None:
        fingerprint = int.from_bytes(saved.fingerprint, "big")
        handle = Handle(
            -1, saved.identity, _text(saved.group), fingerprint, saved.sketch, saved.opened_us,
            learned=saved.learned,
        )  # fmt: skip
        cluster = _Cluster(
            saved.identity, Position(*_loaded(saved.partition), saved.offset), handle,
            saved.last_us, saved.first_us, saved.latest_us, saved.count,
            reported=saved.reported, reported_us=saved.reported_us, revision=saved.revision,
            representative=saved.representative, samples=saved.samples, closing=saved.closing,
            merged_into=saved.merged_into, merged=saved.merged, since_us=saved.since_us,
        )  # fmt: skip
        self._clusters[cluster.identity] = cluster
        self._keep_sampled(cluster, saved.sampled)
        if cluster.closing is not None:
            self._finals[cluster.identity] = None
            return
        numbers = [int.from_bytes(number, "big") for number in saved.fingerprints]
        self._lookup.restore(handle, saved.exacts, numbers, self._live_until_us(cluster))
        self._lookup.postings.restore(handle, saved.postings)
        self._queue_closing(cluster)
        self._queue_summary(cluster)

    # ------------------------------------------------------------ current times for the queues

    def _expires_us(self, identity: int) -> int | None:
        cluster = self._clusters.get(identity)
        if cluster is None or cluster.closing is not None:
            return None
        return self._live_until_us(cluster)

    def _seen_us(self, identity: int) -> int | None:
        cluster = self._clusters.get(identity)
        return None if cluster is None or cluster.closing is not None else cluster.last_us

    def _due_us(self, identity: int) -> int | None:
        cluster = self._clusters.get(identity)
        if cluster is None or not cluster.due:
            return None
        return self._summaries.due_us(cluster.reported_us)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as those of this index and of an engine over it.

    Raises:
        RuntimeError: it did suspend.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("the index waits for something: await the engine instead")


def _sampled_bytes(cluster: _Cluster) -> int:
    return sum(SAMPLED_BYTES + len(value) for _, value in cluster.sampled)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # names of files need not be UTF-8


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _saved(partition: Partition) -> Name:
    return _bytes(partition.source), partition.number


def _loaded(name: Name) -> Partition:
    return Partition(_text(name[0]), name[1])
