"""OpenTelemetry: traces and metrics to a collector, by OTLP over HTTP.

A collector that is away, slow or broken costs the worker nothing but some warnings: spans wait in
the SDK's bounded queue, its threads send them, and what does not fit is dropped. At the end the
worker sends what is left, for `FLUSH_S` at most; threads that still wait end with the process.

**Metrics** have the values of ``/metrics``, bounded alike: each export reads them there. Of a name,
``stream_dedup_`` is ``stream_dedup.``, ``_total`` is left out, and a unit at the end becomes the
unit; Prometheus makes our name of that again.

**Traces.** A trace is a batch::

    process app-logs          the batch: partition, offsets, events, decisions by kind
    ├── hash
    ├── decide                an event `exception` on the batch for each try that failed
    ├── shape
    ├── deliver
    └── commit                later, with others'; not with exactly-once, where deliver commits

A poll that brought events and the sending of summaries are traces of one span: they serve many
batches, or none. The sampler decides at the first span, so a batch that is not kept costs no more
than that. The spans of its stages are made when the batch ends, with the times taken before: a
batch that still waits for a stage when its partition goes to another worker leaves no trace.
Names are the semantic conventions' for messaging (OpenTelemetry semantic conventions 1.44, in
development), and ``stream_dedup.…`` for the rest.

The SDK itself reads the standard's environment variables for what is not given here: resource
attributes, compression, certificates, the sampler, the queue's bounds. Its packages are an extra,
which only this module, `config.checks` and `io.otlp` import.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.environment_variables import OTEL_TRACES_SAMPLER
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter, ObservableGauge
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    PeriodicExportingMetricReader,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from stream_dedup._version import __version__
from stream_dedup.clock import US_PER_S, Clock, SystemClock, monotonic_s
from stream_dedup.config import OtelConfig
from stream_dedup.io.base import Records
from stream_dedup.io.otlp import metric_exporter, span_exporter
from stream_dedup.metrics import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    METRICS,
    Counter,
    Gauge,
)
from stream_dedup.model import Decision, Kind, Partition
from stream_dedup.worker.telemetry.logs import clean_text
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from stream_dedup.worker.telemetry.tracing import (
    BatchTrace,
    PollTrace,
    StageTrace,
    Traces,
)

log = logging.getLogger(__name__)

SCOPE = "stream_dedup"

FLUSH_S = 3.0
"""How long the end waits until what is left is sent: less than any orchestrator's grace period."""

MAX_SERIES = 1_000_000
"""Series of one metric: the bounds of `metrics` apply, not the SDK's limit of 2,000."""

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_NS_PER_US = 1_000

MAX_UNCOMMITTED = 100
"""Traced batches kept until their commit; of more, the last."""

MAX_ERROR_CHARS = 1_000


class _Stopping(Protocol):
    """The SDK's providers and exporters."""

    def shutdown(self) -> None: ...


