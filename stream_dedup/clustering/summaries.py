"""When summaries of a cluster are due. Pure: time is an argument.

The first event of a cluster is sent at once, by itself. A summary is due `every_us` of stream time
after the one before (or after the cluster was opened) if more events have joined since (with
`of_single`, also after the first event); the final one when the cluster closes. Stream time may go
back (see `windows`); a summary then waits until stream time has reached the same point again.
Revisions count 1, 2, 3, … Each gives the number of events since the one before, so these add up to
the cluster's final count.
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_dedup.clock import US_PER_S

MAX_SAMPLES = 255
"""The Redis index counts a cluster's samples in one byte."""


VALUES_EVERY = 16
"""One event in so many may be among those whose values are counted: the others cost a hash."""

MAX_VALUE_LINE = 512
"""Bytes kept of an event whose values are counted."""

LEFT_OUT = b"\n... \n"
"""Takes the place of lines that are not kept; a stack trace has such a line where frames are left
out."""


@dataclass(frozen=True, slots=True)
class Summaries:
    """What summaries hold, and how often they are sent.

    Attributes:
        every_us: stream time between two summaries of a cluster; None for final ones only.
        final: whether a cluster that closes waits until its final summary is claimed and confirmed.
            False where nobody reads summaries: it leaves its revision and count at once, unless it
            merged into another one. `every_us` is None then.
        samples: values of later events kept for a cluster; at most `MAX_SAMPLES`.
        values: events of a cluster kept as a random sample, whose values summaries count; at most
            `MAX_SAMPLES`, 0 for none.
        values_every: one event in so many may be among them.
        max_value_bytes: kept of a representative or sample, see `kept`.
        lease_us: a claimed summary that is not confirmed within this time can be claimed again.
            Long enough to send a batch to a slow sink, short enough to be sent again soon after
            a crash.
        retention_us: how long (by the clock) a closed cluster's revision and count are kept, so
            that a representative delivered again late continues from there.
        of_single: whether a cluster of one event has a periodic summary, too. Whoever was sent the
            event learns nothing from it; whoever reads only summaries does.
    """

    every_us: int | None = 60 * US_PER_S
    final: bool = True
    samples: int = 3
    values: int = 32
    values_every: int = VALUES_EVERY
    max_value_bytes: int = 4096
    lease_us: int = 30 * US_PER_S
    retention_us: int = 24 * 3600 * US_PER_S
    of_single: bool = False

    def __post_init__(self) -> None:
        if self.every_us is not None and self.every_us <= 0:
            raise ValueError(f"every_us is {self.every_us}; give a duration above 0, or None")
        if self.every_us is not None and not self.final:
            raise ValueError("every_us is given, but no final summaries: give None, or final=True")
        if not 0 <= self.samples <= MAX_SAMPLES:
            raise ValueError(f"samples is {self.samples}; give 0 to {MAX_SAMPLES}")
        if not 0 <= self.values <= MAX_SAMPLES:
            raise ValueError(f"values is {self.values}; give 0 to {MAX_SAMPLES}")
        if self.values_every < 1:
            raise ValueError(f"values_every is {self.values_every}; give 1 or more")
        for name in ("max_value_bytes", "lease_us", "retention_us"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 or more")

    def kept(self, value: bytes) -> bytes:
        """Return what is kept of a representative or sample.

        Of a text of several lines that is too long, its first and its last lines: the end of a
        stack trace may say what happened.
        """
        most = self.max_value_bytes
        if len(value) <= most:
            return value
        half = (most - len(LEFT_OUT)) // 2
        begin, end = value.rfind(b"\n", 0, half), value.find(b"\n", len(value) - half)
        if half < 1 or begin < 0 or end < 0:
            return value[:most]
        return value[:begin] + LEFT_OUT + value[end + 1 :]

    def is_whole(self, kept: bytes) -> bool:
        """Return whether a value was certainly not cut short when it was kept."""
        return len(kept) < self.max_value_bytes and LEFT_OUT not in kept

    @property
    def max_kept_value(self) -> int:
        """Bytes of a line up to which `kept_value` keeps it whole."""
        return min(MAX_VALUE_LINE, self.max_value_bytes)

    def kept_value(self, value: bytes) -> bytes:
        """Return what is kept of an event whose values are counted: of its first line."""
        most = self.max_kept_value
        end = value.find(b"\n", 0, most)
        return value[: most if end < 0 else end]

    def due_us(self, reported_us: int) -> int | None:
        """Return when a cluster's next summary is due, after the last one at `reported_us`.

        Both are stream time; None: only the final one is.
        """
        return None if self.every_us is None else reported_us + self.every_us
