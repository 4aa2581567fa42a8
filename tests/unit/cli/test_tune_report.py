"""How what was found out is shown."""

from __future__ import annotations

from stream_dedup.cli.tune_report import ReportView, differing
from stream_dedup.tuning.questions import Change, Question, Tuner
from stream_dedup.tuning.trials import merged
from tests.unit.tuning.helpers import LOGS, accounts, sample_of


def test_patterns_are_shown_where_they_differ() -> None:
    whole = "one two three four five <*> seven eight nine ten eleven"
    parts = [whole.replace("<*>", word) for word in ("six", "6th")]

    assert differing(whole, parts) == [
        "… three four five six seven eight nine …",
        "… three four five 6th seven eight nine …",
    ]


def test_short_and_equal_patterns_are_shown_as_they_are() -> None:
    assert differing("a <*>", ["a b", "a c"]) == ["a b", "a c"]
    assert differing("a b", ["a b"]) == ["a b"]
    assert differing("", [""]) == [""]


def test_what_would_be_one_and_what_would_part_is_said() -> None:
    sample = sample_of(accounts())
    tuner = Tuner(LOGS, sample, lambda _done, _planned: None)
    report = tuner.report()
    change = Change(settings=(("match.learn", 3),), protect=("captured", "settled"))
    after = tuner.run([change])
    merges, splits = (
        merged(*pair, sample.counts) for pair in ((report.base, after), (after, report.base))
    )
    question = Question(change, None, len(after), merges, splits, report.base, after)
    report.questions[:] = [question]
    lines = list(ReportView(sample, report, "x", 1, 2, [])._question(1, question))

    assert lines[0] == f"1. Are these better grouped so? {question.moved} events would move."
    assert lines[1] == "     These would be one cluster:"
    assert lines.index("     These would part:") > 1
