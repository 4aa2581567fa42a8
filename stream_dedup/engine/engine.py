"""The engine: from batches of events to decisions and summaries, over any index.

One batch's way (see `index.base`)
----------------------------------
1. `hash` makes the exact hashes of all its events; any thread may do it ahead.
2. `process` cuts it into stretches (see `stretch`). A stretch that was recorded before takes its
   decisions from the partition's journal, or, where that no longer holds them, from the index as
   it stands; it counts nothing. Any other is resolved and recorded.
3. The caller sends what was decided, commits, and says with the next batch what is committed.

The engine itself keeps nothing that cannot be lost: what it knows of clusters is in the near cache,
what it knows of partitions it learns again by claiming them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stream_dedup.clock import Clock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.hashing import (
    NOTHING,
    REPLAYED,
    Decider,
    HashedBatch,
    Offload,
    Owned,
    inline,
)
from stream_dedup.engine.segment import Stretch, stretch_end
from stream_dedup.errors import IndexReset, PartitionUnclaimed, ProtocolError
from stream_dedup.features.fields import UNDECODABLE
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Commit, Index, Ownership
from stream_dedup.model import Batch, Decision, Partition, Summary

NEAR_CACHE_SIZE = 200_000
"""Exact hashes in the near cache, in each of its two generations; some 440 bytes each."""

CLAIM_BATCH = 1_000
"""Summaries claimed at once."""


@dataclass(slots=True)
class Counts:
    """What was decided so far.

    Attributes:
        events: those counted; new + duplicates + passed.
        new: events that opened a cluster.
        duplicates: events that joined one.
        passed: events that were not fingerprinted, by reason.
        clamped: events whose time lay too far in the future and was cut back.
        asked: events that the near cache did not know.
        redelivered: events that came again and were decided as before; not among `events`.
        replayed: events counted before whose decision nobody holds any more, decided from the
            index as it stands; not among `events`.
    """

    events: int = 0
    new: int = 0
    duplicates: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    clamped: int = 0
    asked: int = 0
    redelivered: int = 0
    replayed: int = 0

    @property
    def removed(self) -> float:
        """The share of events that were duplicates."""
        return self.duplicates / self.events if self.events else 0.0


class Engine:
    """Decides batches of events against an index.

    Args:
        recipe: what counts as near.
        index: where clusters live; made with the same recipe and windows.
        windows: when clusters are live.
        summaries: how many values are kept, and how much of them; the rest is the index's concern.
        clock: what tells arrival times.
        near_cache_size: exact hashes kept in process; 0 for none.
        offload: runs what takes the processor for long elsewhere, say in a thread.

    Attributes:
        resets: how often the index was found to have lost its data.
    """

    def __init__(
        self,
        recipe: Recipe,
        index: Index,
        *,
        windows: Windows,
        summaries: Summaries,
        clock: Clock,
        near_cache_size: int = NEAR_CACHE_SIZE,
        offload: Offload[Any] = inline,
    ) -> None:
        self.recipe = recipe
        self.index = index
        self.counts = Counts()
        self.clock = clock
        self.resets = 0
        self._windows = windows
        self._decider = Decider(recipe, index, windows, summaries, near_cache_size, offload)
        self._patterns = Patterns(recipe)
        self._pattern_of: dict[int, str] = {}
        self._owned: dict[Partition, Owned] = {}
        self._index_resets = index.resets

    @property
    def takes_fields(self) -> bool:
        """Whether the recipe looks at fields of decoded JSON events."""
        return self._decider.fingerprinter.takes_fields

    @property
    def near_cache_entries(self) -> int:
        """Exact hashes in the near cache."""
        return len(self._decider.near)

    # ------------------------------------------------------------ partitions

    async def claim_partition(
        self, partition: Partition, end_offset: int | None = None
    ) -> Ownership:
        """Claim a partition; who held it before is refused from now on.

        `process` does it for one that is not owned.

        Args:
            partition: the partition.
            end_offset: its end (exclusive) where known; see `Index.claim_partition`.
        """
        ownership = await self.index.claim_partition(partition, end_offset, self.clock.now_us())
        self._owned[partition] = Owned.of(ownership)
        return ownership

    def drop_ownership(self, partition: Partition) -> None:
        """Somebody else is to have the partition; nothing is told to the index."""
        self._owned.pop(partition, None)

    async def release_partition(self, partition: Partition) -> None:
        """A partition was read to its end: it no longer holds stream time back."""
        self._owned.pop(partition, None)
        await self.index.release_partition(partition)

    # ------------------------------------------------------------ batches

    def hash(self, batch: Batch) -> HashedBatch:
        """What can be made of a batch without the index; for `process`, by any thread."""
        return self._decider.hash(batch)

    async def process(
        self, batch: Batch | HashedBatch, committed: int | None = None
    ) -> list[Decision]:
        """Decide a batch, count it, and return a decision an event, in order.

        One batch of a partition at a time: the next waits for the one before. Those of several
        partitions may be on their way at once, as if several workers shared the index. An index
        that lost its data is begun anew where it was found lost: what is decided and counted from
        there no longer knows what was before.

        Args:
            batch: the events, hashed or not. They may have come before.
            committed: the next offset to be read after a crash, as far as is known. Decisions from
                there on are kept for whoever reads them again. Without, nothing will come again.

        Raises:
            StaleFence: another has claimed the partition. Nothing of the batch may be sent; what is
                not counted yet the other will count.
            IndexUnavailable: the index is away. Give the same batch again.
        """
        hashed = batch if isinstance(batch, HashedBatch) else self.hash(batch)
        batch = hashed.batch
        now_us = self.clock.now_us()
        times = self._clamped(batch, now_us)
        decisions = [NOTHING] * len(batch.values)
        start = 0
        while start < len(decisions):
            self._notice_reset()
            owned = self._owned.get(batch.partition)
            try:
                if owned is None:
                    await self.claim_partition(batch.partition)
                    continue
                end, nears = stretch_end(hashed, times, start, owned, self._decider)
                stretch = Stretch(self._decider, hashed, times, decisions, now_us, nears)
                if batch.offsets[start] <= owned.high_water:
                    await self._repeat(stretch, start, end, owned)
                else:
                    await self._decide(stretch, start, end, owned, committed)
                    owned.high_water = batch.offsets[end - 1]
            except IndexReset:
                self._forget_all()
                continue
            except PartitionUnclaimed:
                self.drop_ownership(batch.partition)
                continue
            except ProtocolError:
                self.drop_ownership(batch.partition)
                raise
            except BaseException:
                if owned is not None:  # the same batch will come again
                    owned.journal.update(zip(batch.offsets[:start], decisions[:start], strict=True))
                raise
            start = end
            if owned.journal and start == len(decisions):
                last = batch.offsets[-1]
                owned.journal = {o: told for o, told in owned.journal.items() if o > last}
        return decisions

    def _clamped(self, batch: Batch, now_us: int) -> Sequence[int]:
        times = batch.times_us
        if times is None:
            return [now_us] * len(batch.values)
        latest = now_us + self._windows.max_future_us
        if times and max(times) > latest:
            self.counts.clamped += sum(time > latest for time in times)
            return [min(time, latest) for time in times]
        return times

    async def _repeat(self, stretch: Stretch, start: int, end: int, owned: Owned) -> None:
        """Events at or below the high water: decided as before, where that is known."""
        left, _ = stretch.settle_passed(start, end, owned.journal)
        await stretch.repeat(left)
        replayed = sum(stretch.decisions[index].reason == REPLAYED for index in left)
        self.counts.replayed += replayed
        self.counts.redelivered += end - start - replayed

    async def _decide(
        self, stretch: Stretch, start: int, end: int, owned: Owned, committed: int | None
    ) -> None:
        todo, told = stretch.settle_passed(start, end, owned.journal)
        undecided = todo
        in_doubt = stretch.hashed.batch.offsets[start] <= owned.in_doubt
        try:
            while True:
                await stretch.decide(undecided, in_doubt=in_doubt)
                closed = await self._record(stretch, start, end, owned, committed)
                if not closed:
                    break
                self._forget(closed)
                undecided = stretch.undo(todo, closed)
        except BaseException:
            # Tried again, its events are asked for again: a cluster's first must be its first.
            self._forget(known.cluster for known in stretch.deltas)
            owned.in_doubt = max(owned.in_doubt, stretch.hashed.batch.offsets[end - 1])
            raise
        self._count(stretch, start, end, told)

    async def _record(
        self, stretch: Stretch, start: int, end: int, owned: Owned, committed: int | None
    ) -> frozenset[int]:
        batch = stretch.hashed.batch
        last = batch.offsets[end - 1]
        committed = last + 1 if committed is None else committed
        record = Commit(
            partition=batch.partition,
            fence=owned.fence,
            first_offset=batch.offsets[start],
            last_offset=last,
            committed=committed,
            last_us=max(stretch.times[start:end]),
            deltas=list(stretch.deltas.values()),
            offsets=batch.offsets[start:end],
            decisions=stretch.decisions[start:end],
        )
        return await self.index.record(record, stretch.now_us)

    def _notice_reset(self) -> None:
        """Another call, or another engine over this index, may have found it lost."""
        if self.index.resets != self._index_resets:
            self._forget_all()

    def _forget_all(self) -> None:
        self._index_resets = self.index.resets
        self.resets += 1
        self._decider.near.clear()
        self._owned.clear()

    def _forget(self, clusters: Iterable[int]) -> None:
        for cluster in clusters:
            self._decider.near.forget(cluster)

    def _count(self, stretch: Stretch, start: int, end: int, told: int) -> None:
        counts = self.counts
        for reason, count in stretch.passed.items():
            counts.passed[reason] = counts.passed.get(reason, 0) + count
        counted = end - start - told
        counts.redelivered += told
        counts.events += counted
        counts.asked += stretch.asked
        counts.new += stretch.opened
        counts.duplicates += counted - stretch.opened - sum(stretch.passed.values())

    # ------------------------------------------------------------ summaries

    async def claim_summaries(self, limit: int = CLAIM_BATCH) -> list[Summary]:
        """Take summaries that are due, without patterns; `confirm` them once they are sent."""
        return await self.index.claim(limit, self.clock.now_us())

    async def confirm_summaries(self, summaries: Sequence[Summary]) -> None:
        """The summaries were sent."""
        names = [(summary.cluster, summary.revision) for summary in summaries]
        await self.index.confirm(names, self.clock.now_us())
        for summary in summaries:
            if summary.final:
                self._decider.near.forget(summary.cluster)
                self._pattern_of.pop(summary.cluster, None)

    async def patterns(self, clusters: Sequence[int]) -> dict[int, str]:
        """The patterns of clusters, those that are gone left out."""
        known = self._pattern_of
        if len(known) > NEAR_CACHE_SIZE:
            known.clear()
        missing = [cluster for cluster in dict.fromkeys(clusters) if cluster not in known]
        if missing:
            values = await self.index.representatives(missing)
            known.update(
                (cluster, self.pattern(value))
                for cluster, value in zip(missing, values, strict=True)
                if value  # empty: opened, but nothing recorded yet
            )
        return {cluster: known[cluster] for cluster in clusters if cluster in known}

    def pattern(self, representative: bytes) -> str:
        """The pattern of a cluster, from its representative's value."""
        document = None
        if self.takes_fields:
            try:
                document = msgspec.json.decode(representative)
            except UNDECODABLE:
                pass  # cut short, or not JSON: its text is the pattern
        return self._patterns.pattern(representative, document)
