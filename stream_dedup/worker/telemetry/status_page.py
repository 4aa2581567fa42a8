"""The status page: what an operator opens first, to see whether a worker does what it should.

All its values were measured before; see `snapshots`. It is one file without scripts or anything
from elsewhere, and its policy lets a browser load nothing: text from outside could do no harm even
if it were not escaped. Its size is bounded: of long lists it shows the first items, or those that
matter most, and the number of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from xml.etree.ElementTree import Element

from stream_dedup.clock import US_PER_S, Clock
from stream_dedup.config import Config, PipelineConfig
from stream_dedup.markup import as_html, csp_hash, make
from stream_dedup.metrics import FIXED, Counter, Gauge, Histogram
from stream_dedup.worker.telemetry.health import Health, Unready
from stream_dedup.worker.telemetry.page_elements import (
    MAX_ROWS,
    UNKNOWN,
    facts,
    format_age,
    format_count,
    format_duration,
    format_rate,
    format_share,
    format_time,
    more,
    names,
    notes,
    shown,
    table,
)
from stream_dedup.worker.telemetry.snapshots import Distribution, Growth, RecentMetrics, Snapshot

REFRESH_S = 5
"""How often a browser reloads the page."""

OLD_S = 5
"""Snapshots are taken once a second: an older one means that the worker is busy, or stuck."""

STYLE = (resources.files(__package__) / "status_page.css").read_text("utf-8")

POLICY = (
    f"default-src 'none'; style-src {csp_hash(STYLE)}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy: its own style, and nothing else."""


class StatusPage:
    """Makes the page. Any thread may ask for it.

    Args:
        config: the worker's configuration; no secrets are shown.
        health: whether it does its work.
        recent: its metrics.
        clock: the time that is shown; the worker started when the page was made.
        kernel: native or reference.
        version: the program's.
    """

    def __init__(
        self,
        config: Config,
        health: Health,
        recent: RecentMetrics,
        clock: Clock,
        *,
        kernel: str,
        version: str,
    ) -> None:
        self._config = config
        self._version = f"{version}, {kernel} kernel"
        self._since_us = clock.now_us()
        self._health = health
        self._recent = recent
        self._clock = clock

    def html(self, refresh: bool = True) -> bytes:
        """The page as it is now.

        Args:
            refresh: whether a browser reloads it.
        """
        reasons, pipelines = self._health.reasons(), self._config.pipelines
        head = make(
            "head",
            make("meta", charset="utf-8"),
            make("meta", name="viewport", content="width=device-width, initial-scale=1"),
            *([make("meta", http_equiv="refresh", content=str(REFRESH_S))] if refresh else []),
            make("title", f"{'Not ready' if reasons else 'Ready'} · stream-dedup"),
            make("style", STYLE),
        )
        now, growth = self._recent.now(), self._recent.growth()
        main = make("main", *self._why_not(reasons), self._worker(growth))
        for pipeline in pipelines[:MAX_ROWS]:
            rates = self._recent.rates("events_total", pipeline=pipeline.name)
            main.append(section(pipeline, now, growth, rates))
        main.extend(notes(more(len(pipelines) - MAX_ROWS, "pipelines")))
        body = make("body", _header(ready=not reasons), main, _footer(refresh=refresh))
        return f"<!doctype html>\n{as_html(make('html', head, body, lang='en'))}\n".encode()

    def _why_not(self, reasons: list[Unready]) -> list[Element]:
        """The reasons, if it is not ready."""
        if not reasons:
            return []
        now_us = self._clock.now_us()
        rows = [
            (
                shown(name),
                shown(reason),
                f"{format_time(now_us - int(for_s * US_PER_S))} ({format_age(for_s)})",
            )
            for name, reason, for_s in reasons[:MAX_ROWS]
        ]
        heads = ("What", "Why", "Since")
        rest = notes(more(len(reasons) - MAX_ROWS, "reasons"))
        return [make("section", make("h2", "Why it is not ready"), table("", heads, rows), *rest)]

    def _worker(self, growth: Growth) -> Element:
        """The worker, and the time that the rates are of."""
        config, now_us = self._config, self._clock.now_us()
        lasted = format_age((now_us - self._since_us) / US_PER_S)
        index = str(config.index.address) if config.index.kind == "redis" else "memory"
        rates = "no rates yet"
        if growth.seconds:
            rates = f"rates of the last {growth.seconds:.0f} s"
        if growth.age_s > OLD_S:
            rates += f", {format_age(growth.age_s)} ago"
        return make(
            "section",
            make("h2", "Worker"),
            facts(
                ("Version", shown(self._version)),
                ("Up since", f"{format_time(self._since_us)} ({lasted})"),
                ("Kafka", names(config.kafka.bootstrap_servers)),
                ("Index", shown(index)),
                ("Guarantee", shown(config.worker.guarantee).replace("_", " ")),
                ("Shown", f"{format_time(now_us)}; {rates}"),
            ),
        )


