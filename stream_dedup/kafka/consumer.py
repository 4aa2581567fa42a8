"""Topics of Kafka, read: the port `Source` over aiokafka.

aiokafka fetches ahead, within `max_partition_fetch_bytes` a partition, and keeps the membership of
the group alive beside. Events are taken with `getmany` from the partitions that have room alone, so
a slow sink leaves the others going.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition, errors

from stream_dedup.errors import BrokerRefused, BrokerUnavailable, GroupLost
from stream_dedup.io.base import RebalanceListener, Records
from stream_dedup.kafka._fastpath.fetching import PIECE_RECORDS, columns, fetch_in_pieces
from stream_dedup.kafka.errors import LOST, NOT_STARTED, asking, fail, lose
from stream_dedup.model import Partition

log = logging.getLogger(__name__)


class KafkaConsumer:
    """Topics, read as a member of a group.

    Args:
        topics: their names.
        group_id: the group.
        options: keyword arguments of the consumer: addresses, security, times.
        start: where a group without offsets begins: "earliest", "latest", or "fail".
    """

    def __init__(
        self, topics: Sequence[str], *, group_id: str, options: Mapping[str, Any], start: str
    ) -> None:
        self.topics = tuple(topics)
        self._group_id = group_id
        self._start = start
        reset = "none" if start == "fail" else start
        self._options = {**options, "auto_offset_reset": reset}
        self._consumer: AIOKafkaConsumer | None = None
        self._polled_s = 0.0
        self._next: dict[Partition, int] = {}  # where each is read on
        self._found: dict[Partition, Records] = {}  # what the poll has taken so far
        self._apart = False  # whether partitions are asked for one by one
        self._max_idle_s = options.get("max_poll_interval_ms", 300_000) / 3_000

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The driver's consumer, once started."""
        assert self._consumer is not None, "start it first"
        return self._consumer

    async def start(self, listener: RebalanceListener) -> None:
        consumer = AIOKafkaConsumer(
            group_id=self._group_id, enable_auto_commit=False, **self._options
        )
        try:
            await consumer.start()
            fetch_in_pieces(consumer)
            await self._check_topics(consumer)
            consumer.subscribe(self.topics, listener=_Rebalance(listener))
        except NOT_STARTED as error:
            await consumer.stop()
            fail(f"group {self._group_id} cannot be joined", error)
        except BaseException:
            await consumer.stop()
            raise
        self._consumer = consumer

    async def _check_topics(self, consumer: AIOKafkaConsumer) -> None:
        known = await consumer.topics()
        missing = sorted(set(self.topics) - known)
        if missing:
            raise BrokerRefused(
                f"no such topic: {', '.join(missing)} (or no permission to see it); create it, "
                "or correct pipelines.topics"
            )

    async def poll(
        self, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Records]:
        if not wanted:
            await self._keep_alive()
            return {}
        self._polled_s = asyncio.get_running_loop().time()
        left = limit
        while left > 0:
            pieces = max(1, left // PIECE_RECORDS)
            try:
                given = await self._take(wanted, pieces, 0 if self._found else wait_s)
            except BrokerUnavailable:
                if self._found:
                    break  # it fails again when it is asked again
                raise
            left = limit - sum(map(len, self._found.values()))
            if given < pieces:
                break
        found, self._found = self._found, {}
        return found

    async def _take(self, wanted: Sequence[Partition], pieces: int, wait_s: float) -> int:
        """Take what the driver has of partitions; how many pieces that were.

        Where it fails over one of them, it forgets what it has taken of others just before. So they
        go back, and each is asked for alone until all is well: who is spoilt holds nobody up.
        """
        if not self._apart:
            try:
                return await self._ask(wanted, pieces, wait_s)
            except BrokerUnavailable:
                self._apart = True
                self._go_back(wanted)
                raise
        given = 0
        failed = None
        for partition in wanted:
            share = max(1, pieces // len(wanted))
            try:
                given += await self._ask([partition], share, wait_s / len(wanted))
            except BrokerUnavailable as error:
                failed = error
        self._apart = failed is not None
        if failed is not None:
            if not given:
                raise failed
            log.warning("%s; other partitions are read on", failed)
        return given

    async def _ask(self, partitions: Sequence[Partition], pieces: int, wait_s: float) -> int:
        places = [TopicPartition(*partition) for partition in partitions]
        try:
            handed_out: Mapping[TopicPartition, Sequence[Any]] = await self.consumer.getmany(
                *places, timeout_ms=int(wait_s * 1000), max_records=pieces
            )
        except errors.NoOffsetForPartitionError as error:
            raise BrokerRefused(
                f"group {self._group_id} has stored no offset for {error}, and kafka.start is fail"
            ) from error
        except (errors.KafkaError, errors.ConsumerStoppedError) as error:
            fail(f"group {self._group_id} cannot be read", error)
        for place, some in handed_out.items():
            partition, records = Partition(*place), columns(some)
            self._next[partition] = records.offsets[-1] + 1
            if partition in self._found:
                self._found[partition].extend(records)
            else:
                self._found[partition] = records
        return sum(map(len, handed_out.values()))

    def _go_back(self, partitions: Sequence[Partition]) -> None:
        assigned = self.consumer.assignment()
        for partition in partitions:
            place = TopicPartition(*partition)
            if place in assigned and partition in self._next:
                self.consumer.seek(place, self._next[partition])

    async def _keep_alive(self) -> None:
        """Ask for nothing at times, so that the group does not take the worker for dead."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._polled_s < self._max_idle_s:
            return
        self._polled_s = now_s
        assigned = self.consumer.assignment()
        self.consumer.pause(*assigned)
        try:
            await self._ask((), 1, 0)
        finally:
            self.consumer.resume(*(assigned & self.consumer.assignment()))

    async def committed(self, partition: Partition) -> int | None:
        async with asking(f"offset of {partition} in group {self._group_id}"):
            offset: int | None = await self.consumer.committed(TopicPartition(*partition))
            return offset
        return None

    async def begin(self, partition: Partition) -> int:
        place = TopicPartition(*partition)
        if self._start == "fail":
            raise BrokerRefused(
                f"group {self._group_id} has stored no offset for {partition.source}-"
                f"{partition.number}, and kafka.start is fail; give earliest or latest"
            )
        async with asking(f"first offset of {partition}"):
            ask = (
                self.consumer.end_offsets
                if self._start == "latest"
                else self.consumer.beginning_offsets
            )
            return int((await ask([place]))[place])
        return 0

    async def end(self, partition: Partition) -> int:
        place = TopicPartition(*partition)
        async with asking(f"end of {partition}"):
            return int((await self.consumer.end_offsets([place]))[place])
        return 0

    async def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        if self._consumer is None:  # not connected yet
            return {}
        found = {}
        assigned = self.consumer.assignment()
        for partition in partitions:
            place = TopicPartition(*partition)
            # What stands behind an open transaction cannot be read yet.
            mark = self.consumer.last_stable_offset(place) if place in assigned else None
            if mark is None or mark < 0:
                mark = self.consumer.highwater(place) if place in assigned else None
            if mark is not None:
                found[partition] = int(mark)
        return found

    async def position(self, partition: Partition) -> int:
        async with asking(f"position in {partition}"):
            return int(await self.consumer.position(TopicPartition(*partition)))
        return 0

    def seek(self, partition: Partition, offset: int) -> None:
        place = TopicPartition(*partition)
        if place not in self.consumer.assignment():
            raise GroupLost(f"{partition} is not assigned any more")
        self._next[partition] = offset
        self._found.pop(partition, None)  # a poll that waits took it from elsewhere
        self.consumer.seek(place, offset)

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        what = f"offsets of group {self._group_id} cannot be stored"
        try:
            await self.consumer.commit(
                {TopicPartition(*partition): offset for partition, offset in offsets.items()}
            )
        except LOST as error:
            lose(what, error)
        except errors.KafkaError as error:
            fail(what, error)

    async def stop(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.stop()


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells our listener what the driver's is told."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._listener.revoked([Partition(*place) for place in revoked])

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._listener.assigned([Partition(*place) for place in assigned])
