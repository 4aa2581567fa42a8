"""A pipeline's part of the status page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from stream_dedup.config import PipelineConfig
from stream_dedup.metrics import FIXED, Counter, Gauge, Histogram
from stream_dedup.worker.telemetry import figures
from stream_dedup.worker.telemetry.markup import (
    MAX_ROWS,
    facts,
    make,
    more,
    names,
    notes,
    shown,
    table,
)
from stream_dedup.worker.telemetry.snapshots import Distribution, Growth, Snapshot

_COUNTS: tuple[tuple[Counter, str], ...] = (
    ("outputs_total", "Records delivered"),
    ("commits_total", "Commits"),
    ("commit_failures_total", "Commits that failed"),
    ("dead_letters_total", "Dead letters"),
    ("passed_total", "Passed through"),
    ("index_retries_total", "Redis calls tried again"),
    ("partition_restarts_total", "Partitions taken up again"),
    ("rebalances_total", "Rebalances"),
    ("redelivered_total", "Redelivered"),
    ("replayed_total", "Replayed"),
    ("topics_reset_total", "Topics made anew or cut off"),
    ("index_resets_total", "Redis lost the index"),
    ("index_rollbacks_total", "Redis lost its last seconds"),
    ("truncated_searches_total", "Searches cut short"),
    ("clusters_evicted_total", "Clusters evicted"),
)


def section(
    pipeline: PipelineConfig, now: Snapshot, lately: Growth, events_a_second: Sequence[float]
) -> Element:
    """The section of a pipeline.

    Args:
        pipeline: its configuration.
        now: all metrics.
        lately: how much they grew.
        events_a_second: in each of the last seconds.
    """
    name, recipe = pipeline.name, pipeline.load_recipe()
    return make(
        "section",
        make("h2", f"Pipeline {shown(name)}"),
        _tiles(name, now, lately, events_a_second),
        facts(
            ("Reads", f"{names(pipeline.topics)}, as group {shown(pipeline.group_id)}"),
            ("Emits", f"{shown(pipeline.emit)}, to {shown(pipeline.output_topic)}"),
            ("Summaries", _to(pipeline.summary_topic)),
            ("Dead letters", _to(pipeline.dead_letter_topic)),
            ("Recipe", shown(f"{recipe.name} ({recipe.digest})")),
            ("Namespace", shown(pipeline.namespace)),
        ),
        make(
            "div",
            _times(name, lately),
            _counts(name, now, lately),
            _lag(name, now),
            _dead_letters(name, now),
            class_="tables",
        ),
    )


def _to(topic: str) -> str:
    return f"to {shown(topic)}" if topic else "none"


def _tiles(name: str, now: Snapshot, lately: Growth, rates: Sequence[float]) -> Element:
    """The figures to look at first."""
    grown = lately.grown
    rate = figures.UNKNOWN
    if lately.seconds:
        rate = figures.rate(grown.value("events_total", pipeline=name) / lately.seconds)
    ever = figures.count(now.value("events_total", pipeline=name))
    delay = grown.seconds("delivery_delay_seconds", pipeline=name)
    partitions = _level(now, "assigned_partitions", name)
    held = f"{_level(now, 'fingerprints', name)} fingerprints"
    waiting = f"{_level(now, 'waiting_clusters', name)} waiting"
    return make(
        "dl",
        _tile("Events a second", rate, f"{ever} since the start", _line(rates)),
        _tile("Duplicates", _duplicates(grown, name), f"{_duplicates(now, name)} since the start"),
        _tile("Near cache", _near_cache(grown, name), f"{_near_cache(now, name)} since the start"),
        _tile("Lag", _level(now, "lag_events", name), f"events, in {partitions} partitions"),
        _tile("Delay, 99 %", _quantile(delay, 0.99), "from timestamp to delivery"),
        _tile("Clusters", _level(now, "clusters", name), f"{held}, {waiting}"),
        class_="tiles",
    )


def _duplicates(numbers: Snapshot, pipeline: str) -> str:
    duplicates = numbers.value("decisions_total", pipeline=pipeline, decision="duplicate")
    return figures.share(duplicates, numbers.value("decisions_total", pipeline=pipeline))


def _near_cache(numbers: Snapshot, pipeline: str) -> str:
    # Of the decisions, as both are counted at one moment: events are counted at their delivery.
    hits = numbers.value("near_cache_hits_total", pipeline=pipeline)
    return figures.share(hits, numbers.value("decisions_total", pipeline=pipeline))


def _level(now: Snapshot, name: Gauge, pipeline: str) -> str:
    """A gauge's sum; not known before it was measured."""
    measured = now.by(name, pipeline=pipeline)
    return figures.count(sum(measured.values())) if measured else figures.UNKNOWN