class Telemetry:
    """Exports a worker's traces and metrics, until `stop`.

    Args:
        config: what is exported, and where to.
        metrics: the worker's metrics.
        instance: the worker's unique name; "" for a generated one.

    Raises:
        ValueError, RuntimeError: a variable of OpenTelemetry's cannot be used.
    """

    def __init__(
        self, config: OtelConfig, metrics: PrometheusMetrics, *, instance: str = ""
    ) -> None:
        self._tracers: TracerProvider | None = None
        self._parts: list[tuple[_Stopping, _Stopping]] = []
        resource = make_resource(instance)
        to = config.read_headers(), config.timeout_s
        if config.traces_url:
            spans = span_exporter(config.traces_url, *to)
            ratio = ParentBased(TraceIdRatioBased(config.sample_ratio))
            self._tracers = TracerProvider(
                resource=resource,
                sampler=None if os.environ.get(OTEL_TRACES_SAMPLER) else ratio,
                shutdown_on_exit=False,
            )
            self._tracers.add_span_processor(BatchSpanProcessor(spans))
            self._parts.append((self._tracers, spans))
        if config.metrics_url:
            exporter = metric_exporter(config.metrics_url, *to)
            reader = HistogramReader(exporter, metrics, config.metrics_every_s)
            meters = MeterProvider([reader], resource, shutdown_on_exit=False)
            make_instruments(metrics, meters)
            self._parts.append((meters, exporter))

    def traces(self, pipeline: str, group: str, client_id: str) -> Traces | None:
        """The traces of a pipeline, if they are sent; see `OtelTraces`."""
        if self._tracers is None:
            return None
        tracer = self._tracers.get_tracer(SCOPE, __version__)
        return OtelTraces(tracer, pipeline, group, client_id)

    def stop(self) -> None:
        """Send what is left, within `FLUSH_S`. Call it once, when nothing is traced any more.

        What is not sent by then is lost, and no more is logged: the process ends.
        """
        flushing = [threading.Thread(target=p.shutdown, daemon=True) for p, _ in self._parts]
        until_s = monotonic_s() + FLUSH_S
        for thread in flushing:
            thread.start()
        for thread in flushing:
            thread.join(max(0.0, until_s - monotonic_s()))
        late = [thread.is_alive() for thread in flushing]
        if any(late):
            log.warning("not all telemetry was sent within %g s; the rest is lost", FLUSH_S)
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        for (_, exporter), is_late in zip(self._parts, late, strict=True):
            if is_late:
                exporter.shutdown()  # ends its retries


def make_resource(instance: str) -> Resource:
    """The worker's resource. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to it, and win.

    Args:
        instance: the worker's unique name; "" for a generated one.
    """
    ours = {
        "service.name": "stream-dedup",
        "service.version": __version__,
        "service.instance.id": instance or str(uuid.uuid4()),
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


# ------------------------------------------------------------ metrics


class Named(NamedTuple):
    """A metric's name and unit in OpenTelemetry."""

    name: str
    unit: str


def named(metric: str) -> Named:
    """A metric's name and unit.

    >>> named("events_total")
    Named(name='stream_dedup.events', unit='')
    >>> named("event_bytes_total")
    Named(name='stream_dedup.event', unit='By')
    """
    name = metric.removesuffix("_total")
    rest, _, last = name.rpartition("_")
    unit = {"seconds": "s", "bytes": "By"}.get(last, "")
    return Named(f"{SCOPE}.{rest if unit else name}", unit)


def make_instruments(metrics: PrometheusMetrics, meters: MeterProvider) -> None:
    """Make observable instruments of the counters and gauges: each export reads their values."""
    meter = meters.get_meter(SCOPE, __version__)
    for counter in COUNTERS:
        name, unit = named(counter)
        read = partial(_observations, metrics, counter)
        meter.create_observable_counter(name, [read], unit, METRICS[counter].help)
    for gauge in GAUGES:
        name, unit = named(gauge)
        read = partial(_observations, metrics, gauge)
        meter.create_observable_gauge(name, [read], unit, METRICS[gauge].help)


def _observations(
    metrics: PrometheusMetrics, name: Counter | Gauge, _: CallbackOptions
) -> Iterable[Observation]:
    labels = METRICS[name].labels
    for key, value in metrics.values(name).items():
        yield Observation(value, dict(zip(labels, key, strict=True)))


class HistogramReader(PeriodicExportingMetricReader):
    """Exports the instruments' metrics and the histograms.

    OpenTelemetry has no observable histograms, and recording each observation a second time would
    cost 20 to 40 µs. So the histograms are read, too, and added to each export.
    """

    def __init__(
        self, exporter: MetricExporter, metrics: PrometheusMetrics, every_s: float
    ) -> None:
        self._histograms = metrics.distributions
        self._clock = SystemClock()
        self._started_ns = self._clock.now_us() * _NS_PER_US
        super().__init__(
            exporter,
            export_interval_millis=1_000 * every_s,
            cardinality_limits=dict.fromkeys((ObservableCounter, ObservableGauge), MAX_SERIES),
        )

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: object
    ) -> None:
        """Export; the base class means this method to be overridden."""
        resources = [
            replace(
                resource, scope_metrics=list(map(self._with_histograms, resource.scope_metrics))
            )
            for resource in metrics_data.resource_metrics
        ]
        super()._receive_metrics(MetricsData(resources), timeout_millis, **options)

    def _with_histograms(self, scope: ScopeMetrics) -> ScopeMetrics:
        if scope.scope.name != SCOPE:
            return scope  # the SDK's own
        return replace(scope, metrics=[*scope.metrics, *self._read()])

    def _read(self) -> Iterable[Metric]:
        now_ns = self._clock.now_us() * _NS_PER_US
        for histogram, (labels, text, bounds_s) in HISTOGRAMS.items():
            points = [
                HistogramDataPoint(
                    attributes=dict(zip(labels, key, strict=True)),
                    start_time_unix_nano=self._started_ns,
                    time_unix_nano=now_ns,
                    count=observed.count,
                    sum=observed.total_s,
                    bucket_counts=observed.counts,
                    explicit_bounds=bounds_s,
                    min=None,  # type: ignore[arg-type] # unknown, which OTLP allows
                    max=None,  # type: ignore[arg-type] # as above
                )
                for key, observed in self._histograms(histogram).items()
            ]
            if points:
                name, unit = named(histogram)
                yield Metric(name, text, unit, HistogramData(points, _CUMULATIVE))


