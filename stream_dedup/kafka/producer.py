"""The port `EventSink` over aiokafka's producers.

Records are packed into batches as large as the topic takes, and each batch is sent by one
`send_batch`.

At least once: all input partitions share one idempotent producer, which sends each batch until it
is stored, in order. Exactly once: each input partition has a transactional producer with a stable
id. Opening it raises the id's epoch: whoever used the id before can neither write nor commit from
then on, and an unfinished transaction is aborted. (This driver does not send the group's generation
with the offsets of a transaction, so the group alone would not stop a zombie worker.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.partitioner import DefaultPartitioner

from stream_dedup.errors import BrokerRefused
from stream_dedup.io.base import Outgoing, PartitionProducer, Records, TooLarge, drop_too_large
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.admin import KafkaAdmin, connected
from stream_dedup.kafka.errors import NOT_STARTED, fail
from stream_dedup.model import Partition

if TYPE_CHECKING:
    from stream_dedup.kafka._fastpath.batches import NativeBatch

log = logging.getLogger(__name__)

MAX_BATCH_BYTES = (1 << 20) - 4096
"""Largest batch, where the topic takes as much. One batch is one request, which brokers accept up
to 1 MiB by default; the rest is for the request's head, and for data that grows a little when it is
compressed."""

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Names of the codecs → their numbers in Kafka's format."""

STOP_S = 5.0
"""Longest wait for a producer to stop: twice what a healthy broker needs for the last answers."""

DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's default for a topic's ``max.message.bytes``."""

PARTITIONS_TTL_S = 60.0
"""How long a topic's number of partitions is cached: partitions are added rarely, and a new one may
stay empty for a minute; one request a minute costs nothing."""

CLIENT_OPTIONS = frozenset(
    "bootstrap_servers client_id request_timeout_ms security_protocol ssl_context sasl_mechanism "
    "sasl_plain_username sasl_plain_password".split()
)
"""Options of a producer that every kind of client takes."""

RECORD_OVERHEAD_BYTES = 36
"""A record takes at most this many bytes besides its fields: 1 of attributes, 10 of its timestamp,
and 5 each of its length, position, number of headers, length of key and length of value."""

HEADER_OVERHEAD_BYTES = 10
"""The same of a header: the lengths of its name and value."""

_PARTITIONER = DefaultPartitioner()


class RecordBatch(Protocol):
    """A filled batch, as the driver's `send_batch` takes it."""

    def append(
        self, *, timestamp: int, key: bytes | None, value: bytes | None, headers: object
    ) -> object:
        """Add a record; return None if it does not fit."""

    def close(self) -> None:
        """Take no more records."""

    def record_count(self) -> int:
        """Return how many records it has."""

    def size(self) -> int:
        """Return its size in bytes, before compression."""


def fill(batch: RecordBatch, records: Records, size: int) -> int:
    """Fill a batch of the driver through its public interface, record by record, and close it.

    Args:
        batch: an empty batch.
        records: the records; at least the first one is taken.
        size: bytes that the batch stays below before compression, unless it has only one record.

    Returns:
        How many records it took, from the first on.
    """
    taken = 0
    for _, timestamp, key, value, headers in records:
        most = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:  # a character takes four bytes at most
            most += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
        if taken and batch.size() + most >= size:
            break
        added = batch.append(timestamp=timestamp, key=key, value=value, headers=list(headers))
        if added is None:
            break
        taken += 1
    batch.close()
    return taken


