"""The port `EventSink` over aiokafka's producers.

Records are packed into batches as large as the topic takes, and each batch is sent by one
`send_batch`.

At least once: all input partitions share one idempotent producer, which sends each batch until it
is stored, in order. Exactly once: each input partition has a transactional producer with a stable
id. Opening it raises the id's epoch: whoever used the id before can neither write nor commit from
then on, and an unfinished transaction is aborted. (This driver does not send the group's generation
with the offsets of a transaction, so the group alone would not stop a zombie worker.)

Records that their topic refuses for good are replaced (`kafka.packing` says how they are found). At
least once, what was refused is sent again by another producer. Exactly once, the delivery fails, as
this driver can send nothing more in order after a refused batch: the partition is opened again, and
the next delivery of its events replaces the records that are known by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn

from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.client import AIOKafkaClient
from aiokafka.partitioner import DefaultPartitioner

from stream_dedup.errors import BrokerRefused, BrokerUnavailable, RecordsRefused
from stream_dedup.io.base import Outgoing, PartitionProducer, Records, Substitute, Topic
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.admin import KafkaAdmin, connected_as
from stream_dedup.kafka.errors import NOT_STARTED, fail, retrieve_exception
from stream_dedup.kafka.packing import (
    MAX_BATCH_BYTES,
    REFUSALS,
    Delivery,
    Packed,
    Packer,
    Suspects,
)
from stream_dedup.model import Partition

log = logging.getLogger(__name__)

STOP_S = 5.0
"""Longest wait for a producer to stop: twice what a healthy broker needs for the last answers."""

REFRESH_S = 0.1
"""Mean time between questions of a producer about its topics: `retry.backoff.ms` of Kafka."""

REFRESHES_AT_ONCE = 5
"""After a pause so many follow one another at once, as when a producer meets its topics."""

_PARTITIONER = DefaultPartitioner()


class _Ends(NamedTuple):
    """When a producer ends. Both futures get no exception.

    Attributes:
        discarded: done when nothing more is to be given to it.
        stopped: done when its client is closed. What is not answered by then counts as unsent: the
            driver may leave it without an answer forever.
    """

    discarded: asyncio.Future[None]
    stopped: asyncio.Future[None]

    @classmethod
    def create(cls) -> _Ends:
        """Create them in the running event loop."""
        loop = asyncio.get_running_loop()
        return cls(loop.create_future(), loop.create_future())


class _NotSent(Exception):  # noqa: N818 -- another producer sends them
    """The producer was abandoned. `unsent`: all records that were not stored."""

    def __init__(self, message: str, unsent: Sequence[Outgoing]) -> None:
        self.unsent = unsent
        super().__init__(message)


class _BatchesRefused(_NotSent):
    """Batches were refused for good."""


def _pace_refreshes(client: AIOKafkaClient) -> None:
    """Let a client ask for metadata once in `REFRESH_S`, and `REFRESHES_AT_ONCE` after a pause.

    A producer whose topic was deleted asks again as soon as it is answered, and would do nothing
    else until its batches expire.
    """
    loop = asyncio.get_running_loop()
    ask = client.force_metadata_update
    next_s = 0.0
    later: asyncio.Future[bool] | None = None

    def answer(future: asyncio.Future[bool], answered: asyncio.Future[bool]) -> None:
        if not future.done():
            future.set_result(not answered.cancelled() and answered.result())

    def ask_now(future: asyncio.Future[bool]) -> None:
        ask().add_done_callback(partial(answer, future))

    def paced() -> asyncio.Future[bool]:
        nonlocal next_s, later
        if later is None or later.done():
            later = loop.create_future()
            now_s = loop.time()
            loop.call_at(max(now_s, next_s - REFRESHES_AT_ONCE * REFRESH_S), ask_now, later)
            next_s = max(next_s, now_s) + REFRESH_S
        return asyncio.shield(later)

    client.force_metadata_update = paced


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
        self._group_id = group_id
        self._prefix = transactional_prefix
        self._shared: AIOKafkaProducer | None = None
        self._ends: dict[AIOKafkaProducer, _Ends] = {}  # of those that are not stopped
        self._starting = asyncio.Lock()
        self._kept: KafkaAdmin | None = None
        self._connecting = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.topics: dict[str, Topic] = {}
        self._asking = asyncio.Lock()
        self._asked_s = 0.0  # when the last question about all topics was asked
        self._packer = Packer(
            options.get("compression_type"), self._partitioned, self._ask_settings
        )
        self.suspects: dict[Partition, Suspects] = {}  # of transactions that failed
        self._stopping: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def start(self) -> None:
        async with self._admin():
            await self._producer()

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[KafkaAdmin]:
        """Connect for questions; unlike a producer's, a failure says why.

        The connection is kept until something fails: the start alone asks several questions.
        """
        async with self._connecting:
            self._refuse_if_stopped()
            if self._kept is None:
                self._kept = await self._stack.enter_async_context(connected_as(self._options))
            admin = self._kept
        try:
            yield admin
        except (BrokerRefused, BrokerUnavailable):
            if admin is self._kept:
                await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        self._kept, stack = None, self._stack.pop_all()
        await stack.aclose()

    async def _producer(self) -> AIOKafkaProducer:
        """Return the shared producer; start another one after it failed."""
        async with self._starting:
            if self._shared is None:
                self._shared = await self._started(enable_idempotence=True)
            return self._shared

    async def _started(self, **more: Any) -> AIOKafkaProducer:  # noqa: ANN401 -- the driver's options
        self._refuse_if_stopped()
        producer = AIOKafkaProducer(**self._options, **more)
        _pace_refreshes(producer.client)
        try:
            await producer.start()
        except NOT_STARTED as error:
            await _stop_driver(producer)
            fail("no producer", error)
        except BaseException:
            self.discard(producer)
            raise
        if self._stopped:  # meanwhile
            await _stop_driver(producer)
            self._refuse_if_stopped()
        self._ends[producer] = _Ends.create()
        return producer

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise BrokerUnavailable("the sink is stopped; nothing more is written")

    def discard(self, producer: AIOKafkaProducer) -> None:
        """Stop a producer in the background; what it has not sent fails at once.

        After an error its sequence numbers are in doubt, so it must not be used again. Another one
        sends what waits in it, which would be out of order if this one sent it later.
        """
        if producer in self._ends and self._ends[producer].discarded.done():
            return  # it is being stopped
        _abandon(producer)
        if producer is self._shared:
            self._shared = None
        self._mark_discarded(producer)
        task = asyncio.ensure_future(self._stop(producer))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop(self, producer: AIOKafkaProducer) -> None:
        """Stop a producer; nobody waits for it then."""
        self._mark_discarded(producer)
        await _stop_driver(producer)
        ends = self._ends.pop(producer, None)
        if ends is not None:
            ends.stopped.set_result(None)

    def _mark_discarded(self, producer: AIOKafkaProducer) -> None:
        ends = self._ends.get(producer)
        if ends is not None and not ends.discarded.done():
            ends.discarded.set_result(None)

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
            await self._stop(producer)
            fail(f"no transactions as {name}", error)
        except BaseException:
            self.discard(producer)
            raise
        return _TransactionalProducer(self, producer, partition, self._group_id)

    async def send(self, outgoing: Sequence[Outgoing], substitute: Substitute) -> None:
        suspects = Suspects()
        while outgoing:
            producer = await self._producer()
            try:
                await self.write(outgoing, Delivery(producer, substitute, suspects))
            except _NotSent as stopped:
                self.discard(producer)
                outgoing = stopped.unsent
            except BaseException:
                self.discard(producer)
                raise
            else:
                return

    async def topic(self, name: str) -> Topic:
        if name in self.topics:
            return self.topics[name]
        async with self._asking:  # concurrent callers wait for one answer
            if name not in self.topics and not await self._ask([name]):
                raise BrokerRefused(
                    f"no such topic: {name} (or no permission to see it: Describe on the topic); "
                    "create it, or correct the pipeline's topics"
                )
            return self.topics[name]

    async def refresh(self) -> None:
        loop = asyncio.get_running_loop()
        called_s = loop.time()
        async with self._asking:
            if self._asked_s >= called_s:
                return  # asked for another caller meanwhile
            self._asked_s = loop.time()
            gone = set(self.topics) - await self._ask(list(self.topics))
        if gone:
            log.warning("no such topic any more: %s", ", ".join(sorted(gone)))

    async def _ask(self, names: Sequence[str]) -> set[str]:
        """Ask about topics, and return the names of those that exist."""
        async with self._admin() as admin:
            found = await admin.topics(names)
        for name, topic in found.items():
            if not topic.partitions:
                continue
            now, before = Topic(topic.partitions, topic.identity), self.topics.get(name)
            if before is not None and now != before:
                log.info("topic %s changed: %s, before %s", name, now, before)
            self.topics[name] = now
        return {name for name, topic in found.items() if topic.partitions}

    async def write(self, outgoing: Sequence[Outgoing], delivery: Delivery) -> None:
        """Pack records into batches, send them, and wait until they are stored."""
        packed = await self._packer.pack(outgoing, delivery)
        ends = self._ends.get(delivery.producer)
        sent: list[asyncio.Future[Any]] = []
        try:
            if ends is not None:
                await self._send_until_discarded(packed, delivery, sent, ends.discarded)
                await _all_done_or(ends.stopped, sent)
        finally:
            for future in sent:
                future.add_done_callback(retrieve_exception)  # some may go on without us
        unsent = errors.ProducerClosed()
        outcomes = [each.exception() if each.done() else unsent for each in sent]
        outcomes += [unsent] * (len(packed) - len(sent))
        failed = [
            (each, error) for each, error in zip(packed, outcomes, strict=True) if error is not None
        ]
        if failed:
            await self._fail(failed, delivery)

    async def _send_until_discarded(
        self,
        packed: Sequence[Packed],
        delivery: Delivery,
        sent: list[asyncio.Future[Any]],
        discarded: asyncio.Future[None],
    ) -> None:
        """As `_send`, but until another delivery discards the producer.

        It may be asking about a topic that was deleted. A driver that was stopped never answers.
        """
        if discarded.done():
            return  # while the batches were packed
        sending = asyncio.ensure_future(self._send(packed, delivery, sent))
        try:
            await asyncio.wait([sending, discarded], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            sending.add_done_callback(retrieve_exception)
            sending.cancel()
            raise
        while not sending.done():  # a driver may swallow a cancellation: then cancel again
            sending.cancel()
            await asyncio.wait([sending], timeout=1)
        if not sending.cancelled():
            sending.result()

    async def _send(
        self, packed: Sequence[Packed], delivery: Delivery, sent: list[asyncio.Future[Any]]
    ) -> None:
        """Send batches in order; append a future to `sent` for each that the driver took."""
        places = {each[:2] for each in packed}
        try:
            for topic, partition in places:
                await self._check_known(delivery.producer, topic, partition)
            for topic, partition, batch, _, _ in packed:
                sent.append(await delivery.producer.send_batch(batch, topic, partition=partition))
                if len(places) < len(packed) and not delivery.transactional:
                    # The next one must not be stored if this one is not.
                    sent[-1].add_done_callback(partial(_abandon_if_failed, delivery.producer))
        except errors.ProducerClosed:
            pass  # the rest is unsent, as some of what was sent may be
        except (errors.KafkaError, OSError) as error:
            topics = ", ".join(sorted({each.topic for each in packed}))
            fail(f"cannot write to {topics}", error, "Write")

    async def _check_known(self, producer: AIOKafkaProducer, topic: str, partition: int) -> None:
        """Make sure that a producer, which has metadata of its own, knows a partition.

        Raises:
            BrokerUnavailable: the partition is not known to the broker either, or not yet.
        """
        if partition in await producer.partitions_for(topic):
            return
        await producer.client.force_metadata_update()
        if partition not in await producer.partitions_for(topic):
            await self.refresh()
            raise BrokerUnavailable(f"topic {topic} has no partition {partition}, or not yet")

    async def _fail(
        self, failed: Sequence[tuple[Packed, BaseException]], delivery: Delivery
    ) -> NoReturn:
        """Raise the error of batches that were not stored; learn from those refused for good."""
        refused = [
            (each, REFUSALS[type(error)]) for each, error in failed if type(error) in REFUSALS
        ]
        others = [
            (each, error)
            for each, error in failed
            if type(error) not in REFUSALS
            and (delivery.transactional or not isinstance(error, errors.ProducerClosed))
        ]
        unsent = [Outgoing(e.topic, e.partition, e.records.part(0, e.taken)) for e, _ in failed]
        if refused:
            await self._packer.learn(refused, delivery)
            each, why = refused[0]
            raise _BatchesRefused(
                f"{each.topic}-{each.partition}: a batch of {each.taken} is {why}", unsent
            )
        if others:
            each, error = others[0]
            fail(f"cannot write to {each.topic}", error, "Write")
        raise _NotSent(f"{failed[0][0].topic}: its producer was stopped", unsent)

    async def _partitioned(self, part: Outgoing) -> list[tuple[int, Records]]:
        """Divide records among the partitions of their topic."""
        if part.partition is not None:
            return [(part.partition, part.records)]
        partitions = range((await self.topic(part.topic)).partitions)
        rows: dict[int, list[int]] = {}
        of_key: dict[bytes | None, int] = {}
        for row, key in enumerate(part.records.keys):
            partition = of_key.get(key)
            if partition is None:
                partition = of_key[key] = _PARTITIONER(key, partitions, partitions)
            rows.setdefault(partition, []).append(row)
        return [(partition, part.records.rows(some)) for partition, some in rows.items()]

    async def _ask_settings(self, topic: str) -> Mapping[str, str]:
        async with self._admin() as admin:
            return await admin.settings(topic)

    async def stop(self) -> None:
        self._stopped = True
        producer, self._shared = self._shared, None
        if producer is not None:
            await self._stop(producer)
        if self._stopping:
            await asyncio.wait(self._stopping)
        async with self._connecting:
            await self._disconnect()


class _SharedProducer:
    """At least once: the partitions share a producer, and offsets are committed by the consumer."""

    def __init__(self, sink: KafkaProducer) -> None:
        self._sink = sink

    async def deliver(
        self, outgoing: Sequence[Outgoing], next_offset: int, substitute: Substitute
    ) -> bool:
        del next_offset
        await self._sink.send(outgoing, substitute)
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
        self, outgoing: Sequence[Outgoing], next_offset: int, substitute: Substitute
    ) -> bool:
        producer, all_suspects = self._producer, self._sink.suspects
        place = TopicPartition(*self._partition)
        suspects = all_suspects.setdefault(self._partition, Suspects())
        try:
            await producer.begin_transaction()
            await self._sink.write(outgoing, Delivery(producer, substitute, suspects, True))
            await producer.send_offsets_to_transaction({place: next_offset}, self._group_id)
            await producer.commit_transaction()
        except _BatchesRefused as refused:
            raise RecordsRefused(str(refused)) from refused
        except (errors.KafkaError, OSError) as error:
            fail(f"transaction of {self._partition} failed", error, "Write")
        all_suspects.pop(self._partition, None)
        return True

    async def close(self) -> None:
        self._sink.discard(self._producer)


async def _all_done_or(stopped: asyncio.Future[None], sent: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until all futures are done, or their producer is stopped."""
    if sent:
        answered: asyncio.Future[Any] = asyncio.gather(*sent, return_exceptions=True)
        await asyncio.wait([answered, stopped], return_when=asyncio.FIRST_COMPLETED)


def _abandon(producer: AIOKafkaProducer) -> None:
    """Have a producer send nothing more, where the driver lets us."""
    if self_check.usable("client"):
        from stream_dedup.kafka._fastpath.client import abandon  # noqa: PLC0415 -- after the check

        abandon(producer)


def _abandon_if_failed(producer: AIOKafkaProducer, sent: asyncio.Future[Any]) -> None:
    if not sent.cancelled() and sent.exception() is not None:
        _abandon(producer)


async def _stop_driver(producer: AIOKafkaProducer) -> None:
    """Stop a producer of the driver, whatever state it is in."""
    try:
        async with asyncio.timeout(STOP_S):
            await producer.stop()
    except Exception as error:  # noqa: BLE001 -- it is discarded; nothing depends on it
        log.debug("a producer did not stop: %r", error)
        with suppress(TimeoutError):  # a connection that is full waits until the broker reads
            async with asyncio.timeout(STOP_S):
                await producer.client.close()
    if self_check.usable("client"):
        from stream_dedup.kafka._fastpath.client import end  # noqa: PLC0415 -- after the check

        end(producer)
