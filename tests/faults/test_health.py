"""The oracle for health accepts right answers, and detects each kind of wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.faults.health import MOVING_S, NOTICE_S, SILENT, Sample, Stop, judge_health
from tests.faults.oracle import Verdict

SECONDS = 100
STOP = Stop("the broker died", 50.0, 80.0)


@dataclass
class Answers:
    """A worker that delivers, whose broker dies at second 50, and that notices it 3 s later."""

    samples: list[Sample] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=lambda: [STOP])

    def __post_init__(self) -> None:
        delivered = 0
        for second in range(SECONDS):
            moves = not STOP.from_s <= second <= STOP.to_s
            delivered += 100 * moves
            noticed = STOP.from_s + 3 <= second <= STOP.to_s
            ready, gauge = (503, 0.0) if noticed else (200, 1.0)
            self.samples.append(Sample(second, "worker-1", 1, 200, ready, gauge, delivered))

    def change(self, seconds: range, **changes: Any) -> None:
        for second in seconds:
            self.samples[second] = self.samples[second]._replace(**changes)

    def judged(self) -> Verdict:
        return judge_health(self.samples, self.stops)


def test_right_answers_are_accepted() -> None:
    verdict = Answers().judged()
    assert verdict.good, str(verdict)
    assert verdict.figures == {
        "polls of health": SECONDS,
        "of them not ready": 28,
        "times in which nothing could move": 1,
        "seconds until readiness followed, at most": 2,
    }


def ready_without_progress(answers: Answers) -> None:
    answers.change(range(50, 80), ready=200, gauge=1.0)


def ready_again_without_progress(answers: Answers) -> None:
    answers.change(range(75, 76), ready=200, gauge=1.0)


def not_ready_with_progress(answers: Answers) -> None:
    answers.change(range(2, 4 + round(MOVING_S)), ready=503, gauge=0.0)


def not_alive(answers: Answers) -> None:
    answers.change(range(60, 61), alive=503)


def silent(answers: Answers) -> None:
    answers.change(range(60, 61 + SILENT), alive=None, ready=None, gauge=None, delivered=None)


def another_gauge(answers: Answers) -> None:
    answers.change(range(2, 2 + SILENT), gauge=0.0)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (ready_without_progress, "ready while nothing could move"),
        (ready_again_without_progress, "ready while nothing could move"),
        (not_ready_with_progress, "not ready while events moved"),
        (not_alive, "not alive"),
        (silent, "no answer"),
        (another_gauge, "the metric ready differs"),
    ],
)
def test_wrong_answers_are_detected(change: Callable[[Answers], None], kind: str) -> None:
    answers = Answers()
    change(answers)
    assert set(answers.judged().broken) == {kind}


def test_a_worker_needs_some_time_to_start_and_to_notice() -> None:
    answers = Answers()
    answers.change(range(10), alive=None, ready=None, gauge=None, delivered=None)
    answers.change(range(50, 50 + round(NOTICE_S)), ready=200, gauge=1.0)
    assert answers.judged().good


def test_another_start_is_judged_by_itself() -> None:
    answers = Answers()
    answers.samples[90:] = [
        each._replace(start=2, delivered=0.0, ready=503, gauge=0.0) for each in answers.samples[90:]
    ]
    assert answers.judged().good


def test_new_partitions_give_a_worker_time_to_notice() -> None:
    answers = Answers()
    answers.change(range(50, 70), ready=200, gauge=1.0)
    assert not answers.judged().good
    answers.change(range(60), partitions=0.0)
    answers.change(range(60, SECONDS), partitions=4.0)
    assert answers.judged().good
