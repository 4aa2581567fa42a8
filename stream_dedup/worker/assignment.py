"""The lanes of a pipeline: which partitions are its own, and their delivery, in order.

A partition's way: assigned; *opened*: whoever had it before is shut out of topics and index, then
it is read on from what is committed; revoked: what was decided is delivered and committed, the rest
is left; *closed*. A lane that fails is closed and opened again from the committed offset: what was
counted of it is in the journal, so it is decided, and sent, as before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from stream_dedup.errors import (
    BrokerUnavailable,
    GroupLost,
    IndexUnavailable,
    ProducerFenced,
    StaleFence,
)
from stream_dedup.index.base import Ownership
from stream_dedup.model import Partition
from stream_dedup.worker.context import FIRST_PAUSE_S, MOST_PAUSE_S, Context
from stream_dedup.worker.invalid_events import InvalidEventMonitor
from stream_dedup.worker.output import Shaper
from stream_dedup.worker.partition import Lane, State
from stream_dedup.worker.processor import Course, Prepared

log = logging.getLogger(__name__)

IN_DOUBT_TRIES, IN_DOUBT_S = 5, 0.1
"""A broker shows the offsets of a transaction some milliseconds after it is committed."""


class Lanes:
    """The partitions that are a pipeline's own. It is the source's listener.

    Args:
        context: what the pipeline's parts share.
        failure: gets the exception that ends the pipeline.

    Attributes:
        changed: set when there may be a batch to be taken.
        room: set when there may be room for events.
        assigned_once: set with the first assignment.
        delivered: events delivered by lanes that are closed.
    """

    def __init__(self, context: Context, failure: asyncio.Future[None]) -> None:
        self.changed = asyncio.Event()
        self.room = asyncio.Event()
        self.assigned_once = asyncio.Event()
        self.delivered = 0
        self._context = context
        self._failure = failure
        self._lanes: dict[Partition, Lane] = {}
        self._courses: dict[Lane, Course] = {}
        self._poison = InvalidEventMonitor(context.plan.name, context.plan.tolerance)
        self._tasks: dict[Lane, list[asyncio.Task[None]]] = {}
        self._moved = asyncio.Condition()
        self._committing = asyncio.Lock()
        self._counts: dict[str, int] = {}
        self._shaper: Shaper | None = None
        self._stopping = False

    def __iter__(self) -> Iterator[Lane]:
        return iter(list(self._lanes.values()))

    def get(self, partition: Partition) -> Lane | None:
        """The lane of a partition, if it is one's own."""
        return self._lanes.get(partition)

    @property
    def shaper(self) -> Shaper:
        """Shapes what leaves, once the topics were looked at."""
        assert self._shaper is not None, "look at the topics first"
        return self._shaper

    async def look_at_topics(self) -> None:
        """Learn how many partitions the topics of output have.

        Raises:
            BrokerRefused: there is none of that name.
        """
        plan, engine = self._context.plan, self._context.engine
        emission = plan.emission
        topics = {emission.output_topic, emission.summary_topic, emission.dead_letter_topic}
        for topic in sorted(topics - {""}):
            self._counts[topic] = await self._context.sink.partitions(topic)
        width = engine.recipe.fingerprint.width
        self._shaper = Shaper(emission, plan.namespace, width, self._counts)

    def to_the_end(self, lane: Lane) -> None:
        """It is the other lanes' turn."""
        if self._lanes.pop(lane.partition, None) is not None:
            self._lanes[lane.partition] = lane

    # ------------------------------------------------------------ assignment

    async def assigned(self, partitions: Sequence[Partition]) -> None:
        """See `io.base.RebalanceListener`."""
        name = self._context.plan.name
        log.info("pipeline %s: %d partitions are assigned", name, len(partitions))
        self._context.metrics.add("rebalances_total", pipeline=name)
        if not self._stopping:  # else they are somebody else's in a moment: they are left alone
            for partition in partitions:
                self._start(partition)
        self.assigned_once.set()
        self._context.ready("assignment")  # none is well, too: there are more members than those

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        """See `io.base.RebalanceListener`."""
        lanes = [lane for lane in map(self._lanes.get, partitions) if lane is not None]
        if lanes:
            log.info("pipeline %s: %d are revoked", self._context.plan.name, len(lanes))
            await self._drain(lanes)
            for lane in lanes:
                await self._close(lane)

    async def stop(self) -> None:
        """Deliver and commit what was decided."""
        self._stopping = True
        await self._drain(list(self))

    async def close(self) -> None:
        """Give all lanes up."""
        self._stopping = True
        for lane in self:
            await self._close(lane)

    def _start(self, partition: Partition, after_s: float = 0) -> None:
        lane = Lane(partition, self._context.plan.flow)
        self._lanes[partition] = lane
        course = self._courses[lane] = Course(lane, self._context, self, self._poison)
        work = (self._open(lane, after_s), course.decide(), course.deliver())
        self._tasks[lane] = [self._guarded(each) for each in work]

    def _guarded(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task whose failure ends the pipeline."""

        def done(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            if error is not None and not self._failure.done():
                self._failure.set_exception(error)

        task = asyncio.create_task(work)
        task.add_done_callback(done)
        return task

    async def _open(self, lane: Lane, after_s: float) -> None:
        """Claim a partition, then read on where its group stands.

        1. The producer: from here on nobody else can store output of the partition in Kafka.
        2. The fence: nobody else can count anything of it. Nothing was committed since 1.
        3. The committed offset, now final. From there it is read on.
        """
        await asyncio.sleep(after_s)
        context, partition = self._context, lane.partition
        source, sink, engine = context.source, context.sink, context.engine
        name = _name(partition)
        try:
            count = await context.with_retries(name, partial(sink.partitions, partition.source))
            self._counts[partition.source] = count
            lane.partition_producer = await context.with_retries(
                name, partial(sink.open, partition)
            )
            end = await context.with_retries(name, partial(source.end, partition))
            owned = await context.with_retries(
                name, partial(engine.claim_partition, partition, end)
            )
            if owned.reset:
                context.metrics.add("topics_reset_total", pipeline=context.plan.name)
                context.warn(
                    f"{name} ends at {end}, before what was counted of it: it was made anew or "
                    "truncated, and is counted from its beginning"
                )
            start = await context.with_retries(name, partial(self._start_of, partition, owned))
            source.seek(partition, start)
        except (GroupLost, ProducerFenced) as error:
            await self.restart(lane, error)
            return
        if lane.state is State.OPENING:
            lane.open(start, end)
            self.room.set()

    async def _start_of(self, partition: Partition, owned: Ownership) -> int:
        """Where to read on.

        If there are decisions that may have been delivered already it is looked at again, as
        offsets stored by a transaction may show a moment later than it ended.
        """
        source = self._context.source
        committed = await source.committed(partition)
        for _ in range(IN_DOUBT_TRIES):
            if not any(offset >= (committed or 0) for offset in owned.journal):
                break
            await asyncio.sleep(IN_DOUBT_S)
            committed = await source.committed(partition)
        return await source.begin(partition) if committed is None else committed

    async def _drain(self, lanes: Sequence[Lane]) -> None:
        """Deliver and commit what was decided of lanes; leave the rest."""
        for lane in lanes:
            if lane.state is State.OPEN:
                lane.state = State.CLOSING
            lane.drop()
        drain_s = self._context.plan.flow.drain_s
        try:
            async with asyncio.timeout(drain_s), self._moved:
                await self._moved.wait_for(lambda: not any(lane.ahead for lane in lanes))
        except TimeoutError:
            self._context.warn(
                f"what is on its way was not delivered within {drain_s:g} s; it will be read again"
            )
        try:
            async with asyncio.timeout(drain_s):  # the driver itself tries for ever
                await self.commit()
        except TimeoutError:
            self._context.warn(f"offsets were not stored within {drain_s:g} s")

    async def _close(self, lane: Lane) -> None:
        """Nothing of the lane leaves from now on."""
        if lane.state is State.GONE:
            return
        lane.state = State.GONE
        lane.drop()
        lane.ahead = 0
        context, (source, number) = self._context, lane.partition
        if self._lanes.get(lane.partition) is lane:
            del self._lanes[lane.partition]
        context.engine.drop_ownership(lane.partition)
        context.ready(_name(lane.partition))
        context.metrics.remove(
            "lag_events", pipeline=context.plan.name, topic=source, partition=number
        )
        self._courses.pop(lane, None)
        self.delivered += lane.events_delivered
        for task in self._tasks.pop(lane, ()):
            if task is not asyncio.current_task():
                task.cancel()
        if lane.partition_producer is not None:
            await lane.partition_producer.close()
        await self.left(lane, 0)

    async def restart(self, lane: Lane, error: Exception) -> None:
        """A lane failed: take its partition up again from what is committed."""
        if lane.state is State.GONE:
            return
        again = lane.state is not State.CLOSING and not self._stopping
        reason = type(error).__name__
        name = self._context.plan.name
        self._context.metrics.add("partition_restarts_total", pipeline=name, reason=reason)
        self._context.warn(f"{error}; {_name(lane.partition)} is taken up again")
        await self._close(lane)
        if again:
            # If it is somebody else's now, the group says so before it is claimed again.
            fenced = isinstance(error, StaleFence | ProducerFenced | GroupLost)
            self._start(lane.partition, MOST_PAUSE_S if fenced else 10 * FIRST_PAUSE_S)

    # ------------------------------------------------------------ batches

    def put(self, lane: Lane, prepared: Prepared) -> bool:
        """Have a batch decided and delivered; whether the lane still takes it."""
        course = self._courses.get(lane)
        if course is not None:
            course.put(prepared)
        return course is not None

    async def left(self, lane: Lane, batches: int = 1) -> None:
        """Batches of a lane are not on their way any more."""
        lane.ahead -= batches
        self.changed.set()
        async with self._moved:
            self._moved.notify_all()

    async def commit(self) -> None:
        """Store the offsets of what was delivered, where that was not done with it."""
        async with self._committing:  # one after the other: offsets only grow
            await self._commit()

    async def _commit(self) -> None:
        context, name = self._context, self._context.plan.name
        behind = [lane for lane in self if lane.delivered > lane.committed]
        offsets = {lane.partition: lane.delivered for lane in behind}
        if not offsets:
            return
        try:
            with context.timed("commit", context.traces.commit(offsets)):
                await context.source.commit(offsets)
        except BrokerUnavailable as error:
            # Lost: the group will say so. Away: they are stored with the next.
            context.metrics.add("commit_failures_total", pipeline=name)
            context.warn(str(error))
            return
        context.metrics.add("commits_total", pipeline=name)
        for lane in behind:
            lane.committed = max(lane.committed, offsets[lane.partition])
        context.step("committed")

    # ------------------------------------------------------------ the end of the input

    async def all_at_their_ends(self) -> bool:
        """Whether all is delivered that was there when the lanes were opened."""
        return all([await self._at_end(lane) for lane in self])

    async def _at_end(self, lane: Lane) -> bool:
        if lane.state is not State.OPEN or not lane.idle:
            return False
        if lane.delivered >= lane.end:
            return True
        try:
            # Marks of transactions have offsets too, but never come.
            position = await self._context.source.position(lane.partition)
        except (BrokerUnavailable, IndexUnavailable):
            return False
        return position >= lane.end and lane.idle


def _name(partition: Partition) -> str:
    return f"{partition.source}-{partition.number}"
