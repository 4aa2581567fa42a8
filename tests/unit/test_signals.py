"""Signals that end a process which runs until it is told to end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

NAMES = "from stream_dedup import signals; print(*(each.name for each in signals.ending()))"


@pytest.mark.parametrize(
    ("ignored", "expected"), [(False, "SIGINT SIGTERM SIGHUP"), (True, "SIGINT SIGTERM")]
)
def test_a_hangup_does_not_end_what_nohup_started(*, ignored: bool, expected: str) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        done = subprocess.run(
            [sys.executable, "-c", NAMES], capture_output=True, text=True, check=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.stdout.strip() == expected
