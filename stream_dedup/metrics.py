"""What is measured: every metric's name, labels and meaning, and the port that takes the numbers.

The names stand in one `Literal` a kind, so that a type checker finds a misspelt one; labels and
help stand in one table, `METRICS`, which Prometheus shows and ``docs/metrics.md`` is made of. The
code says short names: what is exported begins with ``stream_dedup_``.

Conventions are Prometheus's: counters end in ``_total`` and only grow, times are in seconds, a
label's values are few. Labels are given in the order of the table. A value that comes from data
(`BOUNDS`) is bounded by the adapter: past the bound it is counted as ``other``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

PREFIX = "stream_dedup_"

Counter = Literal[
    # events coming in
    "events_total",
    "event_bytes_total",
    "clamped_total",
    # what was decided of them
    "decisions_total",
    "passed_total",
    "near_cache_hits_total",
    "redelivered_total",
    "replayed_total",
    # records going out
    "outputs_total",
    "dead_letters_total",
    # the consumer group
    "commits_total",
    "commit_failures_total",
    "rebalances_total",
    "partition_restarts_total",
    "topics_reset_total",
    # the index
    "index_retries_total",
    "index_resets_total",
    "index_rollbacks_total",
    "truncated_searches_total",
    "clusters_evicted_total",
    "clusters_expired_total",
    # these metrics
    "folded_labels_total",
]

Gauge = Literal[
    # how far behind
    "lag_events",
    "backlog_events",
    # what the worker has in hand
    "assigned_partitions",
    "near_cache_entries",
    "mirror_entries",
    # what the index holds
    "clusters",
    "fingerprints",
    "waiting_clusters",
    # the process
    "ready",
    "info",
]

Histogram = Literal[
    # one batch's way
    "stage_seconds",
    "redis_seconds",
    "kernel_seconds",
    # from the record's timestamp on
    "delivery_delay_seconds",
]

Label = str | int

BOUNDS = {"topic": 500, "reason": 50}
"""Labels whose values come from data, and the most values of one that a metric shows."""

OTHER = "other"
"""What a counter or histogram shows for all values past the bound; a gauge leaves them out."""

FIXED = {
    "stage": ("poll", "hash", "decide", "shape", "deliver", "commit", "tell"),
    "decision": ("new", "duplicate", "passed"),
    "kind": ("event", "summary", "dead_letter"),
}
"""Labels that take a few values only, and which."""

_WORK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DELAY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class Metric(NamedTuple):
    """What is known of a metric.

    Attributes:
        labels: its labels' names, in the order in which they are given.
        help: one sentence.
        bounds_s: a histogram's upper bounds in seconds, ascending, without infinity.
    """

    labels: tuple[str, ...]
    help: str
    bounds_s: tuple[float, ...] = ()


_P = ("pipeline",)

COUNTERS: dict[Counter, Metric] = {
    "events_total": Metric((*_P, "topic"), "Events read and counted, each once."),
    "event_bytes_total": Metric((*_P, "topic"), "Bytes of their values."),
    "clamped_total": Metric(_P, "Events whose time lay too far in the future and was cut back."),
    "decisions_total": Metric((*_P, "decision"), "Decisions of the events counted."),
    "passed_total": Metric((*_P, "reason"), "Events passed through without a fingerprint."),
    "near_cache_hits_total": Metric(_P, "Events settled by the near cache, without the index."),
    "redelivered_total": Metric(_P, "Events that came again and were decided as before."),
    "replayed_total": Metric(
        _P, "Events that came again and were decided anew, as the journal no longer held them."
    ),
    "outputs_total": Metric((*_P, "kind"), "Records delivered to Kafka."),
    "dead_letters_total": Metric((*_P, "reason"), "Events that could not be processed."),
    "commits_total": Metric(_P, "Commits of offsets, or of transactions."),
    "commit_failures_total": Metric(_P, "Commits that failed; what they covered is read again."),
    "rebalances_total": Metric(_P, "Times the group dealt its partitions anew."),
    "partition_restarts_total": Metric(
        (*_P, "reason"), "Times a partition was taken up again from its committed offset."
    ),
    "topics_reset_total": Metric(
        _P, "Partitions whose committed offset was gone: the topic was made anew or cut off."
    ),
    "index_retries_total": Metric(_P, "Calls to Redis made again because it was away."),
    "index_resets_total": Metric(_P, "Times the index was found to have lost all its data."),
    "index_rollbacks_total": Metric(
        _P, "Partitions of which the index had lost its last writes, after a failover say."
    ),
    "truncated_searches_total": Metric(
        _P, "Searches whose list of candidates was cut short: a near event may have been missed."
    ),
    "clusters_evicted_total": Metric(_P, "Clusters closed early because the index was full."),
    "clusters_expired_total": Metric(_P, "Clusters closed because their window had passed."),
    "folded_labels_total": Metric(
        ("metric",), "Measurements shown as `other`, or left out of a gauge: too many values."
    ),
}

GAUGES: dict[Gauge, Metric] = {
    "lag_events": Metric(
        (*_P, "topic", "partition"), "Events of the partition that are not delivered yet."
    ),
    "backlog_events": Metric(_P, "Events read and not yet delivered."),
    "assigned_partitions": Metric(_P, "Partitions this worker has."),
    "near_cache_entries": Metric(_P, "Exact hashes in the near cache."),
    "mirror_entries": Metric(
        _P,
        "Fingerprints of the index that this worker has a copy of, some that are closed among "
        "them; 0 while Redis has to search.",
    ),
    "clusters": Metric(_P, "Live clusters in the index, all workers' together."),
    "fingerprints": Metric(_P, "Fingerprints in the index, aliases included."),
    "waiting_clusters": Metric(_P, "Closed clusters whose final summary is not confirmed."),
    "ready": Metric((), "1 when the worker is ready, 0 when not; `/readyz` says why not."),
    "info": Metric(("version", "kernel"), "Always 1: the version, and the kernel that hashes."),
}

HISTOGRAMS: dict[Histogram, Metric] = {
    "stage_seconds": Metric((*_P, "stage"), "Time of one batch in one stage.", _WORK),
    "redis_seconds": Metric(_P, "Time of one script call to Redis, its retries included.", _WORK),
    "kernel_seconds": Metric(_P, "Time of one batch in the kernel, waiting aside.", _WORK),
    "delivery_delay_seconds": Metric(
        _P, "From the record's timestamp to its delivery, once a batch, of its oldest.", _DELAY
    ),
}

METRICS: dict[str, Metric] = dict(chain(COUNTERS.items(), GAUGES.items(), HISTOGRAMS.items()))
"""All of them by name."""


class Metrics(Protocol):
    """What takes the numbers. Any thread may call it; a call takes no lock for long, no I/O.

    All labels of the metric are given, in the order of the table.

    Raises:
        ValueError: a name, label or value is not in the table, or a counter is to shrink: a bug of
            the caller's, never because of the data.
    """

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None:
        """Count: `value` more than before; 0 makes the metric appear."""

    def set(self, name: Gauge, value: float, **labels: Label) -> None:
        """Say how it stands now."""

    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None:
        """Say how long one thing took."""

    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None:
        """Forget every series that has these labels, as when a partition has left.

        Some of the labels are enough, in any order; without any, all series go.
        """


class NoMetrics:
    """Takes the numbers and forgets them."""

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None: ...
    def set(self, name: Gauge, value: float, **labels: Label) -> None: ...
    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None: ...
    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None: ...


Series = tuple[str, ...]
"""A metric's name and its labels' values, in the order of the table."""


class MemoryMetrics:
    """Keeps the numbers, for tests, which find every misuse.

    >>> metrics = MemoryMetrics()
    >>> metrics.add("events_total", 500, pipeline="main", topic="logs")
    >>> metrics.add("events_total", 20, pipeline="main", topic="audit")
    >>> metrics.value("events_total", topic="logs"), metrics.value("events_total")
    (500, 520)

    Attributes:
        values: counters and gauges.
        seconds: what histograms observed, in order.
    """

    def __init__(self) -> None:
        self.values: dict[Series, float] = {}
        self.seconds: defaultdict[Series, list[float]] = defaultdict(list)

    def add(self, name: Counter, value: float = 1, **labels: Label) -> None:
        series = (name, *checked(COUNTERS, name, labels))
        grown(name, value)
        self.values[series] = self.values.get(series, 0) + value

    def set(self, name: Gauge, value: float, **labels: Label) -> None:
        self.values[name, *checked(GAUGES, name, labels)] = value

    def observe(self, name: Histogram, seconds: float, **labels: Label) -> None:
        self.seconds[name, *checked(HISTOGRAMS, name, labels)].append(seconds)

    def remove(self, name: Counter | Gauge | Histogram, **labels: Label) -> None:
        for kept in (self.values, self.seconds):
            for series in [series for series in kept if matches(series, name, labels)]:
                del kept[series]

    def value(self, name: Counter | Gauge, **labels: Label) -> float:
        """The sum of a counter's or gauge's series that have these labels; 0 when there is none."""
        return sum(n for series, n in self.values.items() if matches(series, name, labels))

    def observed(self, name: Histogram, **labels: Label) -> list[float]:
        """What a histogram's series that have these labels observed."""
        every = self.seconds.items()
        return [s for series, seconds in every if matches(series, name, labels) for s in seconds]


