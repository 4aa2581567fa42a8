"""The dashboard of a deployment: ``deploy/grafana/dashboards/stream-dedup.json``.

It has every metric of `stream_dedup.metrics`. Each panel answers one question. The rows go from the
overview by decisions and batches to Redis, the index and Kafka.
"""

from __future__ import annotations

from docs.blocks import ROOT
from docs.grafana import Panel, Query, Row, dashboard
from docs.promql import busy, increase, level, observed, or_zero, quantile, rate

DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "stream-dedup.json"
UID = "stream-dedup-worker"

_PAGES = "https://github.com/stream-dedup/stream-dedup/blob/main/docs"
LINKS = {
    "Running workers": f"{_PAGES}/how-to/operations.md",
    "Runbook": f"{_PAGES}/how-to/runbook.md",
    "Every metric": f"{_PAGES}/metrics.md",
}

P = "pipeline"
_BOTH_QUANTILES = (0.5, 0.99)


def _duplicates(*by: str) -> str:
    duplicates = rate("decisions_total", *by, decision="duplicate")
    return f"{duplicates} / {rate('decisions_total', *by)}"


def _near_cache(*by: str) -> str:
    # A share of the decisions, as both are counted at once; events are counted at their delivery.
    return f"{rate('near_cache_hits_total', *by)} / {rate('decisions_total', *by)}"


OVERVIEW = Row(
    "Overview",
    [
        Panel("Workers ready", "short", [Query(level("ready"), "ready")], "stat"),
        Panel("Events read", "eps", [Query(rate("events_total"), "events")], "stat"),
        Panel("Duplicates", "percentunit", [Query(_duplicates(), "duplicates")], "stat"),
        Panel("Lag", "short", [Query(level("lag_events"), "events")], "stat"),
        Panel(
            "Delivery delay, 99 %",
            "s",
            [Query(quantile(0.99, "delivery_delay_seconds"), "delay")],
            "stat",
            alarm=60,
        ),
        Panel("Near cache", "percentunit", [Query(_near_cache(), "hits")], "stat"),
        Panel(
            "Events by topic",
            "eps",
            [Query(rate("events_total", P, "topic"), "{{pipeline}} {{topic}}")],
            stacked=True,
        ),
        Panel(
            "Lag by topic",
            "short",
            [Query(level("lag_events", P, "topic"), "{{pipeline}} {{topic}}")],
        ),
        Panel(
            "Delivery delay",
            "s",
            [
                Query(quantile(share, "delivery_delay_seconds", P), f"{{{{pipeline}}}} {share:.0%}")
                for share in _BOTH_QUANTILES
            ],
        ),
    ],
)

