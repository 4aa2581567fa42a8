"""The consumer over a real broker, by the fast path and by the driver's public interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import pytest
from aiokafka import ConsumerRecord

from stream_dedup.errors import BrokerRefused, BrokerUnavailable, OffsetGone
from stream_dedup.io.base import Record, Records
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka._fastpath.fetching import PIECE_RECORDS, _Piece
from stream_dedup.kafka.consumer import KafkaConsumer
from stream_dedup.model import Partition
from tests.services.kafka import Kafka, KafkaBroker

EVENTS = 3_210
LIMIT = 1_000


class Assigned:
    """Waits for an assignment."""

    def __init__(self) -> None:
        self.partitions: asyncio.Future[Sequence[Partition]] = (
            asyncio.get_running_loop().create_future()
        )

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        """Nothing is on its way."""

    async def assigned(self, partitions: Sequence[Partition]) -> None:
        self.partitions.set_result(partitions)


@pytest.fixture(params=["fast path", "public interface"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the driver is used."""
    if request.param != "fast path":
        monkeypatch.setattr(self_check, "usable", lambda _part: False)
    return str(request.param)


async def read(
    source: KafkaConsumer, start: int, kinds: set[type] | None = None
) -> tuple[list[Record], int]:
    """All records of the only partition from an offset on, and the most that one poll gave.

    Args:
        source: to be started.
        start: the offset.
        kinds: takes the types of what the driver returns.
    """
    assigned = Assigned()
    await source.start(assigned)
    columns = source._columns

    def seen(fetched: Sequence[object]) -> Records:
        if kinds is not None:
            kinds.update(map(type, fetched))
        return columns(fetched)

    source._columns = seen
    try:
        (place,) = await assigned.partitions
        source.seek(place, start)
        rows: list[Record] = []
        most = 0
        while not rows or rows[-1].offset < EVENTS - 1:
            found = await source.poll([place], LIMIT, 1.0)
            most = max(most, *map(len, found.values()), 0)
            rows += (row for records in found.values() for row in records)
        return rows, most
    finally:
        await source.stop()


@pytest.mark.parametrize("start", [0, 777])
def test_a_limited_number_of_records_is_read_in_each_poll(
    kafka: Kafka, path: str, start: int
) -> None:
    topic = kafka.fresh_topic()
    values = [b"event %d" % n if n % 7 else None for n in range(EVENTS)]
    keys = [b"%d" % n if n % 3 else None for n in range(EVENTS)]
    headers = [[("host", b"a")] if n % 2 else None for n in range(EVENTS)]
    times = [1_700_000_000_000 + n for n in range(EVENTS)]
    kafka.produce(topic, values, 0, keys, headers, times, linger_ms=100)
    source = KafkaConsumer(
        [topic], group_id=topic, options={"bootstrap_servers": kafka.bootstrap}, start="earliest"
    )
    kinds = set[type]()
    rows, most = asyncio.run(read(source, start, kinds))
    assert [row._replace(headers=tuple(row.headers)) for row in rows] == [
        Record(n, times[n], keys[n], values[n], tuple(headers[n] or ()))
        for n in range(start, EVENTS)
    ]
    # The driver limits a poll in what it returns: pieces by the fast path, else records.
    assert most < LIMIT + (PIECE_RECORDS if path == "fast path" else 1)
    assert kinds == {_Piece if path == "fast path" else ConsumerRecord}


@pytest.mark.usefixtures("path")
def test_a_burst_after_small_batches_is_read_in_limited_polls(kafka: Kafka) -> None:
    topic = kafka.fresh_topic()
    trickle = 50
    for number in range(trickle):  # a batch each
        kafka.produce(topic, [b"event %d" % number], 0)
    rest = [b"event %d" % number for number in range(trickle, EVENTS)]
    kafka.produce(topic, rest, 0, linger_ms=100)
    source = KafkaConsumer(
        [topic], group_id=topic, options={"bootstrap_servers": kafka.bootstrap}, start="earliest"
    )
    rows, most = asyncio.run(read(source, 0))
    assert [row.offset for row in rows] == list(range(EVENTS))
    assert most < LIMIT + PIECE_RECORDS


