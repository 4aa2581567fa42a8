"""The load generator with a broker in memory."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from stream_dedup.errors import BrokerUnavailable
from stream_dedup.model import Partition
from stream_dedup.testing import ManualClock
from stream_dedup.tools.load_generator.sender import MAX_BATCH, Event, Load, LoadGenerator, Placing
from tests.memory_broker import MemoryBroker


def generator(broker: MemoryBroker, load: Load, placing: Placing = "round-robin") -> LoadGenerator:
    events = (Event(b"key-%d" % (number % 5), b"event %d" % number) for number in count())
    sink = broker.sink("")
    return LoadGenerator(sink, "in", events, load, placing=placing, clock=ManualClock(7_000_000))


def ticked(sent: int, after_s: float) -> None:
    del sent, after_s


def run(made: LoadGenerator) -> None:
    async def all_of_it() -> None:
        await asyncio.wait_for(made.run(asyncio.Event(), ticked), 30)

    asyncio.run(all_of_it())


@pytest.mark.parametrize("total", [1, 4, MAX_BATCH, MAX_BATCH + 1])
def test_the_given_number_is_sent_evenly_and_in_order(total: int) -> None:
    broker = MemoryBroker({"in": 3})
    made = generator(broker, Load(count=total))
    run(made)
    logs = [broker.logs[Partition("in", number)] for number in range(3)]
    assert max(map(len, logs)) - min(map(len, logs)) <= 1
    assert [b"event %d" % n for n in range(total)] == [
        logs[n % 3][n // 3].value for n in range(total)
    ]
    assert {(r.key, r.timestamp) for log in logs for r in log} == {(None, 7_000)}
    assert (made.sent, made.size) == (total, sum(len(b"event %d" % n) for n in range(total)))


def test_a_key_belongs_to_one_partition() -> None:
    broker = MemoryBroker({"in": 3})
    run(generator(broker, Load(count=500), "key"))
    places: dict[bytes | None, set[int]] = {}
    for partition, log in broker.logs.items():
        for record in log:
            places.setdefault(record.key, set()).add(partition.number)
    assert {b"key-%d" % n for n in range(5)} == set(places)
    assert set(map(len, places.values())) == {1}


def test_a_rate_is_kept_and_late_events_are_caught_up() -> None:
    load = Load(rate=100, count=1_000)
    assert load.due(sent=0, after_s=0) == 1
    assert load.due(sent=51, after_s=0.5) == 0
    assert load.due(sent=1, after_s=2.5) == 250
    assert load.due(sent=990, after_s=60) == 10
    assert (load.done(999), load.done(1_000)) == (False, True)


def test_it_stops_when_asked() -> None:
    broker = MemoryBroker({"in": 1})
    made = generator(broker, Load(rate=1_000))

    async def all_of_it() -> None:
        stop = asyncio.Event()

        def tick(sent: int, after_s: float) -> None:
            del after_s
            if sent >= 5:
                stop.set()

        await asyncio.wait_for(made.run(stop, tick), 30)

    asyncio.run(all_of_it())
    assert made.sent == len(broker.read("in")) >= 5


def test_events_too_large_for_the_topic_are_left_out_and_counted() -> None:
    broker = MemoryBroker({"in": 1}, max_bytes=7)
    made = generator(broker, Load(count=12))
    run(made)
    assert (made.sent, made.left_out, len(broker.read("in"))) == (12, 2, 10)


def test_a_lost_broker_ends_it() -> None:
    broker = MemoryBroker({"in": 1})

    def fail(step: str) -> None:
        raise BrokerUnavailable(step)

    broker.faults = fail
    with pytest.raises(BrokerUnavailable):
        run(generator(broker, Load(count=12)))
