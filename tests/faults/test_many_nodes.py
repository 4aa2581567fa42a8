"""Two workers, one group on three nodes of a Redis Cluster: a worker and a node are killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import GUARANTEES, Guarantee, Site, Stage
from tests.faults.test_crash_points import EVENTS, MAX_WAIT_S, QUICK, write
from tests.services.redis import RedisCluster

SETTINGS = {
    "index.shards": 6,
    "index.shard_by": "fingerprint",
    "pipelines.0.recipe": "logs-1",
}
ROUNDS = 3


@pytest.fixture(scope="module")
def nodes() -> Iterator[RedisCluster]:
    """Three masters that lose nothing when they are killed."""
    with RedisCluster(3, replicas=False, durable=True) as cluster:
        yield cluster


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_event_counts_once_whoever_dies(
    site: Site, nodes: RedisCluster, guarantee: Guarantee, tmp_path: Path
) -> None:
    settings = QUICK | SETTINGS | {"index.url": nodes.url}
    stage = Stage(site, guarantee, tmp_path, settings)
    workers = [stage.worker(f"{stage.name}-{number}") for number in range(2)]
    try:
        write(stage, "first")
        stage.wait_for_output(seconds=MAX_WAIT_S)
        write(stage, "second", EVENTS)
        workers[0].signal(signal.SIGKILL)
        assert workers[0].wait(MAX_WAIT_S) == -signal.SIGKILL
        nodes.nodes[1].kill()
        write(stage, "third", 2 * EVENTS)
        time.sleep(1.0)  # so long no node answers for its slots
        nodes.nodes[1].start()
        workers[0].start()
        verdict = stage.verdict_in_the_end(seconds=MAX_WAIT_S)
        log = "\n".join(worker.last_lines() for worker in workers)
    finally:
        for worker in workers:
            worker.close()
    assert verdict.good, f"{verdict}\n{log}"
    assert verdict.figures["inputs"] == ROUNDS * EVENTS
