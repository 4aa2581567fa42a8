"""Events decided one at a time: those that the near cache knows, counted together later.

A commit to the index costs several times what such an event costs, so their counts are collected,
and the index learns of them with the next commit: before any other call that reads or changes it.
Decisions are those that the same events would get as one batch.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_dedup.engine.near_cache import CachedCluster, Key, NearCache
from stream_dedup.engine.sampling import Sampler
from stream_dedup.index.base import MAX_DELTAS, ClusterDelta, Commit
from stream_dedup.model import Decision, Partition

MAX_JOINS = 1_000
"""So many events are counted together at most: stream time moves only with a commit."""


class Joins:
    """What single events add to clusters of the near cache since the last commit.

    Args:
        cache: the near cache.
        sampler: chooses events whose values are counted; None for none.

    Attributes:
        count: events not committed yet.
        now_us: the clock when the last of them came.
    """

    def __init__(self, cache: NearCache, sampler: Sampler | None = None) -> None:
        self._cache = cache
        self._sampler = sampler
        self._events: list[tuple[Decision, bytes]] = []  # decisions and values, for the sampler
        self._deltas: dict[CachedCluster, ClusterDelta] = {}
        self._last_us = 0
        self.count = 0
        self.now_us = 0

    @property
    def full(self) -> bool:
        """Whether they have to be committed before another event is added."""
        return self.count >= MAX_JOINS or len(self._deltas) >= MAX_DELTAS

    def add(
        self, key: Key, value: bytes, time_us: int, now_us: int, is_open: Callable[[int], bool]
    ) -> Decision | None:
        """Let an event join the cluster that the near cache knows for certain; None if none.

        Events whose values are wanted as samples do not join here.

        Args:
            key: of the event in the near cache.
            value: its text.
            time_us: its time.
            now_us: the clock.
            is_open: tells whether the index has a cluster open: the near cache hears of its end
                only with a commit.
        """
        entry = self._cache.get(key)
        if entry is None:
            return None
        cluster = entry.cluster
        if cluster.samples_wanted:
            return None
        if time_us > cluster.live_until_us and not self._cache.is_live(cluster, time_us):
            return None
        if not is_open(cluster.cluster_id):
            return None
        if time_us > cluster.last_us:  # noqa: PLR1730 -- max() costs a call
            cluster.last_us = time_us
        delta = self._deltas.get(cluster)
        if delta is None:
            self._deltas[cluster] = ClusterDelta(
                cluster.cluster_id, 1, time_us, time_us, size=len(value)
            )
        else:
            delta.count += 1
            delta.size += len(value)
            if time_us > delta.last_us:
                delta.last_us = time_us
            elif time_us < delta.first_us:
                delta.first_us = time_us
        if time_us > self._last_us or not self.count:
            self._last_us = time_us
        self.now_us = now_us
        self.count += 1
        if self._sampler is not None:
            self._events.append((entry.decision, value))
        return entry.decision

    def take(self, partition: Partition, fence: int, first_offset: int) -> Commit:
        """Return what is to be recorded in the index, and begin again."""
        last_offset = first_offset + self.count - 1
        deltas = list(self._deltas.values())
        if self._sampler is not None:
            decisions, values = zip(*self._events, strict=True)
            offsets = range(first_offset, last_offset + 1)
            self._sampler.add(deltas, partition, offsets, decisions, values)
            self._events = []
        commit = Commit(
            partition=partition,
            fence=fence,
            first_offset=first_offset,
            last_offset=last_offset,
            committed=last_offset + 1,
            last_us=self._last_us,
            deltas=deltas,
        )
        self._deltas, self.count = {}, 0
        return commit
