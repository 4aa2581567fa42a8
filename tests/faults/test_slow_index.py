"""A worker whose Redis answers slowly: deciding takes as long as clusters live."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.faults.harness import Site, Stage
from tests.faults.test_crash_points import EVENTS, MAX_WAIT_S, QUICK, SPREAD, write

LATENCY_MS, JITTER_MS = 150, 75
"""A batch takes a dozen answers, one after the other, so some seconds."""


def test_slow_answers_hold_up_no_commit_for_ever(site: Site, tmp_path: Path) -> None:
    settings = QUICK | SPREAD | {"pipelines.0.recipe": "logs-1", "index.shards": 4}
    settings |= {"pipelines.0.idle_s": 4, "pipelines.0.quiet_after_s": 4}
    stage = Stage(site, "exactly_once", tmp_path, settings)
    write(stage, "slow")
    try:
        site.redis_link.add_toxic("latency", latency=LATENCY_MS, jitter=JITTER_MS)
        with closing(stage.worker(stage.name)) as worker:
            verdict = stage.verdict_in_the_end(seconds=MAX_WAIT_S)
            assert verdict.good, f"{verdict}\n{worker.last_lines()}"
    finally:
        site.redis_link.remove_toxics()
    assert verdict.figures["inputs"] == EVENTS
