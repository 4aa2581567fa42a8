"""A short round of chaos for each guarantee; `make chaos` runs long ones."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.faults.chaos import options
from tests.faults.faults import FAULTS
from tests.faults.harness import Guarantee, Site
from tests.faults.lines import PARTITIONS
from tests.faults.rounds import orders, play

ALWAYS = ("worker killed", "zombie worker", "broker restarted", "Redis restarted")
DEAD_S = 20.0
KINDS: dict[Guarantee, tuple[str, ...]] = {
    "at_least_once": (
        *ALWAYS,
        "broker cut off",
        "slow sink",
        "worker left",
        "Redis full",
        "output re-made",
        "input grown",
    ),
    "exactly_once": (
        *ALWAYS,
        "broker paused",
        "worker joined",
        "worker restarted",
        "Redis cut off",
        "broker dead",
        "output grown",
    ),
}


def test_the_short_rounds_contain_all_kinds_of_faults() -> None:
    assert {kind for kinds in KINDS.values() for kind in kinds} == set(FAULTS)


@pytest.mark.parametrize("guarantee", KINDS)
def test_promises_are_kept_through_faults_of_every_kind(site: Site, guarantee: Guarantee) -> None:
    kinds = KINDS[guarantee]
    report = play(
        site,
        guarantee,
        cycles=len(kinds),
        seed="short",
        kinds=kinds,
        pause_s=1.5,
        dead_s=DEAD_S,
        low_clusters=guarantee == "exactly_once",
    )
    assert report.good, str(report)
    assert report.faults == dict.fromkeys(kinds, 1)
    assert report.verdict.figures["inputs"] > 1_000
    assert report.verdict.figures["input partitions"] == PARTITIONS + ("input grown" in kinds)
    shutil.rmtree(report.folder)


def test_no_fault_is_repeated_before_all_have_come() -> None:
    coming = orders("abc", random.Random(1))
    for _ in range(3):
        assert {next(coming) for _ in range(3)} == {"a", "b", "c"}


def test_faults_are_chosen_by_name() -> None:
    given = options().parse_args(["--faults", "Redis full, broker dead"])
    assert given.faults == ("Redis full", "broker dead")
    assert options().parse_args([]).faults == tuple(FAULTS)
    with pytest.raises(SystemExit):
        options().parse_args(["--faults", "Redis full,nothing"])


def test_the_help_lists_all_faults() -> None:
    text = " ".join(options().format_help().split())
    assert "nothing was lost" in text
    for kind in FAULTS:
        assert kind in text
