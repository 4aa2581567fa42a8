from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from stream_dedup.errors import RecipeError, RuleConflict, RuleError

LINES = "job 1 ended now\ntask 2 is over here\njob 3 ended now\n"

NAMES = ("--rules", "--file")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "app.log"
    path.write_text(LINES * 2)
    return str(path)


def add(file: Path, *arguments: str) -> None:
    run("rules", "add", *arguments, "--rules", str(file), "--author", "ann")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rules.toml"


def test_a_rule_of_a_file_merges_lines(file: Path, log: str) -> None:
    add(file, "merge", "job <*> ended now", "task <*> is over here")
    plain = run("dedup", "-q", "--emit", "drop", log)
    ruled = run("dedup", "-q", "--emit", "drop", "--rules", str(file), log)

    assert plain.output.splitlines() == ["job 1 ended now", "task 2 is over here"]
    assert ruled.output == "job 1 ended now\n"


def test_muted_repeats_do_not_leave_but_are_counted(file: Path, log: str) -> None:
    add(file, "mute", "job <*> ended now")
    annotated = run("dedup", "-q", "--emit", "annotate", "--rules", str(file), log)
    merged = run("dedup", "-q", "--rules", str(file), "--output-format", "jsonl", log)
    written = [json.loads(line) for line in merged.output.splitlines()]

    assert [line.split("\t")[0::3] for line in annotated.output.splitlines()] == [
        ["new", "job 1 ended now"],
        ["new", "task 2 is over here"],
        ["duplicate", "task 2 is over here"],
    ]
    assert sum(each.get("new_count", 0) for each in written) == 6


