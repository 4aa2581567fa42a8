"""PromQL over the worker's metrics, made from their names.

A metric or label that `stream_dedup.metrics` does not know is an error here, so that a renamed one
cannot leave a panel empty. The series are those that a dashboard's variables choose: one job (a
deployment: workers of one group), its instances (workers) and its pipelines.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from stream_dedup.metrics import FIXED, METRICS, PREFIX, Counter, Gauge, Histogram

How = Literal["sum", "max"]
"""How the workers' numbers become one: `max` where each shows what all of them did."""

Process = Literal["process_cpu_seconds_total", "process_resident_memory_bytes"]
"""Metrics of the process that the client library adds, without a label."""

WINDOW = "$__rate_interval"
"""Grafana's: long enough for four scrapes, and for the width of a pixel."""


def rate(name: Counter | Process, *by: str, how: How = "sum", **labels: str) -> str:
    """How much a counter grows in a second."""
    return _grouped(name, f"rate({_series(name, **labels)}[{WINDOW}])", by, how)


def increase(name: Counter, *by: str, how: How = "sum", **labels: str) -> str:
    """How much a counter has grown in the window: for what is rare."""
    return _grouped(name, f"increase({_series(name, **labels)}[{WINDOW}])", by, how)


def level(name: Gauge | Process, *by: str, how: How = "sum") -> str:
    """What a gauge shows."""
    return _grouped(name, _series(name), by, how)


def quantile(share: float, name: Histogram, *by: str) -> str:
    """The seconds that a share of what was observed stays below."""
    buckets = _grouped(name, f"rate({_series(name, '_bucket')}[{WINDOW}])", ("le", *by), "sum")
    return f"histogram_quantile({share:g}, {buckets})"


def observed(name: Histogram, *by: str) -> str:
    """How often something is observed in a second."""
    return _grouped(name, f"rate({_series(name, '_count')}[{WINDOW}])", by, "sum")


def busy(name: Histogram, *by: str) -> str:
    """How much of a second something takes; above 1 where several go on at once."""
    return _grouped(name, f"rate({_series(name, '_sum')}[{WINDOW}])", by, "sum")


def or_zero(expression: str, name: Counter | Gauge, *by: str) -> str:
    """The expression, and 0 for what is missing from it.

    For counters whose labels come from data: they have no series before the first time.

    Args:
        expression: what may be missing.
        name: a metric that is there as soon as the worker runs.
        by: the labels that say what is missing.
    """
    zero = _grouped(name, _series(name), by, "sum")
    return f"{expression} or on ({', '.join(by)}) 0 * {zero}"


def values(label: str, name: Gauge | Counter, *given: str) -> str:
    """Grafana's query for the values of a label, among the series that other variables choose."""
    _check(name, (label,))
    chosen = ", ".join(f'{each}=~"${each}"' for each in given)
    series = f"{PREFIX}{name}{{{chosen}}}" if chosen else PREFIX + name
    return f"label_values({series}, {label})"


def metrics_in(expression: str) -> list[str]:
    """The worker's metrics in an expression, each once, by the names of `METRICS`."""
    names = re.findall(rf"\b{PREFIX}(\w+)", expression)
    found = (n if n in METRICS else re.sub("_(bucket|sum|count)$", "", n) for n in names)
    return list(dict.fromkeys(found))


def _series(name: str, suffix: str = "", **labels: str) -> str:
    chosen = ['job=~"$job"', 'instance=~"$instance"']
    if name in get_args(Process):
        return f"{name}{{{', '.join(chosen)}}}"
    _check(name, tuple(labels))
    if "pipeline" in METRICS[name].labels:
        chosen.append('pipeline=~"$pipeline"')
    for label, value in labels.items():
        if label in FIXED and value not in FIXED[label]:
            raise ValueError(f"{name}: {label} is one of {FIXED[label]}, not {value!r}")
        chosen.append(f'{label}="{value}"')
    return f"{PREFIX}{name}{suffix}{{{', '.join(chosen)}}}"


def _grouped(name: str, expression: str, by: tuple[str, ...], how: How) -> str:
    _check(name, by)
    return f"{how} by ({', '.join(by)}) ({expression})" if by else f"{how}({expression})"


def _check(name: str, labels: tuple[str, ...]) -> None:
    if name not in METRICS and name not in get_args(Process):
        raise ValueError(f"there is no such metric as {name!r}; see stream_dedup.metrics")
    has = METRICS[name].labels if name in METRICS else ()
    for label in labels:
        if label not in (*has, "job", "instance", "le"):
            raise ValueError(f"{name} has the labels {has}, not {label!r}")
