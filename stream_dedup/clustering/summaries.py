"""Summaries: when a cluster has something to tell. Pure: time is an argument.

The first event of a cluster leaves at once, by itself. A summary is due `every_us` of stream time
after the one before (or after the cluster was opened) when events have come since; a final one
when the cluster closes. Stream time may go back (see `windows`); a summary then waits until it has
got there again. Revisions count 1, 2, 3, … and each tells how many events no earlier one told of,
so over all revisions of a cluster these add up to its final count.
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_dedup.clock import US_PER_S

MAX_SAMPLES = 255
"""An index counts a cluster's samples in one byte."""


@dataclass(frozen=True, slots=True)
class Summaries:
    """What is told of clusters, and how often.

    Attributes:
        every_us: stream time between two summaries of a cluster; None for final ones only.
        samples: later events' values kept a cluster; at most `MAX_SAMPLES`.
        max_value_bytes: of a representative or sample so much is kept.
        lease_us: a claimed summary that is not confirmed within this time is claimed again; long
            enough to send a batch to a slow sink, short enough to be sent again soon after a
            crash.
        retention_us: so long (by the clock) a closed cluster's revision is remembered, so that a
            representative delivered again late goes on where it stopped.
    """

    every_us: int | None = 60 * US_PER_S
    samples: int = 3
    max_value_bytes: int = 4096
    lease_us: int = 30 * US_PER_S
    retention_us: int = 24 * 3600 * US_PER_S

    def __post_init__(self) -> None:
        if self.every_us is not None and self.every_us <= 0:
            raise ValueError(f"every_us is {self.every_us}; give a duration above 0, or None")
        if not 0 <= self.samples <= MAX_SAMPLES:
            raise ValueError(f"samples is {self.samples}; give 0 to {MAX_SAMPLES}")
        for name in ("max_value_bytes", "lease_us", "retention_us"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 or more")

    def due_us(self, told_us: int) -> int | None:
        """When a cluster with news is due that was told of last at `told_us`, by stream time."""
        return None if self.every_us is None else told_us + self.every_us
