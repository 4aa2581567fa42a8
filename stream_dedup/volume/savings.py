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
from stream_dedup.volume.counts import Axis

MINUTE_US = 60 * US_PER_S

PER_MINUTE = 10
"""Events a minute that a rule would keep, where nobody says how many."""


class Savings(NamedTuple):
    """Bytes of a pattern that would not leave.

    Attributes:
        dropped: if its repeats are dropped.
        kept: if so many events a minute are kept; None if that is not known.
    """

    dropped: int
    kept: int | None


def savings_of(
    size: int, count: int, values: Sequence[int], axis: Axis, per_minute: int
) -> Savings:
    """Return what decisions about a pattern would save of its bytes.

    Args:
        size: the bytes.
        count: its events.
        values: its events of each bucket; none if their times are not known.
        axis: where the buckets lie.
        per_minute: the events a minute that a rule would keep.

    >>> savings_of(700, 70, [30, 0, 5], Axis(MINUTE_US, slides=False), 10)
    Savings(dropped=690, kept=400)
    """
    count = max(1, count)
    left = leaving(values, axis, per_minute, count)
    return Savings(size - size // count, None if left is None else size - size * left // count)


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
