"""What an index in memory keeps of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stream_dedup.index.groups import plain_group
from stream_dedup.index.memory.posting_lists import Handle
from stream_dedup.model import Closing, Position, Summary


@dataclass(slots=True, eq=False)
class Cluster:
    """The state of one cluster.

    Attributes:
        identity: its id.
        position: of its representative.
        handle: how it is found; of a closed one, how it was.
        last_us: when it was last seen, by what was resolved or recorded; its window goes by this.
        first_us: earliest event time recorded.
        latest_us: latest event time recorded.
        count: events recorded.
        initial_count: the count at opening; while `count` equals it, the cluster is provisional.
        reported: the count in its last confirmed summary.
        reported_us: stream time of that.
        revision: of its last summary.
        since_us: earliest event time recorded since that was claimed; None if nothing was.
        due: whether it is in the queue of due summaries.
        before: why it was closed before it was opened; None if it was not stored.
        snapshot: its claimed summary.
        merged_into: the cluster into which it merged when it closed.
        merged: clusters that merged into it since its last confirmed summary, with their counts.
        sampled: as `Summary.sampled`.
        may_be_sent: whether its claimed summary may have been sent, so that it never changes.
    """

    identity: int
    position: Position
    handle: Handle
    last_us: int
    first_us: int
    latest_us: int
    count: int = 0
    initial_count: int = 0
    reported: int = 0
    reported_us: int = 0
    revision: int = 0
    since_us: int | None = None
    representative: bytes = b""
    samples: tuple[bytes, ...] = ()
    due: bool = False
    closing: Closing | None = None
    before: Closing | None = None
    snapshot: Summary | None = None
    merged_into: int | None = None
    merged: tuple[tuple[int, int], ...] = ()
    sampled: tuple[tuple[int, bytes], ...] = ()
    may_be_sent: bool = False

    @property
    def provisional(self) -> bool:
        """Whether nothing was counted since it was opened."""
        return self.count == self.initial_count

    @property
    def is_open(self) -> bool:
        """Whether it takes events."""
        return self.closing is None

    def summary(self, revision: int) -> Summary:
        """Return the summary that it would have now."""
        return Summary(
            cluster=self.identity,
            revision=revision,
            closing=self.closing,
            count=self.count,
            new_count=self.count - self.reported,
            first_time_us=self.first_us,
            last_time_us=self.latest_us,
            position=self.position,
            representative=self.representative,
            samples=self.samples,
            group=plain_group(self.handle.group),
            merged_into=self.merged_into if self.closing is Closing.MERGED else None,
            merged=self.merged,
            learned=self.handle.learned,
            sampled=self.sampled,
        )


class Tombstone(NamedTuple):
    """What is left of a closed cluster, until `until_us`."""

    revision: int
    events: int
    until_us: int
