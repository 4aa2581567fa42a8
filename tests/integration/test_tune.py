"""``stream-dedup tune``, as a person runs it."""

from __future__ import annotations

import gzip
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from stream_dedup.features.recipe import load_recipe
from tests.integration.command import COMMAND, Done, run, run_measured
from tests.integration.test_terminal import ESCAPES, HOSTILE, on_terminal, printable

ACCOUNTS = Path(__file__).parents[2] / "docs" / "examples" / "accounts.log"


def asked(done: Done) -> list[str]:
    """The titles of the questions."""
    return re.findall(r"^[0-9]+\. .*$", done.out.decode(), re.MULTILINE)


def test_nothing_is_taken_from_beside_the_text_if_the_recipe_does_not(tmp_path: Path) -> None:
    lines = [
        {"level": ["info", "error"][n % 2], "msg": f"session {'abcdefghij'[n]}"} for n in range(10)
    ]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    without = ("--set", "match.variants=[]", "--set", "match.protected=[]")
    assert "‹" not in run("tune", *without, path).out.decode().partition("Are these")[0]


def test_trials_see_the_other_columns_of_a_table(tmp_path: Path) -> None:
    """Also if the recipe takes nothing from them."""
    path = tmp_path / "a.csv"
    rows = [f"disk {n} is full,{['info', 'error'][n % 2]}" for n in range(40)]
    path.write_text("\n".join(["msg,level", *rows]))
    document = run("tune", "-r", "logs-1", "--json", path).objects[0]
    (question,) = document["questions"]
    assert 'match.variants = ["level"]' in (question["change"], *question["same_effect"])
    assert (question["clusters"], question["moved"]) == (2, 20)


def test_questions_come_with_what_answers_them() -> None:
    done = run("tune", ACCOUNTS)

    assert done.code == 0
    assert asked(done) == [
        "1. Are these different kinds of event? 26 events would move.",
        "2. Are these one kind of event? 8 events would join others.",
        "3. Are these different kinds of event? 65 events would move.",
        "4. Are these different kinds of event? 39 events would move.",
        "5. Are these one kind of event? 3 events would join others.",
    ]
    assert b"   If so: --set match.learn=3\n" in done.out
    assert done.err == ""


def test_two_runs_print_the_same() -> None:
    assert run("tune", ACCOUNTS).out == run("tune", ACCOUNTS).out


@pytest.mark.parametrize("way", ["file", "standard input", "gzip", "pattern"])
def test_it_reads_what_the_other_commands_read(tmp_path: Path, way: str) -> None:
    (tmp_path / "accounts.log.gz").write_bytes(gzip.compress(ACCOUNTS.read_bytes()))
    args, stdin = {
        "file": ([ACCOUNTS], b""),
        "standard input": ([], ACCOUNTS.read_bytes()),
        "gzip": ([tmp_path / "accounts.log.gz"], b""),
        "pattern": ([tmp_path / "*.gz"], b""),
    }[way]

    assert len(asked(run("tune", *args, stdin=stdin))) == 5


def test_the_json_object_has_all_of_it() -> None:
    (report,) = run("tune", "--json", ACCOUNTS).objects

    assert {key: report[key] for key in ("recipe", "lines", "events", "patterns", "clusters")} == {
        "recipe": "logs", "lines": 126, "events": 126, "patterns": 25, "clusters": 10,
    }  # fmt: skip
    assert report["places"] == [
        {
            "pattern": "<timestamp> WARN auth: password of <*> expires in <number> <unit>",
            "wanted": 5,
            "distinct": 3,
            "events": 12,
            "values": [{"word": word, "events": 4} for word in ("alice", "bob", "carol")],
        }
    ]
    second = report["questions"][1]
    assert (second["question"], second["options"], second["moved"], second["clusters"]) == (
        2, ["--set", "match.learn=3"], 8, 8,
    )  # fmt: skip
    assert [part["events"] for part in second["merges"][0]["parts"]] == [4, 4, 4]
    assert report["accepted"]["questions"] == [1, 2]


def test_tables_are_looked_at_by_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    rows = [b"session closed for user %b" % name for name in (b"ann", b"bob", b"cid", b"cid")]
    path.write_bytes(b"id,body\n" + b"".join(b"1,%b\n" % row for row in rows) + b"2,\n3\n")
    done = run("tune", path)

    assert done.code == 0
    assert asked(done) == ["1. Are these one kind of event? 2 events would join others."]
    assert b"  not compared, no value: 1\n" in done.out
    assert "1 row(s) do not have the 2 fields of the header" in done.err
    refused = run("tune", "--start-regex", "a", path)
    assert "--start-regex is for lines; the input is a table (csv)" in refused.err