DECISIONS = Row(
    "Decisions",
    [
        Panel(
            "Events by decision",
            "eps",
            [Query(rate("decisions_total", P, "decision"), "{{pipeline}} {{decision}}")],
            stacked=True,
        ),
        Panel("Share of duplicates", "percentunit", [Query(_duplicates(P), "{{pipeline}}")]),
        Panel(
            "Passed through, by reason",
            "eps",
            [
                Query(
                    or_zero(rate("passed_total", P, "reason"), "commits_total", P),
                    "{{pipeline}} {{reason}}",
                )
            ],
        ),
        Panel(
            "Events that people's rules acted on, by kind of rule",
            "eps",
            [
                Query(
                    or_zero(rate("rule_events_total", P, "rule_kind"), "commits_total", P),
                    "{{pipeline}} {{rule_kind}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "Records delivered",
            "eps",
            [Query(rate("outputs_total", P, "kind"), "{{pipeline}} {{kind}}")],
            stacked=True,
        ),
        Panel(
            "Events that rules withhold, by kind of rule",
            "eps",
            [
                Query(
                    or_zero(rate("withheld_events_total", P, "limit"), "commits_total", P),
                    "{{pipeline}} {{limit}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "Patterns that are new, spike or have vanished",
            "short",
            [Query(increase("pattern_events_total", P, "change"), "{{pipeline}} {{change}}")],
            note="With pattern_topic, whose records say which patterns.",
        ),
        Panel(
            "Delivered again",
            "eps",
            [
                Query(rate("redelivered_total", P), "{{pipeline}} redelivered"),
                Query(rate("replayed_total", P), "{{pipeline}} replayed"),
            ],
            note="Some after each rebalance or crash; replayed ones after a reset of offsets.",
        ),
        Panel(
            "Timestamps set to the limit",
            "eps",
            [Query(rate("clamped_total", P), "{{pipeline}}")],
        ),
    ],
)

BATCHES = Row(
    "Batches",
    [
        Panel(
            "Time by stage",
            "percentunit",
            [Query(busy("stage_seconds", P, "stage"), "{{pipeline}} {{stage}}")],
            stacked=True,
            note="100 % is all of one worker's time. It includes waiting, and stages overlap.",
        ),
        *(
            Panel(
                f"Time of a batch by stage, {share:.0%}",
                "s",
                [Query(quantile(share, "stage_seconds", P, "stage"), "{{pipeline}} {{stage}}")],
            )
            for share in _BOTH_QUANTILES
        ),
        Panel(
            "Time of a batch in the kernel",
            "s",
            [
                Query(quantile(share, "kernel_seconds", P), f"{{{{pipeline}}}} {share:.0%}")
                for share in _BOTH_QUANTILES
            ],
        ),
        Panel(
            "Events in progress",
            "short",
            [Query(level("backlog_events", P, "instance"), "{{pipeline}} {{instance}}")],
        ),
        Panel("Bytes read", "Bps", [Query(rate("event_bytes_total", P), "{{pipeline}}")]),
    ],
)

PROGRESS = Row(
    "Progress",
    [
        Panel(
            "Steps that stand still",
            "s",
            [Query(level("stalled_seconds", P, "step", how="max"), "{{pipeline}} {{step}}")],
            note="A worker is not ready from worker.stalled_after_s on, 10 s by default.",
        ),
        Panel(
            "Calls retried, by cause",
            "short",
            [Query(increase("retries_total", P, "cause"), "{{pipeline}} {{cause}}")],
        ),
        Panel(
            "Stream time behind the clock",
            "s",
            [Query(level("stream_time_lag_seconds", P, how="max"), "{{pipeline}}")],
        ),
        Panel(
            "Stream time",
            "dateTimeAsIso",
            [Query(f"1000 * {level('stream_time_seconds', P, how='max')}", "{{pipeline}}")],
            "stat",
        ),
    ],
)

REDIS = Row(
    "Redis",
    [
        Panel(
            "Time of a call",
            "s",
            [
                Query(quantile(share, "redis_seconds", P), f"{{{{pipeline}}}} {share:.0%}")
                for share in _BOTH_QUANTILES
            ],
        ),
        Panel("Calls", "cps", [Query(observed("redis_seconds", P), "{{pipeline}}")]),
        Panel(
            "Lost, rolled back, refused",
            "short",
            [
                Query(increase("index_resets_total", P), "{{pipeline}} resets"),
                Query(increase("index_rollbacks_total", P), "{{pipeline}} rollbacks"),
                Query(increase("refused_commits_total", P), "{{pipeline}} refused commits"),
            ],
        ),
    ],
)

INDEX = Row(
    "Index",
    [
        Panel("Live clusters", "short", [Query(level("clusters", P, how="max"), "{{pipeline}}")]),
        Panel(
            "Fingerprints", "short", [Query(level("fingerprints", P, how="max"), "{{pipeline}}")]
        ),
        Panel(
            "Clusters waiting for their summary",
            "short",
            [Query(level("waiting_clusters", P, how="max"), "{{pipeline}}")],
        ),
        Panel(
            "Clusters closed",
            "cps",
            [
                Query(rate("clusters_expired_total", P, how="max"), "{{pipeline}} window passed"),
                Query(rate("clusters_evicted_total", P, how="max"), "{{pipeline}} index full"),
                Query(rate("clusters_merged_total", P), "{{pipeline}} merged"),
            ],
        ),
        Panel(
            "Events the index was asked about, by rule",
            "eps",
            [Query(rate("matches_total", P, "rule"), "{{pipeline}} {{rule}}")],
            stacked=True,
        ),
        Panel(
            "Incomplete searches",
            "cps",
            [Query(rate("truncated_searches_total", P, how="max"), "{{pipeline}}")],
        ),
        Panel(
            "Share answered by the near cache",
            "percentunit",
            [Query(_near_cache(P), "{{pipeline}}")],
        ),
        Panel(
            "Exact hashes in the near cache",
            "short",
            [Query(level("near_cache_entries", P, "instance"), "{{pipeline}} {{instance}}")],
        ),
        Panel(
            "Fingerprints in the mirror",
            "short",
            [Query(level("mirror_entries", P, "instance"), "{{pipeline}} {{instance}}")],
        ),
    ],
)

KAFKA = Row(
    "Kafka",
    [
        Panel(
            "Commits",
            "cps",
            [
                Query(rate("commits_total", P), "{{pipeline}}"),
                Query(rate("commit_failures_total", P), "{{pipeline}} failed"),
            ],
        ),
        Panel(
            "Rebalances",
            "short",
            [Query(increase("rebalances_total", P, "instance"), "{{pipeline}} {{instance}}")],
        ),
        Panel(
            "Partition restarts, by reason",
            "short",
            [
                Query(
                    or_zero(increase("partition_restarts_total", P, "reason"), "commits_total", P),
                    "{{pipeline}} {{reason}}",
                )
            ],
        ),
        Panel(
            "Partitions by worker",
            "short",
            [Query(level("assigned_partitions", P, "instance"), "{{pipeline}} {{instance}}")],
            stacked=True,
        ),
        Panel(
            "Partitions paused at a batch that cannot be read",
            "short",
            [Query(level("paused_partitions", P, "instance"), "{{pipeline}} {{instance}}")],
        ),
        Panel(
            "Partitions with the most lag",
            "short",
            [
                Query(
                    f"topk(10, {level('lag_events', P, 'topic', 'partition')})",
                    "{{pipeline}} {{topic}}/{{partition}}",
                )
            ],
        ),
        Panel(
            "Topics recreated or truncated",
            "short",
            [Query(increase("topics_reset_total", P), "{{pipeline}}")],
        ),
    ],
)

INVALID = Row(
    "Invalid events",
    [
        Panel(
            "Events that could not be processed, by reason",
            "eps",
            [
                Query(
                    or_zero(rate("dead_letters_total", P, "reason"), "commits_total", P),
                    "{{pipeline}} {{reason}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "Dead letters delivered",
            "eps",
            [Query(rate("outputs_total", P, kind="dead_letter"), "{{pipeline}}")],
        ),
        Panel(
            "Labels folded",
            "cps",
            [Query(or_zero(rate("folded_labels_total", "metric"), "ready"), "{{metric}}")],
            note="Data with too many topics or reasons to show.",
        ),
    ],
)

WORKERS = Row(
    "Workers",
    [
        Panel("Ready", "short", [Query(level("ready", "instance"), "{{instance}}")]),
        Panel(
            "Processor",
            "percentunit",
            [Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}")],
            note="Of one core. A worker's Python runs on one.",
        ),
        Panel(
            "Memory",
            "bytes",
            [Query(level("process_resident_memory_bytes", "instance"), "{{instance}}")],
        ),
        Panel(
            "Versions and kernels",
            "short",
            [Query(level("info", "version", "kernel"), "{{version}}, {{kernel}}")],
            stacked=True,
        ),
    ],
)

ROWS = (OVERVIEW, PROGRESS, DECISIONS, BATCHES, REDIS, INDEX, KAFKA, INVALID, WORKERS)


def dashboard_json() -> str:
    """The text of the dashboard's file."""
    return dashboard(UID, "stream-dedup workers", ROWS, LINKS)
