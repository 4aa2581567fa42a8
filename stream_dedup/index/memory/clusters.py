"""The clusters of an index in memory, from opening to tombstone; `store` says in which states."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import MAX_MERGED_NAMED, ClusterDelta, Limits, Query
from stream_dedup.index.memory.cluster import Cluster, Tombstone
from stream_dedup.index.memory.lookup import EvictedKeys, Lookup
from stream_dedup.index.memory.pending import PendingSummaries
from stream_dedup.index.memory.queues import LazyHeap
from stream_dedup.index.memory.saved import SavedCluster, loaded_cluster
from stream_dedup.model import Closing

SAMPLED_BYTES = 130
"""Of an event that a cluster keeps by chance, besides its value."""

MAX_SAMPLED_BYTES = 64 << 20
"""Of the events that clusters keep by chance, all together; above it they keep no others."""


class Clusters:
    """Opens, counts and closes clusters.

    Args:
        recipe: what counts as near.
        windows: when clusters close.
        summaries: how often summaries are due, and what they hold.
        limits: how many clusters may be open.

    Attributes:
        lookup: finds those that are open.
        pending: the summaries that wait.
        open_count: open ones.
        evicted: those that were closed for lack of room.
        expired: those that were closed by time.
        new_again: those that were opened for an event whose cluster was evicted.
    """

    def __init__(
        self, recipe: Recipe, windows: Windows, summaries: Summaries, limits: Limits
    ) -> None:
        self.lookup = Lookup(recipe, limits)
        self.open_count = self.evicted = self.expired = self.new_again = 0
        self._windows = windows
        self._summaries = summaries
        self._limits = limits
        self._by_id: dict[int, Cluster] = {}
        self.pending = PendingSummaries(summaries, self._by_id)
        self._expiry = LazyHeap(self._expires_us, self._by_id)
        self._recency: LazyHeap | None = None  # made when the first has to be evicted
        self._tombstones: OrderedDict[int, Tombstone] = OrderedDict()
        self._sampled_bytes = 0
        self._evicted_keys = EvictedKeys(limits.max_clusters)

    def __getitem__(self, identity: int) -> Cluster:
        return self._by_id[identity]

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self._by_id.values())

    def get(self, identity: int) -> Cluster | None:
        """Return a cluster; None if it is gone."""
        return self._by_id.get(identity)

    @property
    def waiting(self) -> int:
        """Closed clusters whose final summary is not confirmed."""
        return len(self._by_id) - self.open_count

    def is_open(self, identity: int) -> bool:
        """Return whether a cluster takes events."""
        cluster = self._by_id.get(identity)
        return cluster is not None and cluster.is_open

    def live_until_us(self, cluster: Cluster) -> int:
        """Return the last event time for which a cluster takes events."""
        return self._windows.expires_us(cluster.handle.opened_us, cluster.last_us)

    def see(self, cluster: Cluster, last_us: int) -> None:
        """Note that an open cluster was seen."""
        if last_us > cluster.last_us:
            cluster.last_us = last_us
            self.lookup.extend(cluster.handle, self.live_until_us(cluster))

    # ------------------------------------------------------------ opening

    def open(self, identity: int, query: Query, now_us: int) -> Cluster:
        """Open a cluster that is not there, for the event of a query."""
        cluster = Cluster(
            identity, query.position, self.lookup.add(identity, query, self._until_us(query)),
            query.last_us, query.first_us, query.first_us, reported_us=query.first_us,
        )  # fmt: skip
        if self._tombstones:
            self._continue(cluster, now_us)
        self.new_again += self._evicted_keys.take(query)
        self._by_id[identity] = cluster
        self._queue_closing(cluster)
        return cluster

    def reopen(self, cluster: Cluster, query: Query) -> None:
        """Open a cluster again; its revisions and counts go on."""
        if cluster.is_open:
            self._remove_from_lookup(cluster)
        if not (cluster.is_open and cluster.provisional):
            cluster.before = cluster.closing or Closing.EXPIRED
        cluster.closing, cluster.initial_count = None, cluster.count
        cluster.handle = self.lookup.add(cluster.identity, query, self._until_us(query))
        cluster.last_us = query.last_us
        self.pending.remove_final(cluster.identity)
        self._queue_closing(cluster)

    def _until_us(self, query: Query) -> int:
        return self._windows.expires_us(query.first_us, query.last_us)

    def _continue(self, cluster: Cluster, now_us: int) -> None:
        """Continue from the tombstone of a representative that is delivered again late."""
        # The tombstone stays until it is replaced: if nothing is recorded, the cluster closes
        # silently.
        tombstone = self._tombstones.get(cluster.identity)
        if tombstone is not None and tombstone.until_us >= now_us:
            cluster.revision, cluster.count = tombstone.revision, tombstone.events
            cluster.reported = cluster.initial_count = cluster.count

    def _queue_closing(self, cluster: Cluster) -> None:
        """Put an opened cluster into the queues by which it closes."""
        self.open_count += 1
        self._expiry.push(self.live_until_us(cluster), cluster.identity)
        if self._recency is not None:
            self._recency.push(cluster.last_us, cluster.identity)

    # ------------------------------------------------------------ counting

    def refused(self, deltas: Iterable[ClusterDelta]) -> frozenset[int]:
        """Return those that may not count: a provisional one counts its first event first."""
        clusters, closed = self._by_id, []
        for delta in deltas:
            cluster = clusters.get(delta.cluster)
            if (
                cluster is None
                or cluster.closing is not None
                or (cluster.provisional and delta.representative is None)
            ):
                closed.append(delta.cluster)
        return frozenset(closed)

    def count(self, delta: ClusterDelta) -> None:
        """Add what a segment adds to an open cluster."""
        cluster = self._by_id[delta.cluster]
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
            self.see(cluster, last_us)
        if delta.samples:
            room = max(0, self._summaries.samples - len(cluster.samples))
            cluster.samples += tuple(sample[:limit] for sample in delta.samples[:room])
        if delta.sampled:
            self._keep_sampled(cluster, delta.sampled)
        if not cluster.due and self._summaries.every_us is not None:
            self.pending.queue(cluster)

    def _keep_sampled(self, cluster: Cluster, sampled: Iterable[tuple[int, bytes]]) -> None:
        """Keep the events of least priority, unless too much is kept of all clusters."""
        if self._sampled_bytes > MAX_SAMPLED_BYTES:
            return
        least = sorted({**dict(cluster.sampled), **dict(sampled)}.items())
        self._drop_sampled(cluster)
        cluster.sampled = tuple(least[: self._summaries.values])
        self._sampled_bytes += _sampled_bytes(cluster)

    def _drop_sampled(self, cluster: Cluster) -> None:
        self._sampled_bytes -= _sampled_bytes(cluster)
        cluster.sampled = ()

    # ------------------------------------------------------------ merging

    def merge(self, loser: Cluster, root: Cluster, looks: int) -> None:
        """Let an open cluster merge into another one.

        Args:
            loser: the cluster.
            root: the other one.
            looks: so many posting lists are looked at, at most.
        """
        self.lookup.merge(loser.handle, root.handle, looks)
        self.see(root, loser.last_us)
        if not loser.provisional:
            self._count_merged(loser, root)
        self.close(loser.identity, Closing.MERGED)

    def merge_closing(self, loser: Cluster, root: Cluster) -> None:
        """Let a cluster that closes, or has closed, merge into another one."""
        self._count_merged(loser, root)
        if loser.is_open:
            self.close(loser.identity, Closing.MERGED)
        loser.closing = Closing.MERGED

    def _count_merged(self, loser: Cluster, root: Cluster) -> None:
        """Let the summaries of two clusters say that one has merged into the other."""
        loser.merged_into = root.identity
        if len(root.merged) < MAX_MERGED_NAMED:
            root.merged += ((loser.identity, loser.count),)
        self._keep_sampled(root, loser.sampled)

    # ------------------------------------------------------------ closing

    def expire(self, stream_us: int, now_us: int) -> None:
        """Close clusters whose window has passed in stream time, as many as a sweep takes."""
        for identity in self._expiry.pop_until(stream_us - 1, self._limits.sweep):
            self.expired += not self._by_id[identity].provisional
            self._let_go(identity, Closing.EXPIRED, now_us)

    def evict(self, now_us: int) -> None:
        """Close the least recently seen clusters while too many are open."""
        if self.open_count > self._limits.max_clusters and self._recency is None:
            self._recency = LazyHeap(self._seen_us, self._by_id)
            for cluster in self._by_id.values():
                if cluster.is_open:
                    self._recency.push(cluster.last_us, cluster.identity)
        while self._recency is not None and self.open_count > self._limits.max_clusters:
            least = self._recency.least()
            if least is None:  # pragma: no cover -- every open cluster is in the heap
                return
            self.evicted += 1
            cluster = self._by_id[least[1]]
            self._evicted_keys.add(cluster.handle, self.live_until_us(cluster))
            self._let_go(least[1], Closing.EVICTED, now_us)

    def finish(self, now_us: int) -> None:
        """Close all clusters."""
        for identity in [cluster.identity for cluster in self if cluster.is_open]:
            self._let_go(identity, Closing.ENDED, now_us)

    def _let_go(self, identity: int, reason: Closing, now_us: int) -> None:
        """Close a cluster; where nobody reads final summaries, only its tombstone is left."""
        self.close(identity, reason)
        cluster = self._by_id.get(identity)
        if cluster is None or cluster.provisional or cluster.snapshot is not None:
            return
        if not self._summaries.final:
            self.bury(cluster, now_us)

    def close(self, identity: int, reason: Closing) -> None:
        """Close an open cluster; a provisional one becomes what it was before."""
        cluster = self._by_id[identity]
        self._remove_from_lookup(cluster)
        if not cluster.provisional:
            cluster.closing = reason
        elif cluster.before is not None:
            cluster.closing = cluster.before
        else:
            del self._by_id[identity]
            return
        self.pending.add_final(identity)

    def _remove_from_lookup(self, cluster: Cluster) -> None:
        """Let nothing lead to an open cluster any more; the queues drop it by themselves."""
        self.lookup.remove(cluster.handle)
        self.open_count -= 1

    def bury(self, cluster: Cluster, now_us: int) -> None:
        """Leave only the tombstone of a closed cluster."""
        identity = cluster.identity
        del self._by_id[identity]
        self._drop_sampled(cluster)
        self.pending.remove_final(identity)
        until_us = now_us + self._summaries.retention_us
        self._tombstones[identity] = Tombstone(cluster.revision, cluster.count, until_us)
        self._tombstones.move_to_end(identity)
        while len(self._tombstones) > self._limits.max_clusters:
            self._tombstones.popitem(last=False)

    # ------------------------------------------------------------ saving

    def tombstones(self) -> list[tuple[int, int, int, int]]:
        """Return all tombstones: id, revision, events, and how long to keep them."""
        return [(identity, *kept) for identity, kept in self._tombstones.items()]

    def restore_tombstones(self, tombstones: Iterable[tuple[int, int, int, int]]) -> None:
        """Take over tombstones as `tombstones` has returned them."""
        for identity, *kept in tombstones:
            self._tombstones[identity] = Tombstone(*kept)

    def restore(self, saved: SavedCluster) -> None:
        """Take over a cluster that another index has held."""
        cluster = loaded_cluster(saved)
        self._by_id[cluster.identity] = cluster
        self._keep_sampled(cluster, saved.sampled)
        if not cluster.is_open:
            self.pending.add_final(cluster.identity)
            return
        numbers = [int.from_bytes(number, "big") for number in saved.fingerprints]
        self.lookup.restore(cluster.handle, saved.exacts, numbers, self.live_until_us(cluster))
        self.lookup.postings.restore(cluster.handle, saved.postings)
        self._queue_closing(cluster)
        self.pending.queue(cluster)

    # ------------------------------------------------------------ current times for the queues

    def _expires_us(self, identity: int) -> int | None:
        cluster = self._by_id.get(identity)
        return None if cluster is None or not cluster.is_open else self.live_until_us(cluster)

    def _seen_us(self, identity: int) -> int | None:
        cluster = self._by_id.get(identity)
        return None if cluster is None or not cluster.is_open else cluster.last_us


def _sampled_bytes(cluster: Cluster) -> int:
    return sum(SAMPLED_BYTES + len(value) for _, value in cluster.sampled)
