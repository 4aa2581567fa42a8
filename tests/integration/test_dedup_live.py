"""Live pipes: lines leave as they come, summaries on their way, and every way to end."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.integration.command import COMMAND, Done, live, repeats, run, shell

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize("emit", ["merge", "drop", "annotate"])
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_a_line_is_out_before_the_next_is_written(emit: str, form: str) -> None:
    with live("dedup", "-e", emit, "--output-format", form) as pipe:
        for word in ("alpha", "beta", "gamma"):
            pipe.write(f"the service {word} went away\n".encode())
            pipe.wait_for(word)
        done = pipe.end(close=True)
    assert done.code == 0
    assert len(done.lines) == 3 + 3 * (emit == "merge" and form == "jsonl")


def test_a_line_whose_end_has_not_come_holds_nothing_back() -> None:
    with live("dedup") as pipe:
        pipe.write(b"one whole line\nand half ")
        pipe.wait_for("one whole line\n")
        pipe.write(b"of another")
        pipe.write(b" one\n")
        pipe.wait_for("and half of another one\n")
        assert pipe.end(close=True).code == 0


def test_the_last_event_of_a_silent_pipe_is_written_after_a_pause() -> None:
    with live("dedup", "--start-regex", r"^\d") as pipe:
        pipe.write(b"1 Error: one\n  at a\n2 Error: two\n  at b\n")
        pipe.wait_for("1 Error: one\n  at a\n")
        assert b"2 Error" not in pipe.out
        pipe.wait_for("2 Error: two\n  at b\n")
        pipe.write(b"  at c\n")
        pipe.wait_for("  at c\n")
        done = pipe.end(close=True)
    assert len(done.lines) == 5


def test_a_trace_that_arrives_in_pieces_is_one_event() -> None:
    with live("dedup", "--stats") as pipe:
        pipe.write(b"one\nERROR two\nTraceback (most recent call last):\n")
        pipe.wait_for("one\n")
        pipe.write(b'  File "a.py", line 3, in f\nKey')
        pipe.write(b"Error: 'x'\n")
        pipe.wait_for("ERROR two\nTraceback (most recent call last):\n")
        pipe.wait_for("KeyError: 'x'\n")
        done = pipe.end(close=True)
    assert (done.stats["lines"], done.stats["events"]) == ("5", "2")


def test_the_last_line_of_a_silent_pipe_is_written_after_a_pause() -> None:
    with live("dedup") as pipe:
        pipe.write(b"only line\n")
        pipe.wait_for("only line\n")
        pipe.write(b"  too late for it\n")
        pipe.wait_for("  too late for it\n")
        assert pipe.end(close=True).code == 0


def test_a_silent_container_does_not_hold_back_another() -> None:
    with live("dedup", "--emit", "annotate") as pipe:
        pipe.write(b"web-1  | started\n")
        for number in range(40):
            pipe.write(b"db-1   | checkpoint %d\n" % number)
            time.sleep(0.05)
        pipe.wait_for("web-1  | started\n")
        pipe.wait_for("db-1   | checkpoint 10\n")
        done = pipe.end(close=True)
    assert len(done.lines) == 41


def test_repeats_are_reported_while_the_pipe_is_silent_and_at_the_end() -> None:
    with live("dedup", "--summary-every", "1s") as pipe:
        pipe.write(b"link 1 went down\n")
        pipe.wait_for("link 1 went down\n")
        pipe.write(b"link 2 went down\n" * 3)
        pipe.wait_for("… repeated 3× until ")
        pipe.write(b"link 3 went down\n" * 4)
        done = pipe.end(close=True)
    assert done.code == 0
    assert repeats(done) == 7


def test_with_summaries_off_repeats_are_reported_at_the_end() -> None:
    with live("dedup", "--summary-every", "off") as pipe:
        pipe.write(b"link 1 went down\n" * 3)
        pipe.wait_for("link 1 went down\n")
        time.sleep(1.2)
        pipe.write(b"user bob came in\n")
        pipe.wait_for("user bob came in\n")
        assert b"repeated" not in pipe.out
        done = pipe.end(close=True)
    assert repeats(done) == 2


def test_an_idle_cluster_closes_and_a_similar_line_is_new_again() -> None:
    with live("dedup", "--idle", "500ms") as pipe:
        pipe.write(b"link 1 went down\nlink 2 went down\n")
        # Its final summary leaves when it closes, not at the end.
        pipe.wait_for("… repeated 1× until ")
        pipe.write(b"link 3 went down\n")
        pipe.wait_for("link 3 went down\n")
        assert repeats(pipe.end(close=True)) == 1


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_waiting_ends_it_with_the_final_summaries(
    number: signal.Signals, code: int
) -> None:
    with live("dedup", "--stats") as pipe:
        pipe.write(b"link 1 went down\n" * 3)
        pipe.wait_for("link 1 went down\n")
        pipe.write(b"half a line")
        pipe.wait_until_read()
        pipe.signal(number)
        done = pipe.end()  # its input is still open
    assert code == done.code
    assert repeats(done) == 2
    assert b"half a line" in done.lines
    assert done.stats["lines"] == "4"
    assert "link <number> went down" in done.err


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_events_are_held_back_writes_them(number: signal.Signals, code: int) -> None:
    with live("dedup", "--start-regex", "^E") as pipe:
        pipe.write(b"E one\nE two\n  at a\n")
        pipe.wait_for("E one\n")
        pipe.signal(number)
        done = pipe.end()
    assert code == done.code
    assert done.lines == [b"E one", b"E two", b"  at a"]


def test_after_a_signal_in_the_middle_of_work_the_sums_are_right(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    path.write_bytes(b"".join(b"link %d went down\n" % n for n in range(500_000)))
    with live("dedup", "--stats", path) as pipe:
        pipe.wait_for("link 0 went down\n")
        pipe.signal(signal.SIGINT)
        done = pipe.end()
    assert done.code == 130
    lines = int(done.stats["lines"].replace(",", ""))
    assert 0 < lines < 500_000
    assert 1 + repeats(done) == lines


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_second_signal_ends_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    path = tmp_path / "large.log"
    path.write_bytes(b"".join(b"link %d went down\n" % n for n in range(50_000)))
    with live("dedup", "-e", "annotate", path) as pipe:
        pipe.wait_for("link 0 ")
        # Nobody reads on, so it waits for room in the pipe and cannot heed the first.
        time.sleep(0.3)
        pipe.signal(signal.SIGINT)
        time.sleep(0.3)
        assert pipe.running
        pipe.signal(signal.SIGINT)
        assert pipe.end().code == 130


@pytest.mark.parametrize("emit", ["merge", "drop", "annotate"])
def test_the_reader_may_go_away(emit: str) -> None:
    words = "seq 300000 | tr 0-9 a-j | sed 's/.*/& of & by &/'"  # no line is like another
    script = f'{words} | "$SD" dedup -e {emit} | head -1; '
    done = shell(script + 'echo "${PIPESTATUS[3]}"')
    assert done.err == ""
    assert done.lines[1:] == [b"141"]


@pytest.mark.parametrize("command", ["plan", "recipes list", "--help", 'fingerprint "a b" c d e'])
def test_the_reader_of_other_commands_may_go_away(command: str) -> None:
    done = shell(f'"$SD" {command} > >(exec >&-; sleep 0.1) ; true')
    assert done.err == ""


def test_follows_a_file_that_grows(tmp_path: Path) -> None:
    done: Done = shell(
        """
        touch "$1/log"
        (sleep 0.3; for n in 1 2 3; do echo "link $n went down" >> "$1/log"; done) &
        tail -f "$1/log" | "$SD" dedup --limit 3; kill %1 2>/dev/null; true
        """,
        tmp_path,
    )
    assert done.lines[0] == b"link 1 went down"
    assert repeats(done) == 2


def test_the_command_under_test_is_the_installed_one() -> None:
    assert COMMAND.is_file()
    assert run("--version").code == 0
