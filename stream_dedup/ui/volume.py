"""How much a pattern takes, what leaves of it, and what a decision about it would save. Pure."""

from __future__ import annotations

from typing import NamedTuple

from stream_dedup.ui.patterns import Entry
from stream_dedup.volume.counts import Axis
from stream_dedup.volume.savings import leaving, savings_of


class Volume(NamedTuple):
    """Bytes of a pattern.

    Attributes:
        read: of its events.
        left: of those that leave where events are annotated, as the rules of now say.
        dropped: what dropping its repeats would save of `read`.
        kept: what keeping so many events a minute would save of it; None if that is not known.
    """

    read: int
    left: int
    dropped: int
    kept: int | None


def volume_of(entry: Entry, axis: Axis, per_minute: int, *, has_times: bool) -> Volume:
    """Return how much a pattern takes.

    Args:
        entry: the pattern's cluster.
        axis: of its counts.
        per_minute: the events a minute that a rule would keep.
        has_times: whether the axis is of times.
    """
    count, size = max(1, entry.count), entry.bytes
    values = entry.counts.values(axis) if has_times else []
    saved = savings_of(size, count, values, axis, per_minute)
    left, mark = size, entry.mark
    if mark is not None and mark.muted:
        left = size - saved.dropped
    elif mark is not None and mark.per_minute:
        events = leaving(values, axis, mark.per_minute, count)
        left = size if events is None else size * events // count
    return Volume(size, left, *saved)
