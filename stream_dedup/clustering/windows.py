"""Windows: which clusters are live, and when they close. Pure: time is an argument.

Theory of operation
-------------------
Event time alone decides. A cluster that was *opened* at one event's time and *last* seen at
another's is live for an event at time t when ``t <= last + idle`` and ``t <= opened + max_age``.
There is no lower bound: a late event joins, lowers the reported first time and leaves `opened`
alone. (With a lower bound two partitions that read at different progress would open clusters in
turns.)

*Stream time* says how far all partitions have come: the least of the largest event times of the
partitions that were active lately. A cluster closes when stream time has passed the end of its
window. Stream time goes back when a partition that is further behind becomes active, so one that
catches up on a backlog keeps its clusters: nothing closes until it has caught up. When every
partition is quiet, stream time moves on with the clock, so that final summaries leave. A partition
that was read to its end is released; when none is left, stream time begins anew with the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_dedup.clock import US_PER_S
from stream_dedup.model import Partition

FOREVER_US = 1 << 60
"""Longer than any stream; keeps expiry times ordered by what was seen last."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a cluster takes events.

    Attributes:
        idle_us: it closes when it was not seen for so long; `FOREVER_US` for never.
        max_age_us: it closes so long after it was opened.
        max_future_us: an event time further ahead of the clock is taken as that far ahead.
        quiet_after_us: a partition that was not active for so long (by the clock) no longer holds
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
        """The last event time for which a cluster is live."""
        return min(last_us + self.idle_us, opened_us + self.max_age_us)

    def live(self, opened_us: int, last_us: int, time_us: int) -> bool:
        """Whether a cluster takes an event of that time."""
        return time_us <= self.expires_us(opened_us, last_us)


class StreamTime:
    """How far the stream has come: running state of one index (or shard)."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._heads: dict[Partition, tuple[int, int]] = {}
        self._value_us: int | None = None
        self._seen_us: int | None = None

    @property
    def value_us(self) -> int | None:
        """Stream time as of the last call; None before the first event."""
        return self._value_us

    def record(self, partition: Partition, time_us: int, now_us: int) -> None:
        """A partition is active: it records events, the latest of them at `time_us`.

        Stream time goes back to its head if that is earlier. The first after all others were
        released begins anew: files read one after the other may be older from one to the next.
        """
        if not self._heads:
            self._value_us = None
        head = max(time_us, self._heads.get(partition, (time_us, 0))[0])
        self._heads[partition] = (head, now_us)
        if self._value_us is not None and head < self._value_us:
            self._value_us = head

    def release(self, partition: Partition) -> None:
        """A partition will record no more here; it no longer holds stream time back."""
        head = self._heads.pop(partition, None)
        if head is not None and not self._heads:
            self._forward(head[0])

    def advance(self, now_us: int) -> int | None:
        """Stream time now. This alone never takes it back, whatever the clock does."""
        quiet_us = self._windows.quiet_after_us
        active = [head for head, seen in self._heads.values() if now_us - seen <= quiet_us]
        if active:
            self._forward(min(active))
        elif self._value_us is not None or self._heads:
            # All are quiet: the clock's progress beyond where it was seen.
            if self._value_us is not None and self._seen_us is not None:
                self._forward(self._value_us + max(0, now_us - self._seen_us))
            for head, _ in self._heads.values():
                self._forward(head)
        # Those who share an index have clocks a little apart: progress counts once.
        self._seen_us = now_us if self._seen_us is None else max(self._seen_us, now_us)
        return self._value_us

    def _forward(self, time_us: int) -> None:
        if self._value_us is None or time_us > self._value_us:
            self._value_us = time_us
