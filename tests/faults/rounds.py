"""A round of chaos: a producer, workers, faults in an order given by a seed, and a verdict."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.faults import FAULTS, LEAST, Crew
from tests.faults.harness import Guarantee, Site, Stage
from tests.faults.health import HealthWatch, judge_health
from tests.faults.lines import Producing
from tests.faults.oracle import Verdict
from tests.services.processes import ServiceError

RATE = 150
"""Events a second."""

DEAD_S = 120.0
"""How long a broker is dead."""

LOW_CLUSTERS = 40
"""Far fewer clusters than are open at a time otherwise, some 300."""

START_S = 120.0
"""The longest time until the first workers write."""

READ_ALL_S = 300.0
"""The longest time until the last worker has read all events."""


@dataclass(slots=True)
class Report:
    """The result of a round.

    Attributes:
        guarantee: the guarantee of delivery.
        seed: repeats the same faults, though not at the same moments.
        faults: the number of faults of each kind.
        starts: how often a worker was started.
        seconds: how long it took.
        low_clusters: whether the index had room for a few clusters only.
        verdict: the oracle's verdict.
        health: the verdict of the oracle for health.
        problems: other problems.
        folder: the workers' logs.
    """

    guarantee: Guarantee
    seed: str
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    seconds: float = 0.0
    low_clusters: bool = False
    verdict: Verdict = field(default_factory=Verdict)
    health: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.verdict.good and self.health.good and not self.problems

    def __str__(self) -> str:
        few = f", max_clusters {LOW_CLUSTERS}" if self.low_clusters else ""
        head = (
            f"{self.guarantee}{few}, seed {self.seed}: {self.faults.total()} faults in "
            f"{self.seconds:,.0f} s, {self.starts} starts of workers"
        )
        figures = self.verdict.figures | self.health.figures
        numbers = [f"  {count:9,} {what}" for what, count in figures.items()]
        return "\n".join(
            [
                head,
                *(f"  {count:9,} × {kind}" for kind, count in sorted(self.faults.items())),
                *numbers,
                f"  events: {self.verdict}",
                f"  health: {self.health}",
                *(f"  PROBLEM: {text}" for text in self.problems),
                *([] if self.good else [f"  seed {self.seed}; logs in {self.folder}"]),
            ]
        )


def orders(kinds: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Kinds in random order without end; none comes twice before all have come."""
    while True:
        yield from rng.sample(kinds, len(kinds))


def play(
    site: Site,
    guarantee: Guarantee,
    *,
    cycles: int,
    seed: str,
    kinds: Sequence[str] = tuple(FAULTS),
    rate: float = RATE,
    pause_s: float = 2.0,
    dead_s: float = DEAD_S,
    low_clusters: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Run a round.

    Args:
        site: the servers; they run again afterwards.
        guarantee: the guarantee of delivery.
        cycles: the number of faults, one after the other.
        seed: chooses them.
        kinds: kinds of faults.
        rate: events a second.
        pause_s: the longest time between two faults.
        dead_s: how long a broker is dead.
        low_clusters: whether the index has room for `LOW_CLUSTERS` only.
        say: prints progress.
    """
    rng = random.Random(f"{seed} {guarantee} {low_clusters}")
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{guarantee}-{seed}-"))
    report = Report(guarantee, seed, folder, low_clusters=low_clusters)
    started_s = time.monotonic()
    few = {"index.max_clusters": LOW_CLUSTERS} if low_clusters else {}
    stage = Stage(site, guarantee, report.folder, few, outage_s=dead_s)
    producing = Producing(site.broker, stage.input, rate=rate, seed=seed)
    watch = HealthWatch()
    crew = Crew(stage, rng, producing, watch, dead_s)
    producing.start()
    try:
        for _ in range(LEAST):
            crew.join()
        stage.wait_for_output(seconds=START_S)
        for number, kind in zip(range(cycles), orders(kinds, rng), strict=False):
            say(f"{time.monotonic() - started_s:6.0f} s  {guarantee} {number + 1}: {kind}")
            report.faults[kind] += 1
            try:
                FAULTS[kind](crew)
            except ServiceError as error:
                report.problems.append(f"{kind}: {error}")
                break
            time.sleep(rng.uniform(0.1, pause_s))
            crew.check_workers()
        producing.stop()
        report.problems += [f"the producer: {text}" for text in producing.failed]
        say(f"{time.monotonic() - started_s:6.0f} s  {guarantee}: reading to the end")
        _end(stage, crew, report)
    finally:
        producing.stop()
        watch.stop()
        for worker in crew.workers:
            worker.close()
    report.health = judge_health(watch.samples, watch.stops)
    report.problems += crew.deaths
    report.starts = crew.starts
    report.seconds = time.monotonic() - started_s
    return report


def _end(stage: Stage, crew: Crew, report: Report) -> None:
    """Let one worker read to the end, then ask the oracle."""
    for worker in crew.workers[1:]:
        crew.leave(worker)
    try:
        stage.read_to_the_end(seconds=READ_ALL_S)
    except ServiceError as error:
        report.problems.append(str(error))
    crew.check_workers()
    report.verdict = stage.judged()
    crew.check_workers()
    for worker in list(crew.workers):
        crew.leave(worker)
