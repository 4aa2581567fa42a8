"""OpenTelemetry: traces and metrics to a collector, by OTLP over HTTP.

A collector that is away, slow or broken costs the worker nothing but some warnings: what is to be
sent waits in a bounded queue, threads of their own send it, and what does not fit is dropped. At
the end what is left is sent, for `FLUSH_S` at most; threads that still wait end with the process.

What the standard's environment variables say is done by its SDK, where it is not given here:
resource attributes, compression, certificates, the sampler, the queue's bounds. Its packages are an
extra, which `worker.otel*`, `config.check_otel` and `connectors.otlp` alone import.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opentelemetry.sdk.environment_variables import OTEL_TRACES_SAMPLER
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from stream_dedup._version import __version__
from stream_dedup.clock import monotonic_s
from stream_dedup.io.otlp import metric_exporter, span_exporter
from stream_dedup.worker.telemetry.otel_metrics import SCOPE, Readings
from stream_dedup.worker.telemetry.otel_traces import OtelTraces
from stream_dedup.worker.telemetry.snapshots import Snapshot
from stream_dedup.worker.telemetry.tracing import NO_TRACES, Traces

log = logging.getLogger(__name__)

FLUSH_S = 3.0
"""How long the end waits for what is left to be sent: shorter than any orchestrator's patience."""


@dataclass(frozen=True, slots=True)
class Exporting:
    """What is exported, and where to.

    Attributes:
        traces_url: takes traces; "": nothing does.
        metrics_url: takes metrics; "": nothing does.
        headers: sent with each request; secrets.
        sample_ratio: the share of traces that is kept.
        metrics_every_s: how often metrics are sent.
        timeout_s: how long one export may take, tries again included.
        instance: tells this worker from others; "": a name that no other has.
    """

    traces_url: str
    metrics_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sample_ratio: float = 1.0
    metrics_every_s: float = 15.0
    timeout_s: float = 10.0
    instance: str = ""


class Telemetry:
    """Exports a worker's traces and metrics, from now to `stop`.

    Args:
        exporting: what, and where to.
        numbers: reads all metrics.

    Raises:
        ValueError, RuntimeError: a variable of OpenTelemetry's cannot be used.
    """

    def __init__(self, exporting: Exporting, numbers: Callable[[], Snapshot]) -> None:
        resource = make_resource(exporting.instance)
        self._traces = _Traces(exporting, resource) if exporting.traces_url else None
        self._metrics = (
            _Metrics(exporting, Readings(numbers, resource)) if exporting.metrics_url else None
        )

    def traces(self, pipeline: str, group: str, client_id: str) -> Traces:
        """What takes a pipeline's traces; see `OtelTraces`."""
        if self._traces is None:
            return NO_TRACES
        tracer = self._traces.provider.get_tracer(SCOPE, __version__)
        return OtelTraces(tracer, pipeline, group, client_id)

    def stop(self) -> None:
        """Send what is left, within `FLUSH_S`. To be called once, when nothing is traced any more.

        What is not sent by then is lost, and nothing is said any more: the process ends.
        """
        parts = [part for part in (self._traces, self._metrics) if part is not None]
        flushing = [threading.Thread(target=part.flush, daemon=True) for part in parts]
        until_s = monotonic_s() + FLUSH_S
        for thread in flushing:
            thread.start()
        for thread in flushing:
            thread.join(max(0.0, until_s - monotonic_s()))
        late = [part for part, its in zip(parts, flushing, strict=True) if its.is_alive()]
        if late:
            log.warning("not all telemetry was sent within %g s; the rest is lost", FLUSH_S)
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        for part in late:
            part.give_up()


class _Traces:
    """Sends spans, in batches, from a thread of the SDK's."""

    def __init__(self, exporting: Exporting, resource: Resource) -> None:
        ratio = ParentBased(TraceIdRatioBased(exporting.sample_ratio))
        self.provider = TracerProvider(
            resource=resource,
            sampler=None if os.environ.get(OTEL_TRACES_SAMPLER) else ratio,
            shutdown_on_exit=False,
        )
        self._exporter = span_exporter(exporting.traces_url, exporting.headers, exporting.timeout_s)
        self.provider.add_span_processor(BatchSpanProcessor(self._exporter))

    def flush(self) -> None:
        """Send what is left, and end."""
        self.provider.shutdown()

    def give_up(self) -> None:
        """What waits to try again does not."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _Metrics:
    """Sends all metrics, each so many seconds, from a thread."""

    def __init__(self, exporting: Exporting, readings: Readings) -> None:
        self._every_s = exporting.metrics_every_s
        self._readings = readings
        self._exporter = metric_exporter(
            exporting.metrics_url, exporting.headers, exporting.timeout_s
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            self._export()
        self._export()

    def _export(self) -> None:
        try:
            self._exporter.export(self._readings.read())  # a failure it logs itself
        except Exception:
            log.exception("metrics could not be exported")

    def flush(self) -> None:
        """Send the last numbers, and end."""
        self._ending.set()
        self._thread.join()
        self._exporter.shutdown()

    def give_up(self) -> None:
        """What waits to try again does not."""
        self._exporter.shutdown()


def make_resource(instance: str) -> Resource:
    """Who we are. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to it, and win.

    Args:
        instance: tells this worker from others; "": made up.
    """
    ours = {
        "service.name": "stream-dedup",
        "service.version": __version__,
        "service.instance.id": instance or str(uuid.uuid4()),
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})
