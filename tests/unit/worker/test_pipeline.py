"""A pipeline over a broker and an index in memory, with faults at every step."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dedup import Limits, Summaries, Windows, load_recipe, retries
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.windows import FOREVER_US
from stream_dedup.config import PipelineConfig, WorkerConfig
from stream_dedup.engine.engine import Engine
from stream_dedup.errors import (
    BrokerRefused,
    BrokerUnavailable,
    IndexRefused,
    IndexUnavailable,
    StreamDedupError,
    TooManyInvalidEvents,
)
from stream_dedup.fingerprint.templates import Templates
from stream_dedup.index.base import Commit, Index, IndexSize
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.io.base import EventSink, PartitionProducer, Record, Refusal
from stream_dedup.io.decoder import DecoderOptions, RecordDecoder
from stream_dedup.metrics import MemoryMetrics
from stream_dedup.model import Partition
from stream_dedup.worker import assignment
from stream_dedup.worker.context import Context
from stream_dedup.worker.pipeline import POLL_BATCHES, Pipeline
from stream_dedup.worker.telemetry.health import Health
from tests.memory_broker import MemoryBroker, MemoryProducer

LOGS = Path(__file__).parents[3] / "examples" / "logs"
LINES = [
    line
    for file in sorted(LOGS.glob("*.log.gz"))
    for line in gzip.decompress(file.read_bytes()).splitlines()[:300]
]
NOW_MS = 1_700_000_000_000
QUICK = WorkerConfig(max_batch_events=100, batch_wait_s=0, commit_every_s=0.01)
GROUP = "group"


def pipeline_of(**settings: Any) -> PipelineConfig:
    given = {"topics": ("in",), "output_topic": "out", "namespace": "logs", "emit": "annotate"}
    return PipelineConfig(**{**given, **settings})


ANNOTATE = pipeline_of(dead_letter_topic="dead")


class Died(Exception):  # noqa: N818 -- the worker did
    """The worker was killed."""


class Rig:
    """A broker, an index, and workers that use them."""

    def __init__(
        self, *, transactional: bool = False, partitions: int = 3, outputs: int | None = None
    ) -> None:
        topics = {"in": partitions, "out": outputs or partitions, "summaries": 2, "dead": 1}
        self.broker = MemoryBroker(topics)
        self.windows, self.summaries = (
            Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US),
            Summaries(every_us=1, lease_us=50_000),
        )
        self.recipe = load_recipe("logs")
        self.index: Index = MemoryIndex(
            self.recipe, windows=self.windows, summaries=self.summaries, limits=Limits(10_000)
        )
        self.transactional = transactional
        self.metrics = MemoryMetrics()

    def write(self, lines: list[bytes], start: int = 0) -> None:
        for number, line in enumerate(lines, start):
            self.broker.write(
                "in", line, partition=number % self.partitions, timestamp_ms=NOW_MS + number,
                key=b"%d" % number, headers=[("host", b"a")],
            )  # fmt: skip

    @property
    def partitions(self) -> int:
        return self.broker.partition_count("in")

    def pipeline(
        self,
        config: PipelineConfig = ANNOTATE,
        *,
        step: Callable[[str], None] = lambda _step: None,
        reading: DecoderOptions | None = None,
        finish: bool = False,
        worker: WorkerConfig = QUICK,
        sink: EventSink | None = None,
    ) -> Pipeline:
        engine = Engine(
            self.recipe, self.index, windows=self.windows, summaries=self.summaries,
            clock=SystemClock(), templates=config.names_templates,
            parameters=config.annotate_parameters,
            duplicates_leave=config.mode.duplicates,
        )  # fmt: skip
        reading = reading or DecoderOptions(format="text")
        return Pipeline(
            Context(
                config=config,
                worker=worker,
                source=self.broker.source(["in"], GROUP),
                sink=sink or self.broker.sink(GROUP, transactional=self.transactional),
                engine=engine,
                decoder=RecordDecoder(reading, self.recipe, max_event_bytes=100_000),
                metrics=self.metrics,
                health=Health(),
                step=step,
                finish=finish,
                summaries_every_s=0.02,
            )
        )

    async def runs(self, config: PipelineConfig = ANNOTATE, **options: Any) -> None:
        """Run a worker that reads to the end."""
        await self.pipeline(config, **options).run(once=True)

    def summaries_sent(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Summaries by cluster and revision; a revision sent twice is the same twice."""
        found: dict[str, dict[int, dict[str, Any]]] = {}
        for record in self.broker.read("summaries"):
            summary = msgspec.json.decode(record.value or b"")
            known = found.setdefault(summary["cluster"], {})
            assert known.setdefault(summary["revision"], summary) == summary
        return found

    def counted(self) -> int:
        """Events that summaries count."""
        return sum(
            s["new_count"] for known in self.summaries_sent().values() for s in known.values()
        )


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 300))


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; `run` limits the time."""
    while not await holds():  # noqa: ASYNC110 -- nobody signals it
        await asyncio.sleep(0.02)


def text_of(record: Record, header: str) -> str:
    """A header's text, empty where there is none."""
    return (dict(record.headers).get(header) or b"").decode()


