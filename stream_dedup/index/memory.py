"""The index in memory: for the embedded engine, for one worker, and as the model of the others.

Theory of operation
-------------------
A cluster is *open* (it has a place in the `Finder`, takes events), then *closed* (nothing leads to
it, its final summary waits), then gone (a tombstone keeps its revision and count for a while)::

    resolve opens ──► open ──record──► open ──expired, evicted, ended──► closed ──confirm──► gone
                       │                                                                     │
                       └──closed before anything was recorded──► gone, silently              │
                       ▲                                                                     │
                       └─────────── its representative is delivered again ◄──────────────────┘

Room: `record` closes the least recently seen above `max_clusters`, so the index holds at most
that many open clusters and those of the batch at hand. Closed ones wait for `claim` and `confirm`;
while too many wait (`base.max_waiting`), `resolve` opens no others.

Memory: some 500 bytes a cluster and 100 to 300 a fingerprint, beside the values kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from stream_dedup.clustering.linkage import cluster_id
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import StreamTime, Windows
from stream_dedup.errors import IndexFull, PartitionUnclaimed, ProtocolError, StaleFence
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import (
    ClusterDelta,
    Commit,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Resolution,
    check_width,
    max_waiting,
    too_many_wait,
)
from stream_dedup.index.lazy_heap import LazyHeap
from stream_dedup.index.lookup import Finder, Place
from stream_dedup.model import Closing, Decision, Partition, Position, Summary


@dataclass(slots=True, eq=False)
class _Cluster:
    """One cluster's state.

    `last_us` is what the window goes by: it takes in what `resolve` asked for; `first_us` and
    `latest_us` are the times of what was recorded. `told` is the count at the last confirmed
    summary, `base` the count it was opened with (from a tombstone), `due` whether it stands in
    the queue of summaries. While it is closed its `place` is the last one.
    """

    identity: int
    position: Position
    place: Place
    last_us: int
    first_us: int
    latest_us: int
    count: int = 0
    base: int = 0
    told: int = 0
    told_us: int = 0
    revision: int = 0
    representative: bytes = b""
    samples: tuple[bytes, ...] = ()
    due: bool = False
    closing: Closing | None = None
    snapshot: Summary | None = None
    recorded: bool = False


@dataclass(slots=True)
class _Ownership:
    """What is known of a partition."""

    fence: int = 0
    high_water: int = -1
    committed: int = 0
    journal: dict[int, Decision] = field(default_factory=dict)


class MemoryIndex:
    """The index in memory; see `base.Index` for the methods.

    Not safe to share by threads. Its coroutines never suspend.

    Args:
        recipe: what counts as near.
        namespace: what ids are made of, with positions; the recipe's name without.
        windows: when clusters close.
        summaries: how often they are told of.
        limits: how much it holds.
        cap_waiting: refuse to open clusters when too many closed ones wait to be told of; without,
            whoever calls it has to see to that.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        namespace: str = "",
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        limits: Limits | None = None,
        cap_waiting: bool = True,
    ) -> None:
        check_width(recipe)
        self.recipe = recipe
        self._cap_waiting = cap_waiting
        self.resets = self.mirrored = 0  # nothing of it is elsewhere
        self._namespace = namespace or recipe.name
        self._windows = windows or Windows()
        self._summaries = summaries or Summaries()
        self._limits = limits or Limits()
        self._finder = Finder(recipe, self._limits)
        self._clusters: dict[int, _Cluster] = {}
        self._open = 0
        self._partitions: dict[Partition, _Ownership] = {}
        self._time = StreamTime(self._windows)
        self._expiry = LazyHeap(self._expires_us)
        self._recency: LazyHeap | None = None  # kept from when the first had to go
        self._due = LazyHeap(self._due_us)
        self._finals: dict[int, None] = {}
        self._leases: dict[int, int] = {}  # claimed cluster → when its lease ends (clock)
        # → (revision, count, until)
        self._tombstones: OrderedDict[int, tuple[int, int, int]] = OrderedDict()
        self._evicted = self._expired = 0

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int
    ) -> Ownership:
        del now_us
        state = self._partitions.setdefault(partition, _Ownership())
        state.fence += 1
        reset = end_offset is not None and state.high_water >= end_offset
        if reset:
            state.high_water, state.committed = -1, 0
            state.journal.clear()
        return Ownership(state.fence, state.high_water, dict(state.journal), reset)

    async def release_partition(self, partition: Partition) -> None:
        self._time.release(partition)

    # ------------------------------------------------------------ deciding

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        return [self._resolve(query, now_us) for query in queries]

    def _resolve(self, query: Query, now_us: int) -> Resolution:
        identity = cluster_id(self._namespace, query.position)
        own = self._clusters.get(identity)
        if (
            own is not None
            and own.closing is None
            and self._finder.takes(own.place, query.first_us)
            and own.place.fingerprint == query.fingerprint
        ):
            return self._join(query, own, 0)  # it has opened it before; others may be as near
        found = self._finder.named(query)
        if found is None or not self._finder.takes(found[0], query.first_us):
            found = self._finder.near(query) if query.near else None
            if found is not None:
                self._finder.add_alias(query, *found)
        if found is None:
            return self._open_cluster(identity, query, now_us)
        place, distance = found
        return self._join(query, self._clusters[place.cluster], distance)

    def _see(self, cluster: _Cluster, last_us: int) -> None:
        """An open cluster was seen."""
        if last_us > cluster.last_us:
            cluster.last_us = last_us
            self._finder.extend(cluster.place, self._live_until_us(cluster))

    def _live_until_us(self, cluster: _Cluster) -> int:
        return self._windows.expires_us(cluster.place.opened_us, cluster.last_us)

    def _join(self, query: Query, cluster: _Cluster, distance: int) -> Resolution:
        self._see(cluster, query.last_us)
        new = cluster.position == query.position
        identity, opened_us, last_us = cluster.identity, cluster.place.opened_us, cluster.last_us
        return Resolution(identity, distance, new, opened_us, last_us, cluster.recorded)

    def _open_cluster(self, identity: int, query: Query, now_us: int) -> Resolution:
        standing = self._clusters.get(identity)
        if standing is not None:
            # It was opened under this position: its window has passed, its final summary waits, or
            # the text is another's (the topic was made anew, the file rewritten).
            self._reopen(standing, query)
            return self._join(query, standing, 0)
        waiting = len(self._clusters) - self._open
        if self._cap_waiting and waiting > max_waiting(self._limits.max_clusters):
            raise IndexFull(too_many_wait(waiting))
        cluster = _Cluster(
            identity, query.position, self._placed(identity, query), query.last_us,
            query.first_us, query.first_us, told_us=query.first_us,
        )  # fmt: skip
        self._restore(cluster, now_us)
        self._clusters[identity] = cluster
        self._enlist(cluster)
        return Resolution(identity, 0, True, query.first_us, cluster.last_us)

    def _placed(self, identity: int, query: Query) -> Place:
        until_us = self._windows.expires_us(query.first_us, query.last_us)
        return self._finder.add(identity, query, until_us)

    def _enlist(self, cluster: _Cluster) -> None:
        """Put an opened cluster into the queues."""
        self._open += 1
        self._expiry.push(self._live_until_us(cluster), cluster.identity)
        if self._recency is not None:
            self._recency.push(cluster.last_us, cluster.identity)

    def _reopen(self, cluster: _Cluster, query: Query) -> None:
        """Open a cluster again: closed first if it is open, with revisions and counts going on."""
        if cluster.closing is None:
            self._delist(cluster)
        cluster.closing, cluster.recorded = None, False
        # What is kept of another text goes, unless a summary that tells of it is on its way.
        if cluster.place.fingerprint != query.fingerprint and cluster.snapshot is None:
            cluster.representative, cluster.samples = b"", ()
        cluster.place = self._placed(cluster.identity, query)
        cluster.last_us = query.last_us
        self._finals.pop(cluster.identity, None)
        self._enlist(cluster)

    def _restore(self, cluster: _Cluster, now_us: int) -> None:
        """Go on from the tombstone, where the representative was delivered again late."""
        # It stays until it is replaced: if nobody records, the cluster closes without a word.
        tombstone = self._tombstones.get(cluster.identity)
        if tombstone is not None and tombstone[2] >= now_us:
            cluster.revision, cluster.count, _ = tombstone
            cluster.told = cluster.base = cluster.count

    # ------------------------------------------------------------ counting

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        state = self._partitions.get(record.partition)
        if state is None:
            raise PartitionUnclaimed(f"{record.partition}: nobody has claimed it")
        if record.fence != state.fence:
            raise StaleFence(
                f"{record.partition}: fence {record.fence} is not the latest, which is "
                f"{state.fence}"
            )
        if record.last_offset <= state.high_water:
            return frozenset()
        if record.first_offset <= state.high_water:
            raise ProtocolError(
                f"{record.partition}: offsets {record.first_offset} to {record.last_offset} "
                f"straddle the high water {state.high_water}"
            )
        closed = frozenset(t.cluster for t in record.deltas if not self._is_open(t.cluster))
        self._time.record(record.partition, record.last_us, now_us)
        if closed:
            return closed
        for delta in record.deltas:
            self._count(delta)
        state.high_water = record.last_offset
        if state.committed < record.committed:
            state.committed = record.committed
            for offset in [offset for offset in state.journal if offset < record.committed]:
                del state.journal[offset]
        state.journal.update(zip(*record.uncommitted(), strict=True))
        self._advance(now_us)
        self._evict()
        return closed

    def _is_open(self, identity: int) -> bool:
        cluster = self._clusters.get(identity)
        return cluster is not None and cluster.closing is None

    def _count(self, delta: ClusterDelta) -> None:
        cluster = self._clusters[delta.cluster]
        cluster.count += delta.count
        cluster.first_us = min(cluster.first_us, delta.first_us)
        cluster.latest_us = max(cluster.latest_us, delta.last_us)
        self._see(cluster, delta.last_us)
        limit = self._summaries.max_value_bytes
        if delta.representative is not None:
            cluster.recorded = True
            if not cluster.representative:
                cluster.representative = delta.representative[:limit]
        room = self._summaries.samples - len(cluster.samples)
        if room > 0 and delta.samples:
            cluster.samples += tuple(sample[:limit] for sample in delta.samples[:room])
        # The first event leaves by itself: a summary has news from the second on.
        if not cluster.due and cluster.count > max(1, cluster.told):
            due_us = self._summaries.due_us(cluster.told_us)
            if due_us is not None:
                cluster.due = True
                self._due.push(due_us, delta.cluster)

    # ------------------------------------------------------------ closing

    async def expire(self, now_us: int) -> None:
        self._advance(now_us)

    async def finish(self, now_us: int) -> None:
        del now_us
        for identity in [i for i, c in self._clusters.items() if c.closing is None]:
            self._close(identity, Closing.ENDED)

    def _advance(self, now_us: int) -> None:
        stream_us = self._time.advance(now_us)
        if stream_us is None:
            return
        for identity in self._expiry.pop_until(stream_us - 1, self._limits.sweep):
            cluster = self._clusters[identity]
            self._expired += cluster.count > cluster.base
            self._close(identity, Closing.EXPIRED)

    def _evict(self) -> None:
        if self._open > self._limits.max_clusters and self._recency is None:
            self._recency = LazyHeap(self._seen_us)
            for cluster in self._clusters.values():
                if cluster.closing is None:
                    self._recency.push(cluster.last_us, cluster.identity)
        while self._recency is not None and self._open > self._limits.max_clusters:
            least = self._recency.least()
            if least is None:  # pragma: no cover -- every open cluster is in the heap
                return
            self._evicted += 1
            self._close(least[1], Closing.EVICTED)

    def _close(self, identity: int, reason: Closing) -> None:
        cluster = self._clusters[identity]
        self._delist(cluster)
        if cluster.count == cluster.base:
            del self._clusters[identity]  # nobody recorded anything
            return
        cluster.closing = reason
        self._finals[identity] = None

    def _delist(self, cluster: _Cluster) -> None:
        """An open cluster is to be found no more; the queues forget it by themselves."""
        self._finder.remove(cluster.place)
        self._open -= 1

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
                    cluster.due = False  # its final summary tells
                elif identity not in leases:
                    leases[identity] = until_us
                    taken.append(identity)
                    if len(taken) == limit:
                        break
        leases.update((identity, until_us) for identity in taken)
        return [self._snapshot(identity) for identity in taken]

    def _snapshot(self, identity: int) -> Summary:
        cluster = self._clusters[identity]
        if cluster.snapshot is None:
            cluster.revision += 1
            cluster.snapshot = Summary(
                cluster=identity,
                revision=cluster.revision,
                closing=cluster.closing,
                count=cluster.count,
                new_count=cluster.count - cluster.told,
                first_time_us=cluster.first_us,
                last_time_us=cluster.latest_us,
                position=cluster.position,
                representative=cluster.representative,
                samples=cluster.samples,
                group=cluster.place.group,
            )
        return cluster.snapshot

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        for identity, revision in summaries:
            cluster = self._clusters.get(identity)
            if cluster is None or cluster.snapshot is None:
                continue
            if cluster.snapshot.revision != revision:
                continue
            del self._leases[identity]
            self._settle(identity, cluster, cluster.snapshot, now_us)

    def _settle(self, identity: int, cluster: _Cluster, sent: Summary, now_us: int) -> None:
        cluster.snapshot = None
        cluster.told = sent.count
        cluster.told_us = max(cluster.told_us, self._time.value_us or 0)
        cluster.due = False
        if cluster.closing is None:
            if cluster.count > cluster.told:
                due_us = self._summaries.due_us(cluster.told_us)
                if due_us is not None:
                    cluster.due = True
                    self._due.push(due_us, identity)
        elif sent.final and sent.count == cluster.count:
            del self._clusters[identity]
            self._finals.pop(identity, None)
            self._bury(identity, cluster, now_us)
        else:  # it closed, or went on and closed again, while this one was on its way
            self._finals[identity] = None

    def _bury(self, identity: int, cluster: _Cluster, now_us: int) -> None:
        until = now_us + self._summaries.retention_us
        self._tombstones[identity] = (cluster.revision, cluster.count, until)
        self._tombstones.move_to_end(identity)
        while len(self._tombstones) > self._limits.max_clusters:
            self._tombstones.popitem(last=False)

    # ------------------------------------------------------------ looking

    async def representatives(self, clusters: Sequence[int]) -> list[bytes | None]:
        found = (self._clusters.get(identity) for identity in clusters)
        return [cluster.representative if cluster else None for cluster in found]

    async def size(self) -> IndexSize:
        return IndexSize(
            clusters=self._open,
            fingerprints=self._finder.fingerprints,
            waiting=len(self._clusters) - self._open,
            evicted=self._evicted,
            expired=self._expired,
            truncated=self._finder.truncated,
            table_bytes=self._finder.nbytes,
        )

    # ------------------------------------------------------------ what the queues ask

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
        return cluster.told_us + (self._summaries.every_us or 0)
