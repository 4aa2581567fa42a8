"""``stream-dedup dedup --patterns-out``, as a person runs it."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.command import live, run

START_S = 1_700_000_000

COMMON = [
    "connection from 10.0.0.{} accepted by gateway",
    "checkpoint {} written to the disk in time",
    "session of user {} was closed by its owner",
]

EXPECTED = [
    ("new", "<timestamp> checkpoint <number> written to the disk in time"),
    ("new", "<timestamp> connection from <ipv4> accepted by gateway"),
    ("new", "<timestamp> heartbeat <number> of the standby arrived"),
    ("new", "<timestamp> session of user <number> was closed by its owner"),
    ("vanished", "<timestamp> heartbeat <number> of the standby arrived"),
    ("spike", "<timestamp> connection from <ipv4> accepted by gateway"),
    ("new", "<timestamp> disk array lost block <number> of its mirror"),
]


def line(second: int, text: str) -> str:
    return f"{datetime.fromtimestamp(START_S + second, UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four hours: a heartbeat that stops after two, a burst after three, then something new."""
    numbers = random.Random(3)
    lines = []
    for second in range(4 * 3600):
        lines += [
            (second, numbers.choice(COMMON).format(numbers.randrange(250)))
            for _ in range(numbers.randrange(3))
        ]
        if second < 2 * 3600 and second % 10 == 0:
            lines.append((second, f"heartbeat {second} of the standby arrived"))
    lines += [(3 * 3600 + each // 20, COMMON[0].format(each % 250)) for each in range(600)]
    lines.append((3 * 3600 + 1800, "disk array lost block 7 of its mirror"))
    path = tmp_path / "app.log"
    path.write_text("".join(line(*each) for each in sorted(lines, key=lambda each: each[0])))
    return path


def events(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(each) for each in path.read_bytes().splitlines()]


def kinds(path: Path) -> list[tuple[str, str]]:
    """The events' changes and patterns; those of the first minute in order of their patterns."""
    found = [(event["change"], event["pattern"]) for event in events(path)]
    return sorted(found[:4]) + found[4:]


@pytest.mark.parametrize(
    "options", [(), ("--emit", "drop"), ("--top", "3"), ("--summary-every", "off")], ids=str
)
def test_events_are_the_same_whatever_else_is_written(
    log: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out = tmp_path / "events.jsonl"
    done = run("dedup", "--patterns-out", out, *options, log)
    assert (done.code, done.err) == (0, "")
    assert kinds(out) == EXPECTED


def test_a_burst_says_how_many_events_were_expected(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    run("dedup", "--patterns-out", out, log)
    (spike,) = [event for event in events(out) if event["change"] == "spike"]
    assert spike["count"] > 500
    assert 15 < spike["expected"] < 25
    assert spike["time"].startswith("2023-11-15T01:13")


def test_lines_and_summaries_are_as_without(log: Path, tmp_path: Path) -> None:
    with_events = run("dedup", "--patterns-out", tmp_path / "events.jsonl", log)
    assert with_events.out == run("dedup", "--time-format", "auto", log).out


def test_a_pipe_gets_its_events_while_it_is_open(tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    with live("dedup", "--patterns-out", out) as process:
        process.write(line(0, "disk sda is full").encode())
        process.write(line(90, "disk sdb is full").encode())
        process.write(line(180, "another thing").encode())
        process.wait_for("another thing")
        process.write(line(300, "the end").encode())
        process.wait_for("the end")
        process.end(close=True)
    assert [event["change"] for event in events(out)] == ["new"] * len(events(out))
    assert {event["time"] for event in events(out)} >= {"2023-11-14T22:13:20Z"}


def test_a_file_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    done = run("dedup", "--patterns-out", tmp_path / "no" / "events.jsonl", stdin=b"a line\n")
    assert (done.code, done.out) == (1, b"")
    assert "cannot be written: No such file or directory" in done.err


def test_a_table_has_no_events(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,text\n1,hello there\n")
    done = run("dedup", "--patterns-out", tmp_path / "events.jsonl", path)
    assert done.code == 2
    assert "--patterns-out is for lines" in done.err
