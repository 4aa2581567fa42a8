"""The port `EventSource` over aiokafka's consumer.

aiokafka fetches ahead, up to `max_partition_fetch_bytes` for each partition, and sends heartbeats
to the group in the background. `getmany` asks only for partitions that have room, so a slow output
of one partition does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition, errors

from stream_dedup.clock import monotonic_s
from stream_dedup.columnar import column_stats
from stream_dedup.errors import (
    BrokerRefused,
    BrokerUnavailable,
    GroupLost,
    OffsetGone,
    UnreadableBatch,
)
from stream_dedup.io.base import RebalanceListener, Records, Unreadable
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.admin import KafkaAdmin, connected_as
from stream_dedup.kafka.codecs import MAX_UNPACKED_BYTES, Decompressor
from stream_dedup.kafka.errors import (
    LOST,
    NOT_STARTED,
    fail,
    fail_lost,
    retrieve_exception,
    translated,
)
from stream_dedup.model import Partition

log = logging.getLogger(__name__)

POLL_BYTES = 32 << 20
"""A poll ends once it has this many bytes of values, even if its limit of events is not reached:
several times what 16,000 log lines take."""


REJOINS, REJOIN_BEATS = 4, 20
"""So many joins within so many heartbeats, for the same partitions, are suspicious: two workers
with one name join again at every second heartbeat or so."""


class KafkaConsumer:
    """A member of a group that reads topics.

    Args:
        topics: the topics' names.
        group_id: the group.
        options: keyword arguments of the driver's consumer, see `KafkaConfig`.
        start: where `begin` is: "earliest", "latest", or "fail" for an error.
        max_unpacked_bytes: bytes that a batch may unpack to; on the fast path only.
    """

    def __init__(
        self,
        topics: Sequence[str],
        *,
        group_id: str,
        options: Mapping[str, Any],
        start: str,
        max_unpacked_bytes: int = MAX_UNPACKED_BYTES,
    ) -> None:
        self.topics = tuple(topics)
        self._group_id = group_id
        self._start = start
        # The worker decides where to read on; by itself the driver would start again silently.
        self._options = {**options, "auto_offset_reset": "none"}
        self._consumer: AIOKafkaConsumer | None = None
        # On the fast path the driver returns pieces of many records, else single records.
        self._columns: Callable[[Sequence[Any]], Records] = Records.of
        self._piece_records = 1
        self._decompressor = Decompressor(max_unpacked_bytes)
        self._polled_s = 0.0
        self._next: dict[Partition, int] = {}  # next offset to read
        self._found: dict[Partition, Records] = {}  # what the current poll has taken so far
        self._admin: KafkaAdmin | None = None
        self._asking = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._found_bytes = 0  # size of the values in it
        self._separately = False  # whether partitions are polled one by one, after a failure
        # Three polls fit into the interval after which the group expels a silent member, so one
        # that is late does no harm.
        self._max_idle_s = options.get("max_poll_interval_ms", 300_000) / 1_000 / 3

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The driver's consumer; call `start` first."""
        assert self._consumer is not None, "start it first"
        return self._consumer

    async def start(self, listener: RebalanceListener) -> None:
        consumer = AIOKafkaConsumer(
            group_id=self._group_id, enable_auto_commit=False, **self._options
        )
        try:
            await consumer.start()
            if self_check.usable("fetching"):
                from stream_dedup.kafka._fastpath import fetching  # noqa: PLC0415 -- after the check

                fetching.fetch_in_pieces(consumer, self._decompressor)
                self._columns = fetching.columns
                self._piece_records = fetching.PIECE_RECORDS
            await self._check_topics(consumer)
            consumer.subscribe(self.topics, listener=self._rebalance(listener))
        except NOT_STARTED as error:
            await consumer.stop()
            fail(f"group {self._group_id} cannot be joined", error)
        except BaseException:
            await consumer.stop()
            raise
        self._consumer = consumer

    def _rebalance(self, listener: RebalanceListener) -> _Rebalance:
        name: str | None = self._options.get("group_instance_id")
        within_s = REJOIN_BEATS * self._options.get("heartbeat_interval_ms", 3_000) / 1_000
        return _Rebalance(listener, RepeatedJoins(self._group_id, name, within_s) if name else None)

    async def _check_topics(self, consumer: AIOKafkaConsumer) -> None:
        known = await consumer.topics()
        missing = sorted(set(self.topics) - known)
        if missing:
            raise BrokerRefused(
                f"no such topic: {', '.join(missing)} (or no permission to see it: Describe on the "
                "topic); create it, or correct pipelines.topics"
            )

    async def poll(
        self, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Records]:
        if not wanted:
            await self._keep_alive()
            return {}
        self._polled_s = asyncio.get_running_loop().time()
        self._decompressor.room = self._decompressor.limit
        self._found_bytes = 0
        left = limit
        while left > 0 and self._found_bytes < POLL_BYTES:
            pieces = max(1, left // self._piece_records)
            try:
                taken = await self._take(wanted, pieces, 0 if self._found else wait_s)
            except BrokerUnavailable as error:
                if self._found and not isinstance(error, OffsetGone):
                    break  # return what was read; the next poll raises the error
                raise
            left = limit - sum(map(len, self._found.values()))
            if taken < pieces:
                break
        found, self._found = self._found, {}
        return found

    async def _take(self, wanted: Sequence[Partition], pieces: int, wait_s: float) -> int:
        """Take fetched records of partitions; return how many pieces those were.

        If the driver fails over one partition, it loses records of others that it has taken just
        before. So all partitions are rewound, and then polled separately until none fails: a
        corrupt partition does not hold up the others.
        """
        if not self._separately:
            try:
                return await self._get(wanted, pieces, wait_s)
            except OffsetGone:
                raise  # the driver keeps what it has of the others
            except (BrokerUnavailable, UnreadableBatch) as error:
                self._separately = True
                self._rewind(wanted)
                if isinstance(error, BrokerUnavailable):
                    raise
        taken = 0
        failed = None
        for partition in wanted:
            share = max(1, pieces // len(wanted))
            try:
                taken += await self._get([partition], share, wait_s / len(wanted))
            except OffsetGone:
                raise
            except UnreadableBatch:
                self._rewind([partition])
                taken += await self._up_to_unreadable(partition, share, wait_s)
            except BrokerUnavailable as error:
                failed = error
        self._separately = failed is not None
        if failed is not None:
            if not taken:
                raise failed
            log.warning("%s; other partitions are read on", failed)
        return taken

    async def _up_to_unreadable(self, partition: Partition, most: int, wait_s: float) -> int:
        """Take records one by one until the driver fails: it loses those taken in the same call.

        The driver does not say where the batch ends that it cannot read.
        """
        for taken in range(most):
            try:
                if not await self._get([partition], 1, wait_s):
                    return taken
            except UnreadableBatch as error:
                self._rewind([partition])
                first = await self.position(partition)
                why = Unreadable(first, str(error), to_the_end=False)
                self._note(partition, Records.of_unreadable(first, -1, why))
                self._next[partition] = first
                return taken + 1
        return most

    async def _get(self, partitions: Sequence[Partition], pieces: int, wait_s: float) -> int:
        places = [TopicPartition(*partition) for partition in partitions]
        try:
            fetched: Mapping[TopicPartition, Sequence[Any]] = await self.consumer.getmany(
                *places, timeout_ms=int(wait_s * 1000), max_records=pieces
            )
        except errors.NoOffsetForPartitionError:
            return 0  # the worker is about to seek
        except errors.OffsetOutOfRangeError as error:
            ((place, offset),) = error.args[0].items()
            raise OffsetGone(place.topic, place.partition, offset) from error
        except Exception as error:
            if _is_brokers(error):
                fail(f"group {self._group_id} cannot be read", error)
            raise UnreadableBatch(f"{type(error).__name__}: {error}") from error
        for place, some in fetched.items():
            self._note(Partition(*place), self._columns(some))
        return sum(map(len, fetched.values()))

    def _note(self, partition: Partition, records: Records) -> None:
        """Note records that were read."""
        self._next[partition] = records.offsets[-1] + 1
        self._found_bytes += column_stats(records.values).size
        if partition in self._found:
            self._found[partition].extend(records)
        else:
            self._found[partition] = records

    def _rewind(self, partitions: Sequence[Partition]) -> None:
        """Seek back to what was not returned yet."""
        assigned = self.consumer.assignment()
        for partition in partitions:
            place = TopicPartition(*partition)
            if place in assigned and partition in self._next:
                self.consumer.seek(place, self._next[partition])

    async def _keep_alive(self) -> None:
        """Poll no partition from time to time, so that the group does not expel the worker."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._polled_s < self._max_idle_s:
            return
        self._polled_s = now_s
        assigned = self.consumer.assignment()
        self.consumer.pause(*assigned)
        try:
            await self._get((), 1, 0)
        finally:
            self.consumer.resume(*(assigned & self.consumer.assignment()))

    async def committed(self, partition: Partition) -> int | None:
        with translated(f"offset of {partition} in group {self._group_id}"):
            offset: int | None = await self.consumer.committed(TopicPartition(*partition))
        if offset is None:
            # The driver drops an error of the whole answer, such as that of a coordinator that is
            # starting, and reports no offset. Taken for granted, that would send us back to the
            # topic's beginning, or on to its end.
            offset = (await (await self._ask()).committed(self._group_id, [partition])).get(
                partition
            )
        return offset

    async def first(self, partition: Partition) -> int:
        place = TopicPartition(*partition)
        with translated(f"first offset of {partition}"):
            offsets = await self.consumer.beginning_offsets([place])
        return int(offsets[place])

    async def _ask(self) -> KafkaAdmin:
        """Return a client for questions that the consumer cannot ask; it lives as long as we do."""
        async with self._asking:
            if self._admin is None:
                self._admin = await self._stack.enter_async_context(connected_as(self._options))
            return self._admin

    async def begin(self, partition: Partition) -> int:
        if self._start == "fail":
            raise BrokerRefused(
                f"group {self._group_id} has stored no offset for {partition.source}-"
                f"{partition.number} that still exists, and kafka.start is fail; give earliest or "
                "latest"
            )
        if self._start == "latest":
            return (await self.ends([partition]))[partition]
        return await self.first(partition)

    async def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        topics = sorted({partition.source for partition in partitions})
        with translated(f"ends of {len(partitions)} partitions of {', '.join(topics)}"):
            offsets = await self.consumer.end_offsets(
                [TopicPartition(*partition) for partition in partitions]
            )
        return {Partition(*place): int(offset) for place, offset in offsets.items()}

    async def position(self, partition: Partition) -> int:
        with translated(f"position in {partition}"):
            position = await self.consumer.position(TopicPartition(*partition))
        return int(position)

    def seek(self, partition: Partition, offset: int) -> None:
        place = TopicPartition(*partition)
        if place not in self.consumer.assignment():
            raise GroupLost(f"{partition} is not assigned any more")
        self._next[partition] = offset
        self._found.pop(partition, None)  # a poll that is waiting read from another offset
        self.consumer.seek(place, offset)

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        what = f"offsets of group {self._group_id} cannot be stored"
        try:
            committed = asyncio.ensure_future(
                self.consumer.commit(
                    {TopicPartition(*partition): offset for partition, offset in offsets.items()}
                )
            )
            try:
                await asyncio.shield(committed)
            except asyncio.CancelledError:  # the request continues, and nobody waits for it
                committed.add_done_callback(retrieve_exception)
                raise
        except LOST as error:
            fail_lost(what, error)
        except errors.KafkaError as error:
            fail(what, error)

    async def stop(self) -> None:
        try:
            if self._consumer is not None:
                await self._consumer.stop()
        except asyncio.CancelledError:
            # Also raised by the driver, of a task that it cancels while the task waits to ask a
            # broker again.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        finally:
            # Afterwards: until the consumer has stopped, its listener may ask.
            self._consumer = self._admin = None
            await self._stack.aclose()


class RepeatedJoins:
    """Recognises two workers with one `group_instance_id`, which take its place from each other.

    The driver does not send the name with its heartbeats, so the broker does not say that another
    worker has taken the place: the driver joins again at each heartbeat, and gets the same
    partitions.

    Args:
        group_id: the group.
        name: the `group_instance_id`.
        within_s: the time within which so many joins are suspicious.
    """

    def __init__(self, group_id: str, name: str, within_s: float) -> None:
        self._group_id = group_id
        self._name = name
        self._within_s = within_s
        self._joins: deque[tuple[float, frozenset[Partition]]] = deque(maxlen=REJOINS)

    def warning(self, assigned: Iterable[Partition], now_s: float) -> str:
        """Note a join; return what to tell the operator, or nothing."""
        joins = self._joins
        joins.append((now_s, frozenset(assigned)))
        same = len({partitions for _, partitions in joins}) == 1
        if len(joins) < REJOINS or not same or now_s - joins[0][0] > self._within_s:
            return ""
        joins.clear()
        return (
            f"group {self._group_id}: joined {REJOINS} times within {self._within_s:g} s, each time"
            f" for the same partitions; does another worker have the same kafka.group_instance_id, "
            f"{self._name!r}? Give every worker a name of its own"
        )


def _is_brokers(error: Exception) -> bool:
    """Return whether an error of a poll came from a broker or the group.

    All others come from the driver's codecs and parsers, which raise errors of many kinds. A wrong
    checksum is the broker's: the bytes are not those that it stored.
    """
    if isinstance(error, errors.CorruptRecordException):
        return "CRC" in str(error)
    return isinstance(error, errors.KafkaError | errors.ConsumerStoppedError) and not isinstance(
        error, errors.UnsupportedCodecError
    )


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
    """The driver's listener; it calls ours."""

    def __init__(self, listener: RebalanceListener, joins: RepeatedJoins | None) -> None:
        self._listener = listener
        self._joins = joins

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._listener.revoked([Partition(*place) for place in revoked])

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        partitions = [Partition(*place) for place in assigned]
        if self._joins is not None and (text := self._joins.warning(partitions, monotonic_s())):
            log.warning(text)
        await self._listener.assigned(partitions)
