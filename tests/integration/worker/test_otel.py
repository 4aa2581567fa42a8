"""Traces and metrics by OTLP, of a worker over real Kafka and Redis, to a real receiver."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from stream_dedup.metrics import COUNTERS, GAUGES, HISTOGRAMS, METRICS, PREFIX
from tests.integration.worker.running import (
    END_S,
    Trial,
    Worker,
    command,
    flags,
    real_lines,
    wait_for,
)
from tests.services.kafka import Kafka
from tests.services.otlp import METRICS as METRICS_PATH
from tests.services.otlp import TRACES, OtlpReceiver, Series, attributes
from tests.services.redis import RedisServer

LINES = [*real_lines(1_998), b"", b"   "]
SECRET = "hunter2-s3cret"  # noqa: S105 -- looked for in all that is shown

SELDOM = {"partition_restarts_total", "folded_labels_total"}
"""Not shown before something goes wrong that no event can bring about."""

_SAMPLE = re.compile(rf"^{PREFIX}(\w+?)(?:\{{(.*)\}})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@pytest.fixture
def trial(kafka: Kafka, redis_server: RedisServer) -> Trial:
    return Trial(kafka, redis_server.url)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as running:
        yield running


def to(receiver: OtlpReceiver, **more: object) -> dict[str, object]:
    """Settings that send everything there."""
    return {
        "otel__enabled": "true",
        "otel__endpoint": receiver.url,
        "otel__sample_ratio": 1,
        "otel__metrics_every_s": "200ms",
        "otel__headers": f"authorization=Bearer {SECRET}",
        **more,
    }


def page(worker: Worker) -> dict[Series, float]:
    """The page's numbers, by the names that OTLP has; of histograms how many were observed."""
    found = {}
    for name, labels, value in _SAMPLE.findall(worker.get("/metrics")[1]):
        metric = name.removesuffix("_count")
        if metric not in METRICS or (metric in HISTOGRAMS and metric == name):
            continue  # buckets and sums
        sent = metric.removesuffix("_total")
        for unit in ("_seconds", "_bytes"):
            sent = sent.removesuffix(unit)
        values = dict(_LABEL.findall(labels))
        order = tuple(values[label] for label in METRICS[metric].labels)
        found[f"stream_dedup.{sent}", order] = float(value)
    return found


def sent(receiver: OtlpReceiver) -> dict[Series, float]:
    """What was sent last, as `page` shows it."""
    metrics, points = receiver.metrics(), receiver.points()
    return {
        series: point.observed if metrics[series[0]].HasField("histogram") else point.value
        for series, point in points.items()
    }


def lags(shown: dict[Series, float]) -> list[Series]:
    """The series of the lag: one a partition."""
    return [series for series in shown if series[0] == "stream_dedup.lag_events"]


# ------------------------------------------------------------ what arrives


def test_all_metrics_arrive_as_the_page_shows_them(trial: Trial, receiver: OtlpReceiver) -> None:
    settings = to(receiver, pipelines__0__max_event_bytes=10_000, otel__sample_ratio=0)
    trial.write([*LINES, b"x" * 20_000])
    with trial.worker(**settings) as worker:
        wait_for(lambda: worker.metric("events_total") == len(LINES) + 1, "all is delivered")
        wait_for(lambda: worker.metric("dead_letters_total") == 1, "the invalid event is counted")
        wait_for(lambda: worker.metric("passed_total") == 3, "decisions are measured")
        wait_for(lambda: worker.metric("clusters") > 0, "the index is measured")
        wait_for(lambda: len(lags(page(worker))) == 2, "the lag of both partitions is asked for")

        def agree() -> bool:
            """Whether what was sent between two looks at the page lies between them."""
            before = page(worker)
            count = len(receiver.requests(METRICS_PATH))
            wait_for(lambda: len(receiver.requests(METRICS_PATH)) > count + 1, "two exports")
            came, after = sent(receiver), page(worker)
            return before.keys() == came.keys() == after.keys() and all(
                min(before[series], after[series]) <= value <= max(before[series], after[series])
                for series, value in came.items()
            )

        wait_for(agree, "page and receiver agree")
        came = sent(receiver)
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
    names = {name for name, _ in came}
    missing = {name for name in (*COUNTERS, *GAUGES, *HISTOGRAMS) if not _is_there(name, names)}
    assert missing <= SELDOM
    assert len(lags(came)) == 2
    assert len(LINES) + 1 == came["stream_dedup.events", ("main", trial.read)]
    assert len(LINES) + 1 == sent(receiver)["stream_dedup.events", ("main", trial.read)]
    assert sent(receiver)["stream_dedup.ready", ()] == 0  # the last was sent at the end
    assert receiver.requests(TRACES) == []


