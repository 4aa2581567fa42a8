"""A worker killed after each step, with real Kafka and Redis: the next one finishes its work."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from tests.faults.harness import GUARANTEES, Guarantee, Site, Stage
from tests.faults.lines import PARTITIONS, line
from tests.faults.oracle import Verdict
from tests.services.processes import ServiceError

CRASHING = Path(__file__).with_name("crashing_worker.py")
EVENTS = 600
CONCURRENT = 4
"""Cases that run at the same time."""

MAX_WAIT_S = 240.0
QUICK = {
    "kafka.session_timeout_s": 1.5,
    "kafka.heartbeat_interval_s": 0.3,
    "worker.commit_every_s": 0.01,
    "pipelines.0.idle_s": 2,
    "pipelines.0.quiet_after_s": 2,
    "pipelines.0.lease_s": 1.5,
    "pipelines.0.summary_every_s": 0.3,
}
SPREAD = {
    "index.shard_by": "fingerprint",
    # Deciding takes a dozen requests, one after the other. On a slow machine clusters that close
    # after a second would close before they are counted, again and again.
    "pipelines.0.idle_s": 6,
    "pipelines.0.quiet_after_s": 6,
}


class Case(NamedTuple):
    """The guarantee, the step after whose nth time the worker dies, the recipe, the shards."""

    guarantee: Guarantee
    step: str
    at: int
    recipe: str = "logs"
    shards: int = 1  # of more, fingerprints are spread over them


class Outcome(NamedTuple):
    """The first worker's exit code, the oracle's verdict, and the last lines of both logs."""

    code: int | None
    verdict: Verdict
    log: str


CASES: tuple[Case, ...] = (
    tuple(
        Case(guarantee, step, at)
        for guarantee in GUARANTEES
        for step, at in (
            *(("resolved", 1), ("resolved", 5), ("recorded", 1), ("recorded", 4), ("sent", 3)),
            *(("committed", 1), ("claimed", 1), ("emitted", 1), ("confirmed", 1)),
        )
    )
    + tuple(
        Case(guarantee, step, at, "text")  # keys of bands
        for guarantee in GUARANTEES
        for step, at in (("resolved", 5), ("recorded", 4), ("sent", 3), ("confirmed", 1))
    )
    + tuple(
        Case(guarantee, step, at, "logs-1", shards=4)
        for guarantee in GUARANTEES
        for step, at in (
            ("resolved", 5),
            ("recorded", 4),
            ("sent", 3),
            ("emitted", 1),
            ("confirmed", 1),
        )
    )
)


def write(stage: Stage, seed: str, first: int = 0) -> None:
    """Write `EVENTS` events, with numbers from `first` on."""
    rng = random.Random(seed)
    kafka = stage.site.broker
    for part in range(PARTITIONS):
        numbers = range(first + part, first + EVENTS, PARTITIONS)
        kafka.produce(
            stage.input,
            [line(rng, number) for number in numbers],
            partition=part,
            keys=[b"id-%d" % number for number in numbers],
            headers=[(("host", b"a"),) for _ in numbers],
        )


def run_case(site: Site, case: Case, folder: Path) -> Outcome:
    """Run a worker that dies, then another one to the end."""
    settings = QUICK | {"pipelines.0.recipe": case.recipe, "index.shards": case.shards}
    if case.shards > 1:
        settings |= SPREAD
    stage = Stage(site, case.guarantee, folder, settings)
    write(stage, f"{case}")
    crashing = [sys.executable, str(CRASHING), case.step, str(case.at)]
    first = stage.worker(f"{stage.name}-first", crashing)
    code = first.wait(MAX_WAIT_S)
    first.close()
    second = stage.worker(f"{stage.name}-second")
    try:
        verdict = stage.verdict_in_the_end(seconds=MAX_WAIT_S)
    except ServiceError as error:
        logs = f"{first.last_lines()}\n{second.last_lines()}"
        raise ServiceError(f"{error}\nexit code {second.code}\n{logs}") from error
    finally:
        second.close()
    return Outcome(code, verdict, first.last_lines() + "\n" + second.last_lines())


@pytest.fixture(scope="module")
def outcomes(
    site: Site, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[Case, Future[Outcome]]]:
    folder = tmp_path_factory.mktemp("crashes")
    with ThreadPoolExecutor(CONCURRENT) as pool:
        # Of those that were selected, all at once.
        items = [item for item in request.session.items if isinstance(item, pytest.Function)]
        cases = [
            cast(Case, item.callspec.params["case"])
            for item in items
            if "outcomes" in item.fixturenames
        ]
        yield {case: pool.submit(run_case, site, case, folder) for case in cases}


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_a_worker_killed_after_a_step_loses_and_doubles_nothing(
    outcomes: dict[Case, Future[Outcome]], case: Case
) -> None:
    outcome = outcomes[case].result()
    assert outcome.code == -signal.SIGKILL, f"it did not reach that step:\n{outcome.log}"
    assert outcome.verdict.good, f"{outcome.verdict}\n{outcome.log}"
    assert outcome.verdict.figures["inputs"] == EVENTS