def decisions(records: list[Record]) -> Counter[str]:
    return Counter(text_of(record, "sd-decision") for record in records)


def clusters(records: list[Record]) -> set[str]:
    return {text_of(record, "sd-cluster") for record in records if len(record.headers) > 2}


@pytest.fixture(params=[False, True], ids=["at least once", "exactly once"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(transactional=request.param)


# ---------------------------------------------------------------- output


USERS = [b"session 7 closed for user %b" % user for user in (b"al", b"bo", b"cy", b"di", b"ed")]


@pytest.mark.parametrize("into", ["headers", "json"])
def test_events_leave_with_their_parameters_on_request(rig: Rig, into: Any) -> None:
    users = [user.decode() for user in (*USERS, *USERS)]
    rig.write([msgspec.json.encode({"msg": user}) for user in users])
    config = pipeline_of(annotate_into=into, annotate_parameters=True)
    run(rig.runs(config, reading=DecoderOptions(format="jsonl")))
    names = []
    for record in rig.broker.read("out"):
        if into == "json":
            given = msgspec.json.decode(record.value or b"")["dedup"]["parameters"]
        else:
            given = msgspec.json.decode(dict(record.headers)["sd-parameters"] or b"")
        first, *rest = given
        assert first == {"slot": "<number>", "value": "7"}
        names += [(users[int(record.key or b"")][-2:], each["value"]) for each in rest]
    assert names  # of events since the word was learned
    assert all(user == value for user, value in names)


@pytest.mark.parametrize("template", [True, False])
def test_events_leave_with_their_template_unless_it_is_not_wanted(
    rig: Rig, *, template: bool
) -> None:
    rig.write(USERS[:1] * 3)
    run(rig.runs(pipeline_of(annotate_template=template)))
    found = {dict(record.headers).get("sd-template") for record in rig.broker.read("out")}
    (expected,) = Templates(rig.recipe).ids(USERS[:1])
    assert found == ({b"%016x" % expected} if template else {None})


def test_annotated_events_leave_unchanged_in_order_with_decisions(rig: Rig) -> None:
    rig.write(LINES)
    run(rig.runs())
    for number in range(3):
        came = rig.broker.logs[Partition("in", number)]
        left = rig.broker.logs[Partition("out", number)]
        assert [record[1:4] for record in left] == [record[1:4] for record in came]
        assert all(record.headers[0] == ("host", b"a") for record in left)
        assert rig.broker.committed(GROUP)[Partition("in", number)] == len(came)
    left = rig.broker.read("out")
    kinds = decisions(left)
    assert kinds.total() == len(LINES)
    assert len(clusters(left)) == kinds["new"]


def test_merged_events_and_summaries_account_for_every_event(rig: Rig) -> None:
    rig.write(LINES)
    run(rig.runs(pipeline_of(emit="merge", summary_topic="summaries"), finish=True))
    kinds = decisions(rig.broker.read("out"))
    assert kinds["duplicate"] == 0
    assert len(rig.summaries_sent()) == kinds["new"]
    assert rig.counted() + kinds["passed"] == len(LINES)
    assert all(known[max(known)]["final"] for known in rig.summaries_sent().values())
    assert {record.key for record in rig.broker.read("summaries")} == {
        cluster.encode() for cluster in rig.summaries_sent()
    }


def test_drop_says_which_events_are_passed_and_why(rig: Rig) -> None:
    rig.write([b"disk 1 is full", b"", b"disk 2 is full"])
    run(rig.runs(pipeline_of(emit="drop")))
    new, passed = rig.broker.read("out")
    assert (new.value, new.headers) == (b"disk 1 is full", [("host", b"a")])
    assert (passed.value, passed.headers[0]) == (b"", ("host", b"a"))
    assert (text_of(passed, "sd-decision"), text_of(passed, "sd-reason")) == (
        "passed",
        "nothing to fingerprint",
    )


def test_drop_removes_duplicates_and_leaves_the_rest_unchanged(rig: Rig) -> None:
    rig.write(LINES)
    run(rig.runs(pipeline_of(emit="drop")))
    came = {(*record[1:4], *record.headers) for record in rig.broker.read("in")}
    left = [(*record[1:4], *record.headers) for record in rig.broker.read("out")]
    assert set(left) < came
    assert len(left) == len(set(left))


@pytest.mark.parametrize("by", ["auto", "same", "key", "cluster"])
def test_partition_by_selects_the_output_partition(by: Any) -> None:
    rig = Rig(outputs=2)
    rig.write(LINES)
    run(rig.runs(pipeline_of(partition_by=by)))
    for number in range(2):
        for record in rig.broker.logs[Partition("out", number)]:
            cluster = dict(record.headers).get("sd-cluster")
            came_from = int(record.key or b"0") % 3
            if by == "same":
                assert number == came_from % 2
            elif by == "cluster" and cluster is not None:
                assert int(cluster, 16) % 2 == number
            elif by != "cluster":
                assert sum(record.key or b"") % 2 == number
    assert Counter(r.value for r in rig.broker.read("in")) == Counter(
        r.value for r in rig.broker.read("out")
    )


def test_decisions_go_into_the_json_value_where_configured() -> None:
    rig = Rig()
    lines = [b'{"message": "disk 1 is full", "n": 1.50}', b'{"message":"disk 2 is full"}', b"text"]
    rig.write(lines)
    run(rig.runs(pipeline_of(annotate_into="json"), reading=DecoderOptions(format="auto")))
    first, second, third = (rig.broker.logs[Partition("out", n)][0] for n in range(3))
    assert (first.value or b"").startswith(b'{"message": "disk 1 is full", "n": 1.50,"dedup":{')
    objects = [msgspec.json.decode(record.value or b"")["dedup"] for record in (first, second)]
    assert {each["decision"] for each in objects} == {"new", "duplicate"}
    assert objects[0]["cluster"] == objects[1]["cluster"]
    assert (third.value, third.headers[1][0]) == (b"text", "sd-decision")


# ---------------------------------------------------------------- faults

WATCHED = pipeline_of(dead_letter_topic="dead", summary_topic="summaries")


def assert_promises_kept(rig: Rig) -> None:
    """Every event left; copies are equal; each event counts once."""
    left: dict[bytes, set[tuple[Any, ...]]] = {}
    for record in rig.broker.read("out"):
        copies = left.setdefault(record.key or b"", set())
        copies.add((record.value, record.timestamp, *record.headers))
    came = rig.broker.read("in")
    assert set(left) == {record.key for record in came}
    assert {len(copies) for copies in left.values()} == {1}
    if rig.transactional:
        assert len(rig.broker.read("out")) == len(came)
    once = [Record(0, 0, None, None, next(iter(copies))[2:]) for copies in left.values()]
    kinds = decisions(once)
    assert len(clusters(once)) == kinds["new"] == len(rig.summaries_sent())
    assert rig.counted() + kinds["passed"] == len(came)


class Killer:
    """Kills a worker when it has done a step so many times."""

    def __init__(self, step: str, at: int) -> None:
        self.step, self.at, self.seen = step, at, 0

    def __call__(self, step: str) -> None:
        self.seen += step == self.step
        if step == self.step and self.seen == self.at:
            raise Died


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(
    "step", ["recorded", "sent", "committed", "claimed", "emitted", "confirmed"]
)
def test_a_worker_killed_after_any_step_loses_and_doubles_nothing(
    rig: Rig, step: str, at: int
) -> None:
    async def killed_and_restarted() -> None:
        rig.write(LINES)
        with pytest.raises(Died):
            await rig.runs(
                WATCHED, step=Killer(step, at), finish=step in "claimed emitted confirmed"
            )
        rig.write(LINES[:100], len(LINES))
        await asyncio.sleep(0.06)  # the leases run out
        await rig.runs(WATCHED, finish=True)

    run(killed_and_restarted())
    assert_promises_kept(rig)


def test_a_task_that_fails_while_the_worker_stops_is_not_passed_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = rig.index.finish

    async def finish_slowly(now_us: int) -> None:
        await finish(now_us)
        await asyncio.sleep(0.1)  # the periodic task finds the last summaries first

    monkeypatch.setattr(rig.index, "finish", finish_slowly)

    async def killed() -> None:
        rig.write(LINES[:1])
        with pytest.raises(Died):
            await rig.runs(WATCHED, step=Killer("emitted", 1), finish=True)

    run(killed())


@pytest.fixture
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker try again, and open a partition again, soon."""
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.002)
    monkeypatch.setattr(retries, "MAX_PAUSE_S", 0.02)
    monkeypatch.setattr(assignment, "REOPEN_S", 0.01)
    monkeypatch.setattr(assignment, "MAX_REOPEN_S", 0.1)
    monkeypatch.setattr(assignment, "REOPEN_FENCED_S", 0.01)


@pytest.mark.usefixtures("_short_pauses")
@pytest.mark.parametrize("seed", range(4))
def test_random_failures_lose_and_double_nothing(rig: Rig, seed: int) -> None:
    rng = random.Random(seed)

    def fails(_step: str) -> None:
        if rng.random() < 0.05:
            raise BrokerUnavailable("at random")

    index = rig.index = Unreliable(rig, rng)
    rig.broker.faults = fails
    rig.write(LINES)

    async def scenario() -> None:
        await rig.runs(WATCHED)
        rig.broker.faults = lambda _step: None
        index.rate = 0
        await asyncio.sleep(0.06)  # the leases run out
        await rig.runs(WATCHED, finish=True)

    run(scenario())
    assert_promises_kept(rig)


class Unreliable(MemoryIndex):
    """An index that fails at random, before or after it has done what was asked."""

    def __init__(self, rig: Rig, rng: random.Random) -> None:
        super().__init__(rig.recipe, windows=rig.windows, summaries=rig.summaries)
        self.rate = 0.1
        self._rng = rng

    def _may_fail(self, what: str) -> None:
        if self._rng.random() < self.rate:
            raise IndexUnavailable(what)

    async def resolve(self, queries: Any, now_us: int) -> Any:
        self._may_fail("not reached")
        answer = await super().resolve(queries, now_us)
        self._may_fail("answer lost")
        return answer

    async def record(self, record: Any, now_us: int) -> Any:
        self._may_fail("not reached")
        answer = await super().record(record, now_us)
        self._may_fail("answer lost")
        return answer

    async def confirm(self, summaries: Any, now_us: int) -> None:
        self._may_fail("not reached")
        await super().confirm(summaries, now_us)
        self._may_fail("answer lost")


@pytest.mark.parametrize("seed", range(4))
def test_workers_that_come_and_go_lose_and_double_nothing(rig: Rig, seed: int) -> None:
    rng = random.Random(seed)

    async def worker(stays_s: float) -> None:
        pipeline = rig.pipeline(WATCHED)
        running = asyncio.create_task(pipeline.run())
        await asyncio.sleep(stays_s)
        pipeline.stop()
        await running

    async def scenario() -> None:
        writing = asyncio.create_task(writes())
        await asyncio.gather(*(worker(rng.uniform(0.05, 0.5)) for _ in range(5)))
        await writing
        await rig.runs(WATCHED, finish=True)

    async def writes() -> None:
        for start in range(0, len(LINES), 50):
            rig.write(LINES[start : start + 50], start)
            await asyncio.sleep(0.01)

    run(scenario())
    assert_promises_kept(rig)


# ---------------------------------------------------------------- invalid events

JSON = DecoderOptions(format="jsonl")
BAD = [b'{"message":"fine"}', b"no json", b"[1]", b'{"other":1}', b'{"message":"' + b"x" * 200_000]
LONG = b'{"message": "%s"}' % (b"disk " * 60)
REASONS = ["", "not JSON", "not a JSON object", "field missing", "too large"]


def test_invalid_events_become_dead_letters_with_reason_and_place(rig: Rig) -> None:
    rig.write(BAD)
    run(rig.runs(reading=JSON))
    assert [record.value for record in rig.broker.read("out")] == [BAD[0]]
    letters = rig.broker.read("dead")
    errors = {record.value: text_of(record, "sd-error") for record in letters}
    assert errors == dict(zip(BAD[1:], REASONS[1:], strict=True))
    dead = {record.value: dict(record.headers) for record in letters}
    assert all(headers["host"] == b"a" for headers in dead.values())
    place = dead[b"[1]"]
    assert (place["sd-topic"], place["sd-partition"], place["sd-offset"]) == (b"in", b"2", b"0")
    assert rig.metrics.value("dead_letters_total") == 4


def test_invalid_events_pass_where_configured() -> None:
    rig = Rig()
    rig.write(BAD)
    run(rig.runs(pipeline_of(on_poison="pass"), reading=JSON))
    left = {record.value: text_of(record, "sd-reason") for record in rig.broker.read("out")}
    assert left == dict(zip(BAD, REASONS, strict=True))


def test_an_invalid_event_stops_the_pipeline_where_configured() -> None:
    rig = Rig(partitions=1)
    rig.write(BAD)
    with pytest.raises(TooManyInvalidEvents, match="in-0 offset 1: not JSON"):
        run(rig.runs(pipeline_of(on_poison="stop"), reading=JSON))
    assert rig.broker.committed(GROUP) == {Partition("in", 0): 0}


def test_invalid_events_never_stop_the_pipeline_by_default(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.write([b'{"message":"fine"}', *[b"no json"] * 1_500])
    run(rig.runs(reading=JSON))
    assert len(rig.broker.read("out")) == 1
    assert len(rig.broker.read("dead")) == 1_500
    assert rig.metrics.value("dead_letters_total", reason="not JSON") == 1_500
    assert "more than half of the events are invalid (the last one: not JSON)" in caplog.text


def test_too_many_invalid_events_stop_the_pipeline_where_configured() -> None:
    rig = Rig()
    rig.write([b"no json"] * 300)
    config = pipeline_of(dead_letter_topic="dead", poison_share=0.5, poison_least=50)
    with pytest.raises(TooManyInvalidEvents, match=r"not JSON.*text_field right"):
        run(rig.runs(config, reading=JSON))


def test_a_record_too_large_for_the_output_becomes_a_dead_letter(rig: Rig) -> None:
    rig.broker.max_bytes = 1_000
    rig.write([b"short line", b"long " * 300, b"short other line"])
    run(rig.runs())
    assert len(rig.broker.read("out")) == 2
    (dead,) = rig.broker.read("dead")
    headers = dict(dead.headers)
    assert (headers["sd-error"], headers["sd-partition"]) == (b"too large for the topic", b"1")
    assert (dead.value, headers["sd-truncated"]) == (None, b"1500")


@pytest.mark.parametrize("before", [[], [b'{"message": "disk full"}']])
def test_a_dead_letter_that_is_too_large_leaves_without_its_value(before: list[bytes]) -> None:
    rig = Rig(partitions=1)
    rig.broker.max_bytes = 1_000
    rig.write([*before, b"no json " * 200])
    run(rig.runs(reading=JSON))
    assert len(rig.broker.read("out")) == len(before)
    (dead,) = rig.broker.read("dead")
    headers = dict(dead.headers)
    assert (
        dead.value,
        headers["sd-truncated"],
        headers["sd-error"],
    ) == (None, b"1600", b"not JSON")


def test_of_similar_records_only_the_too_large_is_a_dead_letter() -> None:
    rig = Rig()
    rig.broker.max_bytes = 900
    small, large = b'{"message":"disk full"}', b'{"message":"disk full %s"}' % (b"x" * 850)
    for value in (small, large, small):
        rig.broker.write("in", value, timestamp_ms=NOW_MS)  # the same key, at the same moment
    run(rig.runs(pipeline_of(dead_letter_topic="dead", annotate_into="json"), reading=JSON))
    (dead,) = rig.broker.read("dead")
    assert (dead.value, dict(dead.headers)["sd-offset"]) == (large, b"1")
    assert len(rig.broker.read("out")) == 2


def test_tombstones_and_compressed_values_pass_unchanged() -> None:
    rig = Rig()
    values = [None, gzip.compress(b"disk full"), b"disk full"]
    for number, value in enumerate(values):
        rig.broker.write("in", value, key=b"%d" % number)
    run(rig.runs())
    left = rig.broker.read("out")
    assert [record.value for record in left] == values
    reasons = [dict(record.headers).get("sd-reason") for record in left]
    assert reasons == [b"tombstone", b"compressed", None]


# ---------------------------------------------------------------- topics, flow and metrics


def test_a_missing_topic_is_named() -> None:
    rig = Rig()
    with pytest.raises(BrokerRefused, match="no such topic: nowhere"):
        run(rig.runs(pipeline_of(output_topic="nowhere")))


def test_a_slow_sink_limits_reading() -> None:
    rig = Rig(partitions=1)
    rig.write(LINES * 9)

    async def slow() -> None:
        pipeline = rig.pipeline()
        gate = asyncio.Event()
        partition_producer = pipeline.context.sink.open

        async def opened(partition: Partition) -> Any:
            made = await partition_producer(partition)
            deliver = made.deliver

            async def waits(*args: Any) -> bool:
                await gate.wait()
                return await deliver(*args)

            made.deliver = waits  # type: ignore[assignment, method-assign]
            return made

        pipeline.context.sink.open = opened  # type: ignore[method-assign]
        running = asyncio.create_task(pipeline.run(once=True))
        source: Any = pipeline.context.source

        async def some_read() -> bool:
            return bool(source.assigned.get(Partition("in", 0), 0))

        await wait_until(some_read)
        await asyncio.sleep(0.5)
        read = source.assigned[Partition("in", 0)]
        most = (QUICK.ahead_batches + 2 + POLL_BATCHES) * QUICK.max_batch_events
        assert 0 < read <= most < 9 * len(LINES)
        gate.set()
        await running

    run(slow())
    assert len(rig.broker.read("out")) == 9 * len(LINES)


def test_counters_with_known_labels_start_at_zero() -> None:
    rig, values = Rig(), {}
    by_data = ("events_total", "event_bytes_total", "dead_letters_total", "passed_total")

    def of(name: str) -> dict[str, float]:
        return {key[2]: n for key, n in rig.metrics.values.items() if key[0] == name}

    async def before_and_after() -> None:
        await rig.runs()  # no event comes
        values.update({name: of(name) for name in by_data})
        rig.broker.max_bytes = 200
        rig.write([*BAD, gzip.compress(b"disk full"), b'{"message": " "}', LONG])
        rig.broker.write("in", None)
        config = pipeline_of(dead_letter_topic="dead", poison_share=1)
        await rig.runs(config, reading=JSON)

    run(before_and_after())
    assert values["events_total"] == values["event_bytes_total"] == {"in": 0}
    assert {n for name in by_data for n in values[name].values()} == {0}
    came = {*REASONS[1:], Refusal.TOO_LARGE}
    assert {why: count for why, count in of("dead_letters_total").items() if count} == (
        dict.fromkeys(came, 1)
    )
    others = {"tombstone", "compressed", "nothing to fingerprint", "unreadable batch"}
    assert set(of("passed_total")) == {*REASONS[1:], *others, *Refusal}
    assert {name: set(values[name]) for name in by_data} == {
        name: set(of(name)) for name in by_data
    }


class RefusesThrice(MemoryIndex):
    """Whose clusters close three times before they are counted."""

    refused = 0

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        if self.refused == 3:
            return await super().record(record, now_us)
        self.refused += 1
        return frozenset(delta.cluster for delta in record.deltas)


def test_a_refusal_that_metrics_notice_ends_the_pipeline(rig: Rig) -> None:
    class HidesItsSize(MemoryIndex):
        async def size(self) -> IndexSize:
            raise IndexRefused("NOPERM this user has no permissions")

    rig.index = HidesItsSize(rig.recipe, windows=rig.windows, summaries=rig.summaries)

    async def until_refused() -> None:
        with pytest.raises(IndexRefused, match="NOPERM"):
            await rig.pipeline().run()

    run(until_refused())


def test_refused_commits_are_counted(rig: Rig) -> None:
    rig.index = RefusesThrice(rig.recipe, windows=rig.windows, summaries=rig.summaries)
    rig.write(LINES[:20])

    async def measured() -> None:
        pipeline = rig.pipeline()
        running = asyncio.create_task(pipeline.run())

        async def all_is_measured() -> bool:
            return rig.metrics.value("decisions_total") == 20

        await wait_until(all_is_measured)
        pipeline.stop()
        await running

    run(measured())
    assert rig.metrics.value("refused_commits_total") == 3


def test_the_metrics_add_up(rig: Rig) -> None:
    rig.write(LINES)

    async def measured() -> None:
        pipeline = rig.pipeline()
        running = asyncio.create_task(pipeline.run())

        async def all_is_measured() -> bool:
            stats = pipeline.stats()
            measured = rig.metrics.value("decisions_total") == len(LINES)
            merged = rig.metrics.value("clusters_merged_total")
            counted = stats.clusters == stats.counts.new - merged > 0
            return measured and counted and stats[:4] == (3, 0, 0, len(LINES))

        await wait_until(all_is_measured)
        pipeline.stop()
        await running

    run(measured())
    value = rig.metrics.value
    assert value("events_total") == value("decisions_total") == len(LINES)
    assert value("outputs_total", kind="event") == len(LINES)
    assert value("near_cache_hits_total") > len(LINES) / 2
    assert value("clusters_merged_total") > 0
    left = value("clusters") + value("clusters_merged_total")
    assert left == value("decisions_total", decision="new") == value("matches_total", rule="new")


@pytest.mark.parametrize("error", [BrokerUnavailable, BrokerRefused])
def test_a_partition_that_fails_while_others_drain(error: type[StreamDedupError]) -> None:
    """Partition 1 fails while the worker drains; partition 0 delivers after that."""

    class Sink(MemoryProducer):
        """Delivers when the test says so."""

        def __init__(self, broker: MemoryBroker) -> None:
            super().__init__(broker, GROUP, transactional=False)
            self.delivering = asyncio.Semaphore(0)
            self.may_fail, self.may_deliver = asyncio.Event(), asyncio.Event()

        async def open(self, partition: Partition) -> PartitionProducer:
            return Held(self, partition.number, await super().open(partition))

    class Held:
        def __init__(self, sink: Sink, number: int, producer: PartitionProducer) -> None:
            self.sink, self.number, self.producer = sink, number, producer

        async def deliver(self, *given: Any) -> bool:
            self.sink.delivering.release()
            if self.number == 1:
                await self.sink.may_fail.wait()
                raise error("partition 1 fails")
            await self.sink.may_deliver.wait()
            return await self.producer.deliver(*given)

        async def close(self) -> None:
            await self.producer.close()

    rig = Rig(partitions=2)
    rig.write([b"disk full on sda%d" % number for number in range(4)])

    async def runs() -> None:
        sink = Sink(rig.broker)
        pipeline = rig.pipeline(worker=QUICK.model_copy(update={"drain_s": 20.0}), sink=sink)
        running = asyncio.create_task(pipeline.run())
        for _partition in range(2):
            await sink.delivering.acquire()
        pipeline.stop()
        await turns()
        sink.may_fail.set()
        await turns()
        assert not running.done()  # it waits for partition 0
        sink.may_deliver.set()
        async with asyncio.timeout(10):  # less than `drain_s`
            if error is BrokerRefused:
                with pytest.raises(BrokerRefused):
                    await running
            else:
                await running

    async def turns() -> None:
        """Let each task go on until it waits for the test."""
        for _turn in range(100):
            await asyncio.sleep(0)

    asyncio.run(runs())
    assert rig.broker.committed(GROUP)[Partition("in", 0)] == 2