class KafkaProducer:
    """Writes to topics.

    Args:
        options: keyword arguments of the driver's producers, see `KafkaConfig`.
        group_id: the group whose offsets are committed in transactions.
        transactional_prefix: begins the transactional ids; "" for at-least-once delivery.
    """

    def __init__(
        self, *, options: Mapping[str, Any], group_id: str, transactional_prefix: str = ""
    ) -> None:
        # For batches that the driver makes; a topic's own limit may be lower.
        self._options = {"max_batch_size": MAX_BATCH_BYTES, **options}
        self._codec = CODECS[options.get("compression_type")]
        self._native_batch: type[NativeBatch] | None = None
        if self_check.usable("batches"):
            from stream_dedup.kafka._fastpath.batches import NativeBatch  # noqa: PLC0415 -- after the check

            self._native_batch = NativeBatch
        self._group_id = group_id
        self._prefix = transactional_prefix
        self._shared: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._limits: dict[str, int] = {}  # topic → largest batch in bytes
        self._partitions: dict[str, tuple[int, float]] = {}  # topic → how many, and as of when
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        async with self._admin():
            await self._producer()

    def _admin(self) -> AbstractAsyncContextManager[KafkaAdmin]:
        """Connect for questions; unlike a producer's, a failure says why."""
        given = {name: self._options[name] for name in CLIENT_OPTIONS & self._options.keys()}
        return connected(given, self._options.get("request_timeout_ms", 40_000) / 1_000)

    async def _producer(self) -> AIOKafkaProducer:
        """Return the shared producer; start another one after it failed."""
        async with self._starting:
            if self._shared is None:
                self._shared = await self._started(enable_idempotence=True)
            return self._shared

    async def _started(self, **more: Any) -> AIOKafkaProducer:  # noqa: ANN401 -- the driver's options
        producer = AIOKafkaProducer(**self._options, **more)
        try:
            await producer.start()
        except NOT_STARTED as error:
            await _stop(producer)
            fail("no producer", error)
        except BaseException:
            self.discard(producer)
            raise
        return producer

    def discard(self, producer: AIOKafkaProducer) -> None:
        """Stop a producer in the background.

        After an error its sequence numbers are in doubt, so it must not be used again.
        """
        if producer is self._shared:
            self._shared = None
        task = asyncio.ensure_future(_stop(producer))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def open(self, partition: Partition) -> PartitionProducer:
        if not self._prefix:
            return _SharedProducer(self)
        name = f"{self._prefix}-{partition.source}-{partition.number}"
        producer = await self._started(transactional_id=name)
        try:
            # The first transaction waits for the new epoch, which fences the previous owner.
            await producer.begin_transaction()
            await producer.abort_transaction()
        except (errors.KafkaError, OSError) as error:
            await _stop(producer)
            fail(f"no transactions as {name}", error)
        except BaseException:
            self.discard(producer)
            raise
        return _TransactionalProducer(self, producer, partition, self._group_id)

    async def send(self, outgoing: Sequence[Outgoing], too_large: TooLarge) -> None:
        producer = await self._producer()
        try:
            await self.write(producer, outgoing, too_large)
        except BaseException:
            self.discard(producer)
            raise

    async def partitions(self, topic: str) -> int:
        count = self._known_partitions(topic)
        if count is not None:
            return count
        async with self._asking:  # concurrent callers wait for one answer
            count = self._known_partitions(topic)
            return await self._ask_partitions(topic) if count is None else count

    def _known_partitions(self, topic: str) -> int | None:
        count, known_s = self._partitions.get(topic, (0, 0.0))
        fresh = asyncio.get_running_loop().time() - known_s < PARTITIONS_TTL_S
        return count if count and fresh else None

    async def _ask_partitions(self, topic: str) -> int:
        async with self._admin() as admin:
            found = (await admin.topics([topic])).get(topic)
        if found is None or not found.partitions:
            raise BrokerRefused(
                f"no such topic: {topic} (or no permission to see it); create it, or correct "
                "the pipeline's topics"
            )
        self._partitions[topic] = found.partitions, asyncio.get_running_loop().time()
        return found.partitions

    async def write(
        self,
        producer: AIOKafkaProducer,
        outgoing: Sequence[Outgoing],
        too_large: TooLarge,
        *,
        transactional: bool = False,
    ) -> None:
        """Pack records into batches, send them, and wait until they are stored."""
        packed: list[tuple[str, int, RecordBatch]] = []
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
                await self._lower_limit(topic)
            fail("a batch was too large for its topic, whose setting has changed", error)
        except (errors.KafkaError, OSError) as error:
            fail(f"cannot write to {', '.join(sorted({t for t, _, _ in packed}))}", error)
        finally:
            for future in sent:
                future.add_done_callback(_retrieve_exception)

    async def _pack(
        self, producer: AIOKafkaProducer, part: Outgoing, too_large: TooLarge, transactional: bool
    ) -> list[tuple[str, int, RecordBatch]]:
        topic = part.topic
        limit = await self._limit(topic)
        size = min(limit, MAX_BATCH_BYTES)
        done: list[tuple[str, int, RecordBatch]] = []
        for partition, records in await self._partitioned(part):
            left = records
            while left:
                batch: RecordBatch
                if self._native_batch is not None:
                    batch = native = self._native_batch(size, self._codec, transactional)
                    taken = native.fill(left)
                else:
                    batch = producer.create_batch()
                    taken = fill(batch, left, size)
                if taken == 1 and batch.size() > limit:  # a batch takes its first record always
                    instead = too_large(topic, left[0])
                    if instead is not None:
                        again = too_large if instead.topic != topic else drop_too_large
                        done += await self._pack(producer, instead, again, transactional)
                else:
                    done.append((topic, partition, batch))
                left = left.part(taken, len(left))
        return done

    async def _partitioned(self, part: Outgoing) -> list[tuple[int, Records]]:
        """Divide records among the partitions of their topic."""
        if part.partition is not None:
            return [(part.partition, part.records)]
        partitions = range(await self.partitions(part.topic))
        rows: dict[int, list[int]] = {}
        of_key: dict[bytes | None, int] = {}
        for row, key in enumerate(part.records.keys):
            partition = of_key.get(key)
            if partition is None:
                partition = of_key[key] = _PARTITIONER(key, partitions, partitions)
            rows.setdefault(partition, []).append(row)
        return [(partition, part.records.rows(some)) for partition, some in rows.items()]

    async def _limit(self, topic: str) -> int:
        """Return the largest batch that a topic takes; Kafka's default if we may not know."""
        if topic in self._limits:
            return self._limits[topic]
        async with self._asking:
            if topic not in self._limits:
                self._limits[topic] = await self._ask_limit(topic)
            return self._limits[topic]

    async def _ask_limit(self, topic: str) -> int:
        try:
            async with self._admin() as admin:
                settings = await admin.settings(topic)
            return int(settings["max.message.bytes"])
        except (BrokerRefused, KeyError, ValueError) as error:
            log.debug("settings of topic %s are unknown: %s", topic, error)
            return DEFAULT_MAX_BYTES

    async def _lower_limit(self, topic: str) -> None:
        """Ask again for the limit of a topic that refused a batch; halve it if not lower."""
        before = self._limits.pop(topic, MAX_BATCH_BYTES)
        if await self._limit(topic) >= before:
            self._limits[topic] = max(1024, before // 2)

    async def stop(self) -> None:
        producer, self._shared = self._shared, None
        if producer is not None:
            await _stop(producer)
        if self._stopping:
            await asyncio.wait(self._stopping)


class _SharedProducer:
    """At least once: the partitions share a producer, and offsets are committed by the consumer."""

    def __init__(self, sink: KafkaProducer) -> None:
        self._sink = sink

    async def deliver(
        self, outgoing: Sequence[Outgoing], next_offset: int, too_large: TooLarge
    ) -> bool:
        del next_offset
        if outgoing:
            await self._sink.send(outgoing, too_large)
        return False

    async def close(self) -> None:
        """Do nothing: other partitions use the producer."""


class _TransactionalProducer:
    """Exactly once: a producer of its own, and one transaction for each delivery."""

    def __init__(
        self, sink: KafkaProducer, producer: AIOKafkaProducer, partition: Partition, group_id: str
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
        self._sink.discard(self._producer)


async def _stop(producer: AIOKafkaProducer) -> None:
    """Stop a producer, whatever state it is in."""
    try:
        async with asyncio.timeout(STOP_S):
            await producer.stop()
    except Exception as error:  # noqa: BLE001 -- it is discarded; nothing depends on it
        log.debug("a producer did not stop: %r", error)
        await producer.client.close()
    if self_check.usable("client"):
        from stream_dedup.kafka._fastpath.client import retrieve_failures  # noqa: PLC0415 -- after the check

        retrieve_failures(producer)


def _retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Retrieve a future's exception, so that asyncio does not log it as never retrieved."""
    if not future.cancelled():
        future.exception()