def _header(*, ready: bool) -> Element:
    state = make("p", "✓ Ready", class_="state good")
    if not ready:
        state = make("p", "✗ Not ready", class_="state bad")
    links = [make("a", path, href=path) for path in ("metrics", "readyz", "healthz")]
    return make("header", make("h1", "stream-dedup"), state, make("nav", *links))


def _footer(*, refresh: bool) -> Element:
    if refresh:
        link = make("a", "Stop refreshing", href="?refresh=off")
        return make("footer", f"Refreshes every {REFRESH_S} s. ", link)
    return make("footer", "Does not refresh. ", make("a", f"Refresh every {REFRESH_S} s", href="?"))


# ---------------------------------------------------------------- a pipeline

_COUNTS: tuple[tuple[Counter, str], ...] = (
    ("outputs_total", "Records delivered"),
    ("commits_total", "Commits"),
    ("commit_failures_total", "Commits that failed"),
    ("dead_letters_total", "Dead letters"),
    ("passed_total", "Passed through"),
    ("retries_total", "Calls to Kafka or Redis retried"),
    ("partition_restarts_total", "Partitions restarted"),
    ("rebalances_total", "Rebalances"),
    ("redelivered_total", "Redelivered"),
    ("replayed_total", "Replayed"),
    ("topics_reset_total", "Topics recreated or truncated"),
    ("index_resets_total", "Redis lost the index"),
    ("index_rollbacks_total", "Redis lost its last seconds"),
    ("truncated_searches_total", "Searches cut short"),
    ("clusters_evicted_total", "Clusters evicted"),
    ("clusters_merged_total", "Clusters merged"),
    ("withheld_events_total", "Left out by rules"),
    ("pattern_events_total", "Events about patterns"),
)


def section(
    pipeline: PipelineConfig, now: Snapshot, growth: Growth, events_a_second: Sequence[float]
) -> Element:
    """The section of a pipeline.

    Args:
        pipeline: its configuration.
        now: all metrics.
        growth: how much they grew.
        events_a_second: in each of the last seconds.
    """
    name, recipe = pipeline.name, pipeline.load_recipe()
    return make(
        "section",
        make("h2", f"Pipeline {shown(name)}"),
        _tiles(name, now, growth, events_a_second),
        facts(
            ("Reads", f"{names(pipeline.topics)}, as group {shown(pipeline.group_id)}"),
            ("Emits", f"{shown(pipeline.emit)}, to {shown(pipeline.output_topic)}"),
            ("Summaries", _to(pipeline.summary_topic)),
            ("Patterns", _to(pipeline.pattern_topic)),
            ("Dead letters", _to(pipeline.dead_letter_topic)),
            ("Recipe", shown(f"{recipe.name} ({recipe.digest})")),
            ("Namespace", shown(pipeline.namespace)),
        ),
        make(
            "div",
            _times(name, growth),
            _counts(name, now, growth),
            _lag(name, now),
            _dead_letters(name, now),
            class_="tables",
        ),
    )


def _to(topic: str) -> str:
    return f"to {shown(topic)}" if topic else "none"


def _tiles(name: str, now: Snapshot, growth: Growth, rates: Sequence[float]) -> Element:
    """The most important values."""
    grown = growth.grown
    rate = UNKNOWN
    if growth.seconds:
        rate = format_rate(grown.value("events_total", pipeline=name) / growth.seconds)
    ever = format_count(now.value("events_total", pipeline=name))
    delay = grown.seconds("delivery_delay_seconds", pipeline=name)
    partitions = _gauge(now, "assigned_partitions", name)
    fingerprints = f"{_gauge(now, 'fingerprints', name)} fingerprints"
    waiting = f"{_gauge(now, 'waiting_clusters', name)} waiting"
    return make(
        "dl",
        _tile("Events a second", rate, f"{ever} since the start", _line(rates)),
        _tile("Duplicates", _duplicates(grown, name), f"{_duplicates(now, name)} since the start"),
        _tile("Near cache", _near_cache(grown, name), f"{_near_cache(now, name)} since the start"),
        _tile("Lag", _gauge(now, "lag_events", name), f"events, in {partitions} partitions"),
        _tile("Delay, 99 %", _quantile(delay, 0.99), "from timestamp to delivery"),
        _tile("Clusters", _gauge(now, "clusters", name), f"{fingerprints}, {waiting}"),
        class_="tiles",
    )


