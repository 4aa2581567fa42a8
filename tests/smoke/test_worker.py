"""A worker between a real Kafka and a real Redis: the shortest proof that all parts fit."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.worker.running import Trial, real_lines, text_headers
from tests.smoke.conftest import Services

LINES = real_lines(2_000)

pytestmark = pytest.mark.timeout(1_800)  # stand-ins for images are made by whoever comes first


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_each_event_is_annotated_once_and_counts_add_up(services: Services, guarantee: str) -> None:
    trial = Trial(services.kafka, services.redis_url)
    trial.write(LINES)
    done = trial.once(worker__guarantee=guarantee)
    assert done.code == 0, done.err
    annotated = [text_headers(record) for record in trial.kafka.consume(trial.out)]
    kinds = Counter(headers["sd-decision"] for headers in annotated)
    assert kinds["new"] + kinds["duplicate"] == len(LINES)
    members = Counter(headers["sd-cluster"] for headers in annotated)
    assert len(members) == kinds["new"]
    assert trial.committed() == len(LINES)
    trial.emit_due_summaries(worker__guarantee=guarantee)
    assert trial.counts() == {cluster: count for cluster, count in members.items() if count > 1}


def test_a_second_run_knows_the_clusters_of_the_first(services: Services) -> None:
    trial = Trial(services.kafka, services.redis_url)
    for _ in range(2):
        trial.write(LINES[:500])
        assert trial.once(pipelines__0__emit="drop").code == 0
    left = trial.kafka.consume(trial.out)
    assert len({record.value for record in left}) == len(left) < 500
