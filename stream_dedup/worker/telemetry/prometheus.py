"""Metrics for Prometheus, by its client library. The only module that imports it.

A call of `add`, `set` or `observe` looks up the client's child by the metric's name and the labels'
values as they were given, and makes one call: 0.8 to 1.2 µs. The client's own ``labels(…)`` would
add 1 to 2 µs.

Data cannot make the exposition grow without bound or break it: of a label in `metrics.BOUNDS` only
so many values are shown, the rest as ``other``; what is not valid text is escaped.
"""

from __future__ import annotations

import threading
from collections import Counter as Occurrences
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import prometheus_client as client
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase

from stream_dedup.metrics import (
    BOUNDS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    METRICS,
    OTHER,
    PREFIX,
    Counter,
    Gauge,
    Histogram,
    Label,
    Metric,
    check_increase,
    check_labels,
)
from stream_dedup.worker.telemetry.snapshots import Distribution, Snapshot, Values

MAX_LABEL_CHARS = 249
"""Characters shown of a label's value: as many as a topic's name may have."""

Record = Callable[[float], None]
"""A child's `inc`, `set` or `observe`."""

_M = TypeVar("_M", bound=MetricWrapperBase)


class _Kind(Generic[_M]):
    """All metrics of one kind, and how their children are found.

    Args:
        table: the metrics.
        make: registers one with the client.
        record: gets a child's method that takes a number.

    Attributes:
        metrics: the client's metrics by our names.
        found: children by a call's name and labels as given: ``3`` and ``"3"`` lead to one child.
            A call past a bound is not entered: the dictionary would grow with the data.
    """

    def __init__(
        self,
        table: Mapping[Any, Metric],
        make: Callable[[str, Metric], _M],
        record: Callable[[_M], Record],
    ) -> None:
        self.metrics: dict[str, _M] = {name: make(PREFIX + name, table[name]) for name in table}
        self.found: dict[tuple[Label, ...], Record] = {}
        self._table = table
        self._record = record
        self._series: set[Values] = set()
        self._seen: defaultdict[tuple[str, str], Occurrences[str]] = defaultdict(Occurrences)

    def find(self, name: str, labels: dict[str, Label]) -> tuple[Record, bool]:
        """The child for a call that `found` does not know, and whether a label is past its bound.

        Raises:
            ValueError: there is no such metric, or it has other labels.
        """
        values = [_text(value) for value in check_labels(self._table, name, labels)]
        fits = [self._fits(name, *pair) for pair in zip(labels, values, strict=True)]
        folded = not all(fits)
        if folded and self._table is GAUGES:
            return _ignore, True  # the sum or the last of several gauges would mean nothing
        shown = [value if fit else OTHER for value, fit in zip(values, fits, strict=True)]
        if (name, *shown) not in self._series:
            self._series.add((name, *shown))
            for label, value in zip(labels, shown, strict=True):
                self._seen[name, label][value] += 1
        metric = self.metrics[name]
        record = self._record(metric.labels(*shown) if shown else metric)
        if not folded:
            self.found[name, *labels.values()] = record
        return record, folded

    def _fits(self, name: str, label: str, value: str) -> bool:
        bound, seen = BOUNDS.get(label), self._seen[name, label]
        return bound is None or value in seen or len(seen) < bound

    def remove(self, name: str, labels: dict[str, Label]) -> None:
        """Remove the series that have these labels."""
        have = METRICS[name].labels
        wanted = [(1 + have.index(label), _text(str(each))) for label, each in labels.items()]

        def gone(series: tuple[Label, ...]) -> bool:
            return series[0] == name and all(
                _text(str(series[place])) == value for place, value in wanted
            )

        self.found = {call: record for call, record in self.found.items() if not gone(call)}
        for series in [series for series in self._series if gone(series)]:
            self._series.remove(series)
            if have:
                self.metrics[name].remove(*series[1:])
            for label, value in zip(have, series[1:], strict=True):
                seen = self._seen[name, label]
                seen[value] -= 1
                if not seen[value]:
                    del seen[value]


