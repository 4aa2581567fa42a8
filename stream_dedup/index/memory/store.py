"""The index in memory: for the embedded engine, for one worker, and as the model of the others.

`Clusters` opens, counts and closes clusters, `Resolver` finds the cluster of an event,
`PendingSummaries` has what waits to be sent, and `Partitions` who owns partitions.

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

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from stream_dedup.clustering.openings import OpenedPatterns
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import StreamTime, Windows
from stream_dedup.errors import AlreadyRecorded
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import (
    Commit,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Representative,
    Resolution,
    check_width,
    recorded_before,
)
from stream_dedup.index.memory.clusters import Clusters
from stream_dedup.index.memory.partitions import Partitions
from stream_dedup.index.memory.resolver import Resolver
from stream_dedup.index.memory.saved import (
    SavedCluster,
    SavedIndex,
    loaded_name,
    saved_bytes,
    saved_cluster,
    saved_name,
)
from stream_dedup.model import Closing, Partition, Summary

T = TypeVar("T")


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
        self.resets = self.mirrored = 0  # nothing of it is remote
        windows, limits = windows or Windows(), limits or Limits()
        self._summaries = summaries or Summaries()
        self._time = StreamTime(windows)
        self._partitions = Partitions()
        self._clusters = Clusters(recipe, windows, self._summaries, limits)
        self._resolver = Resolver(
            self._clusters,
            OpenedPatterns(recipe.match.learn, windows.idle_us),
            namespace or recipe.name,
            limits,
            cap_waiting=cap_waiting,
            each_call=each_call,
        )

    @property
    def waiting(self) -> int:
        """Closed clusters whose final summary is not confirmed."""
        return self._clusters.waiting

    @property
    def taught(self) -> list[bool]:
        """For each query of the last call of `resolve`: false if it only repeated what was known.

        That is an equal event or a learned variable. An index whose clusters never close learns the
        same words without it.
        """
        return self._resolver.taught

    @property
    def knows_combinations(self) -> bool:
        """See `base.Index`."""
        return self._resolver.knows_combinations

    def may_fit(self, group: str, one_off: bytes) -> bool:
        """See `base.Index`."""
        del group
        return self._resolver.may_fit(one_off)

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None, now_us: int, identity: str = ""
    ) -> Ownership:
        del now_us
        return self._partitions.claim(partition, end_offset, identity)

    async def read_partition(self, partition: Partition, fence: int) -> Ownership:
        return self._partitions.claimed(partition, fence).ownership()

    async def note_committed(self, partition: Partition, fence: int, offset: int) -> None:
        self._partitions.note_committed(partition, fence, offset)

    async def release_partition(self, partition: Partition) -> None:
        self._time.release(partition)

    # ------------------------------------------------------------ deciding and counting

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        return self._resolver.resolve(queries, now_us)

    async def record(self, commit: Commit, now_us: int) -> frozenset[int]:
        state = self._partitions.claimed(commit.partition, commit.fence)
        if commit.first_offset <= state.high_water:
            raise AlreadyRecorded(recorded_before(commit))
        refused = self._clusters.refused(commit.deltas)
        self._time.record(commit.partition, commit.last_us, now_us)
        if refused:
            for identity in refused:
                if self.is_open(identity):  # provisional
                    self._clusters.close(identity, Closing.ENDED)
            return refused
        for delta in commit.deltas:
            self._clusters.count(delta)
        state.record(commit)
        self._close_some(now_us)
        return refused

    def is_open(self, identity: int) -> bool:
        """Return whether a cluster takes events."""
        return self._clusters.is_open(identity)

    # ------------------------------------------------------------ closing

    async def expire(self, now_us: int) -> None:
        self._close_some(now_us)

    async def finish(self, now_us: int) -> None:
        self._clusters.finish(now_us)

    def _close_some(self, now_us: int) -> None:
        """Close clusters whose time has passed, and those for which there is no room."""
        stream_us = self._time.advance(now_us)
        if stream_us is not None:
            self._clusters.expire(stream_us, now_us)
        self._clusters.evict(now_us)

    # ------------------------------------------------------------ summaries

    async def claim(self, limit: int, now_us: int) -> list[Summary]:
        return self._clusters.pending.claim(limit, now_us, self._time.value_us)

    def summary(self, identity: int) -> Summary | None:
        """Return the summary that a cluster would have now; it is not claimed.

        None if the cluster is gone, or nothing of it was recorded.
        """
        cluster = self._clusters.get(identity)
        if cluster is None or not cluster.count:
            return None
        return cluster.summary(cluster.revision + 1)

    async def merge_fitting(
        self, clusters: Sequence[int], queries: Sequence[Query], now_us: int
    ) -> list[int | None]:
        del now_us
        pairs = zip(clusters, queries, strict=True)
        return [self._resolver.merge_fitting(identity, query) for identity, query in pairs]

    def merge_all_fitting(self) -> None:
        """Merge clusters as `merge_fitting` does, before all of them close (`finish`).

        Those that were restored stay as they are: the keys of their patterns are not stored.
        """
        if self._summaries.final:
            self._resolver.merge_all_fitting()

    async def confirm(self, summaries: Sequence[tuple[int, int]], now_us: int) -> None:
        for identity, revision in summaries:
            done = self._clusters.pending.confirm(identity, revision, self._time.value_us)
            if done is not None:
                self._clusters.bury(done, now_us)

    # ------------------------------------------------------------ reading

    async def representatives(self, clusters: Sequence[int]) -> list[Representative | None]:
        found = map(self._clusters.get, clusters)
        return [Representative(c.representative, c.handle.learned) if c else None for c in found]

    async def size(self) -> IndexSize:
        clusters, lookup = self._clusters, self._clusters.lookup
        return IndexSize(
            clusters=clusters.open_count,
            fingerprints=lookup.fingerprints,
            waiting=clusters.waiting,
            evicted=clusters.evicted,
            expired=clusters.expired,
            truncated=lookup.truncated,
            table_bytes=lookup.nbytes,
            new_again=clusters.new_again,
            stream_us=self._time.value_us,
        )

    # ------------------------------------------------------------ saving

    def saved(self) -> tuple[SavedIndex, Iterator[SavedCluster]]:
        """Return all it holds but journals, to be used before it changes again."""
        heads, stream_us, seen_us = self._time.saved()
        clusters, lookup = self._clusters, self._clusters.lookup
        index = SavedIndex(
            namespace=self._resolver.namespace,
            partitions=[(saved_name(p), mark) for p, mark in self._partitions.high_waters()],
            heads=[(saved_name(p), *times) for p, times in heads.items()],
            stream_us=stream_us,
            seen_us=seen_us,
            tombstones=clusters.tombstones(),
            evicted=clusters.evicted,
            expired=clusters.expired,
            new_again=clusters.new_again,
            truncated=lookup.truncated,
        )
        width = saved_bytes(self.recipe)
        return index, filter(None, (saved_cluster(each, lookup, width) for each in clusters))

    def restore(self, saved: SavedIndex, clusters: Iterable[SavedCluster]) -> None:
        """Take over what another index held; this one must be new.

        Raises:
            ValueError: it is not what an index with this recipe can hold.
        """
        self._partitions.restore((loaded_name(name), mark) for name, mark in saved.partitions)
        heads = {loaded_name(name): (head_us, seen_us) for name, head_us, seen_us in saved.heads}
        self._time.restore(heads, saved.stream_us, saved.seen_us)
        self._resolver.namespace = saved.namespace
        own = self._clusters
        own.restore_tombstones(saved.tombstones)
        own.evicted, own.expired = saved.evicted, saved.expired
        own.new_again, own.lookup.truncated = saved.new_again, saved.truncated
        for cluster in clusters:
            cluster.check(self.recipe)
            if own.get(cluster.identity) is not None:
                raise ValueError(f"cluster {cluster.identity:016x} is there twice")
            own.restore(cluster)
        own.evict(saved.seen_us or 0)


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
