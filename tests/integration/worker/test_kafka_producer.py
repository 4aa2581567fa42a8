"""The producer over a real broker, by the fast path and by the driver's public interface."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, errors
from aiokafka.cluster import ClusterMetadata

from stream_dedup.errors import BrokerUnavailable, ProducerFenced, StreamDedupError
from stream_dedup.io.base import Outgoing, PartitionProducer, Record, Records, Refused
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.producer import KafkaProducer
from stream_dedup.model import Partition
from tests.memory_broker import drop_refused
from tests.services.kafka import Kafka, KafkaBroker

EVENTS = 100


@pytest.fixture(params=["fast path", "public interface"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the driver is used."""
    if request.param != "fast path":
        monkeypatch.setattr(self_check, "usable", lambda _part: False)
    return str(request.param)


async def until(holds: Callable[[], bool], within_s: float = 60) -> None:
    """Wait until something of the driver, which has no event, holds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 -- the driver signals nothing
            await asyncio.sleep(0.01)


class Fencing:
    """Two workers that open a producer for the same partition, the second at a given call."""

    def __init__(self, kafka: Kafka) -> None:
        self.source = Partition(kafka.fresh_topic(), 0)
        self.out = kafka.fresh_topic(3)
        options = {"bootstrap_servers": kafka.bootstrap}
        self.first, self.second = (
            KafkaProducer(options=options, group_id="group", transactional_prefix=self.out)
            for _ in range(2)
        )
        self.others: list[PartitionProducer] = []
        self.complaints: list[str] = []

    def fences_before(self, producer: Any, call: str) -> None:
        """Open the second worker's producer just before a call of the first one."""
        make: Callable[..., Awaitable[Any]] = getattr(producer, call)

        async def when_fenced(*args: Any, **options: Any) -> Any:
            setattr(producer, call, make)
            self.others.append(await self.second.open(self.source))
            return await make(*args, **options)

        setattr(producer, call, when_fenced)

    async def through(self, call: str) -> None:
        """The first worker delivers twice; the second time it is fenced."""
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.complaints.append(f"{context['message']}: {context}")
        )
        first: Any = await self.first.open(self.source)
        await first.deliver(self.outgoing(), 5, drop_refused)
        self.fences_before(first._producer, call)
        with pytest.raises(ProducerFenced):
            await first.deliver(self.outgoing(), 9, drop_refused)
        for each in (first, *self.others):
            await each.close()
        for sink in (self.first, self.second):
            await sink.stop()

    def outgoing(self) -> list[Outgoing]:
        events = Records.of([Record(-1, 1, None, b"event")] * EVENTS)
        return [Outgoing(self.out, partition, events) for partition in range(3)]


@pytest.mark.parametrize(
    "call", ["send_batch", "send_offsets_to_transaction", "commit_transaction"]
)
def test_a_fenced_worker_stores_nothing_and_gets_an_error(
    kafka: Kafka, path: str, call: str
) -> None:
    fencing = Fencing(kafka)
    asyncio.run(fencing.through(call))
    gc.collect()  # futures complain when they are collected
    if path == "fast path":  # else asyncio logs futures that the driver keeps to itself
        assert fencing.complaints == []
    left = kafka.consume(fencing.out)
    assert len(left) == 3 * EVENTS, "the fenced worker's transaction is aborted"