def matches(series: Series, name: str, labels: dict[str, Label]) -> bool:
    """Whether it is a series of the metric and has these labels, among others."""
    have = METRICS[name].labels
    return series[0] == name and all(
        series[1 + have.index(label)] == str(value) for label, value in labels.items()
    )


def checked(table: Mapping[Any, Metric], name: str, labels: dict[str, Label]) -> tuple[str, ...]:
    """The labels' values as text, of a metric that stands in the table.

    Raises:
        ValueError: there is no such metric, or it has other labels, or one has another value.
    """
    if name not in table:
        raise ValueError(f"there is no such metric as {name!r}, or it is of another kind")
    expected = table[name].labels
    if tuple(labels) != expected:
        raise ValueError(f"{name} takes the labels {expected}, in this order, not {tuple(labels)}")
    for label, value in labels.items():
        if label in FIXED and value not in FIXED[label]:
            raise ValueError(f"{name}: {label} is one of {FIXED[label]}, not {value!r}")
    return tuple(map(str, labels.values()))


def grown(name: str, value: float) -> None:
    """Raise ValueError if a counter is to grow by less than nothing."""
    if not value >= 0:
        raise ValueError(f"{name} is a counter, which cannot grow by {value}")


def start_at_zero(
    metrics: Metrics, pipeline: str, known: Mapping[Counter, Iterable[str]] | None = None
) -> None:
    """Show at 0 whatever of a pipeline's counters can be known ahead.

    Prometheus sees no rise in a counter whose first value is 1, so an alert on it would be silent.

    Args:
        metrics: takes the numbers.
        pipeline: the pipeline's name.
        known: of counters with another label, values that it may take.
    """
    for name, (labels, _, _) in COUNTERS.items():
        if labels == _P:
            metrics.add(name, 0, pipeline=pipeline)
        elif labels[0] == "pipeline" and labels[1] in FIXED:
            for value in FIXED[labels[1]]:
                metrics.add(name, 0, **{"pipeline": pipeline, labels[1]: value})
    for name, values in (known or {}).items():
        for value in values:
            metrics.add(name, 0, **{"pipeline": pipeline, COUNTERS[name].labels[1]: value})