def _is_there(name: str, names: set[str]) -> bool:
    plain = name.removesuffix("_total").removesuffix("_seconds").removesuffix("_bytes")
    return f"stream_dedup.{plain}" in names


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_batches_arrive_as_traces_of_their_stages(
    trial: Trial, receiver: OtlpReceiver, guarantee: str
) -> None:
    trial.write(LINES)
    begun_ns = time.time_ns()
    settings = to(receiver, worker__guarantee=guarantee, worker__max_batch_events=100)
    done = trial.once(**settings)
    ended_ns = time.time_ns()
    assert done.code == 0, done.err
    assert SECRET not in done.err
    assert {request.headers["authorization"] for request in receiver.requests()} == {
        f"Bearer {SECRET}"
    }
    instances = {resource["service.instance.id"] for resource in receiver.resources()}
    assert len(instances) == 1

    batches = receiver.spans("process ")
    assert {span.name for span in batches} == {f"process {trial.read}"}
    fields = [attributes(span.attributes) for span in batches]
    assert len(LINES) == sum(_number(each, "messaging.batch.message_count") for each in fields)
    decided = {
        kind: sum(_number(each, f"stream_dedup.decisions.{kind}") for each in fields)
        for kind in ("new", "duplicate", "passed")
    }
    assert (len(LINES), 2) == (sum(decided.values()), decided["passed"])
    assert {each["messaging.destination.partition.id"] for each in fields} == {"0", "1"}
    assert {each["stream_dedup.pipeline"] for each in fields} == {"main"}
    assert {each["messaging.consumer.group.name"] for each in fields} == {trial.group}

    children: dict[bytes, list[Span]] = {}
    for span in receiver.spans():
        assert begun_ns <= span.start_time_unix_nano <= span.end_time_unix_nano <= ended_ns
        assert span.status.code == Status.STATUS_CODE_UNSET, span
        if span.parent_span_id:
            children.setdefault(span.parent_span_id, []).append(span)
    assert children.keys() <= {span.span_id for span in batches}
    stages = ["hash", "decide", "shape", "deliver"]
    if guarantee == "at_least_once":
        stages.append("commit")
    for batch in batches:
        mine = sorted(children[batch.span_id], key=lambda span: span.start_time_unix_nano)
        assert [span.name for span in mine] == stages
        assert {span.trace_id for span in mine} == {batch.trace_id}
        assert batch.start_time_unix_nano <= mine[0].start_time_unix_nano
        assert mine[3].end_time_unix_nano <= batch.end_time_unix_nano
    assert receiver.spans("poll")
    assert receiver.spans("emit")


def _number(fields: dict[str, object], key: str) -> int:
    value = fields[key]
    assert isinstance(value, int)
    return value


def test_a_share_of_the_batches_is_traced(trial: Trial, receiver: OtlpReceiver) -> None:
    trial.write(LINES)
    settings = to(receiver, otel__sample_ratio=0.5, worker__max_batch_events=10)
    assert trial.once(**settings).code == 0
    batches = receiver.spans("process")
    assert 60 < len(batches) < 140  # of 200; six standard deviations
    assert {span.trace_id for span in batches} == {s.trace_id for s in receiver.spans("decide")}


# ------------------------------------------------------------ a receiver that is not well


@pytest.mark.parametrize("what", ["away", "refuses", "hangs"])
def test_a_collector_that_is_not_well_stops_nothing(
    trial: Trial, receiver: OtlpReceiver, what: str
) -> None:
    trial.write(LINES)
    if what == "away":
        receiver.close()
    elif what == "refuses":
        receiver.status = 500
    else:
        receiver.hang.clear()
    done = trial.once(**to(receiver, otel__metrics_every_s="50ms", worker__max_batch_events=10))
    assert done.code == 0, done.err
    assert len(LINES) == trial.committed() == len(trial.kafka.consume(trial.out))
    expected = "not all telemetry was sent" if what == "hangs" else "opentelemetry.exporter"
    assert expected in done.err
    assert SECRET not in done.err
    said = [line for line in done.err.splitlines() if "opentelemetry" in line]
    assert len(said) < 40  # of hundreds of exports


def test_a_collector_that_dies_midway_is_not_missed(trial: Trial, receiver: OtlpReceiver) -> None:
    with trial.worker(**to(receiver)) as worker:
        trial.write(LINES)
        wait_for(lambda: bool(receiver.spans("process")), "a trace arrives")
        receiver.close()
        trial.write(LINES)
        wait_for(lambda: worker.metric("events_total") == 2 * len(LINES), "it goes on without it")
        wait_for(worker.ready, "it is ready")
        with OtlpReceiver(receiver.port) as restarted:
            wait_for(
                lambda: (
                    restarted.metrics() != {}
                    and sent(restarted)["stream_dedup.events", ("main", trial.read)]
                    == 2 * len(LINES)
                ),
                "the new one learns the numbers",
            )
        started_s = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.end(END_S) == 0
        assert time.monotonic() - started_s < 30
        assert SECRET not in worker.log


# ------------------------------------------------------------ the commands


def test_the_check_looks_at_the_collector(trial: Trial, receiver: OtlpReceiver) -> None:
    done = command("config", "check", "--format", "json", *flags(trial.settings | to(receiver)))
    assert done.code == 0, done.err
    assert b"takes traces" in done.out
    receiver.status = 403
    done = command("config", "check", "--format", "json", *flags(trial.settings | to(receiver)))
    assert done.code == 0  # the worker would run
    assert b"takes no metrics: " in done.out
    assert b"403" in done.out
    assert SECRET.encode() not in done.out
    done = command("config", "show", *flags(trial.settings | to(receiver)))
    assert SECRET.encode() not in done.out
