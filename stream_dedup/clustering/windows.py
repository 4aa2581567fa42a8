"""Which clusters are live, and when they close. Pure: time is an argument.

Theory of operation
-------------------
Event time alone decides. A cluster that was *opened* at one event's time and *last* seen at
another's is live for an event at time t when ``t <= last + idle`` and ``t <= opened + max_age``.
There is no lower bound: a late event joins, lowers the reported first time and leaves `opened`
as it is. (With a lower bound, two partitions that are read at different speeds would open clusters
in turns.)

*Stream time* is the event time that all partitions have reached: each recently active partition has
a head, its largest event time, and stream time is the smallest of these. A cluster closes when
stream time has passed the end of its window. When a partition that is further behind becomes
active, stream time goes back; so a partition that catches up on a backlog finds its clusters open
until it has caught up. When every partition is quiet, stream time moves on with the clock, so that
final summaries are sent. A partition that was read to its end is released; when none is left,
stream time starts again with the next one.

Stream time is never more than `max_future_us` ahead of the clock: later event times are set back to
this limit. If a worker's clock is ahead, an index that several workers share uses the clock of its
server.
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_dedup.clock import US_PER_S
from stream_dedup.model import Partition

FOREVER_US = 1 << 60
"""Longer than any stream, and small enough that expiry times keep the order of last_us."""

FILES_MAX_FUTURE_US = 24 * 3600 * US_PER_S
"""For files: a time without a zone is read as UTC, but its zone may be up to 14 hours ahead."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a cluster takes events.

    Attributes:
        idle_us: a cluster closes when it was not seen for this long; `FOREVER_US` for never.
        max_age_us: a cluster closes this long after it was opened.
        max_future_us: event times further ahead of the clock are set back to this far ahead.
        quiet_after_us: a partition that was inactive for this long (by the clock) no longer holds
            stream time back.
    """

    idle_us: int = 3600 * US_PER_S
    max_age_us: int = 24 * 3600 * US_PER_S
    max_future_us: int = 600 * US_PER_S
    quiet_after_us: int = 60 * US_PER_S

    def __post_init__(self) -> None:
        for name in ("idle_us", "max_age_us", "quiet_after_us"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a duration above 0")

    def expires_us(self, opened_us: int, last_us: int) -> int:
        """Return the last event time for which a cluster is live."""
        idle_us, age_us = last_us + self.idle_us, opened_us + self.max_age_us
        return idle_us if idle_us < age_us else age_us  # noqa: FURB136 -- min() costs a call

    def live(self, opened_us: int, last_us: int, time_us: int) -> bool:
        """Return whether a cluster takes an event of that time."""
        return time_us <= self.expires_us(opened_us, last_us)


class StreamTime:
    """How far the stream has come: the running state of one index (or shard)."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._heads: dict[Partition, tuple[int, int]] = {}
        self._value_us: int | None = None
        self._seen_us: int | None = None

    @property
    def value_us(self) -> int | None:
        """Stream time as of the last call; None before the first event."""
        return self._value_us

    def saved(self) -> tuple[dict[Partition, tuple[int, int]], int | None, int | None]:
        """Return its state: partition → (head, when active), stream time, and when that moved."""
        return dict(self._heads), self._value_us, self._seen_us

    def restore(
        self, heads: dict[Partition, tuple[int, int]], value_us: int | None, seen_us: int | None
    ) -> None:
        """Go on from a state that `saved` has returned."""
        self._heads, self._value_us, self._seen_us = dict(heads), value_us, seen_us

    def record(self, partition: Partition, time_us: int, now_us: int) -> None:
        """Note that a partition is active: it records events, the latest of them at `time_us`.

        Stream time goes back to the partition's head if that is earlier. The first partition after
        all others were released starts it again: of files read in turn the next may be older.
        """
        if not self._heads:
            self._value_us = None
        head = max(time_us, self._heads.get(partition, (time_us, 0))[0])
        self._heads[partition] = (head, now_us)
        if self._value_us is not None and head < self._value_us:
            self._value_us = head

    def release(self, partition: Partition) -> None:
        """Note that a partition will record no more here; it no longer holds stream time back."""
        head = self._heads.pop(partition, None)
        if head is not None and not self._heads:
            self._forward(head[0])

    def advance(self, now_us: int) -> int | None:
        """Return stream time now. This never moves it back, whatever the clock does."""
        quiet_us = self._windows.quiet_after_us
        active = [head for head, seen in self._heads.values() if now_us - seen <= quiet_us]
        if active:
            self._forward(min(active))
        elif self._value_us is not None or self._heads:
            # All are quiet: move by as much as the clock has moved since the last call.
            if self._value_us is not None and self._seen_us is not None:
                self._forward(self._value_us + max(0, now_us - self._seen_us))
            for head, _ in self._heads.values():
                self._forward(head)
        # The clocks of workers that share an index differ a little: progress counts once.
        self._seen_us = now_us if self._seen_us is None else max(self._seen_us, now_us)
        return self._value_us

    def _forward(self, time_us: int) -> None:
        if self._value_us is None or time_us > self._value_us:
            self._value_us = time_us
