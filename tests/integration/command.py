"""Runs the installed command as an operator does, and holds what every run must keep."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

COMMAND = Path(sys.executable).with_name("stream-dedup")

TIMEOUT_S = 600
"""No run of a test takes so long on the slowest machine."""

REPEATED = re.compile(r"… repeated ([0-9]+)× until (.+) \[([0-9a-f]{16})\] (.*)")

# A process reports the peak memory of its children, and of those it forks itself alone: what pytest
# takes must not count.
_MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code if code >= 0 else 128 - code)
"""


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        """The lines of the output, which all end."""
        *lines, rest = self.out.split(b"\n")
        assert rest == b""
        return lines

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The output as JSON lines."""
        return [msgspec.json.decode(line) for line in self.lines]

    @property
    def stats(self) -> dict[str, str]:
        """The statistics' rows of name and value, by name."""
        rows = re.findall(r"^([a-z][A-Za-z: ]*?) {2,}([0-9,.%]+) *$", self.err, re.MULTILINE)
        return dict(rows)


def run(
    *args: str | bytes | Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Done:
    """Run ``stream-dedup`` with `args`; standard input is a pipe that brings `stdin`."""
    done = subprocess.run(
        [COMMAND, *args],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return _checked(done.returncode, done.stdout, done.stderr)


def run_file(*args: str | Path, stdin: IO[bytes] | None = None, cwd: Path | None = None) -> Done:
    """Run it with a file, or nothing, as standard input."""
    done = subprocess.run(
        [COMMAND, *args],
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        cwd=cwd,
        check=False,
    )
    return _checked(done.returncode, done.stdout, done.stderr)


def shell(script: str, *args: str | Path) -> Done:
    """Run a shell script in which ``$SD`` is the command; `args` are ``$1``, ``$2`` and so on."""
    done = subprocess.run(
        ["bash", "-c", script, "bash", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**_unmeasured(), "SD": str(COMMAND)},
        check=False,
    )
    return _checked(done.returncode, done.stdout, done.stderr)


def _unmeasured() -> dict[str, str]:
    """The environment without coverage, whose data would not fit a limit that a script sets."""
    return {name: value for name, value in os.environ.items() if "COVERAGE" not in name}


def run_measured(source: Iterator[bytes], out: Path, *args: str | Path) -> tuple[Done, float]:
    """Run it with standard output to `out`; gives its peak memory, in MB, too.

    Args:
        source: pieces written to its standard input, a pipe.
        out: takes the output; a large one is not to be held here.
        args: of the command.
    """
    rss = out.with_suffix(".rss")
    command = [sys.executable, "-c", _MEASURED, rss, COMMAND, *args]
    with (
        out.open("wb") as file,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stdin is not None
        with process.stdin as pipe:
            for piece in source:
                pipe.write(piece)
        process.stdin = None
        _, err = process.communicate(timeout=TIMEOUT_S)
    done = _checked(process.returncode, b"", err)
    return done, int(rss.read_text()) / 1024


def wait_until_read(fd: int, within_s: float = 60.0) -> None:
    """Wait until all that was written to a pipe or a terminal is read."""
    end = time.monotonic() + within_s
    unread = b"\1"
    while any(unread):
        assert time.monotonic() < end, "nobody reads it"
        time.sleep(0.01)
        unread = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))


class Live:
    """A run whose input is still open."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.out = b""

    def write(self, data: bytes) -> None:
        """Write to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def wait_for(self, text: str | bytes, within_s: float = 60.0) -> float:
        """Wait until the output holds `text`; how long that took, in seconds."""
        wanted = text.encode() if isinstance(text, str) else text
        start = time.monotonic()
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while wanted not in self.out:
            left = start + within_s - time.monotonic()
            assert left > 0, f"{wanted!r} did not come within {within_s} s; came: {self.out!r}"
            if select.select([fd], [], [], left)[0]:
                piece = os.read(fd, 1 << 16)
                assert piece, f"the output ended without {wanted!r}: {self.out!r}"
                self.out += piece
        return time.monotonic() - start

    def wait_until_read(self, within_s: float = 60.0) -> None:
        """Wait until it has read all that was written to its input."""
        assert self._process.stdin is not None
        wait_until_read(self._process.stdin.fileno(), within_s)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, *, close: bool = False, within_s: float = 60.0) -> Done:
        """Wait until it ends; its input stays open until then unless `close`."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if close and self._process.stdin is not None:
            self._process.stdin.close()
        code = self._process.wait(within_s)
        self.out += self._process.stdout.read()
        return _checked(code, self.out, self._process.stderr.read())


@contextmanager
def live(*args: str | Path) -> Iterator[Live]:
    """Run it on an open pipe."""
    process = subprocess.Popen(
        [COMMAND, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    with process:
        try:
            yield Live(process)
        finally:
            if process.poll() is None:
                process.kill()


def repeats(done: Done) -> int:
    """The sum of the repeats that a merged text reports."""
    found = REPEATED.findall(done.out.decode("utf-8", "replace"))
    return sum(int(count) for count, *_ in found)


def _checked(code: int, out: bytes, err: bytes) -> Done:
    text = err.decode("utf-8", "replace")
    assert "Traceback" not in text, text
    assert "Exception ignored" not in text, text
    return Done(code, out, text)