def _duplicates(numbers: Snapshot, pipeline: str) -> str:
    duplicates = numbers.value("decisions_total", pipeline=pipeline, decision="duplicate")
    return format_share(duplicates, numbers.value("decisions_total", pipeline=pipeline))


def _near_cache(numbers: Snapshot, pipeline: str) -> str:
    # A share of the decisions, as both are counted at once; events are counted at their delivery.
    hits = numbers.value("near_cache_hits_total", pipeline=pipeline)
    return format_share(hits, numbers.value("decisions_total", pipeline=pipeline))


def _gauge(now: Snapshot, name: Gauge, pipeline: str) -> str:
    """A gauge's sum, if it was measured."""
    measured = now.by(name, pipeline=pipeline)
    return format_count(sum(measured.values())) if measured else UNKNOWN


def _times(pipeline: str, growth: Growth) -> Element:
    """How long batches take."""

    def row(text: str, name: Histogram, **labels: str) -> Sequence[str]:
        times = growth.grown.seconds(name, pipeline=pipeline, **labels)
        total = format_duration(times.total_s) if times.count else UNKNOWN
        quantiles = (_quantile(times, share) for share in (0.5, 0.99))
        return (text, format_count(times.count), *quantiles, total)

    rows = [row(stage, "stage_seconds", stage=stage) for stage in FIXED["stage"]]
    rows.append(row("kernel, within hash", "kernel_seconds"))
    rows.append(row("a call of Redis", "redis_seconds"))
    heads = (_last(growth), "How often", "50 %", "99 %", "In all")
    caption = "What 50 % and 99 % of batches took at most, waiting included; estimated"
    return _part("Times", table(caption, heads, rows, numbers=4))


def _counts(pipeline: str, now: Snapshot, growth: Growth) -> Element:
    """Counts of what should happen, and of what should be rare."""
    rows = []
    for name, text in _COUNTS:
        recently = format_count(growth.grown.value(name, pipeline=pipeline))
        ever = format_count(now.value(name, pipeline=pipeline))
        rows.append((text, recently if growth.seconds else UNKNOWN, ever))
    heads = ("What", _last(growth), "In all")
    return _part("Counts", table("", heads, rows, numbers=2))


def _last(growth: Growth) -> str:
    """The heading of a column of growth."""
    return f"Last {growth.seconds:.0f} s" if growth.seconds else "Lately"


def _lag(pipeline: str, now: Snapshot) -> Element:
    """The partitions that are furthest behind."""
    lag = now.by("lag_events", "topic", "partition", pipeline=pipeline)
    if not lag:
        return _part("Lag", *notes(["No partition is measured yet."]))
    ordered = sorted(lag.items(), key=lambda each: (-each[1], each[0]))
    rows = [
        (shown(topic), shown(number), format_count(behind))
        for (topic, number), behind in ordered[:MAX_ROWS]
    ]
    rest = ordered[MAX_ROWS:]
    behind = format_count(sum(value for _, value in rest))
    notes_below = notes(more(len(rest), f"partitions, {behind} events behind in all"))
    heads = ("Topic", "Partition", "Events behind")
    return _part("Lag", table("", heads, rows, numbers=2), *notes_below)


def _dead_letters(pipeline: str, now: Snapshot) -> Element:
    """Why events could not be processed."""
    by_reason = now.by("dead_letters_total", "reason", pipeline=pipeline)
    ordered = sorted(by_reason.items(), key=lambda each: (-each[1], each[0]))
    rows = [(shown(reason), format_count(value)) for (reason,), value in ordered if value]
    if not rows:
        return _part("Dead letters", *notes(["None since the start."]))
    notes_below = notes(more(len(rows) - MAX_ROWS, "reasons"))
    heads = ("Reason", "In all")
    return _part("Dead letters", table("", heads, rows[:MAX_ROWS], numbers=1), *notes_below)


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
        text = f"Of the last {len(values)} seconds, at most {format_rate(most)} a second"
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
        return f"over {format_duration(times.bounds_s[-1])}"
    return format_duration(seconds)
