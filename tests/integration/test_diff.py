"""``stream-dedup diff``, as a person runs it."""

from __future__ import annotations

import gzip
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import COMMAND, Done, run
from tests.unit.ui.helpers import client_of, file_source

LOGS = Path(__file__).parents[2] / "examples" / "logs"
START_S = 1_700_000_000

COMMON = [
    "connection from 10.0.0.{} accepted by gateway",
    "checkpoint {} written to the disk in time",
    "session of user {} was closed by its owner",
    "cache refreshed after {} requests were served",
]


def hour(seed: int, *bursts: tuple[str, int]) -> list[str]:
    """The lines of an hour, one a second, and bursts of other lines at a random time."""
    numbers = random.Random(seed)
    lines = [
        (second, numbers.choice(COMMON).format(numbers.randrange(250))) for second in range(3600)
    ]
    for text, count in bursts:
        begin = numbers.randrange(3000)
        lines += [
            (begin + each // 10, text.format(numbers.randrange(250))) for each in range(count)
        ]
    return [
        f"2023-11-14T{22 + second // 3600}:{second // 60 % 60:02d}:{second % 60:02d}Z {line}"
        for second, line in sorted(lines, key=lambda pair: pair[0])
    ]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def compare(
    *args: str | Path, stdin: bytes = b""
) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Run it; gives the exit code, the head and the changes."""
    done = run("diff", "--json", *args, stdin=stdin)
    assert done.err == ""
    head, *changes = done.objects
    return done.code, head, changes


def seen(changes: list[dict[str, Any]]) -> list[tuple[str, bool, int, int]]:
    return [(c["change"], c["significant"], c["old"], c["new"]) for c in changes]


def outcome(done: Done) -> tuple[int, str]:
    return done.code, done.err


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.gz")), ids=lambda path: path.name)
def test_a_file_has_not_changed_from_itself(path: Path) -> None:
    code, head, changes = compare(path, path)
    assert (code, head["changed"], changes) == (0, 0, [])
    assert head["old"] == head["new"]


def test_two_hours_of_the_same_service_have_not_changed(tmp_path: Path) -> None:
    old, new = write(tmp_path / "old", hour(1)), write(tmp_path / "new", hour(2))
    done = run("diff", old, new)
    assert outcome(done) == (0, "")
    assert done.lines[-1] == b"no change: 4 patterns compared"


def test_injected_bursts_are_the_changes_most_unlikely_first(tmp_path: Path) -> None:
    old = write(tmp_path / "old", hour(1, ("tape drive {} is rewinding slowly", 60)))
    new = write(
        tmp_path / "new",
        hour(2, ("disk array lost block {} of its mirror", 400), (COMMON[0], 2000),
             ("once in a while {} a thing happens", 1)),
    )  # fmt: skip
    code, head, changes = compare(old, new)
    assert (code, head["per"], head["patterns"], head["changed"]) == (1, "time", 7, 3)
    assert [(c["change"], c["significant"]) for c in changes] == [
        ("more", True),
        ("new", True),
        ("vanished", True),
        ("new", False),
    ]
    assert [c["log10_p"] for c in changes] == sorted(c["log10_p"] for c in changes)
    assert changes[1]["pattern"].endswith("disk array lost block <number> of its mirror")


def test_a_longer_period_is_no_change_of_rates(tmp_path: Path) -> None:
    lines = hour(1)
    old, new = write(tmp_path / "old", lines), write(tmp_path / "new", lines[:900])
    assert compare(old, new)[:1] == (0,)


def test_rates_are_per_event_where_no_time_is_told(tmp_path: Path) -> None:
    lines = [line.partition(" ")[2] for line in hour(1)]
    old, new = write(tmp_path / "old", lines), write(tmp_path / "new", lines[:900])
    code, head, changes = compare(old, new)
    assert (code, head["per"], changes) == (0, "events", [])
    refused = run("diff", "--per", "time", old, new)
    assert refused.code == 2
    assert "its events tell no length of time" in refused.err


def test_a_file_is_compared_before_and_after_a_time(tmp_path: Path) -> None:
    lines = hour(1)
    lines[1800:] = [line.replace("checkpoint", "Checkpoint lately") for line in lines[1800:]]
    path = write(tmp_path / "app.log", lines)
    code, head, changes = compare("--split", "2023-11-14T22:30Z", path)
    assert (code, head["old"]["events"], head["new"]["events"]) == (1, 1800, 1800)
    assert sorted(c["change"] for c in changes) == ["new", "vanished"]


def test_a_side_may_be_many_files_or_standard_input(tmp_path: Path) -> None:
    lines = hour(1)
    for number in range(4):
        part = "".join(f"{line}\n" for line in lines[900 * number : 900 * (number + 1)])
        (tmp_path / f"part-{number}.gz").write_bytes(gzip.compress(part.encode()))
    whole = "".join(f"{line}\n" for line in lines).encode()
    code, head, changes = compare(str(tmp_path / "part-*.gz"), "-", stdin=whole)
    assert (code, changes) == (0, [])
    assert head["old"] | {"name": ""} == head["new"] | {"name": ""}
    assert head["new"]["name"] == "standard input"


def test_clusters_that_merge_in_the_second_file_are_one(tmp_path: Path) -> None:
    names = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"]
    lines = [f"session of user {name} was opened from the console" for name in names]
    old, new = write(tmp_path / "old", lines[:2] * 4), write(tmp_path / "new", lines)
    code, head, changes = compare(old, new)
    assert (code, head["patterns"], seen(changes)) == (0, 1, [])


def test_an_empty_file_makes_everything_new(tmp_path: Path) -> None:
    empty, full = write(tmp_path / "empty", []), write(tmp_path / "full", ["a b c", "a b c", "x y"])
    assert seen(compare(empty, full)[2]) == [("new", True, 0, 2), ("new", True, 0, 1)]
    assert seen(compare(full, empty)[2]) == [("vanished", True, 2, 0), ("vanished", True, 1, 0)]
    assert run("diff", empty, empty).lines[-1] == b"no change: neither has an event"


def test_binary_files_are_compared_and_shown_safely(tmp_path: Path) -> None:
    old, new = tmp_path / "old\x1b[2J", tmp_path / "new"
    old.write_bytes(random.Random(1).randbytes(20_000))
    new.write_bytes(b"\x1b[2J\x9b\xff cleared the screen of everyone\n" * 50)
    done = run("diff", old, new, "--color", "always")
    assert done.code == 1
    plain = re.sub(rb"\x1b\[[0-9]+m", b"", done.out)
    assert b"\x1b" not in plain
    assert not set(plain.decode()) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))


def test_what_cannot_be_compared_ends_with_two(tmp_path: Path) -> None:
    path = write(tmp_path / "app.log", ["no time is told here"])
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"a line\n" * 1000)[:-9])
    for args, said in (
        ((path,), "give OLD and NEW"),
        (("--split", "2024-01-01", path, path), "with --split, one FILE"),
        (("-", "-"), "cannot both be standard input"),
        ((path, tmp_path / "missing"), "missing: cannot be opened"),
        ((path, cut), "cut.gz"),
        (("--split", "2024-01-01", path), "no event has a time"),
        (("-r", "nothing", path, path), "nothing"),
    ):
        done = run("diff", *args)
        assert (done.code, done.out) == (2, b""), args
        assert said in done.err


def test_an_output_that_cannot_be_written_ends_with_two(tmp_path: Path) -> None:
    path = write(tmp_path / "app.log", ["a line of text"])
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([COMMAND, "diff", path, path], stdout=full, check=False)
    assert done.returncode == 2


def test_tables_are_compared_by_their_column(tmp_path: Path) -> None:
    old = write(tmp_path / "old.csv", ["id,body", *(f"{n},the parcel arrived" for n in range(30))])
    new = write(tmp_path / "new.csv", ["id,body", *(f"{n},the parcel is lost" for n in range(30))])
    changes = compare("--text-field", "body", old, new)[2]
    assert seen(changes) == [("vanished", True, 30, 0), ("new", True, 0, 30)]
    assert len(compare("--text-field", "body", "--top", "1", old, new)[2]) == 1


def test_stack_traces_are_one_event_each(tmp_path: Path) -> None:
    trace = [
        "Traceback (most recent call last):",
        '  File "app.py", line {}, in work',
        "    raise ValueError(name)",
        "ValueError: no such name",
    ]
    old = write(tmp_path / "old", ["worker started"] * 40)
    new = write(
        tmp_path / "new",
        ["worker started"] * 60 + ["ERROR job failed", *(line.format(7) for line in trace)] * 40,
    )
    assert seen(compare(old, new)[2]) == [("new", True, 0, 40)]


def test_groups_keep_equal_messages_apart(tmp_path: Path) -> None:
    old = write(tmp_path / "old", ['{"app":"a","msg":"started well"}'] * 30)
    new = write(tmp_path / "new", ['{"app":"b","msg":"started well"}'] * 30)
    assert compare(old, new)[:1] == (0,)
    changes = compare("--group-field", "app", old, new)[2]
    assert [(c["change"], c["group"]) for c in changes] == [
        ("vanished", {"app": "a"}),
        ("new", {"app": "b"}),
    ]


def test_top_cuts_the_list_and_says_so(tmp_path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta", "omega"]
    old = write(tmp_path / "old", ["nothing else"])
    new = write(tmp_path / "new", [f"{word} {word}-like" for word in words])
    done = run("diff", "--top", "2", old, new)
    assert done.lines[-1].endswith(b"; 4 more are listed with a higher --top")
    assert len(compare("--top", "2", old, new)[2]) == 2


def test_a_split_file_has_the_changes_that_the_web_application_shows(tmp_path: Path) -> None:
    texts = {
        "tape drive is rewinding slowly": 40, "disk array lost its mirror again": 300,
        "fan of the rack turns faster": 9, "somebody opened both doors": 1_000,
        "lamp went dark": 3, "wheel {} fell off the cart at noon": 90,
    }  # fmt: skip
    bursts = [
        f"2023-11-14T22:{55 if early else '05'}:{each % 60:02d}Z {text.format(each)}"
        for early, (text, count) in zip((0, 1) * 3, texts.items(), strict=True)
        for each in range(count)
    ]
    path = tmp_path / "app.log"
    source = file_source(path, map(str.encode, sorted(hour(1) + bursts)))
    found = client_of(source).get("/api/v1/sources/files/changes").json()
    code, head, changes = compare("--split", found["new"]["start"], path)
    shown = [{**each, "pattern": each["pattern"]["pattern"]} for each in found["changes"]]
    keys = "pattern", "change", "old", "new"

    assert (head["per"], found["per"], code) == ("time", "time", 1)
    assert [[each[key] for key in keys] for each in shown if each["sure"]] == [
        [each[key] for key in keys] for each in changes if each["significant"]
    ]
    assert found["changed"] == head["changed"] > 3
    assert {each["change"] for each in changes} == {"new", "vanished"}
