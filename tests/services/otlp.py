"""A receiver of OTLP over HTTP: a real server, which decodes what workers send."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.services.certificates import Certificates

TRACES, METRICS = "/v1/traces", "/v1/metrics"

Series = tuple[str, tuple[str, ...]]


class Request(NamedTuple):
    """One request that came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Point(NamedTuple):
    """One series of a metric as it was sent last; the value of a histogram is its sum."""

    value: float
    observed: int
    buckets: tuple[int, ...]
    start_ns: int
    time_ns: int


class OtlpReceiver:
    """Takes what comes, and keeps it. As a context manager, it closes itself.

    Args:
        port: where it listens; 0: somewhere.
        certificates: what it shows, over TLS; without, it speaks plain HTTP.

    Attributes:
        status: what it answers; other than 200 it keeps the request alone.
        hang: while it is not set, requests wait for their answer.
    """

    def __init__(self, port: int = 0, certificates: Certificates | None = None) -> None:
        self.status = 200
        self.hang = threading.Event()
        self.hang.set()
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._traces: list[ExportTraceServiceRequest] = []
        self._metrics: list[ExportMetricsServiceRequest] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.hang.wait(60)
                status, answer = receiver._take(self.path, dict(self.headers), body)
                with suppress(OSError):  # whoever asked may have gone
                    self.send_response(status)
                    self.send_header("Content-Type", "application/x-protobuf")
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 -- its name

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None: ...  # connections that tests cut

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.cert_file, certificates.key_file)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = f"https://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop; nobody listens at the port any more."""
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        with self._lock:
            self._requests.append(Request(path, {k.lower(): v for k, v in headers.items()}, body))
            if self.status != 200:
                return self.status, b""
            data = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
            if path == TRACES:
                self._traces.append(ExportTraceServiceRequest.FromString(data))
                return 200, ExportTraceServiceResponse().SerializeToString()
            if path == METRICS:
                self._metrics.append(ExportMetricsServiceRequest.FromString(data))
                return 200, ExportMetricsServiceResponse().SerializeToString()
            return 404, b""

    # ------------------------------------------------------------ what came

    def requests(self, path: str = "") -> list[Request]:
        """The requests, of a path or all; those that were refused too."""
        with self._lock:
            return [each for each in self._requests if path in {"", each.path}]

    def spans(self, name: str = "") -> list[Span]:
        """The spans that begin with a name, or all, as they came."""
        with self._lock:
            return [
                span
                for request in self._traces
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
                if span.name.startswith(name)
            ]

    def resources(self) -> list[dict[str, object]]:
        """Who sent, of each request for traces, then for metrics."""
        with self._lock:
            found = [r.resource for request in self._traces for r in request.resource_spans]
            found += [r.resource for request in self._metrics for r in request.resource_metrics]
            return [attributes(resource.attributes) for resource in found]

    def metrics(self) -> dict[str, Metric]:
        """The metrics of the last request that brought any, by name."""
        with self._lock:
            last = self._metrics[-1:]
        return {
            metric.name: metric
            for request in last
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self) -> dict[Series, Point]:
        """All series of that request: (name, the labels' values in order)."""
        return dict(series for metric in self.metrics().values() for series in points_of(metric))


def points_of(metric: Metric) -> Iterator[tuple[Series, Point]]:
    """The series of a metric, whatever its kind."""
    if metric.HasField("histogram"):
        for seen in metric.histogram.data_points:
            yield (
                (metric.name, _values(seen.attributes)),
                Point(
                    seen.sum,
                    seen.count,
                    tuple(seen.bucket_counts),
                    seen.start_time_unix_nano,
                    seen.time_unix_nano,
                ),
            )
        return
    kind = metric.sum if metric.HasField("sum") else metric.gauge
    for point in kind.data_points:
        times = point.start_time_unix_nano, point.time_unix_nano
        yield (
            (metric.name, _values(point.attributes)),
            Point(point.as_double, 0, (), *times),
        )


def _values(pairs: Iterable[KeyValue]) -> tuple[str, ...]:
    return tuple(map(str, attributes(pairs).values()))


def attributes(pairs: Iterable[KeyValue]) -> dict[str, object]:
    """Attributes by name, as plain values."""
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
