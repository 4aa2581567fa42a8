"""Kafka: the connector ports over aiokafka.

Reading. aiokafka fetches ahead, within `max_partition_fetch_bytes` a partition, and keeps the group
membership alive beside. Events are taken with `getmany` from the partitions that have room alone,
so a slow sink leaves the others going.

Writing. Records are packed into batches as large as the topic takes, one `send_batch` each. At
least once: one idempotent producer; batches are retried until they are stored, in order. Exactly
once: a transactional producer an input partition, with a stable id: opening it raises its epoch, so
whoever had it before can neither write nor commit, and an unfinished transaction is ended. (Offsets
in a transaction name no generation of the group in this client, so the group alone would not shut
a zombie out.)
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
    errors,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder

from stream_dedup.connectors.base import (
    Listener,
    Outgoing,
    Outlet,
    Output,
    Record,
    TooLarge,
    nothing,
)
from stream_dedup.connectors.kafka_topics import max_message_bytes
from stream_dedup.errors import BrokerRefused, BrokerUnavailable, GroupLost, OutletFenced
from stream_dedup.model import Partition

log = logging.getLogger(__name__)

MAX_BATCH_BYTES = 512 * 1024
"""A batch of records at most, where the topic takes so much; one request."""

BATCH_OVERHEAD_BYTES = 70
"""What stands around the records of a batch."""

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Codecs' numbers, as Kafka's format of records has them."""

STOP_S = 5.0
"""How long a producer may take to stop: twice what a healthy broker needs for its last answers."""

REFUSALS: tuple[type[BaseException], ...] = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
    errors.SaslAuthenticationFailed,
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    errors.InvalidTopicError,
    errors.InvalidGroupIdError,
    errors.InvalidSessionTimeoutError,
    errors.InvalidTransactionTimeout,
    errors.UnsupportedVersionError,
    errors.UnsupportedCodecError,
    errors.KafkaConfigurationError,
    errors.PolicyViolationError,
    ssl.SSLCertVerificationError,
)

FENCED = (errors.ProducerFenced, errors.InvalidProducerEpoch, errors.TransactionCoordinatorFenced)

LOST = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.RebalanceInProgressError,
    errors.IllegalStateError,
)


def fail(what: str, error: BaseException) -> NoReturn:
    """Raise our error for the driver's."""
    text = f"{what}: {type(error).__name__}: {error}"
    if isinstance(error, FENCED):
        raise OutletFenced(text) from error
    if isinstance(error, REFUSALS) or isinstance(error.__cause__, REFUSALS):
        raise BrokerRefused(text) from error
    raise BrokerUnavailable(text) from error


