"""The questions that events raise, each with the figures of a run."""

from __future__ import annotations

import pytest

from stream_dedup.features.recipe import load_recipe, replace, shipped
from stream_dedup.features.variants import OUTCOMES
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.tuning.questions import Change, Question, Tuner
from stream_dedup.tuning.trials import Grouping
from tests.unit.tuning.helpers import LOGS, accounts, report_of, sample_of
from tests.unit.tuning.test_sample import json_lines

LINK = b"link %d (is %b), " + b" ".join(
    b"word" + bytes([97 + n % 26, 97 + n // 26]) for n in range(80)
)


def asked(question: Question) -> tuple[str, int, int]:
    return question.change.described(), question.moved, question.clusters


def test_the_example_raises_questions_in_order_of_their_worth() -> None:
    report = report_of(accounts())

    assert len(report.base) == 10
    assert [asked(question) for question in report.questions] == [
        ("protect captured, declined, refunded, requested, settled, voided", 26, 15),
        ("match.learn = 3", 8, 8),
        ("match.learn = 8", 65, 25),
        ("protect alice, bob, carol, dave, erin, frank", 39, 20),
        ("do not protect not", 3, 9),
    ]
    assert [bool(question.why) for question in report.questions] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("number", range(5))
def test_every_figure_is_that_of_a_run(number: int) -> None:
    question = report_of(accounts()).questions[number]
    again = Grouping(question.change.applied(LOGS), sample_of(accounts()), None)

    assert again.partition == question.after.partition
    assert len(again) == question.clusters


def test_a_step_is_compared_with_the_step_before_it() -> None:
    lines = [b"session closed for user %b" % name for name in (b"ann", b"bob", b"cid", b"dan")]
    lines += [b"the disk %b is full again" % name for name in (b"home", b"root", b"tmp")]
    four, three = report_of(lines).questions

    assert asked(four) == ("match.learn = 4", 3, 4)
    assert asked(three) == ("match.learn = 3", 2, 2)
    assert three.beyond == four.change
    assert [each.change.described() for each in (four, three)] == [
        "match.learn = 4", "match.learn = 3",
    ]  # fmt: skip
    assert [change.described() for change in three.also] == ["match.learn = 2"]


def test_words_that_keep_clusters_apart_are_named_with_what_they_keep() -> None:
    lines = [LINK % (n, word) for n in range(3) for word in (b"up", b"down")]
    (question,) = report_of(lines).questions

    assert asked(question) == ("do not protect down, up", 3, 1)


def test_a_field_that_would_part_clusters_is_asked_about() -> None:
    sample = sample_of(json_lines(40, service=["a", "b"]))
    report = Tuner(LOGS, sample, lambda _done, _planned: None).report()
    (question,) = (q for q in report.questions if q.change.group)

    assert question.change.options() == ["--group-field", "service"]
    assert (question.moved, question.clusters) == (20, 2)


def test_groups_that_keep_clusters_apart_are_asked_about() -> None:
    reading = DecoderOptions(group_fields=("service",))
    sample = sample_of(json_lines(4, service=["a", "b"]), reading=reading)
    report = Tuner(LOGS, sample, lambda _done, _planned: None).report()

    assert [asked(question) for question in report.questions] == [("no groups", 2, 1)]


def test_changes_without_effect_are_named() -> None:
    report = report_of([b"disk 1 is full", b"disk 2 is full"])

    assert report.questions == []
    described = [change.described() for change in report.without_effect]
    assert {"match.learn = 4", "match.k = 9", "match.jaccard = 0.8"} <= {*described}


@pytest.mark.parametrize("name", sorted({*shipped()} - {"letters5"}))  # 5 bits fit no index
def test_every_shipped_recipe_can_be_tuned(name: str) -> None:
    recipe = load_recipe(name)
    report = report_of(accounts(), recipe)

    assert report.base.recipe == recipe
    assert report.trials > 1


def test_words_are_added_to_the_outcomes() -> None:
    recipe = Change(protect=("read", "write")).applied(LOGS)

    assert set(recipe.match.protected) == {*OUTCOMES, "read", "write"}
    assert recipe.match.protected == tuple(sorted(recipe.match.protected))


def test_words_are_taken_from_a_list_of_ones_own() -> None:
    recipe = replace(LOGS, match__protected=["read", "write"])

    assert Change(unprotect=("read",)).applied(recipe).match.protected == ("write",)


def test_changes_are_written_as_options() -> None:
    changed = Change(settings=(("match.learn", 4), ("match.variants", ["level"])))

    assert changed.options() == ["--set", "match.learn=4", "--set", 'match.variants=["level"]']
    assert Change(protect=("read",)).options() == []


def test_progress_counts_every_run() -> None:
    calls: list[tuple[int, int]] = []
    Tuner(LOGS, sample_of(accounts()), lambda *at: calls.append(at)).report()

    assert [done for done, _ in calls] == list(range(1, len(calls) + 1))
    assert all(done <= planned for done, planned in calls)
