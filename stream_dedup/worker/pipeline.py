"""One pipeline: reads a group's topics, deduplicates the events, and writes the output.

Theory of operation
-------------------
Five stages run concurrently, each on a different batch. The batches of one partition stay in
order::

    1 poll ───► 2 prepare ──► 3 decide ──► 4 deliver ──► 5 commit
    read        decode and    ask the      send the      store offsets, on a timer;
    records     hash in a     engine and   output        exactly-once delivery does it
                thread        the index                  in the transaction of stage 4

Stages 1, 2 and 5 serve all partitions and are in this module; stages 3 and 4 run for each assigned
partition (`partition.PartitionProcessor`). A slow stage slows those before it: a partition is
polled while fewer than two batches of its events wait, and at most `ahead_batches` of its batches
are in progress. The group's heartbeats go on meanwhile.

A worker may die at any point. For each batch, the next worker that reads the same events completes
exactly what is missing:

1. resolve    The index opens or finds the clusters of the events. Nothing is counted yet, and the
              same question gets the same answer.
2. record     Counts, journal and high-water mark change together or not at all. Events that are
              read again get their decisions from the journal and are not counted again.
3. send       The same decisions make the same bytes. Sent again, at-least-once delivery shows them
              twice; with exactly-once delivery the first copy was never visible.
4. commit     The events are not read again.

Summaries are sent beside this; see `summaries`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from stream_dedup.clock import US_PER_S, monotonic_s
from stream_dedup.engine.hashing import HashedBatch
from stream_dedup.engine.segment import NO_TOKENS
from stream_dedup.errors import BrokerUnavailable, OffsetGone, StreamDedupError
from stream_dedup.io.base import Records, Refusal
from stream_dedup.io.decoder import INVALID, RECORD_REASONS, UNREADABLE
from stream_dedup.metrics import start_at_zero
from stream_dedup.model import Partition
from stream_dedup.signals import ended_before
from stream_dedup.worker.assignment import Assignment
from stream_dedup.worker.context import Context
from stream_dedup.worker.output import OutputBuilder
from stream_dedup.worker.partition import HashedRecords
from stream_dedup.worker.rules import RulesWatcher
from stream_dedup.worker.summaries import SummaryEmitter
from stream_dedup.worker.telemetry.reporter import MetricsReporter, PipelineStats

POLL_S = 0.1
"""How long a poll waits for events. A partition that gets room is polled at most so much later."""

POLL_BATCHES = 4
"""Batches of events that one poll returns at most: about what the driver fetches of a partition
ahead. The driver fetches more only when all of that is taken; larger polls delayed late events
several times as much."""

AT_END_CHECK_S = 0.02
"""With `once`, how often to check whether all is delivered."""

CLOSE_S = 1.0
"""Longest wait for a connection to close if no partition was ever assigned: the driver would wait
for the group, which may wait for a worker that was killed."""

COMMIT_RETRY_S = 1.0
"""How often to retry failed commits where each batch is committed at once."""


class Pipeline:
    """Runs one pipeline. Create it in a running event loop.

    Args:
        context: its settings and connections.
    """

    def __init__(self, context: Context) -> None:
        config, engine = context.config, context.engine
        self.context = context
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        width = engine.recipe.fingerprint.bits
        self._output = OutputBuilder(config, width, context.sink.topics)
        self._assignment = Assignment(context, self._output, self._failure)
        self._summaries = SummaryEmitter(context, self._output)
        self._reporter = MetricsReporter(context, self._assignment, self._summaries)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"kernel-{config.name}")
        self._stopping = asyncio.Event()
        context.not_ready("assignment", "no partition is assigned yet")

    def stop(self) -> None:
        """Finish the batches in progress, and end."""
        self._stopping.set()

    def stats(self) -> PipelineStats:
        """The pipeline's current figures."""
        return self._reporter.stats()

    # ------------------------------------------------------------ the five stages

    async def _poll(self) -> None:
        """Stage 1: read records into the queues of their partitions."""
        loop, assignment = asyncio.get_running_loop(), self._assignment
        room, traces = assignment.wakeups.poll, self.context.traces
        while True:
            room.clear()
            wanted = [state.partition for state in assignment if state.has_room]
            trace = traces.poll() if traces else None
            with self.context.timed("poll", trace):
                found = await self._read(wanted)
                if trace:
                    trace.brought(found)
            for partition, records in found.items():
                assignment.add(partition, records, loop.time())
            if found:
                assignment.wakeups.prepare.set()
            elif not wanted:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await room.wait()

    async def _read(self, wanted: list[Partition]) -> Mapping[Partition, Records]:
        limit = POLL_BATCHES * self.context.worker.max_batch_events
        poll = partial(self.context.source.poll, wanted, limit, POLL_S)
        try:
            return await self.context.with_retries("kafka", poll)
        except OffsetGone as error:
            await self._assignment.reopen(Partition(error.topic, error.number), error)
            return {}

    async def _prepare(self) -> None:
        """Stage 2: take a batch of a partition; decode and hash it in a thread."""
        loop, assignment = asyncio.get_running_loop(), self._assignment
        traces = self.context.traces
        while True:
            processor = await assignment.next_ready()
            partition = processor.state.partition
            records, size = processor.state.take(loop.time())
            assignment.wakeups.poll.set()
            trace = traces.batch(partition, records, size) if traces else None
            with self.context.timed("hash", trace):
                hashed = await loop.run_in_executor(self._threads, self._hash, partition, records)
            processor.submit(HashedRecords(records, hashed, size, trace))

    def _hash(self, partition: Partition, records: Records) -> HashedBatch:
        engine, metrics = self.context.engine, self.context.metrics
        batch = self.context.decoder.decode(partition, records, engine.clock.now_us())
        started_s = monotonic_s()
        hashed = engine.hash(batch)
        seconds = monotonic_s() - started_s
        metrics.observe("kernel_seconds", seconds, pipeline=self.context.config.name)
        return hashed

    # Stages 3 and 4 run once per partition: PartitionProcessor decides and delivers the batch.

    async def _commit(self) -> None:
        """Stage 5: store offsets periodically, where they are not stored with the output."""
        while True:
            await asyncio.sleep(self.context.worker.commit_every_s or COMMIT_RETRY_S)
            await self._assignment.commit()
            await self._assignment.note_committed()

    # ------------------------------------------------------------ start and end

    async def run(self, *, once: bool = False) -> None:
        """Run until `stop`; with `once`, until the end offsets that the partitions had at first.

        Raises:
            BrokerRefused, IndexRefused, RecipeMismatch, TooManyInvalidEvents: it cannot go on.
            UnreadableBatch: with `once`, a partition is paused before its end.
        """
        context, assignment = self.context, self._assignment
        self._start_counters()
        tasks: list[asyncio.Task[None]] = []
        try:
            for start in (
                context.sink.start,
                self._load_topics,
                partial(context.source.start, assignment),
            ):
                if not await ended_before(self._stopping, context.with_retries("kafka", start)):
                    return
            stages = [self._poll(), self._prepare(), self._commit()]
            beside = [
                *(self._summaries.run(), self._reporter.run(), self._refresh_topics()),
                self._wait_for_end(once=once),
            ]
            if context.rules is not None:
                beside.append(RulesWatcher(context, context.rules, context.rules_version).run())
            tasks = [asyncio.create_task(each) for each in (*stages, *beside)]
            done, _ = await asyncio.wait(
                [*tasks, self._failure], return_when=asyncio.FIRST_COMPLETED
            )
            try:
                for task in done:
                    task.result()
            except StreamDedupError:
                with suppress(StreamDedupError):  # what was delivered need not be written again
                    await assignment.drain()
                raise
            await assignment.drain()
            await self._emit_last_summaries()
            for ended in (*tasks, self._failure):
                if ended.done():  # what failed meanwhile is not passed over in silence
                    ended.result()
        finally:
            await self._end(tasks)

    def _start_counters(self) -> None:
        """Start the counters whose topics and reasons are known at zero."""
        topics = self.context.source.topics
        start_at_zero(
            self.context.metrics,
            self.context.config.name,
            {
                "events_total": topics,
                "event_bytes_total": topics,
                "passed_total": (*RECORD_REASONS, NO_TOKENS.reason, *Refusal),
                "dead_letters_total": (*INVALID, *Refusal, UNREADABLE),
            },
        )

    async def _load_topics(self) -> None:
        """Learn about the output topics.

        Raises:
            BrokerRefused: a topic does not exist.
        """
        for topic in sorted(self.context.config.output_topics):
            await self.context.sink.topic(topic)

    async def _refresh_topics(self) -> None:
        """Ask about all topics periodically: partitions are added, topics are created again.

        The times are multiples of the period since 1970, so all workers of the group begin to use a
        new number of partitions at about the same time. A worker that starts in between begins with
        a rebalance, on which they all ask.
        """
        context = self.context
        every_us = round(context.metadata_max_age_s * US_PER_S)
        while True:
            await asyncio.sleep((every_us - context.engine.clock.now_us() % every_us) / US_PER_S)
            await context.with_retries("topics", context.sink.refresh)
            await self._assignment.reopen_created_again()

    async def _wait_for_end(self, *, once: bool) -> None:
        if once:
            await self._assignment.assigned_once.wait()
        while not self._stopping.is_set():
            if once and await self._assignment.all_at_end():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(AT_END_CHECK_S if once else None):
                    await self._stopping.wait()

    async def _emit_last_summaries(self) -> None:
        """Emit due summaries within `drain_s`; another worker emits the others."""
        context = self.context
        engine = context.engine
        try:
            async with asyncio.timeout(context.worker.drain_s):
                if context.finish:
                    now_us = engine.clock.now_us()
                    await context.with_retries("index", partial(engine.index.finish, now_us))
                await context.with_retries("index", self._summaries.emit_due)
        except TimeoutError:
            context.warn("the last summaries were not sent in time")

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        context = self.context
        context.not_ready("assignment", "it is stopping")
        pending = set(tasks)
        while pending:  # a driver may swallow a cancellation: then cancel again
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=1)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # retrieved: `run` has raised the first error already
        await self._assignment.close()
        was_assigned = self._assignment.assigned_once.is_set()
        within_s = context.worker.drain_s if was_assigned else min(context.worker.drain_s, CLOSE_S)
        for close in (context.source.stop, context.sink.stop):
            try:
                async with asyncio.timeout(within_s):
                    await close()
            except TimeoutError:
                if was_assigned:
                    context.warn(f"a connection did not close within {within_s:g} s")
            except (BrokerUnavailable, OSError) as error:
                context.warn(f"a connection did not close: {error}")
        self._threads.shutdown(wait=False, cancel_futures=True)
        if not self._failure.done():
            self._failure.cancel()
