"""``stream-dedup volume``, as a person runs it."""

from __future__ import annotations

import gzip
import os
import random
import re
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dedup.features.recipe import load_recipe
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.ui.files import FileSource
from stream_dedup.ui.patterns import Query
from stream_dedup.ui.views.volume import volume_list
from tests.integration.command import COMMAND, live, run
from tests.unit.ui.helpers import find

LOGS = Path(__file__).parents[2] / "examples" / "logs"

RULES = """\
[[rules]]
kind = "mute"
pattern = "<*> heartbeat of <*> is fine"

[[rules]]
kind = "keep"
pattern = "<*> disk array lost block <number>"
per_minute = 2
"""


def write(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def minutes(*events: tuple[int, str]) -> list[str]:
    """Lines in these minutes."""
    return [
        f"2024-05-07T09:{minute:02d}:{second % 60:02d}Z {text}"
        for second, (minute, text) in enumerate(events)
    ]


def volume(
    *args: str | Path, stdin: bytes = b"", code: int = 0
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run it; gives the line of all that was read, whose figures add up, and the patterns."""
    done = run("volume", "--json", *args, stdin=stdin)
    assert done.code == code, done.err
    whole, *patterns = done.objects
    parts = [whole["patterns"], *whole["passed"].values(), whole["line_ends"]]
    for figure in ("bytes_in", "bytes_out", "events"):
        assert sum(part[figure] for part in parts) == whole[figure]
    assert all(part["bytes_out"] >= 0 for part in parts)
    if whole["listed"] == whole["patterns"]["number"]:
        for figure in ("bytes_in", "bytes_out", "events"):
            assert sum(each[figure] for each in patterns) == whole["patterns"][figure]
        assert sum(each["drop_saves"] for each in patterns) == whole["drop_saves"]
        assert sum(each["keep_saves"] or 0 for each in patterns) == (whole["keep_saves"] or 0)
    return whole, patterns


def figures(line: bytes) -> list[int]:
    """The figures of a line of the table, without the share."""
    cells = re.split(r" {2,}", line.decode().strip())[:5]
    del cells[1]
    return [0 if cell == "-" else int(cell.replace(",", "")) for cell in cells]


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.gz")), ids=lambda path: path.name)
def test_every_byte_of_a_log_is_counted_once(path: Path) -> None:
    text = gzip.decompress(path.read_bytes())
    whole, patterns = volume("--top", "100000", path)
    events = sum(each["events"] for each in patterns)
    events += sum(each["events"] for each in whole["passed"].values())
    ends = whole["line_ends"]["bytes_in"]
    assert whole["bytes_in"] == len(text)
    assert (whole["events"], ends <= text.count(b"\n")) == (events, True)
    sizes = [each["bytes_in"] for each in patterns]
    assert sizes == sorted(sizes, reverse=True)


def test_lines_of_a_table_add_up_to_its_last_line(tmp_path: Path) -> None:
    numbers = random.Random(1)
    words = ["alpha", "beta", "gamma", "delta", "omega"]
    events = [(n // 40, f"{(w := numbers.choice(words))} {w}-like {n}") for n in range(400)]
    path = write(tmp_path / "app.log", [*minutes(*events), "", " "])
    done = run("volume", "--top", "3", "--per-minute", "4", path)
    assert (done.code, done.err) == (0, "")
    head, *lines, last = done.lines
    assert head.split(b"  ")[-1] == b"pattern"
    assert lines[3].endswith(b"2 more patterns, with a higher --top")
    assert lines[-2].endswith(b"not compared: nothing to fingerprint")
    assert lines[-1].endswith(b"line ends")
    assert last.endswith(b"all that was read")
    columns = zip(*map(figures, lines), strict=True)
    assert [sum(column) for column in columns] == figures(last)
    assert figures(last)[0] == path.stat().st_size


def test_drop_saves_repeats_and_keep_those_beyond_n(tmp_path: Path) -> None:
    text = "disk array lost block {}"
    events = [(minute, text.format(n)) for minute in (1, 2, 3) for n in range(10, 20)]
    path = write(tmp_path / "app.log", minutes(*events, (9, "some other thing")))
    whole, (lost, other) = volume("--per-minute", "4", path)
    size = len(minutes((1, text.format(10)))[0])
    assert (lost["events"], lost["bytes_in"]) == (30, 30 * size)
    assert (lost["drop_saves"], lost["keep_saves"]) == (29 * size, 18 * size)
    assert (other["drop_saves"], other["keep_saves"]) == (0, 0)
    assert whole["line_ends"]["bytes_in"] == 31


def test_without_times_nobody_knows_what_keep_saves(tmp_path: Path) -> None:
    path = write(tmp_path / "app.log", [f"disk array lost block {n}" for n in range(9)])
    done = run("volume", path)
    assert done.lines[1].split()[3] == b"-"
    assert "no event has a time" in done.err
    assert volume(path)[0]["keep_saves"] is None


def test_bytes_out_are_those_that_annotate_writes(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    events = [(n // 9, "heartbeat of web is fine") for n in range(30)]
    events += [(n // 9 + 4, f"disk array lost block {n}") for n in range(40)]
    path = write(tmp_path / "app.log", [*minutes(*events), "..."])
    whole, patterns = volume("--rules", rules, path)
    annotate = ("--emit", "annotate", "--time-format", "auto")
    written = run("dedup", *annotate, "--rules", rules, path).lines
    left = [line.split(b"\t", 3)[3] + b"\n" for line in written]
    assert whole["bytes_out"] == sum(map(len, left))
    assert whole["bytes_out"] < whole["bytes_in"] == path.stat().st_size
    line = len(minutes((1, "heartbeat of web is fine"))[0])
    assert [each["bytes_out"] for each in patterns if "heartbeat" in each["pattern"]] == [line]
    table = run("volume", "--rules", rules, path).lines
    assert b"bytes out" in table[0]
    assert table[-1].split()[2].replace(b",", b"") == b"%d" % whole["bytes_out"]


def test_figures_are_those_of_the_web_application(tmp_path: Path) -> None:
    path = tmp_path / "auth.log"
    path.write_bytes(gzip.decompress(next(LOGS.glob("*.gz")).read_bytes()))
    source = FileSource(
        [str(path)],
        load_recipe("logs"),
        DecoderOptions(time_format="auto", group_prefix="source", join=True),
        100_000,
    )
    source.read()
    query = Query(sort="bytes", limit=20)
    found = find(list(source.entries.values()), query, source.axis)
    page = volume_list(source, found, 1, 10)
    whole, patterns = volume(path)
    assert sorted(
        (each["bytes_in"], each["events"], each["drop_saves"]) for each in patterns
    ) == sorted((each.bytes_in, each.pattern.count, each.drop_saves) for each in page.patterns)
    assert (whole["patterns"]["bytes_in"], whole["drop_saves"]) == (page.bytes_in, page.drop_saves)


def test_several_inputs_are_counted_together(tmp_path: Path) -> None:
    lines = minutes(*((n // 50, f"session {n} was closed by its owner") for n in range(200)))
    old, new = write(tmp_path / "old.log", lines[:100]), tmp_path / "new.gz"
    text = "".join(f"{line}\n" for line in lines[100:]).encode()
    new.write_bytes(gzip.compress(text))
    whole, patterns = volume(old, new, old, "-", stdin=text)
    assert [each["events"] for each in patterns] == [400]
    assert whole["bytes_in"] == 2 * old.stat().st_size + 2 * len(text)


def test_an_input_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "app.log", ["a line of text"] * 5)
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(os.urandom(3000).hex().encode())[:-900])
    whole, _ = volume(tmp_path / "missing", path, code=1)
    assert whole["bytes_in"] == path.stat().st_size
    whole, _ = volume(cut, path, code=1)
    assert whole["bytes_in"] > path.stat().st_size
    assert "missing: cannot be opened" in run("volume", tmp_path / "missing").err


def test_wrong_options_end_with_two_and_read_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "app.log", ["a line of text"])
    table = write(tmp_path / "a.csv", ["body", "a text"])
    for args, said in (
        (("--per-minute", "0", path), "--per-minute"),
        (("--top", "0", path), "--top"),
        (("-r", "nothing", path), "nothing"),
        (("--rules", tmp_path / "none.toml", path), "none.toml"),
        (("--group-regex", "x", path), "named group"),
        (("--time-format", "iso", table), "--time-format is for lines"),
        (("-r", "json", table), "reads fields"),
        ((path, table), "read them in two runs"),
    ):
        done = run("volume", *args)
        assert (done.code, done.out) == (2, b""), args
        assert said in done.err


def test_an_empty_input_takes_nothing(tmp_path: Path) -> None:
    whole, patterns = volume(write(tmp_path / "empty", []))
    assert (whole["bytes_in"], whole["patterns"]["number"], patterns) == (0, 0, [])
    assert run("volume", stdin=b"").lines[-1].split()[:2] == [b"0", b"0.0%"]


@pytest.mark.parametrize(
    "data",
    [
        b"no end of a line",
        b"\n\n\n",
        b"a text\r\nof Windows\r\n",
        b"x" * (9 << 20) + b" one line\nand another\n" + b"y" * (9 << 20),
        random.Random(2).randbytes(200_000),
    ],
    ids=["no-end", "empty-lines", "crlf", "too-long", "binary"],
)
def test_bytes_of_any_kind_are_counted(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    whole, _ = volume("--join", "off", path)
    assert (whole["bytes_in"], whole["line_ends"]["bytes_in"]) == (len(data), data.count(b"\n"))


def test_lines_of_a_trace_are_bytes_of_its_event(tmp_path: Path) -> None:
    trace = ["ERROR job failed", "Traceback (most recent call last):", '  File "app.py", line 1',
             "    raise ValueError(name)", "ValueError: no such name"]  # fmt: skip
    path = write(tmp_path / "app.log", trace * 30)
    whole, patterns = volume(path)
    assert [each["events"] for each in patterns] == [30]
    assert patterns[0]["bytes_in"] == 30 * len("\n".join(trace))
    assert whole["line_ends"]["bytes_in"] == 30


def test_closed_patterns_are_still_counted(tmp_path: Path) -> None:
    words = ["alpha", "beta", "gamma", "delta", "omega", "sigma"]
    lines = [f"{word} {word}-like" for word in words * 5_000]  # several batches
    path = write(tmp_path / "app.log", lines)
    done = run("volume", "--json", "--max-clusters", "2", path)
    whole = done.objects[0]
    assert whole["bytes_in"] == path.stat().st_size
    assert whole["patterns"]["events"] == len(lines)
    assert whole["patterns"]["number"] > len(words)


def test_tables_are_counted_by_their_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["id,body", *(f"{n},the parcel arrived" for n in range(30))])
    whole, patterns = volume("--text-field", "body", "--top", "3", path, path)
    assert (patterns[0]["events"], whole["bytes_in"]) == (60, 60 * len("the parcel arrived"))


def test_ctrl_c_reports_what_came_through_a_pipe() -> None:
    with live("volume", "--json") as pipe:
        pipe.write(b"a line of text\n" * 50)
        pipe.wait_until_read()
        pipe.signal(signal.SIGINT)
        done = pipe.end()
    assert (done.code, msgspec.json.decode(done.lines[0])["bytes_in"]) == (130, 750)


def test_an_output_that_cannot_be_written_ends_with_one(tmp_path: Path) -> None:
    path = write(tmp_path / "app.log", ["a line of text"])
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([COMMAND, "volume", path], stdout=full, check=False)
    assert done.returncode == 1