def test_so_many_lines_leave_as_a_rule_keeps(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "times.log"
    lines = [f"2026-05-07T09:3{n // 4}:00Z job {n} ended now\n" for n in range(8)]
    path.write_text("".join(lines))
    add(file, "keep", "<timestamp> job <*> ended now", "--per-minute", "2")
    options = ["-q", "--rules", str(file), "--time-format", "iso", "--stats", str(path)]
    annotated = run("dedup", "--emit", "annotate", *options)
    left = [line.split("\t")[-1] for line in annotated.stdout.splitlines()]
    merged = run("dedup", *options)

    assert left == [lines[n].rstrip() for n in (0, 1, 4, 5)]
    assert re.search(r"withheld: keep +4\b", annotated.stderr)
    assert "withheld" not in merged.stderr
    assert re.search(r"events +8\b", merged.stderr)


def test_a_kept_pattern_is_muted_only_after_an_undo(file: Path) -> None:
    add(file, "keep", "job <*> ended now", "--per-minute", "2")
    with pytest.raises(RuleConflict, match="keep and mute limit one pattern") as raised:
        add(file, "mute", "job <number> ended now")
    (rule,) = json.loads(run("rules", "list", "--format", "json", "--rules", str(file)).output)

    assert rule["per_minute"] == 2
    assert rule["id"] in raised.value.rules
    assert "2 a minute" in run("rules", "list", "--rules", str(file)).output
    run("rules", "undo", rule["id"], "--rules", str(file))
    add(file, "mute", "job <number> ended now")


def test_summaries_have_the_name_of_their_pattern(file: Path, log: str) -> None:
    add(file, "name", "job <*> ended now", "--value", "ends")
    found = run("dedup", "-q", "--rules", str(file), log)

    assert "(ends) job" in found.output


def test_file_is_another_name_of_the_option(file: Path) -> None:
    add(file, "mute", "job <*> ended now")
    for command in ("list", "audit", "export"):
        by_rules, by_file = (run("rules", command, name, str(file)) for name in NAMES)
        assert (by_file.exit_code, by_file.output) == (0, by_rules.output)


def test_list_undo_and_audit_tell_who_and_why(file: Path) -> None:
    add(file, "mute", "job <*> ended now", "--reason", "noise")
    (rule,) = json.loads(run("rules", "list", "--format", "json", "--rules", str(file)).output)
    undone = run("rules", "undo", rule["id"], "--rules", str(file), "--author", "bob")

    assert (rule["author"], rule["reason"], rule["undone"]) == ("ann", "noise", None)
    assert undone.output == f"undone: {rule['id']}\n"
    assert run("rules", "list", "--rules", str(file)).output == ""
    audit = run("rules", "audit", "--rules", str(file)).output
    assert " add by ann: noise\n" in audit
    assert " undo by bob\n" in audit


def test_nothing_of_a_pattern_reaches_the_terminal_raw(file: Path) -> None:
    add(file, "mute", "job \x1b[2J ended\rnow")

    assert "\x1b" not in run("rules", "list", "--rules", str(file)).output
    assert "\r" not in run("rules", "audit", "--rules", str(file)).output


def test_a_rule_that_contradicts_another_is_not_written(file: Path) -> None:
    add(file, "merge", "a b", "c d")
    before = file.read_bytes()
    with pytest.raises(RuleConflict):
        add(file, "never_merge", "a b", "c d")

    assert file.read_bytes() == before


def test_check_and_import_read_a_file(file: Path, tmp_path: Path) -> None:
    add(file, "merge", "a b", "c d")
    other = tmp_path / "other.toml"

    assert run("rules", "check", str(file)).output == "1 rules act, 0 were undone\n"
    for expected in ("1 added, 0 undone\n", "0 added, 0 undone\n"):
        assert run("rules", "import", str(file), "--rules", str(other)).output == expected
    assert run("rules", "export", "--rules", str(other)).output == file.read_text()


@pytest.mark.parametrize("command", ["check", "import"])
def test_a_file_that_is_not_there_is_named(command: str, file: Path) -> None:
    arguments = ["--rules", str(file)] if command == "import" else []
    with pytest.raises(RuleError, match=r"nowhere\.toml: cannot be read"):
        run("rules", command, "nowhere.toml", *arguments)


def test_explain_names_the_rules_that_act(file: Path) -> None:
    add(file, "merge", "job <*> ended now", "task <*> is over here", "--reason", "one program")
    (rule,) = json.loads(run("rules", "list", "--format", "json", "--rules", str(file)).output)
    lines = ("job 1 ended now", "task 2 is over here")
    plain = run("explain", *lines)
    ruled = run("explain", "--rules", str(file), *lines)
    other = run("explain", "--rules", str(file), lines[0], "something else 7")

    assert (plain.exit_code, ruled.exit_code, other.exit_code) == (3, 0, 3)
    assert f"rule {rule['id']} (merge) acts on the second line: one program" in ruled.output
    assert "rules keep them apart" in other.output


@pytest.mark.parametrize("command", ["list", "audit", "export"])
def test_a_file_that_is_not_there_is_not_a_file_without_rules(file: Path, command: str) -> None:
    with pytest.raises(RuleError, match="No such file"):
        run("rules", command, "--rules", str(file))


def test_a_pattern_that_no_event_matches_is_named(file: Path) -> None:
    added = run(
        "rules", "add", "never_merge", "job 7 of web ended", "job 8 ended", "--rules", str(file)
    )
    fitting = run(
        "rules",
        "add",
        "merge",
        'job <*> "<path>" ended',
        "x <5xx>",
        "lease <*> days <*>:ab:cd y",
        "--rules",
        str(file),
    )
    checked = run("rules", "check", str(file))

    expected = [
        f"events of recipe logs show a placeholder for {word!r}, so none matches {pattern!r}; "
        "write <*> there, and for a single value make the rule split"
        for word, pattern in (("7", "job 7 of web ended"), ("8", "job 8 ended"))
    ]
    for result in (added, checked):
        assert result.exit_code == 0
        notes = result.stderr.splitlines()
        assert [line.partition(": rule ")[2].partition(": ")[2] for line in notes] == expected
    assert fitting.stderr == ""


def test_a_pattern_is_checked_by_the_recipe_that_is_given(file: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "verbatim.toml"
    recipe.write_text("[text]\nclasses = false\n")
    pattern = "build v7 of main"
    shown = run("rules", "add", "mute", pattern, "--rules", str(file))
    literal = run("rules", "check", str(file), "--recipe", str(recipe))

    assert "for 'v7'" in shown.stderr
    assert literal.stderr == ""


def test_a_rule_is_not_added_if_its_recipe_is_unknown(file: Path) -> None:
    with pytest.raises(RecipeError):
        run("rules", "add", "mute", "build of main", "--rules", str(file), "--recipe", "nowhere")

    assert not file.exists()
