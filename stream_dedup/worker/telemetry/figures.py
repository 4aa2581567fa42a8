"""Numbers as people read them: with three digits that count, and a unit. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from stream_dedup.clock import US_PER_S

UNKNOWN = "–"
"""What is not known, or is a share of nothing."""


def count(value: float) -> str:
    """A whole number.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """How many a second: few of them with a decimal.

    >>> rate(1234), rate(0.26), rate(0.01), rate(0)
    ('1,234', '0.3', 'under 0.1', '0')
    """
    if 0 < value < 0.1:
        return "under 0.1"
    return f"{value:.1f}" if 0 < value < 10 else count(value)


def share(part: float, whole: float) -> str:
    """A part of a whole. Only all of it is shown as 100 %.

    >>> share(1, 3), share(99_999, 100_000), share(5, 5), share(0, 0)
    ('33.3 %', '99.9 %', '100 %', '–')
    """
    if not whole:
        return UNKNOWN
    if part >= whole:
        return "100 %"
    return f"{math.floor(1000 * part / whole) / 10:.1f} %"


def duration(seconds: float) -> str:
    """How long something takes.

    >>> duration(0.00042), duration(0.0234), duration(2.5), duration(90)
    ('0.42 ms', '23.4 ms', '2.5 s', '90 s')
    """
    if math.isnan(seconds):
        return UNKNOWN
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{count(seconds)} s"


def lasting(seconds: float) -> str:
    """How long something has lasted: in two units at most.

    >>> lasting(7.9), lasting(150), lasting(7500), lasting(93_600)
    ('7 s', '2 min 30 s', '2 h 5 min', '1 d 2 h')
    """
    whole = max(0, int(seconds))
    for size, unit, small_size, small in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size} {small}"
    return f"{whole} s"


def moment(time_us: int) -> str:
    """A time of day, UTC.

    >>> moment(1_700_000_000_000_000)
    '2023-11-14 22:13:20 UTC'
    """
    return datetime.fromtimestamp(time_us // US_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