def test_a_broker_without_metadata_yet_is_unavailable(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is starting answers so, and the driver fails an assertion."""
    monkeypatch.setattr(ClusterMetadata, "update_metadata", lambda *_: None)
    options = {"bootstrap_servers": kafka.bootstrap, "request_timeout_ms": 5_000}

    async def open_producer() -> None:
        sink = KafkaProducer(options=options, group_id="g", transactional_prefix="sd")
        await sink.open(Partition("t", 0))

    with pytest.raises(BrokerUnavailable):
        asyncio.run(open_producer())


@pytest.mark.usefixtures("path")
def test_added_partitions_are_used_once_topics_are_refreshed(kafka: Kafka) -> None:
    topic = kafka.fresh_topic()

    async def written() -> None:
        sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
        keys: list[bytes | None] = [b"%d" % number for number in range(40)]

        async def write() -> None:
            rows = [Record(0, 0, key, b"value") for key in keys]
            await sink.send([Outgoing(topic, None, Records.of(rows))], drop_refused)

        try:
            await write()
            kafka.add_partitions(topic, 3)
            await write()
            assert set(kafka.end_offsets(topic).values()) == {80, 0}
            await sink.refresh()
            assert sink.topics[topic].partitions == 3
            await write()  # the producer's own metadata is older
        finally:
            await sink.stop()

    asyncio.run(written())
    counts = kafka.end_offsets(topic).values()
    assert sum(counts) == 120
    assert min(counts) > 0


def test_a_cancelled_delivery_sends_nothing_more(make_kafka: Callable[..., KafkaBroker]) -> None:
    """Its events are sent again by another producer; if they came later, order would be lost."""
    kafka = make_kafka()

    async def sent(topic: str) -> bool:
        """Whether the broker was paused before it answered, so that a delivery could wait."""

        def outgoing(value: bytes) -> list[Outgoing]:
            return [Outgoing(topic, 0, Records.of([Record(-1, 1, None, value)]))]

        sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
        await sink.start()
        try:
            await sink.send(outgoing(b"before"), drop_refused)
            accumulator = (await sink._producer())._message_accumulator
            kafka.pause()
            on_its_way = asyncio.ensure_future(sink.send(outgoing(b"on its way"), drop_refused))
            try:
                await until(lambda: bool(accumulator._pending_batches), within_s=15)
                waiting = asyncio.ensure_future(sink.send(outgoing(b"waiting"), drop_refused))
                await until(lambda: any(accumulator._batches.values()), within_s=15)
                waiting.cancel()
                await asyncio.wait([waiting])
            except TimeoutError:
                return False
            finally:
                kafka.resume()
                await on_its_way
            await sink.send(outgoing(b"after"), drop_refused)
        finally:
            await sink.stop()
        return True

    for _ in range(4):
        topic = kafka.fresh_topic()
        if asyncio.run(sent(topic)):
            break
    values = [record.value for record in kafka.consume(topic)]
    assert values == [b"before", b"on its way", b"after"]


def test_what_follows_an_unsent_batch_is_sent_after_it(kafka: Kafka) -> None:
    """The driver gives up a batch, and would send the next one."""
    topic = kafka.fresh_topic()
    sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
    values = [b"%d " % number + b"x" * 1_000 for number in range(3_000)]
    records = Records.of([Record(-1, 1, None, value) for value in values])

    async def send() -> None:
        await sink.start()
        first = await sink._producer()
        given_up: list[asyncio.Future[Any]] = []
        send_batch = first.send_batch

        async def give_up_the_first(*batch: Any, **place: Any) -> Any:
            if not given_up:
                given_up.append(asyncio.get_running_loop().create_future())
                given_up[0].set_exception(errors.KafkaTimeoutError())
                return given_up[0]
            return await send_batch(*batch, **place)

        first.send_batch = give_up_the_first
        with pytest.raises(BrokerUnavailable, match="cannot write to"):
            await sink.send([Outgoing(topic, 0, records)], drop_refused)
        await sink.send([Outgoing(topic, 0, records)], drop_refused)  # as a worker does
        await sink.stop()

    asyncio.run(send())
    first_copies = list(dict.fromkeys(record.value for record in kafka.consume(topic)))
    assert first_copies == values


def test_a_delivery_that_waits_goes_on_with_another_producer(kafka: Kafka) -> None:
    """Another delivery has discarded the producer, which was asking about the topic."""
    topic = kafka.fresh_topic()
    outgoing = [Outgoing(topic, 0, Records.of([Record(-1, 1, None, b"event")]))]
    sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")

    async def send() -> None:
        await sink.send(outgoing, drop_refused)
        sink.discard(await sink._producer())  # the next one does not know the topic yet
        kafka.delete_topic(topic)
        producer = await sink._producer()
        waiting = asyncio.ensure_future(sink.send(outgoing, drop_refused))
        await until(lambda: topic in producer.client._topics)
        sink.discard(producer)
        kafka.create_topic(topic)
        async with asyncio.timeout(20):  # the producer would be asked for 40 s
            await waiting
        assert not sink._ends.keys() - {await sink._producer()}
        await sink.stop()

    asyncio.run(send())
    assert [record.value for record in kafka.consume(topic)] == [b"event"]


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.usefixtures("path")
def test_a_delivery_ends_with_its_producer_while_the_broker_is_away(
    make_kafka: Callable[..., KafkaBroker], *, silent: bool
) -> None:
    """Another delivery discards the producer while a batch is on its way, again and again."""
    kafka = make_kafka()
    topic = kafka.fresh_topic()
    outgoing = [Outgoing(topic, 0, Records.of([Record(-1, 1, None, b"event")]))]
    options = {"bootstrap_servers": kafka.bootstrap, "request_timeout_ms": 90_000}
    sink = KafkaProducer(options=options, group_id="group")

    async def send() -> None:
        await sink.send(outgoing, drop_refused)
        producer = await sink._producer()
        await asyncio.to_thread(kafka.pause if silent else kafka.kill)
        waiting = asyncio.ensure_future(sink.send(outgoing, drop_refused))
        on_its_way = producer._message_accumulator._pending_batches
        await until(lambda: any(silent or batch.retry_count > 2 for batch in on_its_way))
        for _ in range(2):  # by two deliveries
            sink.discard(producer)
        if silent:
            await asyncio.wait([waiting], timeout=1)
            assert producer in sink._ends, "it is not stopped yet"
        await asyncio.wait([waiting], timeout=20)
        if silent:  # the next producer waits for the broker
            assert not waiting.done()
            assert producer not in sink._ends
            await asyncio.to_thread(kafka.resume)
            await waiting
        else:
            assert waiting.done()
            with pytest.raises(BrokerUnavailable, match="no producer"):
                await waiting
            await asyncio.to_thread(kafka.start)
            await sink.send(outgoing, drop_refused)
        await sink.stop()

    asyncio.run(send())
    assert {record.value for record in kafka.consume(topic)} == {b"event"}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_sink_stopped_while_it_starts_leaves_no_producer(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> None:
    start, producers = AIOKafkaProducer.start, []

    async def use() -> None:
        sink = KafkaProducer(
            options={"bootstrap_servers": kafka.bootstrap},
            group_id="group",
            transactional_prefix="stops" if transactional else "",
        )

        async def start_after_stop(producer: AIOKafkaProducer) -> None:
            producers.append(producer)
            await sink.stop()
            await start(producer)

        monkeypatch.setattr(AIOKafkaProducer, "start", start_after_stop)
        for _ in range(2):  # while it stops, and later
            with pytest.raises(BrokerUnavailable, match="the sink is stopped"):
                await (sink.open(Partition("t", 0)) if transactional else sink.start())

    asyncio.run(use())
    assert [producer._closed for producer in producers] == [True]


def test_a_send_while_the_sink_stops_is_refused(kafka: Kafka) -> None:
    topic = kafka.fresh_topic()
    outgoing = [Outgoing(topic, 0, Records.of([Record(-1, 1, None, b"too late")]))]

    async def use() -> None:
        sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
        await sink.start()
        producer = await sink._producer()
        stop = producer.stop

        async def stop_later() -> None:
            with pytest.raises(BrokerUnavailable, match="the sink is stopped"):
                await sink.send(outgoing, drop_refused)
            await stop()

        producer.stop = stop_later
        await sink.stop()

    asyncio.run(use())
    assert kafka.consume(topic) == []


def test_a_topic_created_again_has_another_identity(kafka: Kafka) -> None:
    topic = kafka.fresh_topic()

    async def identities() -> list[str]:
        sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
        found = [(await sink.topic(topic)).identity]
        await sink.refresh()
        found.append(sink.topics[topic].identity)
        kafka.delete_topic(topic)
        await sink.refresh()
        found.append(sink.topics[topic].identity)
        kafka.create_topic(topic)
        await sink.refresh()
        return [*found, sink.topics[topic].identity]

    first, *same, last = asyncio.run(identities())
    assert same == [first, first]
    assert len(last) == len(first) == 32
    assert last != first


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_records_fill_batch_after_batch_in_order(
    kafka: Kafka, path: str, compression: str | None
) -> None:
    topic = kafka.fresh_topic(2)
    options = {"bootstrap_servers": kafka.bootstrap, "compression_type": compression}
    sink = KafkaProducer(options=options, group_id="group")
    assert (sink._packer._native_batch is not None) == (path == "fast path")
    values = [b"%d " % number + b"x" * 1_000 for number in range(3_000)]
    records = Records.of([Record(-1, 1, None, value) for value in values])

    async def send() -> None:
        await sink.start()
        await sink.send([Outgoing(topic, 1, records)], drop_refused)
        await sink.stop()

    asyncio.run(send())
    assert [record.value for record in kafka.consume(topic)] == values


@pytest.mark.usefixtures("path")
def test_a_record_larger_than_its_topic_takes_is_replaced(kafka: Kafka) -> None:
    topic = kafka.fresh_topic(1, {"max.message.bytes": "2000"})
    sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
    values = [b"first", b"x" * 3_000, b"last"] + [b"y" * 900] * 9
    records = Records.of([Record(-1, 1, None, value) for value in values])

    def replace(refused: Refused) -> Outgoing:
        record = refused.record._replace(value=b"replaced")
        return Outgoing(refused.topic, 0, Records.of([record]))

    async def send() -> None:
        await sink.start()
        await sink.send([Outgoing(topic, 0, records)], replace)
        await sink.stop()

    asyncio.run(send())
    values[1] = b"replaced"
    assert [record.value for record in kafka.consume(topic)] == values


def test_questions_share_a_connection_until_one_fails(kafka: Kafka) -> None:
    name = kafka.fresh_topic(3)

    async def ask() -> None:
        sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
        await sink.start()
        connection = sink._kept
        assert connection is not None
        assert (await sink.topic(name)).partitions == 3
        await sink.refresh()
        events = Records.of([Record(-1, 1, None, b"event")])
        await sink.send([Outgoing(name, 0, events)], drop_refused)
        assert sink._kept is connection
        with pytest.raises(StreamDedupError):
            await sink._ask_settings("no such topic")
        assert sink._kept is None
        assert int((await sink._ask_settings(name))["max.message.bytes"]) > 0
        assert sink._kept not in {None, connection}
        await sink.stop()
        assert sink._kept is None
        with pytest.raises(BrokerUnavailable):
            await sink.refresh()

    asyncio.run(ask())
