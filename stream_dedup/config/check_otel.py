"""Whether the collector is as the configuration takes it to be."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from stream_dedup.config.findings import Finding, error, ok, warning
from stream_dedup.config.otel import Otel

MOST_S = 3.0
"""Whether a collector answers shows sooner; the exporter would try again until its time is up."""

_REMEDY = (
    "look whether an OTLP receiver for HTTP listens there, at port 4318 mostly, and takes our "
    "headers; the worker would go on without it"
)


async def check_otel(otel: Otel, within_s: float) -> AsyncIterator[Finding]:
    """Send nothing, by the way that traces and metrics will take, and see whether it is taken.

    A collector that is away keeps no worker from its work, so that is a warning.

    Args:
        otel: what is to hold.
        within_s: how long an answer may take.
    """
    try:
        from opentelemetry.sdk.metrics.export import MetricsData  # noqa: PLC0415 -- an extra

        from stream_dedup.io.otlp import (  # noqa: PLC0415 -- an extra
            metric_exporter,
            span_exporter,
        )
    except ImportError as missing:
        remedy = "pip install 'stream-dedup[otel]', or set otel.enabled to false"
        yield error("otel", f"{missing.name} is not installed; {remedy}")
        return
    timeout_s = min(within_s, otel.timeout_s, MOST_S)
    headers = otel.read_headers()
    try:
        if otel.traces_url:
            spans = span_exporter(otel.traces_url, headers, timeout_s)
            yield await _tried("traces", otel.traces_url, lambda: spans.export([]))
        if otel.metrics_url:
            metrics = metric_exporter(otel.metrics_url, headers, timeout_s)
            yield await _tried("metrics", otel.metrics_url, lambda: metrics.export(MetricsData([])))
    except (ValueError, RuntimeError) as refused:
        text = f"a variable of OpenTelemetry's cannot be used ({refused})"
        yield error("otel", f"{text}; mend it, or leave it out")


async def _tried(what: str, url: str, export: Callable[[], object]) -> Finding:
    """The exporter tells why it failed by its log alone."""
    said = _Said()
    logger = logging.getLogger("opentelemetry.exporter")
    logger.addHandler(said)
    try:
        await asyncio.to_thread(export)
    finally:
        logger.removeHandler(said)
    subject = f"otel {url}"
    if said.first:
        return warning(subject, f"takes no {what}: {said.first.rstrip('.')}; {_REMEDY}")
    return ok(subject, f"takes {what}")


class _Said(logging.Handler):
    """Keeps the first warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()
