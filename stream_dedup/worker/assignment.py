"""The partitions assigned to a pipeline: opened, drained, closed, and committed.

An assigned partition is opened (`PartitionProcessor`). When it is revoked, the output of decided
batches is delivered and committed, and it is closed. A partition that fails is closed and opened
again from the committed offset: the journal of the index holds the decisions of events that were
counted, so they are decided and sent as before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from stream_dedup.errors import (
    BrokerUnavailable,
    GroupLost,
    IndexUnavailable,
    ProducerFenced,
    StaleFence,
    StreamDedupError,
    UnreadableBatch,
)
from stream_dedup.io.base import Records
from stream_dedup.model import Partition
from stream_dedup.units import counted
from stream_dedup.worker.context import Context
from stream_dedup.worker.output import InvalidEventMonitor, OutputBuilder
from stream_dedup.worker.partition import PartitionProcessor, PartitionState, State, Wakeups

log = logging.getLogger(__name__)

REOPEN_S, MAX_REOPEN_S = 1.0, 10.0
"""A partition that failed is opened again after so long: the first time, and the longest time. Each
opening reads and decides batches again, and a topic that is gone makes it fail each time. It
doubles while nothing is delivered in between."""

REOPEN_FENCED_S = 5.0
"""Pause before a partition is opened again after another worker has claimed it: within that time
the group revokes it here."""

NOTE_S = 2.0
"""Longest time to tell the index what is committed; it is tried again with the next commit."""


class Assignment:
    """The partitions assigned to a pipeline. It is the source's `RebalanceListener`.

    Args:
        context: the pipeline's settings and connections.
        output: builds the records that leave.
        failure: gets the exception that ends the pipeline.

    Attributes:
        wakeups: set when events may be read, or a batch be taken.
        assigned_once: set with the first assignment.
        rebalancing: whether partitions were revoked and the group has assigned none yet.
    """

    def __init__(
        self, context: Context, output: OutputBuilder, failure: asyncio.Future[None]
    ) -> None:
        self.wakeups = Wakeups()
        self.assigned_once = asyncio.Event()
        self.rebalancing = False
        self._context = context
        self._output = output
        self._failure = failure
        self._invalid_events = InvalidEventMonitor(context.config)
        self._processors: dict[Partition, PartitionProcessor] = {}
        self._tasks: dict[PartitionProcessor, asyncio.Task[None]] = {}
        self._reopening: set[Partition] = set()  # failed, and not closed yet
        self._failures: dict[Partition, int] = {}  # in a row, without a delivery in between
        self._closed_delivered = 0  # events delivered by processors that are closed
        self._commit_lock = asyncio.Lock()
        self._stopping = False

    def __iter__(self) -> Iterator[PartitionState]:
        return (processor.state for processor in list(self._processors.values()))

    def get(self, partition: Partition) -> PartitionState | None:
        """The state of a partition; None if it is not assigned."""
        processor = self._processors.get(partition)
        return None if processor is None else processor.state

    def add(self, partition: Partition, records: Records, now_s: float) -> None:
        """Queue events that were read; those of a partition that is not assigned are dropped."""
        processor = self._processors.get(partition)
        if processor is not None:
            processor.add(records, now_s)

    @property
    def partitions(self) -> set[Partition]:
        """The partitions, those included that failed and are not open again yet."""
        return self._processors.keys() | self._reopening

    @property
    def waits_for_group(self) -> bool:
        """Whether the group is still to assign partitions, be it none."""
        unassigned = self.rebalancing or not self.assigned_once.is_set()
        return unassigned and not self._stopping

    @property
    def events_delivered(self) -> int:
        """Events delivered since the start."""
        return self._closed_delivered + sum(state.events_delivered for state in self)

    async def next_ready(self) -> PartitionProcessor:
        """Wait for a partition of which a batch should be taken; the partitions take turns."""
        loop, changed = asyncio.get_running_loop(), self.wakeups.prepare
        while True:
            changed.clear()
            now_s = loop.time()
            soonest_s: float | None = None
            for partition, processor in self._processors.items():
                in_s = processor.state.ready_in_s(now_s)
                if in_s is None:
                    continue
                if in_s <= 0:
                    self._processors[partition] = self._processors.pop(partition)
                    return processor
                soonest_s = in_s if soonest_s is None else min(soonest_s, in_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(soonest_s):
                    await changed.wait()

    # ------------------------------------------------------------ assigned and revoked

    async def assigned(self, partitions: Sequence[Partition]) -> None:
        """Open partitions; see `io.base.RebalanceListener`."""
        name = self._context.config.name
        if partitions:
            verb = "is" if len(partitions) == 1 else "are"
            log.info(
                "pipeline %s: %s %s assigned", name, counted(len(partitions), "partition"), verb
            )
        else:
            group = self._context.config.group_id
            log.info("pipeline %s: other members of group %s have all partitions", name, group)
        self._context.metrics.add("rebalances_total", pipeline=name)
        self._reopening.difference_update(partitions)
        if not self._stopping:  # a worker that stops must not fence the next owner
            for partition in partitions:
                self._start(partition)
        self.rebalancing = False
        self.assigned_once.set()
        self._context.ready("assignment")  # even with none: there may be more members than those

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        """Deliver and commit decided batches, and close; see `io.base.RebalanceListener`."""
        self.rebalancing = True
        self._reopening.difference_update(partitions)
        for partition in partitions:
            self._failures.pop(partition, None)
        found = [each for each in map(self._processors.get, partitions) if each is not None]
        if found:
            verb = "is" if len(found) == 1 else "are"
            revoked = counted(len(found), "partition")
            log.info("pipeline %s: %s %s revoked", self._context.config.name, revoked, verb)
            await self._drain(found)
            for processor in found:
                await self._close(processor)

    async def drain(self) -> None:
        """Take no further events, and deliver and commit the decided batches of all partitions."""
        self._stopping = True
        await self._drain(list(self._processors.values()))

    async def close(self) -> None:
        """Close all partitions at once."""
        self._stopping = True
        for processor in list(self._processors.values()):
            await self._close(processor)

    def _start(self, partition: Partition, delay_s: float = 0.0, owed: int = 0) -> None:
        processor = self._processors[partition] = PartitionProcessor(
            PartitionState(partition, self._context.worker, owed),
            self._context,
            self._output,
            self._invalid_events,
            self.wakeups,
            self.commit,
        )
        self._tasks[processor] = asyncio.create_task(self._run(processor, delay_s))

    async def _run(self, processor: PartitionProcessor, delay_s: float) -> None:
        """Run a partition. If it fails, open it again; end the pipeline if that cannot help."""
        try:
            try:
                await processor.run(delay_s)
            except (StaleFence, BrokerUnavailable) as error:
                await self._restart(processor, error)
        except Exception as error:  # noqa: BLE001 -- it is raised where the pipeline waits
            if not self._failure.done():
                self._failure.set_exception(error)

    async def reopen(self, partition: Partition, error: BrokerUnavailable) -> None:
        """Close a partition that cannot be read on, and open it again, if it is still assigned."""
        processor = self._processors.get(partition)
        if processor is not None:
            await self._restart(processor, error)

    async def _restart(self, processor: PartitionProcessor, error: Exception) -> None:
        state = processor.state
        if state.gone:
            return
        if state.state is not State.CLOSING:
            self._reopening.add(state.partition)
        self._context.metrics.add(
            "partition_restarts_total",
            pipeline=self._context.config.name,
            reason=type(error).__name__,
        )
        fenced = isinstance(error, StaleFence | ProducerFenced | GroupLost)
        if not fenced:
            self._context.count_retry(error)
        self._context.warn(f"{error}; {state} is read again from its committed offset")
        await self._close(processor)  # a rebalance may come meanwhile
        if state.partition in self._reopening and not self._stopping:
            self._reopening.remove(state.partition)
            owed = state.decided if state.decided > state.delivered else state.owed
            pause_s = REOPEN_FENCED_S if fenced else self._pause_s(state)
            self._start(state.partition, pause_s, owed)

    def _pause_s(self, failed: PartitionState) -> float:
        """How long to wait before a partition that failed is opened again."""
        before = 0 if failed.events_delivered else self._failures.get(failed.partition, 0)
        self._failures[failed.partition] = before + 1
        return float(min(REOPEN_S * 2**before, MAX_REOPEN_S))

    async def reopen_created_again(self) -> None:
        """Open the partitions again whose topic was deleted and created again."""
        topics = self._context.sink.topics
        for partition, processor in list(self._processors.items()):
            topic = topics.get(partition.source)
            if topic is not None and processor.identity not in {"", topic.identity}:
                error = BrokerUnavailable(f"topic {partition.source} was created again")
                await self.reopen(partition, error)

    async def _drain(self, processors: Sequence[PartitionProcessor]) -> None:
        for processor in processors:
            processor.state.begin_closing()
        drain_s = self._context.worker.drain_s
        try:
            async with asyncio.timeout(drain_s):
                for processor in processors:
                    await self._drained(processor)
        except TimeoutError:
            self._context.warn(
                f"batches in progress were not delivered within {drain_s:g} s; their events will "
                "be read again"
            )
        try:
            async with asyncio.timeout(drain_s):  # the driver itself retries without end
                await self.commit()
        except TimeoutError:
            self._context.warn(f"offsets were not stored within {drain_s:g} s")
        await self.note_committed()

    async def _drained(self, processor: PartitionProcessor) -> None:
        """Wait until no batch of a partition is on its way, or it has failed."""
        running = self._tasks.get(processor)
        if running is None:
            return  # closed meanwhile
        drained = asyncio.ensure_future(processor.drained())
        try:
            await asyncio.wait([drained, running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()

    async def _close(self, processor: PartitionProcessor) -> None:
        if processor.state.gone:
            return
        partition = processor.state.partition
        if self._processors.get(partition) is processor:
            del self._processors[partition]
        self._closed_delivered += processor.state.events_delivered
        task = self._tasks.pop(processor)
        if task is not asyncio.current_task():
            task.cancel()
        await processor.close()

    # ------------------------------------------------------------ offsets

    async def commit(self) -> None:
        """Store the offsets of delivered batches, unless they were stored with the output.

        A failure is logged: the offsets are stored with the next commit, or the group has revoked
        the partitions.
        """
        async with self._commit_lock:  # one at a time, so that offsets only grow
            behind = [state for state in self if state.delivered > state.committed]
            offsets = {state.partition: state.delivered for state in behind}
            if not offsets:
                return
            context, name = self._context, self._context.config.name
            trace = context.traces.commit(offsets) if context.traces else None
            try:
                with context.timed("commit", trace):
                    await context.source.commit(offsets)
            except BrokerUnavailable as error:
                context.metrics.add("commit_failures_total", pipeline=name)
                context.warn(str(error))
                return
            context.metrics.add("commits_total", pipeline=name)
            for state in behind:
                state.mark_committed(offsets[state.partition])
            context.step("committed")

    async def note_committed(self) -> None:
        """Tell the index what is committed of partitions that have no batch on its way.

        The index learns it with the next batch, and there may be none. If the group loses its
        offsets, the partition is read on from what the index knows.
        """
        behind = [each for each in self if each.idle and each.noted < each.committed]
        with suppress(TimeoutError):
            async with asyncio.timeout(NOTE_S):
                await asyncio.gather(*map(self._note, behind))

    async def _note(self, state: PartitionState) -> None:
        committed = state.committed
        with suppress(StreamDedupError):  # the next batch will meet it, too
            if not state.gone:
                await self._context.engine.note_committed(state.partition, committed)
                state.noted = max(state.noted, committed)

    async def all_at_end(self) -> bool:
        """Whether all events are delivered that were there when the partitions were opened.

        Raises:
            UnreadableBatch: a partition is paused, and all else is delivered.
        """
        paused: UnreadableBatch | None = None
        at_end = True
        for state in self:
            try:
                at_end = await self._at_end(state) and at_end
            except UnreadableBatch as error:
                paused = paused or error
        if at_end and paused:
            raise paused
        return at_end

    async def _at_end(self, state: PartitionState) -> bool:
        if state.state is not State.OPEN or not state.idle:
            return False
        if state.delivered >= state.end:
            return True
        if state.paused:
            raise UnreadableBatch(f"{state} is paused: {state.paused}")
        try:
            # The last offsets may be markers of transactions, which are never delivered.
            position = await self._context.source.position(state.partition)
        except (BrokerUnavailable, IndexUnavailable):
            return False
        return position >= state.end and state.idle