class PrometheusMetrics:
    """The worker's metrics, with those of the process, the interpreter and its garbage collector.

    Any thread may call it. Only the first call of a series and `remove` take a lock of ours.
    """

    def __init__(self) -> None:
        # Of the whole process: the client has no other way.
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()
        self._registry = registry = client.CollectorRegistry()
        self._counters = _Kind[client.Counter](
            COUNTERS,
            lambda name, m: client.Counter(name, m.help, m.labels, registry=registry),
            lambda child: child.inc,
        )
        self._gauges = _Kind[client.Gauge](
            GAUGES,
            lambda name, m: client.Gauge(name, m.help, m.labels, registry=registry),
            lambda child: child.set,
        )
        self._histograms = _Kind[client.Histogram](
            HISTOGRAMS,
            lambda name, m: client.Histogram(
                name, m.help, m.labels, registry=registry, buckets=m.bounds_s
            ),
            lambda child: child.observe,
        )
        client.ProcessCollector(registry=registry)
        client.PlatformCollector(registry=registry)
        client.GCCollector(registry=registry)

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None:
        """See `metrics.Metrics`."""
        if not value >= 0:
            check_increase(name, value)
        try:
            record = self._counters.found[name, *labels.values()]
        except KeyError:
            record = self._find(self._counters, name, labels)
        record(value)

    def set(self, name: Gauge, value: float, **labels: Label) -> None:
        """See `metrics.Metrics`."""
        try:
            record = self._gauges.found[name, *labels.values()]
        except KeyError:
            record = self._find(self._gauges, name, labels)
        record(value)

    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None:
        """See `metrics.Metrics`."""
        try:
            record = self._histograms.found[name, *labels.values()]
        except KeyError:
            record = self._find(self._histograms, name, labels)
        record(seconds)

    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None:
        """See `metrics.Metrics`."""
        with self._lock:
            if name in COUNTERS:
                self._counters.remove(name, labels)
            elif name in GAUGES:
                self._gauges.remove(name, labels)
            else:
                self._histograms.remove(name, labels)

    def _find(self, kind: _Kind[Any], name: str, labels: dict[str, Label]) -> Record:
        with self._lock:
            record, folded = kind.find(name, labels)
            if folded:
                count, _ = self._counters.find("folded_labels_total", {"metric": PREFIX + name})
                count(1)
        return record

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """The content type and text of ``/metrics``.

        Args:
            accept: the request's header: OpenMetrics if it asks for that, else Prometheus's format.
        """
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def values(self, name: Counter | Gauge) -> dict[Values, float]:
        """A counter's or gauge's current values, by its labels' values."""
        kind = self._counters if name in COUNTERS else self._gauges
        [family] = kind.metrics[name].collect()
        return {tuple(sample.labels.values()): sample.value for sample in family.samples}

    def snapshot(self) -> Snapshot:
        """All current values."""
        values: dict[str, dict[Values, float]] = {}
        for name in (*COUNTERS, *GAUGES):
            values[name] = self.values(name)
        return Snapshot(values, {name: self.distributions(name) for name in HISTOGRAMS})

    def distributions(self, name: Histogram) -> dict[Values, Distribution]:
        """A histogram's current distributions, by its labels' values."""
        bounds_s = HISTOGRAMS[name].bounds_s
        [family] = self._histograms.metrics[name].collect()
        found: dict[Values, Distribution] = {}
        counts: list[int] = []
        up_to_last = 0
        for sample in family.samples:  # of each series its buckets, cumulative, then count and sum
            if sample.name.endswith("_bucket"):
                counts.append(int(sample.value) - up_to_last)
                up_to_last = int(sample.value)
            elif sample.name.endswith("_sum"):
                labels = tuple(sample.labels.values())
                found[labels] = Distribution(bounds_s, tuple(counts), sample.value)
                counts, up_to_last = [], 0
        return found


def _ignore(value: float) -> None:
    """Record nothing."""


def _text(value: str) -> str:
    """A label's value as text that every encoder takes: no lone surrogates, not too long."""
    return value[:MAX_LABEL_CHARS].encode("utf-8", "backslashreplace").decode("utf-8")
