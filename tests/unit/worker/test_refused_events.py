"""What is written in place of events and summaries that their topic does not take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stream_dedup.config import WorkerConfig
from stream_dedup.errors import BrokerRefused, TooManyInvalidEvents
from stream_dedup.io.base import Record, Refusal
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.model import Partition
from tests.unit.worker.test_pipeline import (
    GROUP,
    NOW_MS,
    Rig,
    decisions,
    pipeline_of,
    run,
    text_of,
)

FUTURE_MS = NOW_MS * 2
LINE = b"worker 7 finished its job"
PASS, DEAD = pipeline_of(), pipeline_of(dead_letter_topic="dead")


@pytest.fixture(params=[False, True], ids=["at least once", "exactly once"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(transactional=request.param, partitions=1)


def takes(
    broker_of: Rig, topics: tuple[str, ...], refuses: Callable[[Record], Refusal | None]
) -> None:
    """Have topics refuse records."""
    broker_of.broker.refuses = lambda topic, record: refuses(record) if topic in topics else None


def late(record: Record) -> Refusal | None:
    return Refusal.TIMESTAMP if record.timestamp == FUTURE_MS else None


def keyless(record: Record) -> Refusal | None:
    return Refusal.NO_KEY if record.key is None else None


def size_limit(most: int) -> Callable[[Record], Refusal | None]:
    def too_large(record: Record) -> Refusal | None:
        size = sum(len(name) + len(value or b"") for name, value in record.headers)
        return Refusal.TOO_LARGE if size + len(record.value or b"") > most else None

    return too_large


def assert_all_left(rig: Rig, count: int) -> None:
    """Every event left, in order, and is committed."""
    left = [record.key for record in rig.broker.read("out")]
    assert left == [b"%d" % number for number in range(count)]
    assert rig.broker.committed(GROUP) == {Partition("in", 0): count}


# ---------------------------------------------------------------- too large with its decision


def test_an_event_too_large_with_its_decision_leaves_as_it_was_read(rig: Rig) -> None:
    takes(rig, ("out",), size_limit(200))
    rig.write([LINE, b"w" * 195, LINE])
    run(rig.runs(PASS))
    assert_all_left(rig, 3)
    large = rig.broker.read("out")[1]
    assert (large.value, large.headers) == (b"w" * 195, [("host", b"a")])
    assert rig.metrics.value("passed_total", reason=Refusal.TOO_LARGE) == 1
    assert rig.metrics.value("outputs_total", kind="event") == 3


@pytest.mark.parametrize("emit", ["annotate", "drop", "merge"])
def test_an_event_larger_than_the_output_takes_is_shortened(rig: Rig, emit: Any) -> None:
    rig.broker.max_bytes = 12_000
    rig.write([b"disk %d is full" % 1, b"w" * 20_000, b"another line"])
    run(rig.runs(pipeline_of(emit=emit, summary_topic="")))
    assert_all_left(rig, 3)
    large = rig.broker.read("out")[1]
    assert large.value == b"w" * (12_000 - 4_096)
    assert text_of(large, "sd-decision") == "passed"
    assert text_of(large, "sd-reason") == "too large for the topic"
    assert text_of(large, "sd-truncated") == "20000"
    came = rig.broker.read("in")[1]
    assert large.timestamp == came.timestamp
    assert "sd-timestamp" not in dict(large.headers)


def test_a_large_and_late_event_is_shortened_with_another_time(rig: Rig) -> None:
    limit = size_limit(12_000)
    takes(rig, ("out",), lambda record: limit(record) or late(record))
    rig.broker.max_bytes = 12_000
    rig.broker.write("in", b"w" * 20_000, key=b"0", timestamp_ms=FUTURE_MS)
    run(rig.runs(PASS))
    (left,) = rig.broker.read("out")
    assert text_of(left, "sd-truncated") == "20000"
    assert text_of(left, "sd-timestamp") == str(FUTURE_MS)


def test_stop_names_the_event_that_the_output_refuses(rig: Rig) -> None:
    rig.broker.max_bytes = 1_000
    rig.write([b"w" * 2_000])
    with pytest.raises(TooManyInvalidEvents, match="in-0 offset 0: too large for the topic, out"):
        run(rig.runs(pipeline_of(on_poison="stop")))


# ---------------------------------------------------------------- timestamps and keys


def test_a_refused_event_becomes_a_dead_letter_in_one_delivery(rig: Rig) -> None:
    takes(rig, ("out", "dead"), late)
    rig.write([LINE])
    rig.broker.write("in", b"far ahead", key=b"1", timestamp_ms=FUTURE_MS)
    run(rig.runs(DEAD))
    assert [record.value for record in rig.broker.read("out")] == [LINE]
    (letter,) = rig.broker.read("dead")
    assert (letter.value, letter.key) == (b"far ahead", b"1")
    assert text_of(letter, "sd-error") == "timestamp refused by the topic"
    assert text_of(letter, "sd-error-message") == (
        "its timestamp is further from now than out allows"
    )
    assert text_of(letter, "sd-timestamp") == str(FUTURE_MS)  # the dead letter has another
    assert letter.timestamp != FUTURE_MS
    assert rig.metrics.value("dead_letters_total", reason=Refusal.TIMESTAMP) == 1
    assert rig.metrics.value("outputs_total", kind="dead_letter") == 1
    assert rig.metrics.value("outputs_total", kind="event") == 1


def test_an_event_with_a_refused_timestamp_passes_with_another(rig: Rig) -> None:
    takes(rig, ("out",), late)
    rig.broker.write("in", LINE, key=b"0", timestamp_ms=FUTURE_MS)
    run(rig.runs(PASS))
    assert_all_left(rig, 1)
    (left,) = rig.broker.read("out")
    assert left.timestamp != FUTURE_MS
    assert text_of(left, "sd-timestamp") == str(FUTURE_MS)
    assert text_of(left, "sd-decision") == "new"


def test_an_event_without_a_key_passes_with_its_place_as_key(rig: Rig) -> None:
    takes(rig, ("out",), keyless)
    rig.broker.write("in", LINE)
    run(rig.runs(PASS))
    (left,) = rig.broker.read("out")
    assert (left.key, left.value) == (b"in-0 offset 0", LINE)
    assert decisions([left]) == {"new": 1}


def test_a_dead_letter_that_is_refused_is_corrected(rig: Rig) -> None:
    takes(rig, ("dead",), lambda record: late(record) or keyless(record))
    rig.broker.write("in", b"no json", timestamp_ms=FUTURE_MS, headers=[("host", b"a")])
    run(rig.runs(DEAD, reading=DecoderOptions(format="jsonl")))
    (letter,) = rig.broker.read("dead")
    assert (letter.key, letter.value) == (b"in-0 offset 0", b"no json")
    assert text_of(letter, "sd-error") == "not JSON"
    assert rig.broker.committed(GROUP) == {Partition("in", 0): 1}


def test_a_topic_that_takes_nothing_is_named(rig: Rig) -> None:
    takes(rig, ("out",), lambda _record: Refusal.OTHER)
    rig.write([LINE])
    with pytest.raises(BrokerRefused, match=r"out does not take even .* in-0 offset 0"):
        run(rig.runs(PASS))


# ---------------------------------------------------------------- summaries


def test_a_refused_summary_is_shortened_and_keeps_its_counts(rig: Rig) -> None:
    takes(rig, ("summaries",), size_limit(700))
    rig.write([b"disk %d is full %s" % (number, b"of words " * 50) for number in range(9)])
    run(rig.runs(pipeline_of(emit="merge", summary_topic="summaries"), finish=True))
    summaries = [msgspec.json.decode(r.value or b"") for r in rig.broker.read("summaries")]
    assert sum(each["new_count"] for each in summaries) == 9
    assert {len(each["representative"]) for each in summaries} == {128}


def test_a_summary_with_a_refused_timestamp_gets_another(rig: Rig) -> None:
    takes(rig, ("summaries",), late)
    for _ in range(2):
        rig.broker.write("in", LINE, timestamp_ms=FUTURE_MS)
    rig.windows = rig.windows.__class__(max_future_us=FUTURE_MS * 1_000)
    run(rig.runs(pipeline_of(emit="merge", summary_topic="summaries"), finish=True))
    assert rig.counted() == 2
    assert FUTURE_MS not in {record.timestamp for record in rig.broker.read("summaries")}


# ---------------------------------------------------------------- deliveries without an answer


def test_a_delivery_without_an_answer_is_made_again(rig: Rig) -> None:
    rig.write([LINE])
    worker = WorkerConfig(delivery_timeout_s=0.2)

    async def scenario() -> None:
        pipeline = rig.pipeline(PASS, worker=worker)
        opens = pipeline.context.sink.open
        opened: list[Partition] = []

        async def first_never_answers(partition: Partition) -> Any:
            made: Any = await opens(partition)
            opened.append(partition)
            if len(opened) == 1:
                made.deliver = lambda *_: asyncio.get_running_loop().create_future()
            return made

        pipeline.context.sink.open = first_never_answers  # type: ignore[method-assign]
        await pipeline.run(once=True)

    run(scenario())
    assert_all_left(rig, 1)
    assert rig.metrics.value("partition_restarts_total", reason="DeliveryTimeout") == 1


def test_summaries_without_an_answer_are_sent_again(rig: Rig) -> None:
    rig.write([LINE, LINE])
    worker = WorkerConfig(delivery_timeout_s=0.2)

    async def scenario() -> None:
        config = pipeline_of(emit="merge", summary_topic="summaries")
        pipeline = rig.pipeline(config, worker=worker, finish=True)
        sends, calls = pipeline.context.sink.send, []

        async def first_never_answers(*args: Any) -> None:
            calls.append(args[0][0].topic)
            if calls == ["summaries"]:
                await asyncio.get_running_loop().create_future()
            await sends(*args)

        pipeline.context.sink.send = first_never_answers  # type: ignore[assignment, method-assign]
        await pipeline.run(once=True)

    run(scenario())
    assert rig.counted() == 2