def test_a_written_recipe_does_what_was_said(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    done = run("tune", "--accept", "2", "--output", recipe, ACCOUNTS)

    assert done.code == 0
    assert done.err == f"stream-dedup: {recipe}: a recipe with the answers 2\n"
    loaded = load_recipe(str(recipe))
    assert (loaded.name, loaded.description) == ("mine", "logs, tuned: match.learn = 3.")
    report = run("dedup", "-r", recipe, "--top", "100", "--output-format", "jsonl", ACCOUNTS)
    assert len(report.objects) == 8


def test_the_suggested_answers_are_written_unless_others_are_given(tmp_path: Path) -> None:
    run("tune", "--output", tmp_path / "suggested.toml", ACCOUNTS)
    run("tune", "--accept", "", "--output", tmp_path / "none.toml", ACCOUNTS)

    suggested, none = (load_recipe(str(tmp_path / f"{n}.toml")) for n in ("suggested", "none"))
    assert suggested.match.learn == 3
    assert {"captured", "settled"} < {*suggested.match.protected}
    assert none.digest == load_recipe("logs").digest


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    place = tmp_path / "mine.toml"
    place.write_text("mine")

    refused = run("tune", "--output", place, ACCOUNTS)
    assert (refused.code, refused.out) == (2, b"")
    assert "is there already; give another name, or --force" in refused.err
    assert place.read_text() == "mine"
    assert run("tune", "--force", "--output", place, ACCOUNTS).code == 0
    assert load_recipe(str(place)).match.learn == 3


def test_groups_are_named_beside_the_recipe(tmp_path: Path) -> None:
    lines = b"".join(
        b'{"app":"%b","msg":"disk %d is full"}\n' % (app, n)
        for n in range(20)
        for app in (b"api", b"web")
    )
    done = run("tune", "--accept", "1", "-o", tmp_path / "g.toml", stdin=lines)

    assert b"   If so: --group-field app\n" in done.out
    assert b"              20  app api\n" in done.out
    text = (tmp_path / "g.toml").read_text()
    assert "# Groups are not part of a recipe. Give as well: --group-field app\n" in text


@pytest.mark.parametrize(
    ("accept", "reason"),
    [
        ("6", "there is no question 6; there are 5"),
        ("0", "are not numbers of questions; write 1,3 or suggested"),
        ("all", "are not numbers of questions; write 1,3 or suggested"),
        ("9" * 5000, "there is no question"),
    ],
)
def test_numbers_that_are_no_question_are_refused(accept: str, reason: str, tmp_path: Path) -> None:
    done = run("tune", "--accept", accept, "-o", tmp_path / "r.toml", ACCOUNTS)

    assert done.code == 2
    assert reason in done.err
    assert not (tmp_path / "r.toml").exists()


def test_what_was_not_looked_at_is_said() -> None:
    done = run("tune", "--limit", "100", "--patterns", "5", ACCOUNTS)

    assert b"  only the first 100 lines were read: --limit\n" in done.out
    assert re.search(rb"the first 5 patterns are [0-9.]+% of the events; others were", done.out)


@pytest.mark.parametrize("stdin", [b"", b"\n\n", b"{}\n"])
def test_without_an_event_it_says_why(stdin: bytes) -> None:
    done = run("tune", stdin=stdin)

    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith("stream-dedup: there is no event to look at")


def test_a_file_that_cannot_be_read_is_named_and_others_are_looked_at(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(os.urandom(4096))[:1000])
    done = run("tune", tmp_path / "missing.log", broken, ACCOUNTS)

    assert done.code == 1
    assert "missing.log: cannot be opened: No such file or directory" in done.err
    assert "broken.gz: cannot be read: " in done.err
    assert len(asked(done)) >= 5


def test_hostile_words_are_shown_as_escapes(tmp_path: Path) -> None:
    word = HOSTILE.replace(b" ", b"_")
    lines = b"".join(b"session closed for %b%b\n" % (word, end) for end in (b"a", b"b", b"b"))
    path = tmp_path / "hos\x1btile\n.log"
    path.write_bytes(lines + b"[bold]the user %s logs in\n" * 3)

    for args in (("tune", path), ("tune", "--json", path)):
        done = run(*args)
        assert done.code == 0
        assert printable(done.out)
        _, shown, _, _ = on_terminal(*args, out=True, err=True)
        assert printable(shown)
    run("tune", "--output", tmp_path / "r.toml", path)
    assert load_recipe(str(tmp_path / "r.toml")).name == "r"


def test_many_patterns_and_long_lines_take_bounded_memory(tmp_path: Path) -> None:
    letters = [bytes([97 + n]) * 3 for n in range(26)]
    source = (
        b" ".join((letters[n % 26], letters[n // 26 % 26], letters[n // 676 % 26], b"x" * 5_000))
        + b"\n"
        for n in range(40_000)
    )
    done, peak_mb = run_measured(source, tmp_path / "out", "tune", "--patterns", "500")

    assert done.code == 0
    assert peak_mb < 200


# ------------------------------------------------------------ on a terminal


def typed(answers: bytes, folder: Path) -> str:
    """Run it on a terminal, answer its questions, and return what was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "tune", ACCOUNTS],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, answers)
        shown, end = b"", time.monotonic() + 60
        while time.monotonic() < end:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                shown += os.read(ours, 65536)
            except OSError:
                break  # the other side is closed
        assert process.wait(20) == 0
    os.close(ours)
    return ESCAPES.sub(b"", shown).decode().replace("\r", "")


def test_a_person_is_asked_what_to_write(tmp_path: Path) -> None:
    shown = typed(b"2\n\n", tmp_path)

    assert "Numbers of the questions that you answer with yes" in shown
    assert "recipe.toml: a recipe with the answers 2" in shown
    assert load_recipe(str(tmp_path / "recipe.toml")).match.learn == 3


def test_enter_writes_nothing(tmp_path: Path) -> None:
    typed(b"\n", tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_asked_nothing() -> None:
    done = run("tune", stdin=ACCOUNTS.read_bytes())

    assert done.code == 0
    assert b"Numbers of the questions" not in done.out + done.err.encode()


def test_lines_are_cut_to_the_width_of_a_terminal() -> None:
    _, shown, _, _ = on_terminal("tune", ACCOUNTS, out=True, err=False, columns=60)

    assert max(map(len, ESCAPES.sub(b"", shown).decode().splitlines())) <= 60


def test_the_json_of_a_terminal_is_the_same() -> None:
    _, shown, _, _ = on_terminal("tune", "--json", ACCOUNTS, out=True, err=False)

    assert msgspec.json.decode(shown) == run("tune", "--json", ACCOUNTS).objects[0]
