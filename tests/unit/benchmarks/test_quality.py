"""The quality bench: what it prints and writes, without other parsers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.datasets import Dataset
from benchmarks.outcome_pairs import PairResult
from benchmarks.parsers import Grouping
from benchmarks.quality import METRICS, OURS, Report, Result, Scores, main, score


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "sets"
    found.mkdir()
    rows = ["event_id\tcontent"]
    for number in range(20):
        rows += [f"E1\tdisk sda{number} is {number}% full", f"E2\tjob {number} ended: OK"]
    (found / "small.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    templates = "EventId,EventTemplate\nE1,disk <*> is <*> full\nE2,job <*> ended: OK\n"
    (found / "small.log_templates.csv").write_text(templates, "utf-8")
    return found


def test_figures_are_written_by_contestant_and_measure(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures.json"
    assert main(["--data", str(folder), "--no-peers", "--pairs", "50", "--json", str(out)]) == 0
    report = json.loads(out.read_text("utf-8"))
    ways = ["", " online", " cluster", " cluster online", " shuffled"]
    assert list(report["mean"]) == [f"{OURS}{way}" for way in ways]
    exact = {"mean": 1.0, "low": 1.0, "high": 1.0, "deviation": 0.0}
    for measures in (report["mean"][OURS], report["datasets"]["small"][OURS]):
        assert measures == dict.fromkeys(["GA", "FGA", "pair F1", "PA", "FTA"], exact)
    assert report["lines"] == {"small": 40}
    assert report["missed"] == []
    assert sum(one["pairs"] for one in report["pairs"].values()) == 50
    shown = capsys.readouterr().out
    assert "targets of sets (none): met" in shown
    assert "Generated pairs of other outcome" in shown


def test_a_folder_without_sets_stops_the_bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    assert "no *.tsv or *.tsv.gz" in capsys.readouterr().err


def report(ours: Scores, drain3: Scores, merged: int = 0) -> Report:
    results = {OURS: Result([[ours]]), f"{OURS} online": Result([[ours]])}
    results["drain3"] = Result([[drain3]])
    dataset = Dataset("one", ["E1"], [b"x"])
    return Report("loghub", "logs", [dataset], results, {"exact": PairResult(9, merged, 1.0)})


def test_missed_targets_are_those_of_the_folder() -> None:
    good = {"GA": 0.97, "FGA": 0.97, "pair F1": 0.998}
    assert report(good, good).missed() == []
    assert report({**good, "FGA": 0.5}, good, merged=2).missed() == [
        "stream-dedup FGA 0.5000 is below 0.96",
        "2 generated pairs merged",
    ]


def test_figures_that_depend_on_seed_or_order_are_missed_targets() -> None:
    good = dict.fromkeys(METRICS[:3], 1.0)
    results = {
        OURS: Result([[good], [{**good, "GA": 0.999}]]),
        f"{OURS} online": Result([[good]]),
        f"{OURS} shuffled": Result([[{**good, "FGA": 0.97}]]),
    }
    dataset = Dataset("one", ["E1"], [b"x"])
    assert Report("loghub", "logs", [dataset], results, {}).missed() == [
        "GA is 0.9990 to 1.0000 over seeds",
        "FGA is 0.9700 shuffled, 1.0000 in order",
    ]


def test_sets_clearly_behind_drain3_are_named() -> None:
    ours = {"GA": 0.5, "FGA": 0.5, "pair F1": 0.5, "PA": 0.1}
    theirs = {"GA": 0.515, "FGA": 0.53, "pair F1": 0.4, "PA": 0.9}
    assert report(ours, theirs).behind() == ["one FGA 0.500, drain3 0.530"]


def test_lines_without_a_known_template_do_not_count_for_pa() -> None:
    dataset = Dataset("one", ["E1", "E2"], [b"a 1", b"b"], {"E1": "a <*>"})
    scores = score(dataset, Grouping([1, 2], ["a <*>", "other"]))
    assert scores is not None
    assert (scores["PA"], scores["FTA"]) == (1.0, 1.0)
    assert score(dataset, None) is None
