"""Metrics by OTLP: the numbers of ``/metrics``, under names that lead back to its own."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from stream_dedup.config import OtelConfig
from stream_dedup.metrics import (
    BOUNDS,
    COUNTERS,
    FIXED,
    GAUGES,
    HISTOGRAMS,
    METRICS,
    PREFIX,
    start_at_zero,
)
from stream_dedup.worker.telemetry.otel import (
    HistogramReader,
    Telemetry,
    make_instruments,
    named,
)
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from tests.services.otlp import OtlpReceiver, Point, Series, points_of

READY = 1
"""The gauge without labels, which is always sent."""


class Kept(MetricExporter):
    """Keeps the last export."""

    def __init__(self) -> None:
        super().__init__()
        self.data: MetricsData | None = None

    def export(
        self,
        metrics_data: MetricsData,
        timeout_millis: float = 0,  # noqa: ARG002 -- the base's
        **_: Any,
    ) -> MetricExportResult:
        self.data = metrics_data
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:  # noqa: ARG002 -- the base's
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None: ...


class Exported:
    """Metrics, and what an export sends of them."""

    def __init__(self) -> None:
        self.metrics = PrometheusMetrics()
        self._exporter = Kept()
        self._reader = HistogramReader(self._exporter, self.metrics, math.inf)
        meters = MeterProvider([self._reader], Resource({"a": "b"}), shutdown_on_exit=False)
        make_instruments(self.metrics, meters)

    def read(self) -> dict[str, Metric]:
        self._reader.collect()
        assert self._exporter.data is not None
        request = encode_metrics(self._exporter.data)
        [resource] = request.resource_metrics
        [scope] = resource.scope_metrics
        assert scope.scope.name == "stream_dedup"
        return {metric.name: metric for metric in scope.metrics}

    def points(self) -> dict[Series, Point]:
        return dict(series for metric in self.read().values() for series in points_of(metric))


def fill(metrics: Any) -> None:
    """Give every metric of the table a number of its own."""
    for number, (name, (labels, _, _)) in enumerate(METRICS.items(), 1):
        values = {label: FIXED.get(label, ("x",))[0] for label in labels}
        if name in COUNTERS:
            metrics.add(name, number, **values)
        elif name in GAUGES:
            metrics.set(name, number, **values)
        else:
            metrics.observe(name, number / 1_000, **values)


def prometheus_name(metric: Metric) -> str:
    """The name that Prometheus gives to a metric which comes by OTLP, by its documented rules."""
    name = metric.name.replace(".", "_")
    unit = {"s": "seconds", "By": "bytes", "": ""}[metric.unit]
    name += f"_{unit}" * bool(unit)
    return name + "_total" * metric.HasField("sum")


def test_every_metric_is_sent_with_its_kind_help_and_number() -> None:
    exported = Exported()
    fill(exported.metrics)
    sent = exported.read()
    assert {named(name).name for name in METRICS} == set(sent)
    assert len(sent) == len(METRICS)
    for number, (name, metric) in enumerate(METRICS.items(), 1):
        got = sent[named(name).name]
        assert metric.help == got.description
        kind = "sum" if name in COUNTERS else "gauge" if name in GAUGES else "histogram"
        assert kind == got.WhichOneof("data")
        [(series, point)] = points_of(got)
        assert len(metric.labels) == len(series[1])
        expected = number / 1_000 if name in HISTOGRAMS else number
        assert point.value == expected
        if name in COUNTERS:
            assert got.sum.is_monotonic
            assert (
                got.sum.aggregation_temporality
            ) == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_in_prometheus_they_have_their_names_again() -> None:
    exported = Exported()
    fill(exported.metrics)
    sent = exported.read().values()
    assert {PREFIX + name for name in METRICS} == {prometheus_name(metric) for metric in sent}


def test_histograms_have_the_bounds_of_the_table() -> None:
    exported = Exported()
    for seconds in (0.0004, 0.01, 0.02, 100):
        exported.metrics.observe("stage_seconds", seconds, pipeline="p", stage="poll")
    sent = exported.read()["stream_dedup.stage"]
    [point] = sent.histogram.data_points
    bounds = METRICS["stage_seconds"].bounds_s
    assert tuple(point.explicit_bounds) == bounds
    assert len(bounds) + 1 == len(point.bucket_counts)
    assert (point.count, sum(point.bucket_counts)) == (4, 4)
    assert (point.bucket_counts[0], point.bucket_counts[-1]) == (1, 1)
    assert point.bucket_counts[bounds.index(0.01)] == 1  # up to and including
    assert not point.HasField("min")
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano


def test_counters_begin_at_zero_and_stay_cumulative() -> None:
    exported = Exported()
    start_at_zero(exported.metrics, "p")
    series = "stream_dedup.commits", ("p",)
    assert exported.points()[series].value == 0
    started_ns = exported.points()[series].start_ns
    for expected in (2, 4):
        exported.metrics.add("commits_total", 2, pipeline="p")
        point = exported.points()[series]
        assert point.value == expected
        assert point.start_ns == started_ns <= point.time_ns


def test_series_that_were_removed_are_not_sent() -> None:
    exported = Exported()
    exported.metrics.add("commits_total", 5, pipeline="p")
    exported.metrics.set("lag_events", 5, pipeline="p", topic="t", partition=0)
    assert len(exported.points()) == 2 + READY
    exported.metrics.remove("commits_total", pipeline="p")
    exported.metrics.remove("lag_events", topic="t")
    assert len(exported.points()) == READY
    exported.metrics.add("commits_total", 1, pipeline="p")
    assert exported.points()["stream_dedup.commits", ("p",)].value == 1


def test_more_series_than_the_sdk_would_keep_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    metrics = PrometheusMetrics()
    for partition in range(2_100):
        metrics.set("lag_events", partition, pipeline="p", topic="t", partition=partition)
    with OtlpReceiver() as receiver:
        Telemetry(OtelConfig(endpoint=receiver.url, sample_ratio=0), metrics).stop()
        sent = [labels for name, labels in receiver.points() if name == "stream_dedup.lag_events"]
    assert len(sent) == 2_100


def test_values_from_data_are_bounded_as_on_the_page() -> None:
    exported = Exported()
    for number in range(BOUNDS["reason"] + 30):
        exported.metrics.add("passed_total", pipeline="p", reason=f"reason {number}")
    points = {
        labels: point.value
        for (name, labels), point in exported.points().items()
        if name == "stream_dedup.passed"
    }
    assert BOUNDS["reason"] + 1 == len(points)
    assert points["p", "other"] == 30


def test_a_label_of_any_text_can_be_sent() -> None:
    exported = Exported()
    reasons = ['a"b\\c\nd', "half \ud800 character", "\x00\x1b[2J", "x" * 10_000, ""]
    for reason in reasons:
        exported.metrics.add("dead_letters_total", pipeline="p", reason=reason)
    points = exported.points()
    assert sum(point.value for (name, _), point in points.items() if "dead" in name) == 5
