"""The sink over a real broker: what becomes of a worker's output when another takes its place."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from confluent_kafka.admin import NewPartitions

from stream_dedup.errors import BrokerUnavailable, ProducerFenced
from stream_dedup.io.base import Outgoing, PartitionProducer, Record, Records, drop_too_large
from stream_dedup.kafka import producer as kafka_sink
from stream_dedup.kafka.producer import KafkaProducer
from stream_dedup.model import Partition
from tests.services.kafka import Kafka
from tests.services.processes import wait_until

EVENTS = 100


class Fencing:
    """Two workers that take the same partition; the second comes when it is told to."""

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
        """Have the second worker come when the first one is about to make a call."""
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
        partition_producer: Any = await self.first.open(self.source)
        await partition_producer.deliver(self.outgoing(), 5, drop_too_large)
        self.fences_before(partition_producer._producer, call)
        with pytest.raises(ProducerFenced):
            await partition_producer.deliver(self.outgoing(), 9, drop_too_large)
        for each in (partition_producer, *self.others):
            await each.close()
        for sink in (self.first, self.second):
            await sink.stop()

    def outgoing(self) -> list[Outgoing]:
        events = Records.of([Record(-1, 1, None, b"event")] * EVENTS)
        return [Outgoing(self.out, partition, events) for partition in range(3)]


@pytest.mark.parametrize(
    "call", ["send_batch", "send_offsets_to_transaction", "commit_transaction"]
)
def test_a_worker_that_is_fenced_is_told_so_and_nothing_complains_behind_its_back(
    kafka: Kafka, call: str
) -> None:
    fencing = Fencing(kafka)
    asyncio.run(fencing.through(call))
    gc.collect()  # futures complain when they are collected
    assert fencing.complaints == []
    left = kafka.consume(fencing.out)
    assert len(left) == 3 * EVENTS, "what the fenced one began is not to be seen"


def test_a_broker_that_names_no_brokers_yet_is_tried_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is just starting does; the driver trips over it."""
    monkeypatch.setattr(ClusterMetadata, "update_metadata", lambda *_: None)
    options = {"bootstrap_servers": kafka.bootstrap, "request_timeout_ms": 5_000}

    async def open_outlet() -> None:
        sink = KafkaProducer(options=options, group_id="g", transactional_prefix="sd")
        await sink.open(Partition("t", 0))

    with pytest.raises(BrokerUnavailable):
        asyncio.run(open_outlet())


def test_how_many_partitions_a_topic_has_is_known_for_a_while(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.fresh_topic()
    sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")

    def count() -> int:
        return asyncio.run(sink.partitions(topic))

    assert count() == 1
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    assert count() == 1

    monkeypatch.setattr(kafka_sink, "PARTITIONS_KNOWN_S", 0)
    wait_until(lambda: count() == 3, what="the broker to tell of three partitions")


def test_what_does_not_fit_into_a_batch_goes_into_the_next_in_order(kafka: Kafka) -> None:
    topic = kafka.fresh_topic(2)
    sink = KafkaProducer(options={"bootstrap_servers": kafka.bootstrap}, group_id="group")
    values = [b"%d " % number + b"x" * 1_000 for number in range(3_000)]
    records = Records.of([Record(-1, 1, None, value) for value in values])

    async def send() -> None:
        await sink.start()
        await sink.send([Outgoing(topic, 1, records)], drop_too_large)
        await sink.stop()

    asyncio.run(send())
    assert [record.value for record in kafka.consume(topic)] == values
