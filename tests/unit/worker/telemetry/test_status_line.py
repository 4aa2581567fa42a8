"""The status line: its text, and that only a terminal sees it."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from stream_dedup.engine.engine import Counts
from stream_dedup.worker.telemetry.logs import configure
from stream_dedup.worker.telemetry.reporter import PipelineStats
from stream_dedup.worker.telemetry.status_line import Rate, Status, StatusLine, line

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_the_line_shows_all_numbers() -> None:
    shown = line(Status(20_000, 19_000, 1_234, 567, 1), 12_345.6).plain
    expected = "12,346 events/s  95.0% duplicates  lag 1,234  567 clusters  1 batch  index ok"
    assert shown == expected


def test_what_is_not_known_yet_is_not_made_up() -> None:
    expected = "0 events/s  0.0% duplicates  lag …  … clusters  0 batches  index ok"
    assert line(Status(), 0).plain == expected


def test_trouble_with_the_index_comes_first_and_is_safe_to_print() -> None:
    assert line(Status(index="away \x1b[2J"), 0).plain.startswith("index away \\x1b[2J  0 events/s")


def test_the_rate_is_smoothed_and_forgets_no_event() -> None:
    rate = Rate()
    assert rate.after(0, 0) == 0
    assert rate.after(1_000, 1) == 1_000
    assert rate.after(1_500, 1) == 1_000  # no time has passed
    assert 1_000 < rate.after(3_000, 2) < 2_000
    for second in range(3, 40):
        shown = rate.after(3_000, second)
    assert shown < 1


def test_a_terminal_sees_one_line_that_is_taken_away() -> None:
    stream = Terminal()
    with StatusLine(stream) as status:
        status.show(Status(100, 50, 1, 2, 3), 0)
        status.show(Status(200, 100, 1, 2, 3), 1)
    shown = ESCAPES.sub("", stream.getvalue())
    assert shown.startswith("0 events/s")
    assert "\r100 events/s" in shown
    assert shown.count("\n") == 1  # where the line was when it was taken away
    assert stream.getvalue().count("\x1b[2K") >= 2  # the line is erased
    assert "\x1b[?25h" in stream.getvalue()  # and the cursor is there again


def test_a_narrow_terminal_shortens_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    with StatusLine(stream) as status:
        status.show(Status(100, 50, 1, 2, 3), 0)
    lines = re.split(r"[\r\n]+", ESCAPES.sub("", stream.getvalue()))
    assert any("events/s" in each for each in lines)
    assert not any("index" in each for each in lines)
    assert max(map(len, lines)) <= 30


@pytest.mark.parametrize("term", [None, "dumb"])
def test_a_file_and_a_dumb_terminal_see_nothing(
    monkeypatch: pytest.MonkeyPatch, term: str | None
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO() if term is None else Terminal()
    monkeypatch.setenv("TERM", term or "xterm")
    with StatusLine(stream) as status:
        status.show(Status(100, 50, 1, 2, 3), 0)
    assert stream.getvalue() == ""


def test_the_log_goes_on_above_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with configure(), StatusLine() as status:
        status.show(Status(events=1), 0)
        logging.getLogger("stream_dedup.test").warning("something [bold]happened[/bold]")
        status.show(Status(events=2), 1)
    assert sys.stderr is stream
    shown = ESCAPES.sub("", stream.getvalue())
    assert "something [bold]happened[/bold]" in shown
    assert "events/s" not in shown.partition("something")[2].partition("\n")[0]


def test_pipelines_are_summed_and_an_unknown_value_stays_unknown() -> None:
    first = PipelineStats(2, 5, 1, 0, Counts(40, new=10, duplicates=30), 10)
    second = PipelineStats(2, None, 2, 0, Counts(3, new=1, duplicates=2), 7)
    assert Status.of([first, second]) == Status(43, 32, None, 17, 3)
    assert Status.of([first._replace(clusters=None), second]).clusters is None
    assert Status.of([first], "waits: index") == Status(40, 30, 5, 10, 1, "waits: index")
    assert Status.of([]) == Status()