def _times(pipeline: str, lately: Growth) -> Element:
    """How long batches take."""

    def row(text: str, name: Histogram, **labels: str) -> Sequence[str]:
        times = lately.grown.seconds(name, pipeline=pipeline, **labels)
        total = figures.duration(times.total_s) if times.count else figures.UNKNOWN
        quantiles = (_quantile(times, share) for share in (0.5, 0.99))
        return (text, figures.count(times.count), *quantiles, total)

    rows = [row(stage, "stage_seconds", stage=stage) for stage in FIXED["stage"]]
    rows.append(row("kernel, within hash", "kernel_seconds"))
    rows.append(row("a call of Redis", "redis_seconds"))
    heads = (_last(lately), "How often", "50 %", "99 %", "In all")
    caption = "What 50 % and 99 % of batches took at most, waiting included; estimated"
    return _part("Times", table(caption, heads, rows, numbers=4))


def _counts(pipeline: str, now: Snapshot, lately: Growth) -> Element:
    """What should happen, and what should be rare."""
    rows = []
    for name, text in _COUNTS:
        recently = figures.count(lately.grown.value(name, pipeline=pipeline))
        ever = figures.count(now.value(name, pipeline=pipeline))
        rows.append((text, recently if lately.seconds else figures.UNKNOWN, ever))
    heads = ("What", _last(lately), "In all")
    return _part("Counts", table("", heads, rows, numbers=2))


def _last(lately: Growth) -> str:
    """The time that rates are taken over."""
    return f"Last {lately.seconds:.0f} s" if lately.seconds else "Lately"


def _lag(pipeline: str, now: Snapshot) -> Element:
    """The partitions that are furthest behind."""
    lag = now.by("lag_events", "topic", "partition", pipeline=pipeline)
    if not lag:
        return _part("Lag", *notes(["No partition is measured yet."]))
    ordered = sorted(lag.items(), key=lambda each: (-each[1], each[0]))
    rows = [
        (shown(topic), shown(number), figures.count(behind))
        for (topic, number), behind in ordered[:MAX_ROWS]
    ]
    rest = ordered[MAX_ROWS:]
    behind = figures.count(sum(value for _, value in rest))
    told = notes(more(len(rest), f"partitions, {behind} events behind in all"))
    heads = ("Topic", "Partition", "Events behind")
    return _part("Lag", table("", heads, rows, numbers=2), *told)


def _dead_letters(pipeline: str, now: Snapshot) -> Element:
    """Why events could not be processed."""
    by_reason = now.by("dead_letters_total", "reason", pipeline=pipeline)
    ordered = sorted(by_reason.items(), key=lambda each: (-each[1], each[0]))
    rows = [(shown(reason), figures.count(value)) for (reason,), value in ordered if value]
    if not rows:
        return _part("Dead letters", *notes(["None since the start."]))
    told = notes(more(len(rows) - MAX_ROWS, "reasons"))
    heads = ("Reason", "In all")
    return _part("Dead letters", table("", heads, rows[:MAX_ROWS], numbers=1), *told)


# ---------------------------------------------------------------- elements


def _part(heading: str, *inside: Element) -> Element:
    return make("div", make("h3", heading), *inside)


def _tile(label: str, value: str, note: str, *more: Element) -> Element:
    inside = (make("dt", label), make("dd", value), make("dd", note, class_="note"))
    if not more:
        return make("div", *inside)
    return make("div", *inside, make("dd", *more), class_="wide")


def _line(values: Sequence[float]) -> Element:
    """Values over time as a line, from 0 to the largest."""
    width, height = 100.0, 30.0
    most = max(values, default=0.0)
    text = "Nothing is known yet"
    if values:
        text = f"Of the last {len(values)} seconds, at most {figures.rate(most)} a second"
    step = width / max(1, len(values) - 1)
    points = " ".join(
        f"{at * step:.1f},{height - 1 - (height - 2) * (value / most if most else 0):.1f}"
        for at, value in enumerate(values)
    )
    return make(
        "svg", make("title", text), make("polyline", points=points),
        view_box=f"0 0 {width:.0f} {height:.0f}", preserveAspectRatio="none", role="img",
    )  # fmt: skip


def _quantile(times: Distribution, share: float) -> str:
    seconds = times.quantile_s(share)
    if math.isinf(seconds):
        return f"over {figures.duration(times.bounds_s[-1])}"
    return figures.duration(seconds)
