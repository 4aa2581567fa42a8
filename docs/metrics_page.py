"""Makes ``docs/metrics.md`` from the table in `stream_dedup.metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docs.blocks import ROOT
from stream_dedup.metrics import (
    BOUNDS,
    COUNTERS,
    FIXED,
    GAUGES,
    HISTOGRAMS,
    OTHER,
    PREFIX,
    Metric,
)
from stream_dedup.worker.telemetry.health import STUCK_AFTER_S

METRICS_PAGE = ROOT / "docs" / "metrics.md"

COUNT = """\
Counters begin at 0 when the worker starts, and only grow. An event that is redelivered or replayed
is not counted again as read or decided.
"""

_MOST = " and ".join(f"{most} for `{label}`" for label, most in BOUNDS.items())

LABELS = f"""\
`pipeline` is the pipeline's name in the configuration. Labels whose values come from data have a
limited number of values in each metric: {_MOST}.
Counters and histograms show further values as `{OTHER}`, gauges omit them, and
`{PREFIX}folded_labels_total` counts how often.

These labels have fixed values. `stage` and `step` are explained in [the
worker](how-it-works.md#8-the-worker), `cause` in the metric's row above. The `rule` that found a
cluster is `exact` (its exact hash), `learned` (a learned word), `words` (the same words, or one
more or less), `fingerprint`, or `new` (none was found, so the event opened one).
"""

HEAD = """\
<!-- Written by `make docs` from stream_dedup/metrics.py: change that, not this page. -->

# Metrics and health

`stream-dedup run` serves metrics and health over HTTP, at `http.host` and `http.port` (by default
127.0.0.1:9464). The server has a thread of its own, so it answers even when the worker is stuck.
With port 0 there is no server. Anybody who can reach the port can read everything, and nobody can
change anything: keep the port inside your network.

| path | answers | status |
| --- | --- | --- |
| `/metrics` | all metrics below, in Prometheus's format or, on request, OpenMetrics | 200 |
| `/healthz` | `{{"alive": true, "last_beat_s": 0.2}}` | 503 when the event loop has been \
blocked for {stuck} s: restart the worker |
| `/readyz` | `{{"ready": false, "reasons": [{{"name": …, "reason": …, "for_s": …}}]}}` | 503 \
while there is a reason: a restart does not help |
| `/` | [a status page](how-to/monitoring.md#status-page) for people | 200 |

A worker that waits for Redis or Kafka is alive but not ready: it continues by itself when they are
back.
"""

WATCH = """\
## What to watch

```text
# The workers fall behind: the lag has grown for 15 minutes.
deriv(sum by (pipeline, topic) (stream_dedup_lag_events)[15m:1m]) > 0

# Events take longer than a minute from their timestamp to their delivery (99 of 100 batches).
histogram_quantile(0.99, sum by (le, pipeline) (
  rate(stream_dedup_delivery_delay_seconds_bucket[5m]))) > 60

# Events that cannot be processed.
sum by (pipeline, reason) (increase(stream_dedup_dead_letters_total[10m])) > 0

# The share of duplicates, and the share of events answered by the near cache.
sum by (pipeline) (rate(stream_dedup_decisions_total{decision="duplicate"}[5m]))
  / sum by (pipeline) (rate(stream_dedup_decisions_total[5m]))
sum by (pipeline) (rate(stream_dedup_near_cache_hits_total[5m]))
  / sum by (pipeline) (rate(stream_dedup_decisions_total[5m]))

# The index lost data, is too small, or its searches are incomplete.
increase(stream_dedup_index_resets_total[1h]) > 0
increase(stream_dedup_index_rollbacks_total[1h]) > 0
increase(stream_dedup_clusters_evicted_total[1h]) > 0
increase(stream_dedup_truncated_searches_total[1h]) > 0

# Where a batch's time goes, in seconds of each second.
sum by (pipeline, stage) (rate(stream_dedup_stage_seconds_sum[5m]))
```

`clusters`, `fingerprints`, `waiting_clusters` and the counters of evicted and expired clusters and
of truncated searches belong to the index, so each worker shows the value of all workers together.
Use `max by (pipeline)`, not the sum.
"""


def metrics_page() -> str:
    """The text of ``docs/metrics.md``."""
    return "\n".join(
        (
            HEAD.format(stuck=f"{STUCK_AFTER_S:.0f}"),
            "## Counters\n",
            COUNT,
            _table(COUNTERS),
            "## Gauges\n",
            _table(GAUGES),
            "## Histograms\n",
            "Values and bucket bounds are in seconds.\n",
            _table(HISTOGRAMS),
            "The process's own metrics (`process_…`, `python_…`) are included.\n",
            "## Labels\n",
            LABELS,
            _fixed(),
            WATCH,
        )
    )


def _table(metrics: Mapping[Any, Metric]) -> str:
    lines = ["| name | labels | meaning |", "| --- | --- | --- |"]
    for name, (labels, text, bounds_s) in metrics.items():
        shown = ", ".join(f"`{label}`" for label in labels)
        buckets = f" Up to {', '.join(f'{bound:g}' for bound in bounds_s)}." if bounds_s else ""
        lines.append(f"| `{PREFIX}{name}` | {shown} | {text}{buckets} |")
    return "\n".join(lines) + "\n"


def _fixed() -> str:
    lines = ["| label | values |", "| --- | --- |"]
    for label, values in FIXED.items():
        lines.append(f"| `{label}` | {', '.join(f'`{value}`' for value in values)} |")
    return "\n".join(lines) + "\n"
