"""How much a pattern takes, and what a decision about it would save. Pure.

Bytes are those of the events as they were read, counted exactly. What would leave is computed with
the mean size of the pattern's events: `drop` leaves one event of a cluster, `keep` as many as its
counts over time allow. Where a bucket of the counts is longer than a minute, its events are taken
to be spread evenly, so more is saved if they come in bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stream_dedup.clock import US_PER_S
from stream_dedup.ui.counts import Axis
from stream_dedup.ui.patterns import Entry

MINUTE_US = 60 * US_PER_S


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

    def of(events: int | None) -> int | None:
        return None if events is None else size * events // count

    one, kept = of(1) or 0, of(leaving(values, axis, per_minute, count))
    left: int | None = size
    mark = entry.mark
    if mark is not None and mark.muted:
        left = one
    elif mark is not None and mark.per_minute:
        left = of(leaving(values, axis, mark.per_minute, count))
    return Volume(size, size if left is None else left, size - one, None if kept is None else
                  size - kept)  # fmt: skip


def leaving(values: Sequence[int], axis: Axis, per_minute: int, count: int) -> int | None:
    """Return how many of the events leave if so many a minute do; None if that is not known.

    Args:
        values: the events of each bucket.
        axis: where the buckets lie.
        per_minute: the limit.
        count: all events. Those in no bucket count as the others do.

    >>> leaving([30, 0, 5], Axis(MINUTE_US, slides=False), 10, 70)
    30
    """
    known = sum(values)
    if not known:
        return None
    if axis.width >= MINUTE_US:
        most = -(-per_minute * axis.width // MINUTE_US)
        left = sum(min(each, most) for each in values)
    else:
        minutes: dict[int, int] = {}
        for bucket, each in enumerate(values, axis.first):
            minute = bucket * axis.width // MINUTE_US
            minutes[minute] = minutes.get(minute, 0) + each
        left = sum(min(each, per_minute) for each in minutes.values())
    return max(1, count * left // known)


def shown_size(size: int) -> str:
    """Return a size for people, as `ls` writes it.

    >>> shown_size(999), shown_size(1234567)
    ('999 B', '1.2 MB')
    """
    number = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(number) < 999.5 or unit == "TB":
            break
        number /= 1_000
    return f"{number:.0f} {unit}" if unit == "B" or abs(number) >= 100 else f"{number:.1f} {unit}"
