"""A lane's course: its batches are decided, then delivered, each in order.

Lanes take their courses side by side: while one waits for the index another is decided, as if
several workers shared the index.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple, Protocol

from stream_dedup.clock import US_PER_MS, US_PER_S
from stream_dedup.connectors.base import Outgoing, Record, Records
from stream_dedup.deciding import Hashed
from stream_dedup.errors import BrokerUnavailable, StaleFence
from stream_dedup.model import Decision, Partition
from stream_dedup.worker.lane import Lane, State
from stream_dedup.worker.poison import PoisonWatch
from stream_dedup.worker.shape import TOO_LARGE_TO_WRITE, Shaped, Shaper
from stream_dedup.worker.tracing import BatchTrace
from stream_dedup.worker.wiring import Wiring


class Prepared(NamedTuple):
    """A batch that is to be decided.

    Attributes:
        records: as they were read.
        hashed: as they are decided on.
        size: bytes of their values.
        trace: is told of its way.
    """

    records: Records
    hashed: Hashed
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
        wiring: what the pipeline's parts share.
        keeper: who keeps the lanes.
        poison: watches how much of the events is bad.
    """

    def __init__(self, lane: Lane, wiring: Wiring, keeper: Keeper, poison: PoisonWatch) -> None:
        self._lane = lane
        self._wiring = wiring
        self._keeper = keeper
        self._poison = poison
        self._inbox: asyncio.Queue[Prepared] = asyncio.Queue()
        self._outbox: asyncio.Queue[_Decided] = asyncio.Queue()

    def put(self, prepared: Prepared) -> None:
        """Have a batch decided and delivered after those before it."""
        self._inbox.put_nowait(prepared)

    async def decide(self) -> None:
        """Stage 3: what becomes of each event."""
        lane, wiring, keeper = self._lane, self._wiring, self._keeper
        while True:
            records, hashed, size, trace = await self._inbox.get()
            decisions = None
            if lane.state is State.OPEN:
                try:
                    with wiring.timed("decide", trace):
                        decide = partial(self._decide, hashed)
                        decisions = await wiring.patiently("index", decide, trace=trace)
                except StaleFence as error:
                    await keeper.restart(lane, error)
                    return
            if decisions is None:
                await keeper.left(lane)
                continue
            wiring.step("recorded")
            trace.decided(decisions)
            with wiring.timed("shape", trace):
                shaped = keeper.shaper.shape(records, hashed.batch, decisions)
            self._poison.look_at(hashed.batch)
            self._outbox.put_nowait(_Decided(records, size, shaped, trace))

    async def _decide(self, hashed: Hashed) -> list[Decision] | None:
        """The decisions; None if the lane is not one's own any more."""
        if self._lane.gone():
            return None
        decisions = await self._wiring.engine.process(hashed, committed=self._lane.committed)
        return None if self._lane.gone() else decisions

    async def deliver(self) -> None:
        """Stage 4: what leaves."""
        lane, wiring = self._lane, self._wiring
        while True:
            decided = await self._outbox.get()
            assert lane.outlet is not None
            next_offset = decided.records.offsets[-1] + 1
            too_large = partial(self._too_large, decided.shaped, lane.partition)
            try:
                with wiring.timed("deliver", decided.trace):
                    committed = await lane.outlet.deliver(
                        decided.shaped.outgoing, next_offset, too_large
                    )
            except BrokerUnavailable as error:
                await self._keeper.restart(lane, error)
                return
            wiring.step("sent")
            lane.deliver(next_offset, len(decided.records))
            decided.trace.delivered(next_offset, committed=committed)
            if committed:
                lane.committed = next_offset
                wiring.metrics.add("commits_total", pipeline=wiring.plan.name)
                wiring.step("committed")
            self._count(decided)
            if not wiring.plan.flow.commit_every_s:
                await self._keeper.commit()
            await self._keeper.left(lane)

    def _too_large(
        self, shaped: Shaped, source: Partition, topic: str, record: Record
    ) -> Outgoing | None:
        plan = self._wiring.plan
        instead = self._keeper.shaper.too_large(topic, record, shaped, source)
        if topic != plan.emission.dead_letter_topic:
            reason = TOO_LARGE_TO_WRITE
            self._wiring.metrics.add("dead_letters_total", pipeline=plan.name, reason=reason)
        return instead

    def _count(self, decided: _Decided) -> None:
        metrics, name = self._wiring.metrics, self._wiring.plan.name
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
            late_us = self._wiring.engine.clock.now_us() - written_ms * US_PER_MS
            metrics.observe("delivery_delay_seconds", max(0, late_us) / US_PER_S, pipeline=name)
