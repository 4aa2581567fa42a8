"""The worker's metrics as OpenTelemetry's: the numbers that ``/metrics`` shows, by its names.

Nothing is measured twice: the adapter that keeps the numbers is read as often as they are exported.
So both show the same series, bounded alike. Of our name the rest stands behind ``stream_dedup.``,
without ``_total``, and a unit that it ends in is given as the unit. That is what collectors and
Prometheus make of OTLP, backwards: in Prometheus it is our name again.

A cumulative series says since when it counts. One that was not there at the last reading, or that
shrank since, as it was forgotten and began anew, has counted since that reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from stream_dedup._version import __version__
from stream_dedup.clock import Clock, SystemClock
from stream_dedup.metrics import COUNTERS, METRICS
from stream_dedup.worker.telemetry.snapshots import Distribution, Snapshot, Values

SCOPE = "stream_dedup"

_UNITS = {"seconds": "s", "bytes": "By"}
_NS_PER_US = 1_000
_CUMULATIVE = AggregationTemporality.CUMULATIVE

Series = tuple[str, Values]
"""A metric's name, and its labels' values."""


class Named(NamedTuple):
    """A metric as OpenTelemetry knows it."""

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
    unit = _UNITS.get(last, "")
    return Named(f"{SCOPE}.{rest if unit else name}", unit)


class Readings:
    """Reads the numbers, as often as they are exported.

    Args:
        numbers: reads all metrics.
        resource: who we are.
        clock: tells the time.
    """

    def __init__(
        self, numbers: Callable[[], Snapshot], resource: Resource, clock: Clock | None = None
    ) -> None:
        self._numbers = numbers
        self._resource = resource
        self._clock = clock or SystemClock()
        self._last_ns = self._now_ns()
        self._since_ns: dict[Series, int] = {}
        self._counts: dict[Series, float] = {}

    def read(self) -> MetricsData:
        """All numbers as they stand. Metrics without a series are left out."""
        now_ns = max(self._now_ns(), self._last_ns)  # though the clock was set back
        numbers = self._numbers()
        self._see(numbers)
        self._last_ns = now_ns
        found = [
            self._values(name, values, now_ns) for name, values in numbers.values.items() if values
        ]
        found += [
            self._times(name, times, now_ns)
            for name, times in numbers.distributions.items()
            if times
        ]
        found = [metric for metric in found if metric.data.data_points]
        scope = ScopeMetrics(InstrumentationScope(SCOPE, __version__), found, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], self._resource.schema_url)])

    def _values(self, name: str, values: Mapping[Values, float], now_ns: int) -> Metric:
        """A counter or gauge."""
        points = [
            NumberDataPoint(
                attributes=_attributes(name, key),
                start_time_unix_nano=self._since_ns.get((name, key), 0),
                time_unix_nano=now_ns,
                value=float(value),  # one kind of number for a series, always
            )
            for key, value in values.items()
        ]
        return _metric(name, Sum(points, _CUMULATIVE, True) if name in COUNTERS else Gauge(points))

    def _times(self, name: str, observed: Mapping[Values, Distribution], now_ns: int) -> Metric:
        """A histogram."""
        points = [
            HistogramDataPoint(
                attributes=_attributes(name, key),
                start_time_unix_nano=self._since_ns[name, key],
                time_unix_nano=now_ns,
                count=times.count,
                sum=times.total_s,
                bucket_counts=times.counts,
                explicit_bounds=times.bounds_s,
                min=None,  # type: ignore[arg-type] # not known, which OTLP allows
                max=None,  # type: ignore[arg-type] # as above
            )
            for key, times in observed.items()
        ]
        return _metric(name, Histogram(points, _CUMULATIVE))

    def _see(self, numbers: Snapshot) -> None:
        """Learn since when each cumulative series counts."""
        counts: dict[Series, float] = {
            (name, key): value
            for name, values in numbers.values.items()
            if name in COUNTERS
            for key, value in values.items()
        }
        for name, observed in numbers.distributions.items():
            counts |= {(name, key): times.count for key, times in observed.items()}
        self._since_ns = {
            series: self._since_ns[series]
            if series in self._since_ns and count >= self._counts[series]
            else self._last_ns
            for series, count in counts.items()
        }
        self._counts = counts

    def _now_ns(self) -> int:
        return self._clock.now_us() * _NS_PER_US


def _metric(name: str, data: Sum | Gauge | Histogram) -> Metric:
    known = named(name)
    return Metric(known.name, METRICS[name].help, known.unit, data)


def _attributes(name: str, values: Values) -> Mapping[str, str]:
    return dict(zip(METRICS[name].labels, values, strict=True))