# ------------------------------------------------------------ traces

_OPERATIONS = {
    "process": (SpanKind.CONSUMER, "process"),
    "poll": (SpanKind.CLIENT, "receive"),
    "deliver": (SpanKind.CLIENT, "send"),
    "emit": (SpanKind.CLIENT, "send"),
    "commit": (SpanKind.CLIENT, "settle"),
}
"""The kind of span and the type of operation that the conventions give to what talks to Kafka."""

Attributes = dict[str, str | int]


class _Stage(NamedTuple):
    name: str
    started_s: float
    ended_s: float
    error: BaseException | None


class _Times(NamedTuple):
    """Turns times of the monotonic clock into a span's, by an offset that is fixed per trace."""

    offset_us: int

    def ns(self, at_s: float) -> int:
        """Nanoseconds since 1970."""
        return (self.offset_us + round(at_s * US_PER_S)) * _NS_PER_US


class OtelTraces:
    """The traces of one pipeline; see `tracing.Traces`.

    Args:
        tracer: makes spans.
        pipeline: its name.
        group: its consumer group.
        client_id: the Kafka client's name.
        clock: for the beginnings of traces.
    """

    def __init__(
        self, tracer: Tracer, pipeline: str, group: str, client_id: str, clock: Clock | None = None
    ) -> None:
        self._tracer = tracer
        self._clock = clock or SystemClock()
        self._common: Attributes = {
            "messaging.system": "kafka",
            "messaging.consumer.group.name": group,
            "messaging.client.id": client_id,
            "stream_dedup.pipeline": pipeline,
        }
        self._uncommitted: deque[_Batch] = deque(maxlen=MAX_UNCOMMITTED)

    def poll(self) -> PollTrace:
        return _Single(self)

    def batch(self, partition: Partition, records: Records, size: int) -> BatchTrace | None:
        topic, number = partition
        attributes: Attributes = {
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(number),
            "messaging.batch.message_count": len(records),
            "stream_dedup.offset.first": records.offsets[0],
            "stream_dedup.offset.last": records.offsets[-1],
            "stream_dedup.batch.bytes": size,
        }
        times = self.times()
        span = self.begin(f"process {topic}", "process", attributes, times.ns(monotonic_s()))
        return _Batch(self, span, partition, times) if span.is_recording() else None

    def commit(self, offsets: Mapping[Partition, int]) -> StageTrace | None:
        covered = [
            batch
            for batch in self._uncommitted
            if batch.next_offset <= offsets.get(batch.partition, -1)
        ]
        for batch in covered:
            self._uncommitted.remove(batch)
        return _Commit(covered) if covered else None

    def summaries(self, count: int) -> StageTrace:
        return _Single(self, count)

    def uncommitted(self, batch: _Batch) -> None:
        """Keep a batch until its commit."""
        self._uncommitted.append(batch)

    def times(self) -> _Times:
        """The times of a trace that begins now."""
        return _Times(self._clock.now_us() - round(monotonic_s() * US_PER_S))

    def begin(
        self,
        name: str,
        operation: str,
        attributes: Attributes,
        begun_ns: int,
        parent: Context | None = None,
    ) -> Span:
        """Begin a span; without a parent, a trace."""
        kind = SpanKind.INTERNAL
        attributes = self._common | attributes
        if operation in _OPERATIONS:
            kind, attributes["messaging.operation.type"] = _OPERATIONS[operation]
            attributes["messaging.operation.name"] = operation
        return self._tracer.start_span(
            name,
            context=Context() if parent is None else parent,
            kind=kind,
            attributes=attributes,
            start_time=begun_ns,
        )

    def add(
        self, stage: _Stage, times: _Times, attributes: Attributes, parent: Context | None = None
    ) -> None:
        """Add the span of a stage that is over."""
        name, started_s, ended_s, error = stage
        span = self.begin(name, name, attributes, times.ns(started_s), parent)
        ended_ns = times.ns(ended_s)
        if error is not None:
            _add_exception(span, error, ended_ns)
            _set_failed(span, error)
        span.end(ended_ns)


