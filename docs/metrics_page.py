"""The text of ``docs/metrics.md``, made of the table in `stream_dedup.metrics`."""

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
They only grow, from 0 at the worker's start. An event that was redelivered or replayed counts in
no other counter of what was read and decided.
"""

LABELS = f"""\
`pipeline` is the pipeline's name in the configuration. Values that come from data are bounded:
{", ".join(f"{most} of `{label}`" for label, most in BOUNDS.items())} in one metric. Past that a
counter and a histogram show `{OTHER}`, a gauge leaves them out, and
`{PREFIX}folded_labels_total` counts it.
"""

HEAD = """\
<!-- Written by `make docs` from stream_dedup/metrics.py: change that, not this page. -->

# Metrics and health

`stream-dedup run` serves them over HTTP, from threads of their own, so that a stuck worker can
still be seen. Port 0 is no server. Whoever can reach the port can read all of it, and nobody can
change anything: leave it inside your network.

| path | answers | status |
| --- | --- | --- |
| `/metrics` | all that is below, in Prometheus's format, or OpenMetrics for who asks for it | 200 |
| `/healthz` | `{{"alive": true, "last_beat_s": 0.2}}` | 503 when the event loop has stood still \
for {stuck} s: restart the worker |
| `/readyz` | `{{"ready": false, "reasons": [{{"name": …, "reason": …, "for_s": …}}]}}` | 503 \
while there is a reason: a restart helps nothing |
| `/` | [a page for people](how-to/monitoring.md#look), which shows the most important of it | 200 |

A worker that waits for Redis or Kafka is alive and not ready: it goes on by itself when they are
back.
"""

WATCH = """\
## What to watch

```text
# The worker falls behind: the lag has grown for a quarter of an hour.
deriv(sum by (pipeline, topic) (stream_dedup_lag_events)[15m:1m]) > 0

# Events take longer than a minute from their timestamp to their delivery (99 of 100 batches).
histogram_quantile(0.99, sum by (le, pipeline) (
  rate(stream_dedup_delivery_delay_seconds_bucket[5m]))) > 60

# Events that cannot be processed.
sum by (pipeline, reason) (increase(stream_dedup_dead_letters_total[10m])) > 0

# The share of duplicates, and that of events recorded in process.
sum by (pipeline) (rate(stream_dedup_decisions_total{decision="duplicate"}[5m]))
  / sum by (pipeline) (rate(stream_dedup_decisions_total[5m]))
sum by (pipeline) (rate(stream_dedup_near_cache_hits_total[5m]))
  / sum by (pipeline) (rate(stream_dedup_decisions_total[5m]))

# The index lost data, is too small, or could not look everywhere.
increase(stream_dedup_index_resets_total[1h]) > 0
increase(stream_dedup_index_rollbacks_total[1h]) > 0
increase(stream_dedup_clusters_evicted_total[1h]) > 0
increase(stream_dedup_truncated_searches_total[1h]) > 0

# Where a batch's time goes, in seconds of each second.
sum by (pipeline, stage) (rate(stream_dedup_stage_seconds_sum[5m]))
```

`clusters`, `fingerprints`, `waiting_clusters`, and the counters of evicted and expired clusters and
truncated searches, are the index's: each worker shows what all of them did. Take
`max by (pipeline)` of them, not the sum.
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
            "In seconds.\n",
            _table(HISTOGRAMS),
            "The process's own metrics (`process_…`, `python_…`) are there as well.\n",
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
