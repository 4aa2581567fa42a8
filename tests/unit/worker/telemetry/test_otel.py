"""Sending: to a real receiver, and to one that is away, slow or broken."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dedup import __version__
from stream_dedup.clock import monotonic_s
from stream_dedup.config import OtelConfig
from stream_dedup.io.base import Record, Records
from stream_dedup.model import Partition
from stream_dedup.worker.telemetry.otel import FLUSH_S, Telemetry, make_resource
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from stream_dedup.worker.telemetry.tracing import Traces
from tests.services.certificates import make_certificates
from tests.services.otlp import METRICS, OtlpReceiver

SECRET = "hunter2-s3cret"  # noqa: S105 -- looked for in all that is logged
PARTITION = Partition("logs", 0)
RECORDS = Records.of([Record(0, 0, None, b"v")])
SLACK_S = 5.0
"""For a machine that does other things."""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    yield
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as running:
        yield running


def otel(url: str, **settings: Any) -> OtelConfig:
    return OtelConfig(**{"endpoint": url, "sample_ratio": 1.0, **settings})


def trace(traces: Traces | None, batches: int = 1) -> None:
    """Batches that are hashed and delivered."""
    assert traces is not None
    for number in range(batches):
        if batch := traces.batch(PARTITION, RECORDS, 1):
            batch.stage("hash", monotonic_s(), monotonic_s(), None)
            batch.delivered(number + 1, committed=True)


def wait_for(holds: Callable[[], object], within_s: float = 30) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def stopped_within(telemetry: Telemetry) -> float:
    """How long the end takes."""
    started_s = monotonic_s()
    telemetry.stop()
    return monotonic_s() - started_s


def test_traces_and_metrics_arrive_with_who_sent_them_and_our_headers(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "opentelemetry")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    metrics = PrometheusMetrics()
    metrics.add("commits_total", 3, pipeline="p")
    config = otel(receiver.url, headers=f"x-tenant=a%2Cb,authorization={SECRET}")
    assert SECRET not in repr(config)
    telemetry = Telemetry(config, metrics, instance="worker-0")
    trace(telemetry.traces("p", "group", "client"))
    telemetry.stop()
    assert sorted(span.name for span in receiver.spans()) == ["hash", "process logs"]
    assert receiver.points()["stream_dedup.commits", ("p",)].value == 3
    for request in receiver.requests():
        assert (request.headers["authorization"], request.headers["x-tenant"]) == (SECRET, "a,b")
        assert request.headers["content-type"] == "application/x-protobuf"
    for resource in receiver.resources():
        assert resource["service.name"] == "stream-dedup"
        assert resource["service.version"] == __version__
        assert resource["service.instance.id"] == "worker-0"
        assert resource["deployment.environment.name"] == "test"
    assert [record.getMessage() for record in caplog.records if "opent" in record.name] == []


def test_metrics_come_again_and_again(receiver: OtlpReceiver) -> None:
    metrics = PrometheusMetrics()
    telemetry = Telemetry(otel(receiver.url, metrics_every_s=0.05), metrics)
    wait_for(lambda: len(receiver.requests(METRICS)) > 2)
    metrics.add("commits_total", 3, pipeline="p")
    wait_for(lambda: receiver.points().get(("stream_dedup.commits", ("p",))))
    telemetry.stop()


def test_a_share_of_the_traces_is_kept(receiver: OtlpReceiver) -> None:
    telemetry = Telemetry(otel(receiver.url, sample_ratio=0.25), PrometheusMetrics())
    trace(telemetry.traces("p", "group", "client"), 1_000)
    telemetry.stop()
    kept = len(receiver.spans("process"))
    assert 150 < kept < 350  # seven standard deviations
    assert len(receiver.spans("hash")) == kept


def test_the_standards_sampler_wins(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    telemetry = Telemetry(otel(receiver.url), PrometheusMetrics())
    traces = telemetry.traces("p", "group", "client")
    assert traces is not None
    assert traces.batch(PARTITION, RECORDS, 1) is None
    telemetry.stop()


def test_one_of_the_two_may_be_sent_alone(receiver: OtlpReceiver) -> None:
    metrics = PrometheusMetrics()
    only_metrics = Telemetry(otel(receiver.url, sample_ratio=0), metrics)
    assert only_metrics.traces("p", "group", "client") is None
    only_metrics.stop()
    assert {request.path for request in receiver.requests()} == {METRICS}
    only_traces = Telemetry(otel(receiver.url, metrics_every_s="off"), metrics)
    trace(only_traces.traces("p", "group", "client"))
    only_traces.stop()
    assert len(receiver.requests(METRICS)) == 1
    assert len(receiver.spans("process")) == 1


def test_what_the_environment_says_of_us_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=seven")
    found = make_resource("worker-0").attributes
    assert (found["service.name"], found["service.instance.id"]) == ("mine", "seven")
    assert "service.version" in found


def test_what_is_sent_can_be_compressed(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    telemetry = Telemetry(otel(receiver.url), PrometheusMetrics())
    trace(telemetry.traces("p", "group", "client"))
    telemetry.stop()
    assert {each.headers["content-encoding"] for each in receiver.requests()} == {"gzip"}
    assert receiver.spans("process")


def test_a_receiver_is_trusted_by_the_authorities_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they would win
        monkeypatch.delenv(name, raising=False)
    certificates = make_certificates(tmp_path / "certificates")
    with OtlpReceiver(certificates=certificates) as secure:
        Telemetry(otel(secure.url, timeout_s=0.5), PrometheusMetrics()).stop()
        assert secure.requests() == []
        assert "metrics batch" in caplog.text
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(certificates.ca_file))
        Telemetry(otel(secure.url), PrometheusMetrics()).stop()
        assert {request.path for request in secure.requests()} == {METRICS}


def test_each_worker_without_a_name_gets_one_of_its_own() -> None:
    first, second = (make_resource("").attributes["service.instance.id"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("status", [500, 503, 401, 400])
def test_a_receiver_that_refuses_is_warned_of_and_holds_nothing_up(
    receiver: OtlpReceiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = status
    config = otel(receiver.url, headers=f"authorization={SECRET}", metrics_every_s=0.1)
    telemetry = Telemetry(config, PrometheusMetrics())
    trace(telemetry.traces("p", "group", "client"))
    wait_for(lambda: any("metrics batch" in record.getMessage() for record in caplog.records))
    assert stopped_within(telemetry) < FLUSH_S + SLACK_S
    assert receiver.spans() == []
    assert SECRET not in caplog.text


def test_a_receiver_that_comes_back_gets_the_current_numbers(receiver: OtlpReceiver) -> None:
    metrics = PrometheusMetrics()
    receiver.status = 500
    telemetry = Telemetry(otel(receiver.url, metrics_every_s=0.05), metrics)
    for _ in range(3):
        metrics.add("commits_total", pipeline="p")
        sent = len(receiver.requests(METRICS))
        wait_for(lambda sent=sent: len(receiver.requests(METRICS)) > sent)  # type: ignore[misc]
    receiver.status = 200
    wait_for(lambda: receiver.points().get(("stream_dedup.commits", ("p",))))
    assert receiver.points()["stream_dedup.commits", ("p",)].value == 3
    telemetry.stop()


def test_a_receiver_that_never_answers_holds_nothing_up(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.hang.clear()
    telemetry = Telemetry(otel(receiver.url, timeout_s=30.0), PrometheusMetrics())
    traces = telemetry.traces("p", "group", "client")
    started_s = monotonic_s()
    trace(traces, 5_000)  # more than the queue holds
    assert monotonic_s() - started_s < 10  # some 0.2 s on an idle core
    took_s = stopped_within(telemetry)
    assert FLUSH_S <= took_s < FLUSH_S + SLACK_S
    assert "not all telemetry was sent within 3 s; the rest is lost" in caplog.text


def test_a_receiver_that_is_away_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver() as gone:
        url = gone.url
    telemetry = Telemetry(otel(url, metrics_every_s=0.1), PrometheusMetrics())
    trace(telemetry.traces("p", "group", "client"), 1_000)
    wait_for(lambda: "Connection refused" in caplog.text)
    assert stopped_within(telemetry) < FLUSH_S + SLACK_S


def test_headers_that_the_sdk_cannot_read_are_not_logged(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", f"{SECRET} without a name")
    Telemetry(otel(receiver.url), PrometheusMetrics()).stop()
    assert SECRET not in caplog.text


def test_a_worker_that_sends_nothing_imports_nothing_of_it() -> None:
    code = (
        "import sys; import stream_dedup.assembly, stream_dedup.worker.telemetry.tracing; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