class _Batch:
    """A batch that is traced; see `tracing.BatchTrace`."""

    def __init__(self, traces: OtelTraces, span: Span, partition: Partition, times: _Times) -> None:
        self.partition = partition
        self.next_offset = 0
        self._traces = traces
        self._span = span
        self._context = set_span_in_context(span, Context())
        self._times = times
        self._stages: list[_Stage] = []

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        self._stages.append(_Stage(name, started_s, ended_s, error))
        if error is not None:
            _set_failed(self._span, error)
            self._end(ended_s)

    def failed(self, error: Exception) -> None:
        _add_exception(self._span, error, self._times.ns(monotonic_s()))

    def decided(self, decisions: Sequence[Decision]) -> None:
        kinds = [decision.kind for decision in decisions]
        for kind in Kind:
            self._span.set_attribute(f"stream_dedup.decisions.{kind.value}", kinds.count(kind))

    def delivered(self, next_offset: int, *, committed: bool) -> None:
        self._end(monotonic_s())
        if not committed:
            self.next_offset = next_offset
            self._traces.uncommitted(self)

    def committed(self, stage: _Stage) -> None:
        """Add the commit that stored its offset, or should have."""
        self._traces.add(stage, self._times, {}, self._context)

    def _end(self, ended_s: float) -> None:
        for stage in self._stages:
            self._traces.add(stage, self._times, {}, self._context)
        self._span.end(self._times.ns(ended_s))


class _Commit:
    """A commit that covers batches which are traced."""

    def __init__(self, batches: Sequence[_Batch]) -> None:
        self._batches = batches

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        for batch in self._batches:
            batch.committed(_Stage(name, started_s, ended_s, error))


class _Single:
    """A poll, or the sending of summaries: a trace of one span, unless it had no messages."""

    def __init__(self, traces: OtelTraces, messages: int = 0) -> None:
        self._traces = traces
        self._messages = messages

    def brought(self, found: Mapping[Partition, Records]) -> None:
        self._messages = sum(map(len, found.values()))

    def stage(
        self, name: str, started_s: float, ended_s: float, error: BaseException | None
    ) -> None:
        if self._messages:
            stage = _Stage(name, started_s, ended_s, error)
            attributes: Attributes = {"messaging.batch.message_count": self._messages}
            self._traces.add(stage, self._traces.times(), attributes)


def _text(error: BaseException) -> str:
    """An error's message: secrets hidden, not too long."""
    return clean_text(str(error))[:MAX_ERROR_CHARS]


def _set_failed(span: Span, error: BaseException) -> None:
    name = type(error).__name__
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, _text(error) or name))


def _add_exception(span: Span, error: BaseException, at_ns: int) -> None:
    # Not `record_exception`: its message and stack trace would hold secrets.
    attributes = {"exception.type": type(error).__name__, "exception.message": _text(error)}
    span.add_event("exception", attributes, at_ns)
