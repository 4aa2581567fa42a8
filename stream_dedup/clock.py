"""Time as an argument: the only module that reads the clock.

Times are whole microseconds since 1970-01-01 UTC, named ``…_us``; durations end in ``_s`` or
``_us``. Event time comes from the events; a `Clock` gives arrival times and leases.
"""

from __future__ import annotations

import time
from typing import Protocol

US_PER_S = 1_000_000
US_PER_MS = 1_000


def monotonic_s() -> float:
    """Seconds on a clock that never goes back: for how long things take."""
    return time.monotonic()


class Clock(Protocol):
    """A source of the current time."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that moves only when it is set; for tests and replays."""

    def __init__(self, start_us: int = 0) -> None:
        self._now_us = start_us

    def now_us(self) -> int:
        """The time it was last set to."""
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Move by `seconds`."""
        self._now_us += round(seconds * US_PER_S)
