"""Topics of Kafka, written to: the port `Sink` over aiokafka.

Records are packed into batches as large as the topic takes, one `send_batch` each. At least once:
one idempotent producer; batches are tried again until they are stored, in order. Exactly once: a
transactional producer an input partition, with a stable id: opening it raises its epoch, so whoever
had it before can neither write nor commit, and an unfinished transaction is ended. (Offsets in a
transaction name no generation of the group in this client, so the group alone would not shut a
zombie out.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.partitioner import DefaultPartitioner

from stream_dedup.errors import BrokerRefused
from stream_dedup.io.base import Outgoing, PartitionProducer, Records, TooLarge, drop_too_large
from stream_dedup.kafka._fastpath.batches import Batch, make_batch
from stream_dedup.kafka.admin import KafkaAdmin, connected
from stream_dedup.kafka.errors import NOT_STARTED, fail
from stream_dedup.model import Partition

log = logging.getLogger(__name__)

MAX_BATCH_BYTES = (1 << 20) - 4096
"""A batch of records at most, where the topic takes so much; one request. Kafka's default is 1 MiB
and the rest of a batch's head, and what cannot be compressed may grow by some hundred bytes."""

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Codecs' numbers, as Kafka's format of records has them."""

STOP_S = 5.0
"""How long a producer may take to stop: twice what a healthy broker needs for its last answers."""

DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's own default of a topic's `max.message.bytes`."""

PARTITIONS_KNOWN_S = 60.0
"""How long a topic's number of partitions is believed."""

CLIENT_OPTIONS = frozenset(
    "bootstrap_servers client_id request_timeout_ms security_protocol ssl_context sasl_mechanism "
    "sasl_plain_username sasl_plain_password".split()
)
"""Options that every kind of client takes."""

_PARTITIONER = DefaultPartitioner()


class KafkaProducer:
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
        self._asking = asyncio.Lock()
        self._limits: dict[str, int] = {}
        self._partitions: dict[str, tuple[int, float]] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        async with self._admin():
            await self._producer()

    def _admin(self) -> AbstractAsyncContextManager[KafkaAdmin]:
        """Brokers that can be asked; says why, where they do not let us in."""
        given = {name: self._options[name] for name in CLIENT_OPTIONS & self._options.keys()}
        return connected(given, self._options.get("request_timeout_ms", 40_000) / 1_000)

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
        except NOT_STARTED as error:
            await _stop(producer)
            fail("no producer", error)
        except BaseException:
            self.give_up(producer)
            raise
        return producer

    def give_up(self, producer: AIOKafkaProducer) -> None:
        """A producer failed: its sequence numbers are in doubt, so another takes its place."""
        if producer is self._shared:
            self._shared = None
        task = asyncio.ensure_future(_stop(producer))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def open(self, partition: Partition) -> PartitionProducer:
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
        count = self._known_partitions(topic)
        if count is not None:
            return count
        async with self._asking:  # what one has asked the others need not
            count = self._known_partitions(topic)
            return await self._told_partitions(topic) if count is None else count

    def _known_partitions(self, topic: str) -> int | None:
        count, told_s = self._partitions.get(topic, (0, 0.0))
        fresh = asyncio.get_running_loop().time() - told_s < PARTITIONS_KNOWN_S
        return count if count and fresh else None

    async def _told_partitions(self, topic: str) -> int:
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
        packed: list[tuple[str, int, Batch]] = []
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
    ) -> list[tuple[str, int, Batch]]:
        topic = part.topic
        limit = await self._limit(topic)
        size = min(limit, MAX_BATCH_BYTES)
        codec = CODECS[self._options.get("compression_type")]
        done: list[tuple[str, int, Batch]] = []
        for partition, records in await self._placed(part):
            left = records
            while left:
                batch = make_batch(size, codec, transactional=transactional)
                taken = batch.fill(left)
                if taken == 1 and batch.size() > limit:  # the first always fits in
                    instead = too_large(topic, left[0])
                    if instead is not None:
                        again = too_large if instead.topic != topic else drop_too_large
                        done += await self._pack(producer, instead, again, transactional)
                else:
                    done.append((topic, partition, batch))
                left = left.part(taken, len(left))
        return done

    async def _placed(self, part: Outgoing) -> list[tuple[int, Records]]:
        if part.partition is not None:
            return [(part.partition, part.records)]
        everywhere = range(await self.partitions(part.topic))
        places: dict[int, list[int]] = {}
        chosen: dict[bytes | None, int] = {}
        for row, key in enumerate(part.records.keys):
            place = chosen.get(key)
            if place is None:
                place = chosen[key] = _PARTITIONER(key, everywhere, everywhere)
            places.setdefault(place, []).append(row)
        return [(place, part.records.rows(rows)) for place, rows in places.items()]

    async def _limit(self, topic: str) -> int:
        """The largest batch that a topic takes; Kafka's default where nobody tells."""
        if topic in self._limits:
            return self._limits[topic]
        async with self._asking:
            if topic not in self._limits:
                self._limits[topic] = await self._told_limit(topic)
            return self._limits[topic]

    async def _told_limit(self, topic: str) -> int:
        try:
            async with self._admin() as admin:
                settings = await admin.settings(topic)
            return int(settings["max.message.bytes"])
        except (BrokerRefused, KeyError, ValueError) as error:
            log.debug("settings of topic %s are not to be had: %s", topic, error)
            return DEFAULT_MAX_BYTES

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
    """An partition_producer at least once: all partitions share a producer."""

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
        """The producer is the others' too."""


class _Transactional:
    """An partition_producer exactly once: a producer of its own."""

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
        self._sink.give_up(self._producer)


async def _stop(producer: AIOKafkaProducer) -> None:
    """Stop a producer, whatever state it is in."""
    try:
        async with asyncio.timeout(STOP_S):
            await producer.stop()
    except Exception as error:  # noqa: BLE001 -- it is given up; nothing depends on it
        log.debug("a producer did not stop: %r", error)
        await producer.client.close()
    _take_outcomes(producer)


def _take_outcomes(producer: AIOKafkaProducer) -> None:
    """Take what became of futures that the driver keeps for itself.

    When a producer is fenced, aiokafka fails a future of each batch that waits to be sent, and that
    of the transaction, whether or not somebody waits for them; a failure that nobody took is logged
    as if something had gone wrong unseen. There is no public way to them. Should the driver come to
    name them otherwise, its log is the noisier for it, no more.
    """
    with contextlib.suppress(AttributeError):
        manager, kept = producer._txn_manager, producer._message_accumulator  # noqa: SLF001
        waiting = [b._drain_waiter for batches in kept._batches.values() for b in batches]  # noqa: SLF001
        ending = manager.wait_for_transaction_end() if manager is not None else None
        for future in (*waiting, ending):
            if future is not None and future.done():
                _seen(future)


def _seen(future: asyncio.Future[Any]) -> None:
    """A result nobody waits for any more is not to be complained of."""
    if not future.cancelled():
        future.exception()
