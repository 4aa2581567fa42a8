"""The table of metrics is whole, and `MemoryMetrics` finds every misuse."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest

import stream_dedup
from docs.metrics_page import METRICS_PAGE, metrics_page
from stream_dedup.metrics import (
    COUNTERS,
    FIXED,
    GAUGES,
    HISTOGRAMS,
    METRICS,
    PREFIX,
    Counter,
    Gauge,
    Histogram,
    MemoryMetrics,
    Metrics,
    NoMetrics,
    start_at_zero,
)
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics


def test_each_name_is_in_its_kinds_table_in_the_same_order() -> None:
    assert get_args(Counter) == tuple(COUNTERS)
    assert get_args(Gauge) == tuple(GAUGES)
    assert get_args(Histogram) == tuple(HISTOGRAMS)


@pytest.mark.parametrize("name", METRICS)
def test_names_and_help_keep_prometheus_conventions(name: str) -> None:
    labels, text, bounds_s = METRICS[name]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
    assert name.endswith("_total") == (name in COUNTERS)
    assert name.endswith("_seconds") or name not in HISTOGRAMS
    assert text[0].isupper() or text[0].isdigit()
    assert text.endswith(".")
    assert len(labels) == len(set(labels))
    assert list(bounds_s) == sorted(bounds_s)
    assert bool(bounds_s) == (name in HISTOGRAMS)


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert metrics_page() == METRICS_PAGE.read_text("utf-8"), "run `make docs`"


def test_the_queries_of_the_page_name_metrics_that_exist() -> None:
    page = METRICS_PAGE.read_text("utf-8").partition("## What to watch")[2]
    named = set(re.findall(rf"{PREFIX}(\w+)", page))
    histograms = {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")}
    assert len(named) > 5
    assert named - METRICS.keys() - histograms == set()


@pytest.fixture(params=[MemoryMetrics, PrometheusMetrics])
def metrics(request: pytest.FixtureRequest) -> Metrics:
    made: Metrics = request.param()
    return made


@pytest.mark.parametrize(
    ("call", "args", "labels", "says"),
    [
        ("add", ("made_up_total",), {}, "no such metric as 'made_up_total'"),
        ("add", ("lag_events",), {"pipeline": "p"}, "no such metric"),
        ("set", ("events_total", 1), {"pipeline": "p", "topic": "t"}, "no such metric"),
        ("observe", ("ready", 1), {}, "no such metric"),
        ("add", ("events_total",), {"pipeline": "p"}, "takes the labels"),
        ("add", ("events_total",), {"topic": "t", "pipeline": "p"}, "in this order"),
        ("add", ("clamped_total",), {"pipeline": "p", "topic": "t"}, "takes the labels"),
        ("set", ("lag_events", 1), {"pipeline": "p", "topic": "t", "part": 1}, "takes the labels"),
        ("observe", ("stage_seconds", 1), {"pipeline": "p", "stage": "nap"}, "stage is one of"),
        ("add", ("clamped_total", -1), {"pipeline": "p"}, "cannot grow by -1"),
        ("add", ("clamped_total", float("nan")), {"pipeline": "p"}, "cannot grow by nan"),
    ],
)
def test_a_misuse_is_refused_by_every_adapter(
    metrics: Metrics, call: str, args: Any, labels: Any, says: str
) -> None:
    metrics.add("clamped_total", pipeline="p")
    with pytest.raises(ValueError, match=says):
        getattr(metrics, call)(*args, **labels)


def test_counters_add_up_and_gauges_keep_the_last_value() -> None:
    metrics = MemoryMetrics()
    metrics.add("clamped_total", pipeline="a")
    metrics.add("clamped_total", 4, pipeline="a")
    metrics.add("clamped_total", 7, pipeline="b")
    metrics.set("clusters", 3, pipeline="a")
    metrics.set("clusters", 2, pipeline="a")
    metrics.observe("kernel_seconds", 0.5, pipeline="a")
    assert metrics.value("clamped_total", pipeline="a") == 5
    assert metrics.value("clamped_total") == 12
    assert metrics.value("clusters", pipeline="a") == 2
    assert metrics.observed("kernel_seconds", pipeline="a") == [0.5]
    assert metrics.value("commits_total") == 0


def test_a_partition_that_left_is_forgotten() -> None:
    metrics = MemoryMetrics()
    for partition in range(3):
        metrics.set("lag_events", 10, pipeline="p", topic="t", partition=partition)
    metrics.set("lag_events", 10, pipeline="p", topic="u", partition=0)
    metrics.remove("lag_events", pipeline="p", topic="t", partition=1)
    assert metrics.value("lag_events") == 30
    metrics.remove("lag_events", topic="t")
    assert metrics.values == {("lag_events", "p", "u", "0"): 10}


def test_a_pipelines_counters_with_known_labels_begin_at_zero() -> None:
    metrics = MemoryMetrics()
    start_at_zero(metrics, "p")
    start_at_zero(metrics, "p")
    assert set(metrics.values.values()) == {0}
    assert ("commits_total", "p") in metrics.values
    shown = {series[2] for series in metrics.values if series[0] == "decisions_total"}
    assert set(FIXED["decision"]) == shown
    assert not any(series[0] == "events_total" for series in metrics.values)


def test_values_of_other_labels_that_are_known_begin_at_zero_too() -> None:
    metrics = MemoryMetrics()
    metrics.add("dead_letters_total", 2, pipeline="p", reason="large")
    start_at_zero(metrics, "p", {"events_total": ["a", "b"], "dead_letters_total": ["large"]})
    found = {series: n for series, n in metrics.values.items() if len(series) == 3}
    assert 0 == found["events_total", "p", "a"] == found["events_total", "p", "b"]
    assert found["dead_letters_total", "p", "large"] == 2


@pytest.mark.parametrize("adapter", [NoMetrics, MemoryMetrics, PrometheusMetrics])
@pytest.mark.parametrize("method", ["add", "set", "observe", "remove"])
def test_adapters_have_the_signatures_of_the_port(adapter: type, method: str) -> None:
    expected = inspect.signature(getattr(Metrics, method))
    assert inspect.signature(getattr(adapter, method)) == expected


def test_each_metric_is_measured_somewhere() -> None:
    """By name, in a call, outside of the modules that describe and show it."""
    sources = Path(stream_dedup.__file__).parent.rglob("*.py")
    apart = {"metrics.py", "status_page.py"}
    code = "\n".join(path.read_text("utf-8") for path in sources if path.name not in apart)
    assert [name for name in METRICS if f'"{name}"' not in code] == []
