"""A lane's course: its batches are decided, then delivered, each in order.

Lanes take their courses side by side: while one waits for the index another is decided, as if
several workers shared the index.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple, Protocol

from stream_dedup.clock import US_PER_MS, US_PER_S
from stream_dedup.engine.hashing import HashedBatch
from stream_dedup.errors import BrokerUnavailable, StaleFence
from stream_dedup.io.base import Outgoing, Record, Records
from stream_dedup.model import Decision, Partition
from stream_dedup.worker.context import Context
from stream_dedup.worker.invalid_events import InvalidEventMonitor
from stream_dedup.worker.output import TOO_LARGE_TO_WRITE, Shaped, Shaper
from stream_dedup.worker.partition import Lane, State
from stream_dedup.worker.telemetry.tracing import BatchTrace


class Prepared(NamedTuple):
    """A batch that is to be decided.

    Attributes:
        records: as they were read.
        hashed: as they are decided on.
        size: bytes of their values.
        trace: is told of its way.
    """

    records: Records
    hashed: HashedBatch
    size: int
    trace: BatchTrace


class _Decided(NamedTuple):
    records: Records
    size: int
    shaped: Shaped
    trace: BatchTrace


class Keeper(Protocol):
    """Who keeps the lanes; see `lanes`."""

    @property
    def shaper(self) -> Shaper:
        """Shapes what leaves."""

    async def left(self, lane: Lane, batches: int = 1) -> None:
        """Batches of a lane are not on their way any more."""

    async def restart(self, lane: Lane, error: Exception) -> None:
        """A lane failed."""

    async def commit(self) -> None:
        """Store the offsets of what was delivered."""


class Course:
    """Takes a lane's batches along.

    Args:
        lane: the lane.
        context: what the pipeline's parts share.
        keeper: who keeps the lanes.
        poison: watches how much of the events is bad.
    """

    def __init__(
        self, lane: Lane, context: Context, keeper: Keeper, poison: InvalidEventMonitor
    ) -> None:
        self._lane = lane
        self._context = context
        self._keeper = keeper
        self._poison = poison
        self._inbox: asyncio.Queue[Prepared] = asyncio.Queue()
        self._outbox: asyncio.Queue[_Decided] = asyncio.Queue()

    def put(self, prepared: Prepared) -> None:
        """Have a batch decided and delivered after those before it."""
        self._inbox.put_nowait(prepared)

    async def decide(self) -> None:
        """Stage 3: what becomes of each event."""
        lane, context, keeper = self._lane, self._context, self._keeper
        while True:
            records, hashed, size, trace = await self._inbox.get()
            decisions = None
            if lane.state is State.OPEN:
                try:
                    with context.timed("decide", trace):
                        decide = partial(self._decide, hashed)
                        decisions = await context.with_retries("index", decide, trace=trace)
                except StaleFence as error:
                    await keeper.restart(lane, error)
                    return
            if decisions is None:
                await keeper.left(lane)
                continue
            context.step("recorded")
            trace.decided(decisions)
            with context.timed("shape", trace):
                shaped = keeper.shaper.shape(records, hashed.batch, decisions)
            self._poison.look_at(hashed.batch)
            self._outbox.put_nowait(_Decided(records, size, shaped, trace))

    async def _decide(self, hashed: HashedBatch) -> list[Decision] | None:
        """The decisions; None if the lane is not one's own any more."""
        if self._lane.gone():
            return None
        decisions = await self._context.engine.process(hashed, committed=self._lane.committed)
        return None if self._lane.gone() else decisions

    async def deliver(self) -> None:
        """Stage 4: what leaves."""
        lane, context = self._lane, self._context
        while True:
            decided = await self._outbox.get()
            assert lane.partition_producer is not None
            next_offset = decided.records.offsets[-1] + 1
            too_large = partial(self._too_large, decided.shaped, lane.partition)
            try:
                with context.timed("deliver", decided.trace):
                    committed = await lane.partition_producer.deliver(
                        decided.shaped.outgoing, next_offset, too_large
                    )
            except BrokerUnavailable as error:
                await self._keeper.restart(lane, error)
                return
            context.step("sent")
            lane.deliver(next_offset, len(decided.records))
            decided.trace.delivered(next_offset, committed=committed)
            if committed:
                lane.committed = next_offset
                context.metrics.add("commits_total", pipeline=context.plan.name)
                context.step("committed")
            self._count(decided)
            if not context.plan.flow.commit_every_s:
                await self._keeper.commit()
            await self._keeper.left(lane)

    def _too_large(
        self, shaped: Shaped, source: Partition, topic: str, record: Record
    ) -> Outgoing | None:
        plan = self._context.plan
        instead = self._keeper.shaper.too_large(topic, record, shaped, source)
        if topic != plan.emission.dead_letter_topic:
            reason = TOO_LARGE_TO_WRITE
            self._context.metrics.add("dead_letters_total", pipeline=plan.name, reason=reason)
        return instead

    def _count(self, decided: _Decided) -> None:
        metrics, name = self._context.metrics, self._context.plan.name
        records, shaped, topic = decided.records, decided.shaped, self._lane.partition.source
        if shaped.events:
            metrics.add("outputs_total", shaped.events, pipeline=name, kind="event")
        for reason, count in shaped.dead.items():
            metrics.add("outputs_total", count, pipeline=name, kind="dead_letter")
            metrics.add("dead_letters_total", count, pipeline=name, reason=reason)
        metrics.add("events_total", len(records), pipeline=name, topic=topic)
        metrics.add("event_bytes_total", decided.size, pipeline=name, topic=topic)
        written_ms = records.timestamps[0]
        if written_ms >= 0:
            late_us = self._context.engine.clock.now_us() - written_ms * US_PER_MS
            metrics.observe("delivery_delay_seconds", max(0, late_us) / US_PER_S, pipeline=name)