async def read_twice(source: KafkaConsumer, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The offsets that polls give; during the first one the consumer seeks to the start."""
    assigned = Assigned()
    await source.start(assigned)
    try:
        (place,) = await assigned.partitions
        source.seek(place, 0)
        getmany, calls = source.consumer.getmany, count()

        async def seeking(*places: object, **limits: object) -> object:
            if next(calls) == 1:
                source.seek(place, 0)
            return await getmany(*places, **limits)

        monkeypatch.setattr(source.consumer, "getmany", seeking)
        polls: list[list[int]] = []
        while not polls or polls[-1][-1] < EVENTS - 1:
            found = await source.poll([place], LIMIT, 1.0)
            polls += [list(records.offsets) for records in found.values()]
        return polls
    finally:
        await source.stop()


def test_a_seek_during_a_poll_discards_what_it_has_read(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.fresh_topic()
    for number in range(4):  # more batches than pieces in a call
        kafka.produce(topic, [b"event %d" % number] * 10, 0)
    kafka.produce(topic, [b"event"] * (EVENTS - 40), 0, linger_ms=100)
    source = KafkaConsumer(
        [topic], group_id=topic, options={"bootstrap_servers": kafka.bootstrap}, start="earliest"
    )
    polls = asyncio.run(read_twice(source, monkeypatch))
    assert [offset for poll in polls for offset in poll] == list(range(EVENTS))


async def read_both(
    source: KafkaConsumer, corrupt: Partition, sound: Partition, repair: Callable[[], None]
) -> tuple[dict[Partition, list[int]], int]:
    """The offsets that polls give; the corrupt partition is repaired once the other is read."""
    assigned = Assigned()
    await source.start(assigned)
    failed = 0
    try:
        for place in await assigned.partitions:
            source.seek(place, 0)
        offsets: dict[Partition, list[int]] = {corrupt: [], sound: []}
        for _ in range(1_000):
            try:
                found = await source.poll([sound, corrupt], 4 * EVENTS, 0.1)
            except BrokerUnavailable:
                failed += 1
                continue
            for place, records in found.items():
                offsets[place] += records.offsets
            if len(offsets[sound]) == EVENTS and failed:
                repair()
            if all(len(some) == EVENTS for some in offsets.values()):
                break
        return offsets, failed
    finally:
        await source.stop()


@pytest.mark.usefixtures("path")
def test_a_corrupt_batch_does_not_hold_up_other_partitions() -> None:
    with KafkaBroker() as broker:
        topic = broker.fresh_topic(2)
        for number in range(2):
            broker.produce(topic, [b"event %d" % n for n in range(EVENTS)], number, linger_ms=100)
        log = broker.log_file(topic, 1)
        whole = log.read_bytes()

        def put(content: bytes) -> None:
            with log.open("r+b") as file:  # the broker has it open
                file.write(content)

        put(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
        source = KafkaConsumer(
            [topic], group_id=topic, options={"bootstrap_servers": broker.bootstrap},
            start="earliest",
        )  # fmt: skip
        sound, corrupt = Partition(topic, 0), Partition(topic, 1)
        offsets, failed = asyncio.run(read_both(source, corrupt, sound, lambda: put(whole)))
    assert failed
    assert offsets == {sound: list(range(EVENTS)), corrupt: list(range(EVENTS))}


@pytest.mark.usefixtures("path")
def test_an_error_of_the_coordinator_is_not_taken_for_no_offset() -> None:
    """The driver drops the error of a whole answer, here that of a permission taken back."""

    async def ask(broker: KafkaBroker, topic: str) -> None:
        source = KafkaConsumer(
            [topic],
            group_id=topic,
            options={
                "bootstrap_servers": broker.bootstrap,
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "alice",
                "sasl_plain_password": broker.users["alice"],
                "session_timeout_ms": 60_000,
                "heartbeat_interval_ms": 20_000,
            },
            start="latest",
        )
        assigned = Assigned()
        await source.start(assigned)
        try:
            (place,) = await assigned.partitions
            assert await source.committed(place) is None
            await source.commit({place: 1})
            assert await source.committed(place) == 1
            await asyncio.to_thread(broker.disallow, "alice", "read", "group", topic)
            with pytest.raises(BrokerRefused, match="allow the user Read on the group"):
                await source.committed(place)
        finally:
            await source.stop()

    with KafkaBroker(security="sasl_plain", authorizer=True) as broker:
        topic = broker.fresh_topic()
        broker.produce(topic, [b"a", b"b"])
        broker.allow("alice", "read", "topic", topic)
        broker.allow("alice", "read", "group", topic)
        asyncio.run(ask(broker, topic))


async def read_at(source: KafkaConsumer, *starts: int) -> list[list[int] | str]:
    """What the first polls after seeks to offsets of the only partition give."""
    assigned = Assigned()
    await source.start(assigned)
    try:
        (place,) = await assigned.partitions
        answers: list[list[int] | str] = []
        for start in starts:
            source.seek(place, start)
            found: Mapping[Partition, Records] = {}
            try:
                while not found:
                    found = await source.poll([place], LIMIT, 1.0)
                answers += [list(records.offsets) for records in found.values()]
            except OffsetGone as error:
                answers.append(str(error))
        return answers
    finally:
        await source.stop()


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_an_offset_that_does_not_exist_is_reported(kafka: Kafka, start: str) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"event"] * 10, 0)
    kafka.delete_records(topic, 0, 8)
    source = KafkaConsumer(
        [topic], group_id=topic, options={"bootstrap_servers": kafka.bootstrap}, start=start
    )
    expired, read, beyond, again = asyncio.run(read_at(source, 3, 8, 11, 9))
    why = "its records have expired, or the topic was truncated or created again"
    assert expired == f"{topic}-0 has no offset 3: {why}"
    assert read == [8, 9]
    assert beyond == f"{topic}-0 has no offset 11: {why}"
    assert again == [9]
