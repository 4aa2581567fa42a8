"""A pipeline: one group's events from topics, through the engine, to topics.

Theory of operation
-------------------
Five stages work side by side, each on another batch, in order for each partition::

    poll ──► prepare ──► decide ──► deliver ──► commit
    events   decode and  engine     output      of offsets, on a timer; with
    to       hash, in a  and        topics      exactly-once delivery the
    lanes    thread      index                  transaction does it
                         └─ a lane by itself ─┘

One batch, step by step. Whatever step a worker dies after, the next to read the events does what is
still to be done, once:

1. resolve    the index opens clusters or finds them. Nothing is counted; asked again it answers
              alike.
2. record     counts, journal and high water, all or nothing. Read again, the journal decides and
              nothing is counted.
3. send       the same decisions make the same bytes. Sent again they are there twice at least once,
              or, in a transaction that was not committed, never seen.
4. commit     the events are not read again.

Summaries go their own way (see `telling`). What holds a stage up holds up the one before: a lane
asks for events while fewer than two batches of them wait in it, and is given what was fetched of
its partition; `ahead_batches` at most are on their way. Heartbeats go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from stream_dedup.clock import monotonic_s
from stream_dedup.engine.hashing import HashedBatch
from stream_dedup.engine.segment import NO_TOKENS
from stream_dedup.errors import BrokerUnavailable
from stream_dedup.io.base import Records
from stream_dedup.io.record_decoder import POISON, REASONS
from stream_dedup.metrics import Counter, start_at_zero
from stream_dedup.model import Partition
from stream_dedup.worker.assignment import Lanes
from stream_dedup.worker.context import Context
from stream_dedup.worker.output import TOO_LARGE_TO_WRITE
from stream_dedup.worker.partition import Lane
from stream_dedup.worker.processor import Prepared
from stream_dedup.worker.summaries import Telling
from stream_dedup.worker.telemetry.reporter import Measuring, Standing

POLL_S = 0.1
"""How long a poll waits for events: so late a partition that got room is asked for at most."""

POLL_BATCHES = 4
"""Batches of events that a poll gives at most: about what the driver has fetched of a partition. It
fetches more only when all was taken, and that is to go on meanwhile. More at once made late events
several times as late."""

END_S = 0.02
"""How often it is looked whether all is delivered that is to be read `once`."""

COMMIT_S = 1.0
"""How often it is looked for what a failed commit left, where each batch is committed at once."""


class Pipeline:
    """Runs one pipeline; make it within an event loop.

    Args:
        context: its plan and connections.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lanes = Lanes(context, self._failure)
        self._telling = Telling(context, self._lanes)
        self._measuring = Measuring(context, self._lanes)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"kernel-{context.plan.name}")
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Finish what is on its way, and end."""
        self._stopping.set()

    async def standing(self) -> Standing:
        """Where it stands."""
        return await self._measuring.standing()

    async def run(self, *, once: bool = False) -> None:
        """Run until `stop`, or with `once` until the ends that the partitions had at first.

        Raises:
            BrokerRefused, IndexRefused, RecipeMismatch, TooManyInvalidEvents: it cannot go on.
        """
        context, lanes = self.context, self._lanes
        start_at_zero(context.metrics, context.plan.name, self._known())
        context.not_ready("assignment", "no partition is assigned yet")
        tasks: list[asyncio.Task[None]] = []
        try:
            for start in (context.sink.start, lanes.look_at_topics):
                if not await self._started(start):
                    return
            if not await self._started(partial(context.source.start, lanes)):
                return
            work = [self._poll(), self._prepare(), self._commit()]
            work += [self._telling.run(), self._measuring.run(), self._until(once=once)]
            tasks = [asyncio.create_task(stage) for stage in work]
            done, _ = await asyncio.wait(
                [*tasks, self._failure], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            await lanes.stop()
            await self._tell_the_last()
        finally:
            await self._end(tasks)

    def _known(self) -> dict[Counter, Iterable[str]]:
        """The topics and reasons that counters will show."""
        topics = self.context.source.topics
        return {
            "events_total": topics,
            "event_bytes_total": topics,
            "passed_total": (*REASONS, NO_TOKENS.reason),
            "dead_letters_total": (*POISON, TOO_LARGE_TO_WRITE),
        }

    async def _started(self, start: Callable[[], Awaitable[None]]) -> bool:
        """Whether a connection was made; no, if it is to stop meanwhile."""
        trying = asyncio.create_task(self.context.with_retries("kafka", start))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({trying, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if trying.done():
            trying.result()
            return True
        trying.cancel()
        return False

    async def _tell_the_last(self) -> None:
        """Tell what is due, within the time there is to stop; the rest another will tell."""
        context = self.context
        engine = context.engine
        try:
            async with asyncio.timeout(context.plan.flow.drain_s):
                if context.plan.finish:
                    now_us = engine.clock.now_us()
                    await context.with_retries("index", partial(engine.index.finish, now_us))
                await context.with_retries("index", self._telling.tell)
        except TimeoutError:
            context.warn("the last summaries were not told in time")

    async def _until(self, *, once: bool) -> None:
        """Wait for the end."""
        if once:
            await self._lanes.assigned_once.wait()
        while not self._stopping.is_set():
            if once and await self._lanes.all_at_their_ends():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S if once else None):
                    await self._stopping.wait()

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        context = self.context
        context.not_ready("assignment", "it is stopping")
        pending = set(tasks)
        while pending:  # a driver may swallow a cancellation: then once more
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=1)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # what ended the pipeline was raised; the others' follow from it
        await self._lanes.close()
        for close in (context.source.stop, context.sink.stop):
            try:
                async with asyncio.timeout(context.plan.flow.drain_s):
                    await close()
            except (BrokerUnavailable, TimeoutError, OSError) as error:
                context.warn(f"a connection did not close: {error!r}")
        self._threads.shutdown(wait=False, cancel_futures=True)
        if not self._failure.done():
            self._failure.cancel()

    # ------------------------------------------------------------ stages

    async def _poll(self) -> None:
        """Stage 1: events into their lanes."""
        loop, lanes = asyncio.get_running_loop(), self._lanes
        while True:
            lanes.room.clear()
            wanted = [lane.partition for lane in lanes if lane.has_room]
            trace = self.context.traces.poll()
            with self.context.timed("poll", trace):
                found = await self._polled(wanted)
                trace.brought(found)
            for partition, records in found.items():
                lane = lanes.get(partition)
                if lane is not None:
                    lane.add(records, loop.time())
            if found:
                lanes.changed.set()
            elif not wanted:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await lanes.room.wait()

    async def _polled(self, wanted: list[Partition]) -> Mapping[Partition, Records]:
        limit = POLL_BATCHES * self.context.plan.flow.max_batch_events
        return await self.context.with_retries(
            "kafka", partial(self.context.source.poll, wanted, limit, POLL_S)
        )

    async def _prepare(self) -> None:
        """Stage 2: batches of a lane, decoded and hashed in a thread."""
        loop = asyncio.get_running_loop()
        while True:
            lane = await self._next_lane()
            records, size = lane.take(loop.time())
            self._lanes.room.set()
            trace = self.context.traces.batch(lane.partition, records, size)
            with self.context.timed("hash", trace):
                hashed = await loop.run_in_executor(
                    self._threads, self._hash, lane.partition, records
                )
            if not self._lanes.put(lane, Prepared(records, hashed, size, trace)):
                await self._lanes.left(lane)

    def _hash(self, partition: Partition, records: Records) -> HashedBatch:
        engine, metrics = self.context.engine, self.context.metrics
        batch = self.context.decoder.decode(partition, records, engine.clock.now_us())
        started_s = monotonic_s()
        hashed = engine.hash(batch)
        seconds = monotonic_s() - started_s
        metrics.observe("kernel_seconds", seconds, pipeline=self.context.plan.name)
        return hashed

    async def _next_lane(self) -> Lane:
        """The lane of which a batch is to be taken; in turns."""
        loop, lanes = asyncio.get_running_loop(), self._lanes
        while True:
            lanes.changed.clear()
            now_s = loop.time()
            soonest: float | None = None
            for lane in lanes:
                in_s = lane.ready_in_s(now_s)
                if in_s is not None and in_s <= 0:
                    lanes.to_the_end(lane)
                    return lane
                if in_s is not None:
                    soonest = in_s if soonest is None else min(soonest, in_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(soonest):
                    await lanes.changed.wait()

    async def _commit(self) -> None:
        """Stage 5: offsets, where they are not committed with the output."""
        while True:
            await asyncio.sleep(self.context.plan.flow.commit_every_s or COMMIT_S)
            await self._lanes.commit()
