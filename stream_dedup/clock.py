"""Time as an argument: the only module that reads the clock.

Times are whole microseconds since 1970-01-01 UTC, named ``…_us``; durations end in ``_s`` or
``_us``. Event time comes from the events; a `Clock` gives arrival times and leases.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

log = logging.getLogger(__name__)

US_PER_S = 1_000_000
US_PER_MS = 1_000

MAX_SKEW_US = 10 * US_PER_S
"""A smaller difference from a server's clock is left alone; a third of the lease of a summary,
which it may shorten."""

CHECK_EVERY_S = 60.0
"""How often a clock is compared with a server's."""


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


class ServerClock:
    """A process's clock, corrected where a server's differs much.

    All workers of an index agree on its server's time. Workers compare event times with the clock
    (`Windows.max_future_us`), lease summaries, and note when a partition was active. If one of them
    is far off, it harms the others: a worker that is a day behind sets the times of its events back
    by a day, and the others then close its clusters at once. So a clock that differs much from the
    server's is corrected by the difference.

    Args:
        own: the process's clock.
        ask_us: asks the server for its time; what it raises, `check` raises.
        server: names the server in messages.
    """

    def __init__(self, own: Clock, ask_us: Callable[[], Awaitable[int]], server: object) -> None:
        self._own = own
        self._ask_us = ask_us
        self._server = server
        self._correction_us = 0
        self._checked_s: float | None = None

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970-01-01 UTC."""
        return self._own.now_us() + self._correction_us

    async def check(self) -> None:
        """Compare the clocks, if that was not done within `CHECK_EVERY_S`."""
        now_s = monotonic_s()
        if self._checked_s is not None and now_s - self._checked_s < CHECK_EVERY_S:
            return
        asked_us = self._own.now_us()
        server_us = await self._ask_us()
        answered_us = self._own.now_us()
        # The server answered at some time between, which is long if the call was repeated.
        skew_us = server_us - min(max(server_us, asked_us), max(answered_us, asked_us))
        # A clock around the limit is not corrected now and left alone then.
        most_us = MAX_SKEW_US // 2 if self._correction_us else MAX_SKEW_US
        self._correct(skew_us if abs(skew_us) > most_us else 0)
        self._checked_s = now_s

    def _correct(self, correction_us: int) -> None:
        switched = bool(correction_us) != bool(self._correction_us)
        if switched or abs(correction_us - self._correction_us) > MAX_SKEW_US:
            if correction_us:
                seconds, side = abs(correction_us) / US_PER_S, "ahead of"
                if correction_us > 0:
                    side = "behind"
                log.warning(
                    "%s: this machine's clock is %.0f s %s the server's, which is used instead; "
                    "set the clock right (NTP)", self._server, seconds, side,
                )  # fmt: skip
            else:
                log.warning("%s: this machine's clock is right again", self._server)
        self._correction_us = correction_us
