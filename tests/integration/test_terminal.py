"""What a person at a terminal sees, and what a pipe is spared."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.integration.command import COMMAND, REPEATED, run, shell, wait_until_read
from tests.services.processes import free_port

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = b"\x1b]0;owned\x07\x1b[2Jdisk \x9b31m \x1b[8mhidden\x7f\x00 \xe2\x80\xae full"


def on_terminal(
    *args: str | Path, out: bool, err: bool, columns: int = 100, term: str | None = "xterm"
) -> tuple[int, bytes, bytes, bytes]:
    """Run with a terminal as standard output, error, or both.

    Returns:
        The exit code; what came on the terminal; on the pipes of output and error.
    """
    ours, theirs = pty.openpty()
    environment = {**os.environ, **({"TERM": term} if term else {})}
    for name in ("COLUMNS", "LINES"):  # they would win over the terminal's size
        environment.pop(name, None)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [COMMAND, *args],
        stdin=subprocess.DEVNULL,
        stdout=theirs if out else subprocess.PIPE,
        stderr=theirs if err else subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break  # the other side is closed
        shown += piece
    os.close(ours)
    piped_out, piped_err = process.communicate(timeout=60)
    assert b"Traceback" not in shown + (piped_err or b"")
    return process.returncode, shown, piped_out or b"", piped_err or b""


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.log"
    path.write_bytes(b"".join(b"link %d went down\n" % n for n in range(300_000)))
    return path


def test_a_person_sees_the_progress_over_files(large: Path) -> None:
    code, shown, out, _ = on_terminal("dedup", large, large, out=False, err=True)
    assert code == 0
    assert b"reading" in shown
    done, total = re.findall(rb"([0-9.]+)/([0-9.]+) MB", ESCAPES.sub(b"", shown))[-1]
    assert total.decode() == f"{2 * large.stat().st_size / 1e6:.1f}"
    assert 0 < float(done) <= float(total)
    assert out.startswith(b"link 0 went down\n")


@pytest.mark.parametrize(
    ("args", "out", "err"),
    [
        ((), False, False),
        ((), True, True),  # lines and a bar on one terminal would spoil each other
        ((), True, False),
        (("--quiet",), False, True),
    ],
)
def test_there_is_no_progress_without_a_terminal(
    large: Path, args: tuple[str, ...], out: bool, err: bool
) -> None:
    code, shown, _, piped_err = on_terminal("dedup", *args, large, out=out, err=err)
    assert code == 0
    assert b"reading" not in shown
    assert piped_err == b""


def test_a_pipe_gets_no_escapes() -> None:
    done = run("dedup", "--stats", stdin=b"link 1 went down\n" * 3, env={"TERM": "xterm-256color"})
    assert b"\x1b" not in done.out
    assert "\x1b" not in done.err


def test_typed_lines_are_answered_and_ctrl_c_ends_the_command() -> None:
    keys = b"link 1 went down\nlink 2 went down\n"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "dedup"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 -- one call into the system
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        os.write(ours, keys)
        assert process.stdout.readline() == b"link 1 went down\n"
        wait_until_read(theirs)
        os.write(ours, b"\x03")  # what the key Ctrl-C sends; the terminal makes SIGINT of it
        rest = process.stdout.read().decode()
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    os.close(ours)
    os.close(theirs)
    match = REPEATED.fullmatch(rest.strip())
    assert match is not None
    assert match[1] == "1"


def printable(text: bytes) -> bool:
    """Whether a terminal takes it as plain text, the colours and lines of tables aside."""
    return ESCAPES.sub(b"", text).decode("utf-8").replace("\r", "").replace("\n", "").isprintable()


def test_summaries_and_statistics_escape_what_a_terminal_would_obey(tmp_path: Path) -> None:
    path = tmp_path / "hostile.log"
    path.write_bytes(HOSTILE + b"\n" + HOSTILE + b"\n")
    done = run("dedup", "--stats", path)
    first, *repeated = done.lines
    assert first == HOSTILE  # as it came
    assert len(repeated) == 1
    assert printable(repeated[0])
    assert "\\x07" in repeated[0].decode()
    _, shown, out, _ = on_terminal("dedup", "--stats", path, out=False, err=True)
    assert b"\\x07" in shown
    assert printable(shown)
    assert HOSTILE in out
    json = run("dedup", "--output-format", "jsonl", path)
    assert not re.search(rb"[\x00-\x09\x0b-\x1f]", json.out)


def test_explain_and_fingerprint_escape_what_a_terminal_would_obey() -> None:
    hostile = HOSTILE.replace(b"\x00", b"")
    for args in (("explain", "--", hostile, b"other"), ("fingerprint", "--", hostile)):
        done = run(*args)
        assert "\\x07" in done.out.decode()
        assert printable(done.out)
    done = run("fingerprint", stdin=HOSTILE + b"\n")
    assert printable(done.out)


def test_a_terminal_of_another_encoding_gets_escapes() -> None:
    for command in ("plan", "recipes list", "explain 'caf\u00e9 a b' 'caf\u00e9 a c'"):
        done = shell(f'PYTHONIOENCODING=ascii "$SD" {command}')
        assert done.code in {0, 3}
        assert done.err == ""
        assert done.out.isascii()


def test_long_patterns_stay_on_one_line_of_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(b"a very long line of words " * 30 + b"\n")
    _, shown, _, _ = on_terminal("dedup", "--stats", path, out=False, err=True, columns=60)
    lines = ESCAPES.sub(b"", shown).decode().splitlines()
    assert max(map(len, lines)) <= 60
    assert sum("a very long" in line for line in lines) == 1


def test_plan_shows_whole_numbers_on_a_narrow_terminal() -> None:
    wide = run("plan").out.decode()
    _, shown, _, _ = on_terminal("plan", out=True, err=False, columns=60)
    narrow = ESCAPES.sub(b"", shown).decode()
    assert max(map(len, narrow.splitlines())) <= 60
    numbers = re.compile(r"[0-9][0-9,.]*(?: MB| µs)?")
    assert set(numbers.findall(narrow)) == set(numbers.findall(wide))
    assert "…" not in narrow


@pytest.mark.parametrize("args", [("--color", "never"), ("--json",)])
def test_volumes_of_hostile_lines_are_shown_not_obeyed(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"%b\n" % HOSTILE * 5)
    code, shown, _, _ = on_terminal("volume", "-q", *args, path, out=True, err=False)
    assert code == 0
    assert b"disk" in shown
    assert not set(shown.decode()) & {"\x1b", "\x07", "\x7f", "\x9b", "\x00", "\u202e"}


def test_a_table_of_volumes_fits_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("a line that is much longer than any terminal of that size " * 5 + "\n")
    _, shown, _, _ = on_terminal("volume", path, out=True, err=False, columns=60)
    assert max(len(line) for line in ESCAPES.sub(b"", shown).decode().splitlines()) == 60


@pytest.mark.parametrize(
    "args", [("dedup", "--follow", "--limit", "1"), ("dedup",), ("volume",), ("diff",)]
)
def test_names_in_notes_are_shown_not_obeyed(tmp_path: Path, args: tuple[str, ...]) -> None:
    path = tmp_path / "app.log"
    path.write_text("a line of text\n")
    _, shown, _, _ = on_terminal(*args, tmp_path / "\x1b[2Jno\x9b.log", path, out=False, err=True)
    assert rb"\x1b[2Jno\x9b.log: cannot be opened" in shown
    assert b"\x1b[2J" not in shown


def test_names_in_notes_of_the_web_application_are_escaped(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    path = tmp_path / "\x1b[2Jno\x9b.log"
    with subprocess.Popen(
        [COMMAND, "ui", "--port", str(free_port()), "--follow", path],
        stdin=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        while b"waiting for it" not in shown and select.select([ours], [], [], 60)[0]:
            shown += os.read(ours, 65536)
        process.terminate()
    os.close(ours)
    assert rb"\x1b[2Jno\x9b.log" in shown
    assert b"\x1b[2J" not in shown