class KafkaSource:
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
        self._topics = tuple(topics)
        self._group_id = group_id
        self._start = start
        reset = "none" if start == "fail" else start
        self._options = {**options, "auto_offset_reset": reset}
        self._consumer: AIOKafkaConsumer | None = None
        self._polled_s = 0.0
        self._max_idle_s = options.get("max_poll_interval_ms", 300_000) / 3_000

    @property
    def consumer(self) -> AIOKafkaConsumer:
        """The driver's consumer, once started."""
        assert self._consumer is not None, "start it first"
        return self._consumer

    async def start(self, listener: Listener) -> None:
        consumer = AIOKafkaConsumer(
            group_id=self._group_id, enable_auto_commit=False, **self._options
        )
        try:
            await consumer.start()
            await self._check_topics(consumer)
            consumer.subscribe(self._topics, listener=_Rebalance(listener))
        except (errors.KafkaError, OSError) as error:
            await consumer.stop()
            fail(f"group {self._group_id} cannot be joined", error)
        except BaseException:
            await consumer.stop()
            raise
        self._consumer = consumer

    async def _check_topics(self, consumer: AIOKafkaConsumer) -> None:
        known = await consumer.topics()
        missing = sorted(set(self._topics) - known)
        if missing:
            raise BrokerRefused(
                f"no such topic: {', '.join(missing)} (or no permission to see it); create it, "
                "or correct pipelines.topics"
            )

    async def poll(
        self, wanted: Sequence[Partition], limit: int, wait_s: float
    ) -> Mapping[Partition, Sequence[Record]]:
        consumer = self.consumer
        try:
            if not wanted:
                await self._keep_alive()
                return {}
            self._polled_s = asyncio.get_running_loop().time()
            records: Any = await consumer.getmany(
                *(TopicPartition(*partition) for partition in wanted),
                timeout_ms=int(wait_s * 1000),
                max_records=limit,
            )
        except errors.NoOffsetForPartitionError as error:
            raise BrokerRefused(
                f"group {self._group_id} has stored no offset for {error}, and kafka.start is fail"
            ) from error
        except (errors.KafkaError, errors.ConsumerStoppedError) as error:
            fail(f"group {self._group_id} cannot be read", error)
        return {Partition(*place): found for place, found in records.items()}

    async def _keep_alive(self) -> None:
        """Ask for nothing at times, so that the group does not take the worker for dead."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._polled_s < self._max_idle_s:
            return
        self._polled_s = now_s
        assigned = self.consumer.assignment()
        self.consumer.pause(*assigned)
        try:
            await self.consumer.getmany(timeout_ms=0)
        finally:
            self.consumer.resume(*(assigned & self.consumer.assignment()))

    async def committed(self, partition: Partition) -> int | None:
        async with _asking(f"offset of {partition} in group {self._group_id}"):
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
        async with _asking(f"first offset of {partition}"):
            ask = (
                self.consumer.end_offsets
                if self._start == "latest"
                else self.consumer.beginning_offsets
            )
            return int((await ask([place]))[place])
        return 0

    async def end(self, partition: Partition) -> int:
        place = TopicPartition(*partition)
        async with _asking(f"end of {partition}"):
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
        async with _asking(f"position in {partition}"):
            return int(await self.consumer.position(TopicPartition(*partition)))
        return 0

    def seek(self, partition: Partition, offset: int) -> None:
        place = TopicPartition(*partition)
        if place not in self.consumer.assignment():
            raise GroupLost(f"{partition} is not assigned any more")
        self.consumer.seek(place, offset)

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        what = f"offsets of group {self._group_id} cannot be stored"
        try:
            await self.consumer.commit(
                {TopicPartition(*partition): offset for partition, offset in offsets.items()}
            )
        except LOST as error:
            raise GroupLost(f"{what}: {type(error).__name__}: {error}") from error
        except errors.KafkaError as error:
            fail(what, error)

    async def stop(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.stop()


class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells our listener what the driver's is told."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._listener.revoked([Partition(*place) for place in revoked])

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        await self._listener.assigned([Partition(*place) for place in assigned])


@asynccontextmanager
async def _asking(what: str) -> AsyncIterator[None]:
    try:
        yield
    except (errors.KafkaError, OSError) as error:
        fail(f"{what} is not to be had", error)


class KafkaSink:
    """Topics, written to.

    Args:
        options: keyword arguments of producers: addresses, security, compression, times.
        group_id: the group whose offsets are stored in transactions.
        transactional_prefix: begins the transactional ids; "" for at-least-once delivery.
    """

    def __init__(
        self, *, options: Mapping[str, Any], group_id: str, transactional_prefix: str = ""
    ) -> None:
        self._options = dict(options)
        self._group_id = group_id
        self._prefix = transactional_prefix
        self._shared: AIOKafkaProducer | None = None
        self._making = asyncio.Lock()
        self._limits: dict[str, int] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._producer()

    async def _producer(self) -> AIOKafkaProducer:
        """The shared producer; another one after it failed."""
        async with self._making:
            if self._shared is None:
                self._shared = await self._made(enable_idempotence=True)
            return self._shared

    async def _made(self, **more: Any) -> AIOKafkaProducer:  # noqa: ANN401 -- the driver's options
        producer = AIOKafkaProducer(**self._options, **more)
        try:
            await producer.start()
        except (errors.KafkaError, OSError) as error:
            await _stop(producer)
            fail("no producer", error)
        return producer

    def give_up(self, producer: AIOKafkaProducer) -> None:
        """A producer failed: its sequence numbers are in doubt, so another takes its place."""
        if producer is self._shared:
            self._shared = None
        task = asyncio.ensure_future(_stop(producer))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def open(self, partition: Partition) -> Outlet:
        if not self._prefix:
            return _Shared(self)
        name = f"{self._prefix}-{partition.source}-{partition.number}"
        producer = await self._made(transactional_id=name)
        try:
            # The first transaction waits for the new epoch: from here on nobody else is in.
            await producer.begin_transaction()
            await producer.abort_transaction()
        except (errors.KafkaError, OSError) as error:
            await _stop(producer)
            fail(f"no transactions as {name}", error)
        except BaseException:
            self.give_up(producer)
            raise
        return _Transactional(self, producer, partition, self._group_id)

    async def send(self, outgoing: Sequence[Outgoing], too_large: TooLarge) -> None:
        producer = await self._producer()
        try:
            await self.write(producer, outgoing, too_large)
        except BaseException:
            self.give_up(producer)
            raise

    async def partitions(self, topic: str) -> int:
        producer = await self._producer()
        try:
            found = await producer.partitions_for(topic)
        except (errors.KafkaError, OSError) as error:
            if isinstance(error, errors.UnknownTopicOrPartitionError):
                raise BrokerRefused(f"no such topic: {topic}; create it") from error
            fail(f"topic {topic} cannot be seen", error)
        return len(found)

    async def write(
        self,
        producer: AIOKafkaProducer,
        outgoing: Sequence[Outgoing],
        too_large: TooLarge,
        *,
        transactional: bool = False,
    ) -> None:
        """Pack records into batches, send them, and wait until they are stored."""
        packed: list[tuple[str, int, BatchBuilder]] = []
        for part in outgoing:
            packed += await self._pack(producer, part, too_large, transactional)
        sent = []
        try:
            for topic, partition, batch in packed:
                sent.append(await producer.send_batch(batch, topic, partition=partition))
            for future in sent:
                await future
        except errors.MessageSizeTooLargeError as error:
            for topic in {topic for topic, _, _ in packed}:
                await self._refused(topic)
            fail("a batch was too large for its topic, whose setting has changed", error)
        except (errors.KafkaError, OSError) as error:
            fail(f"cannot write to {', '.join(sorted({t for t, _, _ in packed}))}", error)
        finally:
            for future in sent:
                future.add_done_callback(_seen)

    async def _pack(
        self, producer: AIOKafkaProducer, part: Outgoing, too_large: TooLarge, transactional: bool
    ) -> list[tuple[str, int, BatchBuilder]]:
        topic = part.topic
        limit = await self._limit(topic)
        size = min(limit, MAX_BATCH_BYTES)
        codec = CODECS[self._options.get("compression_type")]
        done: list[tuple[str, int, BatchBuilder]] = []
        for partition, outputs in await self._placed(part):
            left: Sequence[Output] = outputs
            while left:
                batch = BatchBuilder(size, codec, is_transactional=transactional)
                taken = _filled(batch, left)
                if taken == 1 and batch.size() > limit:  # the first always fits in
                    instead = too_large(topic, left[0])
                    if instead is not None:
                        again = too_large if instead.topic != topic else nothing
                        done += await self._pack(producer, instead, again, transactional)
                else:
                    done.append((topic, partition, batch))
                left = left[taken:]
        return done

    async def _placed(self, part: Outgoing) -> Iterable[tuple[int, Sequence[Output]]]:
        if part.partition is not None:
            return [(part.partition, part.outputs)]
        everywhere = range(await self.partitions(part.topic))
        places: dict[int, list[Output]] = {}
        chosen: dict[bytes | None, int] = {}
        for output in part.outputs:
            key = output[0]
            place = chosen.get(key)
            if place is None:
                place = chosen[key] = _PARTITIONER(key, everywhere, everywhere)
            places.setdefault(place, []).append(output)
        return places.items()

    async def _limit(self, topic: str) -> int:
        limit = self._limits.get(topic)
        if limit is None:
            limit = self._limits[topic] = await max_message_bytes(self._options, topic)
        return limit

    async def _refused(self, topic: str) -> None:
        """A topic takes less than was thought: ask again; where nobody tells, try half."""
        before = self._limits.pop(topic, MAX_BATCH_BYTES)
        if await self._limit(topic) >= before:
            self._limits[topic] = max(1024, before // 2)

    async def stop(self) -> None:
        producer, self._shared = self._shared, None
        if producer is not None:
            await _stop(producer)
        if self._stopping:
            await asyncio.wait(self._stopping)


class _Shared:
    """An outlet at least once: all partitions share a producer."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink

    async def deliver(
        self, outgoing: Sequence[Outgoing], next_offset: int, too_large: TooLarge
    ) -> bool:
        del next_offset
        if outgoing:
            await self._sink.send(outgoing, too_large)
        return False

    async def close(self) -> None:
        """The producer is the others' too."""


