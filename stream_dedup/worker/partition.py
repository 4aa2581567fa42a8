"""One assigned partition: the state of its events, and the tasks that decide and deliver them.

Theory of operation
-------------------
Records that were read wait in a queue. They are taken in batches, and each batch is decided,
delivered and committed, in order. The partitions of a pipeline do this concurrently: while one
waits for the index, another is decided.

The states of a partition::

    state    events   batches      next state
             queued   go on
    opening  no       no           open: earlier owners are fenced, the offset to read on is known
                                   gone: revoked, or another worker has claimed it
    open     yes      yes          closing: revoked, or the worker stops
                                   gone: a batch could not be decided or delivered
    closing  no       if decided   gone: those are delivered and committed, or drain_s is over
    gone     no       no           (if it failed and is still assigned, a new state: opening)

Offsets only grow: committed ≤ delivered ≤ decided ≤ read. Events at or after `committed` are read
again by the next owner; the index knows which of them were counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from stream_dedup.clock import US_PER_MS, US_PER_S
from stream_dedup.columnar import column_stats
from stream_dedup.config import WorkerConfig
from stream_dedup.engine.hashing import HashedBatch
from stream_dedup.index.base import Ownership
from stream_dedup.io.base import Outgoing, PartitionProducer, Records, Refused
from stream_dedup.model import Decision, Partition
from stream_dedup.worker.context import Context
from stream_dedup.worker.output import BatchOutput, InvalidEventMonitor, OutputBuilder
from stream_dedup.worker.telemetry.tracing import BatchTrace

COMMITTED_TRIES, COMMITTED_PAUSE_S = 5, 0.1
"""A broker may show the offsets of a transaction only some milliseconds after it is committed."""


class State(StrEnum):
    """The state of a partition; see the theory of operation."""

    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    GONE = "gone"


class PartitionState:
    """The queue and the offsets of one partition, from its assignment to its loss. Does no I/O.

    Args:
        partition: the partition.
        config: how much may be in progress.
        owed: the next offset after the events that were decided before the partition failed, and
            not delivered; 0: none.

    Attributes:
        state: see the theory of operation.
        committed: the next offset that the group has stored, as far as is known.
        noted: the last committed offset that the index knows, too.
        delivered: the next offset after the events that were delivered.
        decided: the next offset after the events that were decided.
        read: the next offset after the events that were read.
        in_flight: batches taken and not delivered yet.
        end: the end offset when the partition was opened.
        events, bytes: events that wait to be taken, and the size of their values.
        paused: why no further events are read; empty if reading continues. Events that were read
            before are delivered.
        events_delivered: events delivered.
    """

    def __init__(self, partition: Partition, config: WorkerConfig, owed: int = 0) -> None:
        self.partition = partition
        self.owed = owed
        self.state = State.OPENING
        self.committed = 0
        self.noted = 0
        self.delivered = 0
        self.decided = 0
        self.read = 0
        self.in_flight = 0
        self.end = 0
        self.events = 0
        self.bytes = 0
        self.paused = ""
        self.events_delivered = 0
        self._config = config
        self._queue: deque[Records] = deque()
        self._taken = 0  # events of the queue's first that were taken
        self._oldest_s = 0.0

    def __str__(self) -> str:
        return f"{self.partition.source}-{self.partition.number}"

    def open(self, start: int, end: int) -> None:
        """Let events in, from the offset `start` on."""
        self.state = State.OPEN
        self.committed = self.delivered = self.decided = self.read = start
        self.end = end

    def begin_closing(self) -> None:
        """Take no further batches, and forget the events that wait: they will be read again."""
        if self.state is State.OPEN:
            self.state = State.CLOSING
        self._clear()

    def close(self) -> None:
        """Forget everything: nothing may leave any more."""
        self.state = State.GONE
        self.in_flight = 0
        self._clear()

    def _clear(self) -> None:
        self._queue.clear()
        self.events = self.bytes = 0

    @property
    def gone(self) -> bool:
        """Whether nothing of the partition may leave any more."""
        return self.state is State.GONE

    @property
    def idle(self) -> bool:
        """Whether no event waits or is in progress."""
        return not self._queue and not self.in_flight

    @property
    def has_room(self) -> bool:
        """Whether more events should be read: fewer than two batches wait."""
        config = self._config
        return (
            self.state is State.OPEN
            and not self.paused
            and self.events < 2 * config.max_batch_events
            and self.bytes < 2 * config.max_batch_bytes
        )

    def add(self, records: Records, now_s: float) -> None:
        """Queue events that were read."""
        if self.state is not State.OPEN or self.paused or not records:
            return
        if not self._queue:
            self._oldest_s = now_s
        self._queue.append(records)
        self.events += len(records)
        self.read = records.offsets[-1] + 1
        self.bytes += column_stats(records.values).size

    def ready_in_s(self, now_s: float) -> float | None:
        """Seconds until a batch should be taken; 0 for now, None for not until something changes.

        A full batch is ready at once. A smaller one waits for more events, and for the batches
        before it to be delivered.
        """
        if self.state is not State.OPEN or not self._queue:
            return None
        if self.in_flight >= self._config.ahead_batches:
            return None
        if self.events >= self._config.max_batch_events:
            return 0.0
        if self.in_flight:
            return None
        return max(0.0, self._oldest_s + self._config.batch_wait_s - now_s)

    def take(self, now_s: float) -> tuple[Records, int]:
        """Take the next batch: its events, at least one, and the bytes of their values.

        A batch ends with the event that reaches `max_batch_bytes`.
        """
        batch: Records | None = None
        max_bytes, size, room = self._config.max_batch_bytes, 0, self._config.max_batch_events
        while self._queue and room and size < max_bytes:
            records, start = self._queue[0], self._taken
            end = min(start + room, len(records))
            values = records.values[start:end]
            more = column_stats(values).size
            if size + more >= max_bytes:
                sizes = accumulate((len(value or b"") for value in values), initial=0)
                count, more = next((c, s) for c, s in enumerate(sizes) if size + s >= max_bytes)
                end = start + count
            size += more
            room -= end - start
            if batch is None:
                batch = records.part(start, end)
            else:
                batch.extend(records.part(start, end))
            self._taken = end
            if end == len(records):
                self._queue.popleft()
                self._taken = 0
        assert batch is not None, "an event waits"
        self.events -= len(batch)
        self.bytes -= size
        self.in_flight += 1
        self._oldest_s = now_s
        return batch, size

    def mark_decided(self, next_offset: int) -> None:
        """Note that all events before an offset are decided."""
        self.decided = next_offset

    def mark_delivered(self, next_offset: int, events: int) -> None:
        """Note that all events before an offset are delivered."""
        self.delivered = next_offset
        self.events_delivered += events

    def mark_committed(self, next_offset: int) -> None:
        """Note that an offset is stored."""
        self.committed = max(self.committed, next_offset)


class HashedRecords(NamedTuple):
    """A batch to be decided.

    Attributes:
        records: the events as they were read.
        hashed: the events as the engine takes them.
        size: bytes of their values.
        trace: the batch's trace, if it is traced.
    """

    records: Records
    hashed: HashedBatch
    size: int
    trace: BatchTrace | None


class _DecidedRecords(NamedTuple):
    records: Records
    size: int
    output: BatchOutput
    trace: BatchTrace | None


@dataclass(frozen=True, slots=True)
class Wakeups:
    """What the stages that serve all partitions of a pipeline wait for.

    Attributes:
        poll: set when a partition may have room for events.
        prepare: set when a batch may be ready to be taken.
    """

    poll: asyncio.Event = field(default_factory=asyncio.Event)
    prepare: asyncio.Event = field(default_factory=asyncio.Event)


class PartitionProcessor:
    """Opens a partition, then decides and delivers its batches, in order.

    Args:
        state: the partition's state.
        context: the pipeline's settings and connections.
        output: builds the records that leave.
        invalid_events: counts invalid events.
        wakeups: set when events may be read, or a batch be taken.
        commit: stores the offsets of delivered batches; called after each batch where the pipeline
            has no timer for it.

    Attributes:
        state: as given.
        identity: that of the topic when the partition was opened; see `io.base.Topic`.
    """

    def __init__(
        self,
        state: PartitionState,
        context: Context,
        output: OutputBuilder,
        invalid_events: InvalidEventMonitor,
        wakeups: Wakeups,
        commit: Callable[[], Awaitable[None]],
    ) -> None:
        self.state = state
        self.identity = ""
        self._context = context
        self._output = output
        self._invalid_events = invalid_events
        self._wakeups = wakeups
        self._commit = commit
        self._producer: PartitionProducer | None = None
        self._hashed: asyncio.Queue[HashedRecords] = asyncio.Queue()
        self._decided: asyncio.Queue[_DecidedRecords] = asyncio.Queue()
        self._stages: list[asyncio.Task[None]] = []
        self._progress = asyncio.Event()

    async def run(self, delay_s: float = 0.0) -> None:
        """Open the partition after a delay, then decide and deliver its batches until one fails.

        Raises:
            StaleFence, BrokerUnavailable: the partition must be opened again, if it is still ours.
            StreamDedupError: the pipeline cannot go on.
        """
        await asyncio.sleep(delay_s)
        await self._open()
        self._stages = [asyncio.create_task(stage) for stage in (self._decide(), self._deliver())]
        for stage in self._stages:
            stage.add_done_callback(_retrieve_error)
        await asyncio.wait(self._stages, return_when=asyncio.FIRST_EXCEPTION)
        for stage in self._stages:
            if stage.done():
                stage.result()

    def add(self, records: Records, now_s: float) -> None:
        """Queue events that were read, or pause the partition before those that are unreadable."""
        pause = self._context.config.on_unreadable == "pause"
        for offset, (first, reason, to_the_end) in records.unreadable.items():
            if offset in records.offsets and (pause or not to_the_end):
                self.state.add(records.part(0, records.offsets.index(offset)), now_s)
                self._pause(f"offset {first} cannot be read ({reason})")
                return
        self.state.add(records, now_s)

    def _pause(self, reason: str) -> None:
        context, state = self._context, self.state
        if state.state is State.OPEN and not state.paused:
            state.paused = reason
            context.not_ready(str(state), f"paused: {reason}")
            context.warn(
                f"{state} is paused: {reason}; raise kafka.max_unpacked_bytes if the batch is "
                "sound, set on_unreadable to dead_letter, or move the group's offset"
            )

    def submit(self, batch: HashedRecords) -> None:
        """Have a batch decided and delivered after those before it; a gone partition drops it."""
        if not self.state.gone:
            self._hashed.put_nowait(batch)

    async def drained(self) -> None:
        """Wait until no batch is in progress."""
        while self.state.in_flight:
            self._progress.clear()
            await self._progress.wait()

    async def close(self) -> None:
        """Stop at once: nothing of the partition leaves from now on."""
        context, partition = self._context, self.state.partition
        self.state.close()
        for stage in self._stages:
            stage.cancel()
        context.engine.drop_ownership(partition)
        context.ready(str(self.state))
        context.ready("index", by=str(self.state))
        context.metrics.remove(
            "lag_events",
            pipeline=context.config.name,
            topic=partition.source,
            partition=partition.number,
        )
        self._signal_progress()
        if self._producer is not None:
            await self._producer.close()

    def _batch_done(self) -> None:
        if not self.state.gone:
            self.state.in_flight -= 1
        self._signal_progress()

    def _signal_progress(self) -> None:
        self._progress.set()
        self._wakeups.prepare.set()

    # ------------------------------------------------------------ opening

    async def _open(self) -> None:
        """Claim the partition, then read on where its group stopped.

        1. Open the producer: no earlier owner can store output of the partition from now on.
        2. Claim the fence: no earlier owner can count its events any more. Nothing was committed
           since step 1.
        3. Read the committed offset, which is final now, and continue from there. If the group
           has lost it, continue from the one that the index knows.
        """
        context, partition, name = self._context, self.state.partition, str(self.state)
        source, sink, engine = context.source, context.sink, context.engine
        await context.with_retries(name, partial(sink.topic, partition.source))
        await context.with_retries(name, sink.refresh)
        self.identity = sink.topics[partition.source].identity
        self._producer = await context.with_retries(name, partial(sink.open, partition))
        ends = await context.with_retries(name, partial(source.ends, [partition]))
        end = ends[partition]
        owned = await context.with_retries(
            name, partial(engine.claim_partition, partition, end, self.identity)
        )
        if owned.reset:
            context.metrics.add("topics_reset_total", pipeline=context.config.name)
            why = (
                "its topic was created again"
                if owned.created_again
                else f"it ends at {end}, before events that were counted: its topic was created "
                "again or truncated"
            )
            context.warn(f"{name} is counted from its beginning: {why}")
        start = await context.with_retries(name, partial(self._start_offset, owned))
        source.seek(partition, start)
        if self.state.state is State.OPENING:
            self.state.open(start, end)
            self._wakeups.poll.set()

    async def _start_offset(self, owned: Ownership) -> int:
        """The offset to read on from.

        While the journal holds decisions at or after the committed offset, their transaction may
        have been committed and not be visible yet: then the offset is read again.

        A position that is not the committed offset is committed at once: whoever reads the
        partition next begins there too, even if no event was read until then.
        """
        context, source, partition = self._context, self._context.source, self.state.partition
        if owned.created_again:
            start = await source.first(partition)
            await source.commit({partition: start})
            return start
        committed = await source.committed(partition)
        for _ in range(COMMITTED_TRIES):
            if not any(offset >= (committed or 0) for offset in owned.journal):
                break
            await asyncio.sleep(COMMITTED_PAUSE_S)
            committed = await source.committed(partition)
        if committed is None and owned.committed is not None:
            committed = owned.committed
            context.warn(
                f"the group has no offset of {self.state}, but the index has: all events before "
                f"{committed} were delivered, so it is read from there"
            )
        if committed is not None:
            first, end = await source.first(partition), (await source.ends([partition]))[partition]
            if first <= committed <= end:
                return committed
            context.warn(
                f"{self.state} has no offset {committed}, only {first} to {end}: its records have "
                "expired, or the topic was truncated or created again; kafka.start decides"
            )
        start = await source.begin(partition)
        await source.commit({partition: start})
        return start

    # ------------------------------------------------------------ stage 3

    async def _decide(self) -> None:
        """Stage 3: decide each batch and build its output."""
        context, state = self._context, self.state
        while True:
            records, hashed, size, trace = await self._hashed.get()
            if state.state is not State.OPEN:
                self._batch_done()  # closing: the next owner decides it
                continue
            with context.timed("decide", trace):
                decisions = await context.with_retries(
                    "index", partial(self._decisions, hashed), trace, by=str(state)
                )
            if decisions is None or state.gone:
                return
            state.mark_decided(records.offsets[-1] + 1)
            context.step("recorded")
            if trace:
                trace.decided(decisions)
            with context.timed("shape", trace):
                output = self._output.batch(
                    records, hashed.batch, decisions, withholds=context.engine.withholds
                )
            self._invalid_events.count(hashed.batch)
            if hashed.acted is not None:
                for kind, count in hashed.acted.counts.items():
                    name = context.config.name
                    context.metrics.add(
                        "rule_events_total", count, pipeline=name, rule_kind=kind.value
                    )
            self._decided.put_nowait(_DecidedRecords(records, size, output, trace))

    async def _decisions(self, hashed: HashedBatch) -> list[Decision] | None:
        """The decisions of a batch; None if the partition is gone."""
        if self.state.gone:
            return None
        committed = self.state.committed
        decisions = await self._context.engine.process(hashed, committed=committed)
        self.state.noted = max(self.state.noted, committed)
        return decisions

    # ------------------------------------------------------------ stage 4

    async def _deliver(self) -> None:
        """Stage 4: send the output of each batch; in a transaction, commit its offset too."""
        context, state, producer = self._context, self.state, self._producer
        assert producer is not None, "the partition is open"
        while True:
            batch = await self._decided.get()
            next_offset = batch.records.offsets[-1] + 1
            output = batch.output
            with context.timed("deliver", batch.trace):
                async with context.delivery_limit(str(state)):
                    committed = await producer.deliver(
                        output.outgoing, next_offset, partial(self._instead, output)
                    )
            context.step("sent")
            state.mark_delivered(next_offset, len(batch.records))
            if batch.trace:
                batch.trace.delivered(next_offset, committed=committed)
            if committed:
                state.mark_committed(next_offset)
                context.metrics.add("commits_total", pipeline=context.config.name)
                context.step("committed")
            self._count(batch)
            if not context.worker.commit_every_s:
                await self._commit()
            self._batch_done()

    def _instead(self, output: BatchOutput, refused: Refused) -> Outgoing:
        now_ms = self._context.engine.clock.now_us() // US_PER_MS
        return self._output.instead(refused, output, self.state.partition, now_ms)

    def _count(self, batch: _DecidedRecords) -> None:
        metrics, name = self._context.metrics, self._context.config.name
        records, output, topic = batch.records, batch.output, self.state.partition.source
        left, dead_letters = len(output.events), Counter(output.dead_letters)
        if output.refused:
            reasons = Counter(output.refused.values())
            if self._context.config.on_poison == "dead_letter":
                left -= reasons.total()
                dead_letters.update(reasons)
            else:
                for why, count in reasons.items():
                    metrics.add("passed_total", count, pipeline=name, reason=why)
        if left:
            metrics.add("outputs_total", left, pipeline=name, kind="event")
        for kind, count in output.withheld.items():
            metrics.add("withheld_events_total", count, pipeline=name, limit=kind)
        for reason, count in dead_letters.items():
            metrics.add("outputs_total", count, pipeline=name, kind="dead_letter")
            metrics.add("dead_letters_total", count, pipeline=name, reason=reason)
        metrics.add("events_total", len(records), pipeline=name, topic=topic)
        metrics.add("event_bytes_total", batch.size, pipeline=name, topic=topic)
        written_ms = records.timestamps[0]
        if written_ms >= 0:
            delay_us = self._context.engine.clock.now_us() - written_ms * US_PER_MS
            metrics.observe("delivery_delay_seconds", max(0, delay_us) / US_PER_S, pipeline=name)


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Keep asyncio from reporting the error of a stage that failed while it was cancelled."""
    with suppress(asyncio.CancelledError):
        task.exception()
