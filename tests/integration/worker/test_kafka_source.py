"""The source over a real broker: records are those of the topic, however they are handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka import ConsumerRecord

from stream_dedup.connectors import kafka_source
from stream_dedup.connectors.base import Record, Records
from stream_dedup.connectors.kafka_fetched import _Piece, columns
from stream_dedup.connectors.kafka_source import KafkaSource
from stream_dedup.model import Partition
from tests.services.kafka import Kafka

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


async def read(source: KafkaSource, start: int) -> tuple[list[Record], int]:
    """All records of the only partition from an offset on, and the most that one poll gave."""
    assigned = Assigned()
    await source.start(assigned)
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
@pytest.mark.parametrize("driver", ["as it is", "with other names"])
def test_records_are_read_from_where_they_are_wanted_a_limited_number_a_poll(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, driver: str, start: int
) -> None:
    topic = kafka.fresh_topic()
    values = [b"event %d" % n if n % 7 else None for n in range(EVENTS)]
    keys = [b"%d" % n if n % 3 else None for n in range(EVENTS)]
    headers = [[("host", b"a")] if n % 2 else None for n in range(EVENTS)]
    times = [1_700_000_000_000 + n for n in range(EVENTS)]
    kafka.produce(topic, values, 0, keys, headers, times, linger_ms=100)
    source = KafkaSource(
        [topic], group_id=topic, options={"bootstrap_servers": kafka.bootstrap}, start="earliest"
    )
    if driver != "as it is":
        monkeypatch.setattr(kafka_source, "fetch_in_pieces", lambda _consumer: None)
    kinds = set[type]()

    def seen(handed_out: Sequence[object]) -> Records:
        kinds.update(map(type, handed_out))
        return columns(handed_out)

    monkeypatch.setattr(kafka_source, "columns", seen)
    rows, most = asyncio.run(read(source, start))
    assert [
        Record(n, times[n], keys[n], values[n], tuple(headers[n] or ()))
        for n in range(start, EVENTS)
    ] == [row._replace(headers=tuple(row.headers)) for row in rows]
    assert most < (EVENTS - start) / 2, "no poll gives all there is"
    assert kinds == {_Piece if driver == "as it is" else ConsumerRecord}
