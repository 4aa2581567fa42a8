"""What every source and sink does: the sentences of ``io/base.py``, over a table of adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import pytest

from stream_dedup.errors import BrokerRefused, GroupLost, ProducerFenced
from stream_dedup.io.base import (
    EventSink,
    EventSource,
    Outgoing,
    Record,
    Records,
    Refusal,
    Refused,
)
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.consumer import KafkaConsumer
from stream_dedup.kafka.producer import KafkaProducer
from stream_dedup.model import Partition
from tests.memory_broker import MemoryBroker, drop_refused
from tests.services.kafka import Kafka

TIMEOUT_S = 60.0
MEGABYTE = 1_000_000
HEADERS = (("name", b"h"), ("none", None))


class Stored(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Broker(Protocol):
    """A broker under test, with a topic of two partitions to read and one of three to write."""

    group: str
    input: str
    output: str

    def write(self, values: Sequence[bytes], partition: int) -> None: ...
    def read(self) -> list[Stored]: ...
    def committed(self) -> Mapping[Partition, int]: ...
    def source(self) -> EventSource: ...
    def sink(self, *, transactional: bool = False) -> EventSink: ...


class InMemory:
    """The broker in memory."""

    group, input, output = "group", "input", "output"

    def __init__(self) -> None:
        self._broker = MemoryBroker({self.input: 2, self.output: 3}, max_bytes=MEGABYTE)

    def write(self, values: Sequence[bytes], partition: int) -> None:
        for value in values:
            self._broker.write(self.input, value, partition=partition)

    def read(self) -> list[Stored]:
        return [
            Stored(place.number, record.key, record.value, tuple(record.headers))
            for place, records in self._broker.logs.items()
            for record in records
            if place.source == self.output
        ]

    def committed(self) -> Mapping[Partition, int]:
        return self._broker.committed(self.group)

    def source(self) -> EventSource:
        return self._broker.source([self.input], self.group)

    def sink(self, *, transactional: bool = False) -> EventSink:
        return self._broker.sink(self.group, transactional=transactional)


class OnKafka:
    """Topics of a real broker."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._options = {"bootstrap_servers": kafka.bootstrap}
        self.input = self.group = kafka.fresh_topic(2)
        self.output = kafka.fresh_topic(3, {"max.message.bytes": str(MEGABYTE)})

    def write(self, values: Sequence[bytes], partition: int) -> None:
        self._kafka.produce(self.input, values, partition)

    def read(self) -> list[Stored]:
        found = self._kafka.consume(self.output)
        return [Stored(each.partition, each.key, each.value, each.headers) for each in found]

    def committed(self) -> Mapping[Partition, int]:
        found = self._kafka.committed(self.group)
        return {Partition(*place): offset for place, offset in found.items()}

    def source(self) -> EventSource:
        options = self._options | {"heartbeat_interval_ms": 100}
        return KafkaConsumer([self.input], group_id=self.group, options=options, start="earliest")

    def sink(self, *, transactional: bool = False) -> EventSink:
        prefix = self.output if transactional else ""
        return KafkaProducer(
            options=self._options, group_id=self.group, transactional_prefix=prefix
        )


