"""Events about patterns, found by workers that share an index, and die at any step."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stream_dedup.clock import ManualClock
from stream_dedup.config import PipelineConfig, WorkerConfig
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import BrokerUnavailable
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.patterns import MemoryPatterns
from stream_dedup.io.base import Record, Refusal
from stream_dedup.io.decoder import DecoderOptions, RecordDecoder
from stream_dedup.metrics import MemoryMetrics
from stream_dedup.model import Batch, Partition
from stream_dedup.rules.file import read
from stream_dedup.rules.ruleset import RuleSet
from stream_dedup.worker.context import Context
from stream_dedup.worker.output import OutputBuilder
from stream_dedup.worker.summaries import SummaryEmitter
from stream_dedup.worker.telemetry.health import Health
from tests.memory_broker import MemoryBroker

S = 1_000_000
START_US = 1_700_000_000 * S
HERE = Partition("in", 0)
THERE = Partition("in", 1)
STEPS = ("claimed", "remembered", "emitted", "deleted", "confirmed")
STEADY = b"queue mail has room for more"
MUTE = """
[[rules]]
kind = "mute"
pattern = "queue mail has room for more"
"""


class Died(Exception):  # noqa: N818 -- the worker did
    """The worker was killed."""


class Stream:
    """A stream, an index that counts it, and workers that look at its summaries."""

    def __init__(self, workers: int = 1, max_patterns: int = 1000, **settings: Any) -> None:
        given = {
            "topics": ("in",),
            "output_topic": "out",
            "namespace": "logs",
            "emit": "annotate",
            "summary_topic": "summaries",
            "pattern_topic": "patterns",
        }
        self.config = PipelineConfig(**{**given, **settings})
        self.clock = ManualClock(START_US)
        self.broker = MemoryBroker({"in": 2, "out": 2, "summaries": 1, "patterns": 2})
        self.metrics = MemoryMetrics()
        self.index = MemoryIndex(
            self.config.load_recipe(),
            namespace="logs",
            windows=self.config.windows(),
            summaries=self.config.summaries(),
        )
        self.store = MemoryPatterns(max_patterns)
        self.dies_at: dict[str, int] = {}
        self.deaths = 0
        self._offsets: Counter[Partition] = Counter()
        self.engine = self._engine()
        self.workers = [self._worker() for _ in range(workers)]

    def _engine(self) -> Engine:
        return Engine(
            self.config.load_recipe(),
            self.index,
            windows=self.config.windows(),
            summaries=self.config.summaries(),
            clock=self.clock,
        )

    def _worker(self) -> SummaryEmitter:
        context = Context(
            config=self.config,
            worker=WorkerConfig(),
            source=self.broker.source(["in"], "group"),
            sink=self.broker.sink("group", transactional=False),
            engine=self._engine(),
            decoder=RecordDecoder(
                DecoderOptions(format="text"), self.config.load_recipe(), max_event_bytes=1000
            ),
            metrics=self.metrics,
            health=Health(),
            step=self._step,
            patterns=self.store,
        )
        return SummaryEmitter(context, OutputBuilder(self.config, 64, context.sink.topics))

    def _step(self, name: str) -> None:
        if name in self.dies_at:
            self.dies_at[name] -= 1
            if self.dies_at[name] < 0:
                del self.dies_at[name]
                raise Died(name)

    async def read(self, lines: Sequence[bytes], at_s: float, partition: Partition = HERE) -> None:
        """Count lines of a second."""
        first = self._offsets[partition]
        self._offsets[partition] += len(lines)
        times_us = [START_US + round(at_s * S)] * len(lines)
        offsets = range(first, first + len(lines))
        await self.engine.process(Batch(partition, offsets, list(lines), times_us))

    async def look(self, now_s: float) -> None:
        """Have each worker emit what is due; one that dies is followed by another."""
        self.clock.advance(max(0, now_s - (self.clock.now_us() - START_US) / S))
        await self.index.expire(self.clock.now_us())
        for number, worker in enumerate(self.workers):
            try:
                await worker.emit_due()
            except Died:
                self.deaths += 1
                self.workers[number] = self._worker()

    async def minutes(self, first: int, last: int, *lines: bytes) -> None:
        """Have lines come in each minute, and look at the end of each."""
        for minute in range(first, last):
            await self.read(lines, 60 * minute)
            await self.look(60 * minute + 59)

    def records(self) -> list[Record]:
        return self.broker.read("patterns")

    def events(self) -> list[dict[str, Any]]:
        """The events, each once; copies have to be equal."""
        found: dict[str, bytes] = {}
        for record in sorted(self.records(), key=lambda record: record.timestamp):
            event = msgspec.json.decode(record.value or b"")
            assert found.setdefault(event["id"], record.value or b"") == record.value
            assert record.key == event["pattern_id"].encode()
        return [msgspec.json.decode(value) for value in found.values()]

    def changes(self) -> list[tuple[str, str]]:
        return [(event["change"], event["pattern"]) for event in self.events()]


def several(minute: int, rng: random.Random) -> list[bytes]:
    """Lines of a minute: some steady, some rare."""
    lines = [STEADY] * rng.randint(4, 6)
    lines += [b"disk sda of host web is full again"] * (minute % 7 == 0)
    lines += [b"user %d has logged in from the office" % minute] * rng.randint(1, 3)
    return lines


NEW = ("new", STEADY.decode())


def test_a_pattern_of_one_event_is_new_within_a_minute() -> None:
    async def scenario() -> None:
        stream = Stream()
        await stream.read([STEADY], 0)
        await stream.read([b"the kernel panics at once"], 1)
        await stream.look(59)
        assert stream.changes() == []
        await stream.read([STEADY], 62)
        await stream.look(62)
        assert stream.changes() == [NEW, ("new", "the kernel panics at once")]

    asyncio.run(scenario())


def test_an_event_says_what_and_how_unlikely() -> None:
    async def scenario() -> None:
        stream = Stream()
        await stream.minutes(0, 60, *[STEADY] * 5)
        await stream.minutes(60, 61, *[STEADY] * 100)
        await stream.minutes(61, 63, *[STEADY] * 5)
        new, spike = stream.events()
        assert (new["id"], new["change"]) == (f"{new['pattern_id']}-new", "new")
        assert spike["pattern_id"] == new["pattern_id"] == spike["cluster"]
        assert spike | {"log10_p": 0, "template": 0, "pattern_id": 0, "cluster": 0, "id": 0} == {
            "type": "pattern",
            "change": "spike",
            "id": 0,
            "namespace": "logs",
            "time": "2023-11-14T23:13:20Z",
            "pattern_id": 0,
            "expected": spike["expected"],
            "log10_p": 0,
            "last_time": "2023-11-14T23:13:20Z",
            "count": 100,
            "bin_s": 60.0,
            "cluster": 0,
            "template": 0,
            "variant": [],
            "group": {},
            "pattern": STEADY.decode(),
        }
        assert 5 <= spike["expected"] < 5.1
        assert -100 < spike["log10_p"] < -50
        for record in stream.records():
            assert list(record.headers) == [("sd-type", b"pattern")]

    asyncio.run(scenario())


def test_a_steady_pattern_that_stops_has_vanished_once() -> None:
    async def scenario() -> None:
        stream = Stream()
        await stream.minutes(0, 90, STEADY, STEADY, b"another line comes all the time")
        await stream.minutes(90, 120, b"another line comes all the time")
        assert [each for each in stream.changes() if each[0] == "vanished"] == [
            ("vanished", STEADY.decode())
        ]

    asyncio.run(scenario())


def test_a_stream_that_stops_says_nothing() -> None:
    async def scenario() -> None:
        stream = Stream(idle_s="off")
        await stream.minutes(0, 90, STEADY, STEADY)
        for minute in range(90, 300):
            await stream.look(60 * minute)
        assert stream.changes() == [NEW]

    asyncio.run(scenario())


def test_a_partition_that_is_behind_has_not_vanished() -> None:
    async def scenario() -> None:
        stream = Stream(idle_s="off", quiet_after_s="off")
        for minute in range(90):
            await stream.read([STEADY, STEADY], 60 * minute, HERE)
            await stream.read([b"another line comes all the time"] * 2, 60 * minute, THERE)
            await stream.look(60 * minute + 59)
        for minute in range(90, 150):  # HERE is not read
            await stream.read([b"another line comes all the time"] * 2, 60 * minute, THERE)
            await stream.look(60 * minute + 59)
        for minute in range(90, 150):
            await stream.read([STEADY, STEADY], 60 * minute, HERE)
            await stream.look(60 * 150 + minute)
        assert {change for change, _ in stream.changes()} == {"new"}

    asyncio.run(scenario())


def test_events_of_an_outage_are_no_burst() -> None:
    async def scenario() -> None:
        stream = Stream(idle_s="off", max_age_s="off")
        await stream.minutes(0, 60, *[STEADY] * 5)
        for minute in range(60, 180):  # nobody looks
            stream.clock.advance(60)
            await stream.read([STEADY] * 5, 60 * minute)
        await stream.look(60 * 180)
        await stream.minutes(180, 200, *[STEADY] * 5)
        assert stream.changes() == [NEW]
        await stream.minutes(200, 202, *[STEADY] * 60)
        await stream.minutes(202, 204, *[STEADY] * 5)
        assert stream.changes() == [NEW, ("spike", STEADY.decode())]

    asyncio.run(scenario())


def test_a_burst_after_a_silence_is_one() -> None:
    async def scenario() -> None:
        stream = Stream(idle_s="off", max_age_s="off")
        rare, other = b"disk sda of host web is full again", b"another line comes all the time"
        for hour in range(4):
            await stream.minutes(60 * hour, 60 * hour + 1, rare, other)
            await stream.minutes(60 * hour + 1, 60 * hour + 60, other)
        await stream.minutes(240, 241, other, *[rare] * 60)
        assert ("spike", rare.decode()) in stream.changes()

    asyncio.run(scenario())


def test_a_burst_after_a_pause_of_the_whole_stream_is_one() -> None:
    async def scenario() -> None:
        stream = Stream(idle_s="off", max_age_s="off")
        await stream.minutes(0, 60, STEADY, STEADY)
        await stream.minutes(60, 70)
        await stream.minutes(70, 71, *[STEADY] * 30)
        await stream.minutes(71, 72, STEADY)
        new, spike = stream.events()
        assert (new["change"], spike["change"], spike["count"]) == ("new", "spike", 30)
        assert spike["id"].endswith(f"-spike-{(START_US // S + 70 * 60) // 60 * 60}")

    asyncio.run(scenario())


def test_events_read_once_kafka_is_back_are_no_burst() -> None:
    async def scenario() -> None:
        stream = Stream(idle_s="off", max_age_s="off")
        await stream.minutes(0, 60, *[STEADY] * 5)
        await stream.minutes(60, 180)  # stream time goes on with the clock
        for minute in range(60, 180):
            await stream.read([STEADY] * 5, 60 * minute)
            if minute % 20 == 0:
                await stream.look(180 * 60 + minute)
        await stream.minutes(184, 200, *[STEADY] * 5)
        assert stream.changes() == [NEW]

    asyncio.run(scenario())


def test_a_muted_pattern_has_no_events_and_is_not_new_later() -> None:
    async def scenario() -> None:
        stream = Stream()
        rules = RuleSet(read(MUTE, "rules").rules)
        for worker in stream.workers:
            worker._context.engine.use_rules(rules)
        await stream.minutes(0, 60, *[STEADY] * 5)
        await stream.minutes(60, 61, *[STEADY] * 100)
        assert stream.changes() == []
        for worker in stream.workers:
            worker._context.engine.use_rules(RuleSet(()))
        await stream.minutes(61, 100, *[STEADY] * 5)
        assert stream.changes() == []

    asyncio.run(scenario())


def test_another_bin_length_is_no_new_pattern() -> None:
    async def scenario() -> None:
        stream = Stream()
        await stream.minutes(0, 30, STEADY)
        longer = Stream(summary_every_s=300)
        longer.store, longer.index, longer.broker = stream.store, stream.index, stream.broker
        longer.engine, longer.workers = stream.engine, [longer._worker()]
        await longer.minutes(30, 60, STEADY)
        assert stream.changes() == [NEW]

    asyncio.run(scenario())


def test_patterns_that_are_too_many_are_forgotten() -> None:
    async def scenario() -> None:
        stream = Stream(max_patterns=5)
        for minute in range(40):
            await stream.read([STEADY, b"%s is one of many words" % (b"abcdefgh"[minute % 8 :])],
                              60 * minute)  # fmt: skip
            await stream.look(60 * minute + 59)
        stored = stream.store
        assert len(stored._patterns) <= 5 + 3
        assert len(stored._names) <= 16 * len(stored._patterns)
        assert stream.changes().count(NEW) == 1  # it was seen all the time

    asyncio.run(scenario())


def test_a_refused_event_is_shortened() -> None:
    async def scenario() -> None:
        stream = Stream()
        long = b"a line " + b" ".join(b"word%c" % (97 + n % 26) for n in range(100))

        def refuses(topic: str, record: Record) -> Refusal | None:
            large = topic == "patterns" and len(record.value or b"") > 500
            return Refusal.TOO_LARGE if large else None

        stream.broker.refuses = refuses
        await stream.minutes(0, 3, long)
        (event,) = stream.events()
        assert long.decode().startswith(event["pattern"][:50])
        assert len(event["pattern"]) == 128

    asyncio.run(scenario())


def test_what_could_not_be_sent_is_sent_once_its_lease_ended() -> None:
    async def scenario() -> None:
        stream = Stream()

        def fails(step: str) -> None:
            if step == "send":
                raise BrokerUnavailable("away")

        await stream.read([STEADY], 0)
        await stream.read([STEADY], 61)
        stream.broker.faults = fails
        with pytest.raises(BrokerUnavailable):
            await stream.look(61)
        stream.broker.faults = lambda _step: None
        await stream.look(62)
        assert stream.events() == []
        await stream.look(61 + 30)
        assert stream.changes() == [NEW]
        assert stream.metrics.value("pattern_events_total", change="new") == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_worker_that_dies_after_a_step_changes_no_event(step: str, workers: int) -> None:
    async def scenario(*, deadly: bool) -> tuple[Stream, list[dict[str, Any]]]:
        rng, chance = random.Random(7), random.Random(8)
        stream = Stream(workers, lease_s=20)
        for minute in range(100):
            lines = several(minute, rng)
            if minute > 80:
                lines = [line for line in lines if line != STEADY]
            lines += [b"disk sda of host web is full again"] * (40 if minute == 70 else 0)
            if deadly:
                stream.dies_at = {step: 0 if step == "deleted" else chance.randint(0, 1)}
            await stream.read(lines[::2], 60 * minute, HERE)
            await stream.read(lines[1::2], 60 * minute + 1, THERE)
            for second in (5, 30, 55):
                await stream.look(60 * minute + second)
        stream.dies_at = {}
        await stream.look(6100)
        return stream, stream.events()

    alive, expected = asyncio.run(scenario(deadly=False))
    found, events = asyncio.run(scenario(deadly=True))
    assert found.deaths >= (2 if step == "deleted" else 20)
    assert len(alive.records()) == len(expected)  # no copies without deaths
    # What dies counts later, maybe in another minute, but nothing twice and all of it.
    assert sorted(found.changes()) == sorted(alive.changes())
    assert Counter(event["change"] for event in events) == {"new": 3, "spike": 1, "vanished": 1}


@pytest.mark.parametrize("step", ["remembered", "emitted"])
def test_a_summary_that_is_claimed_again_counts_once(step: str) -> None:
    async def scenario() -> None:
        stream = Stream(lease_s=1)
        await stream.minutes(0, 60, *[STEADY] * 5)
        await stream.read([STEADY] * 11, 3600)  # counted twice it would be a spike
        for second in range(3601, 3611, 2):
            stream.dies_at = {step: 0}
            await stream.look(second)
        stream.dies_at = {}
        await stream.minutes(61, 70, *[STEADY] * 5)
        assert stream.deaths == 5
        assert "spike" not in {change for change, _ in stream.changes()}

    asyncio.run(scenario())