class _Transactional:
    """An outlet exactly once: a producer of its own."""

    def __init__(
        self, sink: KafkaSink, producer: AIOKafkaProducer, partition: Partition, group_id: str
    ) -> None:
        self._sink = sink
        self._producer = producer
        self._partition = partition
        self._group_id = group_id

    async def deliver(
        self, outgoing: Sequence[Outgoing], next_offset: int, too_large: TooLarge
    ) -> bool:
        producer = self._producer
        place = TopicPartition(*self._partition)
        try:
            await producer.begin_transaction()
            await self._sink.write(producer, outgoing, too_large, transactional=True)
            await producer.send_offsets_to_transaction({place: next_offset}, self._group_id)
            await producer.commit_transaction()
        except (errors.KafkaError, OSError) as error:
            fail(f"transaction of {self._partition} failed", error)
        return True

    async def close(self) -> None:
        self._sink.give_up(self._producer)


async def _stop(producer: AIOKafkaProducer) -> None:
    """Stop a producer, whatever state it is in."""
    try:
        async with asyncio.timeout(STOP_S):
            await producer.stop()
    except Exception as error:  # noqa: BLE001 -- it is given up; nothing depends on it
        log.debug("a producer did not stop: %r", error)
        await producer.client.close()


def _filled(batch: BatchBuilder, outputs: Sequence[Output]) -> int:
    """Append records to a batch until it is full; how many it took, at least one."""
    append, taken = batch.append, 0
    for key, value, timestamp, headers in outputs:
        if type(headers) is not list:
            headers = list(headers)  # noqa: PLW2901 -- the driver takes nothing else
        if append(timestamp=timestamp, key=key, value=value, headers=headers) is None:
            break
        taken += 1
    return taken


def _seen(future: asyncio.Future[Any]) -> None:
    """A result nobody waits for any more is not to be complained of."""
    if not future.cancelled():
        future.exception()


_PARTITIONER = DefaultPartitioner()