@pytest.fixture(params=["memory", "kafka", "kafka by the public interface"])
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Every adapter."""
    if request.param == "memory":
        return InMemory()
    if request.param != "kafka":
        monkeypatch.setattr(self_check, "usable", lambda _part: False)
    return OnKafka(request.getfixturevalue("kafka"))


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await test()

    asyncio.run(limited())


class Member:
    """A member of the group, and the partitions that it has at present."""

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self.partitions: set[Partition] = set()

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        self.partitions -= set(partitions)

    async def assigned(self, partitions: Sequence[Partition]) -> None:
        self.partitions |= set(partitions)
        for partition in partitions:
            start = await self.source.committed(partition)
            self.source.seek(
                partition, await self.source.begin(partition) if start is None else start
            )

    async def has(self, count: int) -> None:
        """Wait until it has so many partitions; poll meanwhile, as the group expects."""
        while len(self.partitions) != count:
            await self.source.poll([], 1, 0)
            await asyncio.sleep(0.01)

    async def read(self, wanted: Sequence[Partition], count: int) -> dict[Partition, list[Any]]:
        """Poll until so many events were read; their values."""
        values: dict[Partition, list[Any]] = {}
        while sum(map(len, values.values())) < count:
            for partition, records in (await self.source.poll(wanted, 100, 0.1)).items():
                values.setdefault(partition, []).extend(records.values)
        return values


@asynccontextmanager
async def joined(broker: Broker, partitions: int = 2) -> AsyncIterator[Member]:
    """A member that has joined the group and has so many partitions."""
    member = Member(broker.source())
    await member.source.start(member)
    try:
        await member.has(partitions)
        yield member
    finally:
        await member.source.stop()


def outgoing(broker: Broker, values: Sequence[bytes], partition: int | None = 0) -> list[Outgoing]:
    records = [Record(-1, 1, value[:3], value, HEADERS) for value in values]
    return [Outgoing(broker.output, partition, Records.of(records))]


def values_of(records: Sequence[Stored]) -> list[bytes | None]:
    return [record.value for record in records]


# ---------------------------------------------------------------- sources


def test_only_wanted_partitions_are_polled_each_in_order(broker: Broker) -> None:
    first, second = Partition(broker.input, 0), Partition(broker.input, 1)
    values = [b"%d" % number for number in range(250)]
    broker.write(values, 0)
    broker.write([b"other"], 1)

    async def test() -> None:
        async with joined(broker) as member:
            assert member.source.topics == (broker.input,)
            assert member.partitions == {first, second}
            assert await member.source.poll([], 10, 60) == {}
            assert await member.read([first], 250) == {first: values}
            assert await member.source.position(first) == 250
            assert await member.source.position(second) == 0
            assert await member.read([first, second], 1) == {second: [b"other"]}

    run(test)


def test_a_seek_reads_again_and_a_poll_for_nothing_returns(broker: Broker) -> None:
    first = Partition(broker.input, 0)
    broker.write([b"a", b"b", b"c"], 0)

    async def test() -> None:
        async with joined(broker) as member:
            await member.read([first], 3)
            assert await member.source.poll([first], 10, 0.01) == {}
            member.source.seek(first, 1)
            assert await member.read([first], 2) == {first: [b"b", b"c"]}
            assert await member.source.ends([first]) == {first: 3}
            with pytest.raises(GroupLost):
                member.source.seek(Partition(broker.input, 7), 0)

    run(test)


def test_the_next_member_reads_on_at_the_committed_offset(broker: Broker) -> None:
    first = Partition(broker.input, 0)
    broker.write([b"a", b"b", b"c"], 0)

    async def test() -> None:
        async with joined(broker) as member:
            assert await member.source.committed(first) is None
            await member.read([first], 3)
            await member.source.commit({first: 2})
            assert await member.source.committed(first) == 2
        async with joined(broker) as member:
            assert await member.read([first], 1) == {first: [b"c"]}

    run(test)
    assert broker.committed() == {first: 2}


def test_members_share_partitions_and_cannot_commit_lost_ones(broker: Broker) -> None:
    both = {Partition(broker.input, 0), Partition(broker.input, 1)}

    async def test() -> None:
        async with joined(broker) as old:
            async with joined(broker, 1) as new:
                await old.has(1)
                assert old.partitions | new.partitions == both
                with pytest.raises(GroupLost):
                    await old.source.commit(dict.fromkeys(new.partitions, 1))
            await old.has(2)

    run(test)
    assert broker.committed() == {}


# ---------------------------------------------------------------- sinks


def test_sent_records_are_stored_in_order(broker: Broker) -> None:
    values = [b"%03d" % number for number in range(100)]

    async def test() -> None:
        sink = broker.sink()
        await sink.start()
        await sink.send(outgoing(broker, values, 1), drop_refused)
        await sink.send(outgoing(broker, [b"last"], 1), drop_refused)
        await sink.stop()

    run(test)
    assert broker.read() == [Stored(1, value[:3], value, HEADERS) for value in [*values, b"last"]]


def test_records_with_equal_keys_go_to_one_partition(broker: Broker) -> None:
    async def test() -> None:
        sink = broker.sink()
        await sink.start()
        assert (await sink.topic(broker.output)).partitions == 3
        with pytest.raises(BrokerRefused, match="no such topic: missing"):
            await sink.topic("missing")
        values = [b"%03d" % number for number in range(100)] * 2
        await sink.send(outgoing(broker, values, None), drop_refused)
        await sink.stop()

    run(test)
    stored = broker.read()
    assert len(stored) == 200
    assert len({(record.partition, record.key) for record in stored}) == 100
    assert {record.partition for record in stored} == {0, 1, 2}


def test_a_record_too_large_is_replaced_or_dropped(broker: Broker) -> None:
    def replace(refused: Refused) -> Outgoing | None:
        topic, partition, record, why, limit_bytes, attempt = refused
        assert (topic, len(record.value or b"")) == (broker.output, 2 * MEGABYTE)
        assert (partition, why, limit_bytes, attempt) == (0, Refusal.TOO_LARGE, MEGABYTE, 1)
        if record.key == b"yyy":
            return None
        return Outgoing(topic, partition, Records.of([record._replace(value=b"replaced")]))

    async def test() -> None:
        sink = broker.sink()
        await sink.start()
        values = [b"a", b"x" * 2 * MEGABYTE, b"b", b"y" * 2 * MEGABYTE, b"c"]
        await sink.send(outgoing(broker, values), replace)
        await sink.stop()

    run(test)
    assert values_of(broker.read()) == [b"a", b"replaced", b"b", b"c"]


@pytest.mark.parametrize("transactional", [False, True])
def test_a_transaction_commits_the_offset_with_the_output(
    broker: Broker, transactional: bool
) -> None:
    first = Partition(broker.input, 0)

    async def test() -> None:
        sink = broker.sink(transactional=transactional)
        await sink.start()
        producer = await sink.open(first)
        for offset in (5, 6):
            sent = outgoing(broker, [b"%d" % offset])
            assert await producer.deliver(sent, offset, drop_refused) == transactional
        assert await producer.deliver([], 9, drop_refused) == transactional
        await producer.close()
        await sink.stop()

    run(test)
    assert values_of(broker.read()) == [b"5", b"6"]
    assert broker.committed() == ({first: 9} if transactional else {})


@pytest.mark.filterwarnings("default")  # futures of the driver, see `_fastpath.client.end`
def test_opening_a_partitions_producer_fences_the_previous_one(broker: Broker) -> None:
    first, second = Partition(broker.input, 0), Partition(broker.input, 1)

    async def test() -> None:
        sink, other = broker.sink(transactional=True), broker.sink(transactional=True)
        old, apart = await sink.open(first), await sink.open(second)
        new = await other.open(first)
        with pytest.raises(ProducerFenced):
            await old.deliver(outgoing(broker, [b"old"]), 1, drop_refused)
        assert await new.deliver(outgoing(broker, [b"new"]), 2, drop_refused)
        assert await apart.deliver(outgoing(broker, [b"other"]), 3, drop_refused)
        for producer in (old, new, apart):
            await producer.close()
        for each in (sink, other):
            await each.stop()

    run(test)
    assert values_of(broker.read()) == [b"new", b"other"]
    assert broker.committed() == {first: 2, second: 3}
