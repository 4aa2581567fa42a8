"""Spans of batches: what they contain, how they nest, and what is left of errors."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from stream_dedup.clock import ManualClock, monotonic_s
from stream_dedup.errors import BrokerUnavailable, IndexUnavailable
from stream_dedup.io.base import Record, Records
from stream_dedup.metrics import FIXED
from stream_dedup.model import Kind, Partition
from stream_dedup.worker.pipeline import Pipeline
from stream_dedup.worker.telemetry.otel import MAX_ERROR_CHARS, MAX_UNCOMMITTED, OtelTraces
from stream_dedup.worker.telemetry.tracing import BatchTrace, PollTrace, StageTrace, Traces
from tests.unit.worker.test_pipeline import LINES, Rig, pipeline_of, run

PARTITION = Partition("logs", 3)
RECORDS = Records.of([Record(offset, 0, b"k", b"v", ()) for offset in range(10, 15)])
IN_BATCH = ["hash", "decide", "shape", "deliver"]


class Spans:
    """A pipeline's traces, and what came of them."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = OtelTraces(provider.get_tracer("test"), "main", "group", "client")

    def all(self, name: str = "") -> list[ReadableSpan]:
        found: Sequence[ReadableSpan] = self._exporter.get_finished_spans()
        return [span for span in found if span.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.all(name)
        return span

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """A span's children, by their beginnings."""
        assert parent.context is not None
        mine = [s for s in self.all() if s.parent and s.parent.span_id == parent.context.span_id]
        assert {parent.context.trace_id} >= {s.context.trace_id for s in mine if s.context}
        return sorted(mine, key=lambda span: span.start_time or 0)


@pytest.fixture
def spans() -> Spans:
    return Spans()


def batch_of(traces: Traces, partition: Partition = PARTITION) -> BatchTrace:
    """The trace of a batch that is traced."""
    trace = traces.batch(partition, RECORDS, 5)
    assert trace is not None
    return trace


def commit_of(traces: Traces, offsets: dict[Partition, int]) -> StageTrace:
    """The trace of a commit that covers batches."""
    trace = traces.commit(offsets)
    assert trace is not None
    return trace


def stages(trace: BatchTrace, *names: str) -> None:
    """Some stages that went well."""
    for name in names:
        started_s = monotonic_s()
        trace.stage(name, started_s, monotonic_s(), None)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


# ------------------------------------------------------------ a pipeline's


@pytest.mark.parametrize("transactional", [False, True], ids=["at least once", "exactly once"])
def test_each_batch_of_a_pipeline_is_a_trace_with_its_stages(
    spans: Spans, *, transactional: bool
) -> None:
    rig = Rig(transactional=transactional)
    rig.write(LINES)

    async def traced() -> None:
        config = pipeline_of(dead_letter_topic="dead", summary_topic="summaries")
        plain = rig.pipeline(config, finish=True)
        await Pipeline(replace(plain.context, traces=spans.traces)).run(once=True)

    run(traced())
    batches = spans.all("process in")
    assert len(batches) > 3
    decided: Counter[str] = Counter()
    offsets: dict[str, list[int]] = {}
    for batch in batches:
        assert batch.kind is SpanKind.CONSUMER
        assert batch.parent is None
        fields = attributes(batch)
        assert (
            fields["messaging.system"],
            fields["messaging.consumer.group.name"],
        ) == ("kafka", "group")
        seen = offsets.setdefault(fields["messaging.destination.partition.id"], [])
        seen += range(fields["stream_dedup.offset.first"], fields["stream_dedup.offset.last"] + 1)
        kinds = {kind: fields[f"stream_dedup.decisions.{kind.value}"] for kind in Kind}
        assert fields["messaging.batch.message_count"] == sum(kinds.values())
        assert fields["stream_dedup.batch.bytes"] > 0
        decided.update(kinds)

        children = spans.below(batch)
        begun_ns, ended_ns = times(batch)
        last = begun_ns
        for child in children[:4]:
            assert last <= times(child)[0] <= times(child)[1] <= ended_ns, child.name
            last = times(child)[1]
        expected = IN_BATCH if transactional else [*IN_BATCH, "commit"]
        assert [child.name for child in children] == expected
        if not transactional:
            assert ended_ns <= times(children[-1])[0]
    assert len(LINES) == decided.total()
    assert decided[Kind.NEW] == len(rig.summaries_sent())
    assert set(offsets) == {"0", "1", "2"}
    for seen in offsets.values():
        assert list(range(len(seen))) == sorted(seen)
    brought = [attributes(span)["messaging.batch.message_count"] for span in spans.all("poll")]
    assert 0 not in brought
    assert len(LINES) == sum(brought)
    summaries = [attributes(span)["messaging.batch.message_count"] for span in spans.all("emit")]
    assert sum(summaries) == sum(map(len, rig.summaries_sent().values()))
    names = {span.name for span in spans.all()} - {"process in"}
    assert set(FIXED["stage"]) - ({"commit"} if transactional else set()) == names
    assert {span.status.status_code for span in spans.all()} == {StatusCode.UNSET}


def test_an_index_that_was_away_is_noted_on_the_batch(spans: Spans) -> None:
    rig = Rig()
    rig.write(LINES[:50])

    async def traced() -> None:
        context = replace(rig.pipeline().context, traces=spans.traces)
        process, left = context.engine.process, [2]

        async def fails_twice(*args: Any, **options: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise IndexUnavailable("redis://me:hunter2@h is away")
            return await process(*args, **options)

        context.engine.process = fails_twice  # type: ignore[method-assign]
        await Pipeline(context).run(once=True)

    run(traced())
    events = [event for span in spans.all("process") for event in span.events]
    assert [event.name for event in events] == ["exception"] * 2
    fields = dict(events[0].attributes or {})
    assert fields["exception.type"] == "IndexUnavailable"
    assert fields["exception.message"] == "redis://me:[hidden]@h is away"
    assert {span.status.status_code for span in spans.all()} == {StatusCode.UNSET}


def test_a_delivery_that_failed_ends_the_batch_and_it_comes_again(spans: Spans) -> None:
    rig = Rig()
    rig.write(LINES[:30])

    async def traced() -> None:
        context = replace(rig.pipeline().context, traces=spans.traces)
        opened, left = context.sink.open, [1]

        async def failing(partition: Partition) -> Any:
            partition_producer = await opened(partition)
            deliver = partition_producer.deliver

            async def fails_once(*args: Any) -> bool:
                if left[0]:
                    left[0] -= 1
                    raise BrokerUnavailable("the broker is away")
                return await deliver(*args)

            partition_producer.deliver = fails_once  # type: ignore[assignment]
            return partition_producer

        context.sink.open = failing  # type: ignore[method-assign]
        await Pipeline(context).run(once=True)

    run(traced())
    [failed] = [s for s in spans.all("process") if s.status.status_code is StatusCode.ERROR]
    assert failed.status.description == "the broker is away"
    assert attributes(failed)["error.type"] == "BrokerUnavailable"
    *well, deliver = spans.below(failed)
    assert [span.name for span in well] == ["hash", "decide", "shape"]
    assert (deliver.name, deliver.status.status_code) == ("deliver", StatusCode.ERROR)
    assert [event.name for event in deliver.events] == ["exception"]
    same = attributes(failed)["stream_dedup.offset.first"]
    part = attributes(failed)["messaging.destination.partition.id"]
    again = [
        span
        for span in spans.all("process")
        if attributes(span)["stream_dedup.offset.first"] == same
        and attributes(span)["messaging.destination.partition.id"] == part
    ]
    assert len(again) == 2


# ------------------------------------------------------------ alone


def test_a_batch_that_is_not_kept_costs_its_first_span_alone() -> None:
    spans = Spans(ALWAYS_OFF)
    assert spans.traces.batch(PARTITION, RECORDS, 5) is None
    assert spans.traces.commit({PARTITION: 15}) is None
    poll = spans.traces.poll()
    poll.brought({PARTITION: RECORDS})
    poll.stage("poll", 0.0, 1.0, None)
    assert spans.all() == []


def test_a_batch_that_is_given_up_leaves_nothing(spans: Spans) -> None:
    stages(batch_of(spans.traces), "hash", "decide")
    assert spans.all() == []


def test_a_cancelled_stage_ends_the_batch_as_given_up(spans: Spans) -> None:
    trace = batch_of(spans.traces)
    trace.stage("decide", monotonic_s(), monotonic_s(), asyncio.CancelledError())
    batch = spans.one("process logs")
    assert (
        batch.status.status_code,
        batch.status.description,
    ) == (StatusCode.ERROR, "CancelledError")


def test_a_poll_without_events_has_no_span(spans: Spans) -> None:
    for error in (None, asyncio.CancelledError()):
        poll = spans.traces.poll()
        poll.brought({})
        poll.stage("poll", 0.0, 1.0, error)
    assert spans.all() == []


def test_a_commit_links_to_the_batches_it_covers(spans: Spans) -> None:
    traces, other = spans.traces, Partition("logs", 4)
    for partition, next_offset in ((PARTITION, 15), (PARTITION, 20), (other, 5)):
        trace = batch_of(traces, partition)
        stages(trace, *IN_BATCH)
        trace.delivered(next_offset, committed=False)
    commit = commit_of(traces, {PARTITION: 15})
    commit.stage("commit", monotonic_s(), monotonic_s(), None)
    assert [span.name for span in spans.all("commit")] == ["commit"]
    assert traces.commit({PARTITION: 15}) is None
    failing = commit_of(traces, {PARTITION: 20, other: 4})
    failing.stage("commit", monotonic_s(), monotonic_s(), BrokerUnavailable("away"))
    _, failed = spans.all("commit")
    assert (failed.status.description, failed.status.status_code) == ("away", StatusCode.ERROR)
    assert spans.all("process")[1].status.status_code is StatusCode.UNSET  # it was delivered
    assert traces.commit({other: 5}) is not None


def test_batches_that_wait_for_their_commit_are_bounded(spans: Spans) -> None:
    for number in range(MAX_UNCOMMITTED + 20):
        trace = batch_of(spans.traces)
        trace.delivered(number + 1, committed=False)
    commit_of(spans.traces, {PARTITION: 1_000}).stage("commit", 0.0, 1.0, None)
    assert len(spans.all("commit")) == MAX_UNCOMMITTED


def test_a_long_error_is_cut_and_its_secrets_are_hidden(spans: Spans) -> None:
    trace = batch_of(spans.traces)
    error = BrokerUnavailable("sasl_plain_password=hunter2 \x1b[2J" + "x" * 10_000)
    trace.stage("deliver", monotonic_s(), monotonic_s(), error)
    text = spans.one("process").status.description or ""
    assert "hunter2" not in text
    assert "\x1b" not in text
    assert len(text) == MAX_ERROR_CHARS


def test_times_are_the_clocks() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    clock = ManualClock(1_700_000_000_000_000)
    traces = OtelTraces(provider.get_tracer("t"), "main", "group", "client", clock)
    trace = batch_of(traces)
    started_s = monotonic_s()
    trace.stage("hash", started_s, started_s + 2.5, None)
    trace.delivered(15, committed=True)
    span, batch = exporter.get_finished_spans()
    begun_ns, ended_ns = times(span)
    assert ended_ns - begun_ns == 2_500_000_000
    assert 1_700_000_000_000_000_000 <= times(batch)[0] <= begun_ns < 1_700_000_060_000_000_000


def test_the_adapter_has_the_signatures_of_the_port(spans: Spans) -> None:
    for name in ("poll", "batch", "commit", "summaries"):
        expected = inspect.signature(getattr(Traces, name)).parameters
        assert inspect.signature(getattr(OtelTraces, name)).parameters == expected
    made = {
        PollTrace: spans.traces.poll(),
        BatchTrace: spans.traces.batch(PARTITION, RECORDS, 5),
        StageTrace: spans.traces.summaries(1),
    }
    for port, trace in made.items():
        for name in (name for name in dir(port) if not name.startswith("_")):
            expected = inspect.signature(getattr(port, name)).parameters
            assert list(inspect.signature(getattr(trace, name)).parameters) == list(expected)[1:]
