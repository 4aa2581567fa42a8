"""The time of an index, on which all its workers agree.

Workers compare event times with the clock (`Windows.max_future_us`), lease summaries, and note when
a partition was active. If one of them is far off, it harms the others: a worker that is a day
behind sets the times of its events back by a day, and the others then close its clusters at once.
So a clock that differs much from the server's is corrected by the difference.
"""

from __future__ import annotations

import logging

from stream_dedup.clock import US_PER_S, Clock, monotonic_s
from stream_dedup.index.redis.client import RedisClient

log = logging.getLogger(__name__)

MAX_SKEW_US = 10 * US_PER_S
"""A smaller difference is left alone; a third of the lease of a summary, which it may shorten."""

CHECK_EVERY_S = 60.0


class ServerClock:
    """This process's clock, corrected where the server's differs much.

    Args:
        client: the service.
        key: on the server whose clock counts.
        own: the process's clock.
    """

    def __init__(self, client: RedisClient, key: bytes, own: Clock) -> None:
        self._client = client
        self._key = key
        self._own = own
        self._correction_us = 0
        self._checked_s: float | None = None

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970-01-01 UTC."""
        return self._own.now_us() + self._correction_us

    async def check(self) -> None:
        """Compare the clocks, if that was not done within the last minute.

        Raises:
            IndexUnavailable: the server cannot be reached.
        """
        now_s = monotonic_s()
        if self._checked_s is not None and now_s - self._checked_s < CHECK_EVERY_S:
            return
        asked_us = self._own.now_us()
        seconds, microseconds = await self._client.command(self._key, "TIME")
        answered_us = self._own.now_us()
        server_us = int(seconds) * US_PER_S + int(microseconds)
        # The server answered at some time between, which is long if the call was repeated.
        skew_us = server_us - min(max(server_us, asked_us), max(answered_us, asked_us))
        # A clock around the limit is not corrected now and left alone then.
        most_us = MAX_SKEW_US // 2 if self._correction_us else MAX_SKEW_US
        self._correct(skew_us if abs(skew_us) > most_us else 0)
        self._checked_s = now_s

    def _correct(self, correction_us: int) -> None:
        switched = bool(correction_us) != bool(self._correction_us)
        if switched or abs(correction_us - self._correction_us) > MAX_SKEW_US:
            where = self._client.address
            if correction_us:
                seconds, side = abs(correction_us) / US_PER_S, "ahead of"
                if correction_us > 0:
                    side = "behind"
                log.warning(
                    "%s: this machine's clock is %.0f s %s the server's, which is used instead; "
                    "set the clock right (NTP)", where, seconds, side,
                )  # fmt: skip
            else:
                log.warning("%s: this machine's clock is right again", where)
        self._correction_us = correction_us
