"""Merge: the first event of a cluster leaves at once, the others as counts in summaries.

In text a summary reads::

    … repeated 412× until 10:32:11 [5d41402abc4b2a76] Connection from <ipv4> refused

The count is of events that no line before has shown or counted, so the lines that left by
themselves and the repeats add up to the lines that came. A final summary with nothing to add is
not printed.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from stream_dedup.clock import US_PER_S
from stream_dedup.model import Summary


def repeats(summary: Summary) -> int:
    """Events to be told of: not those of earlier summaries, and not the first, which left."""
    return summary.new_count - (summary.count == summary.new_count)


def summary_text(summary: Summary, until: str) -> bytes:
    """A summary as a line of text; empty when there is nothing to add.

    Args:
        summary: what is told, with its pattern.
        until: when, or where, the cluster was last seen.
    """
    count = repeats(summary)
    if count <= 0:
        return b""
    line = f"… repeated {count}× until {until} [{summary.cluster_hex}] {summary.pattern}\n"
    return line.encode("utf-8", "backslashreplace")


def time_text(time_us: int, since_us: int, zone: tzinfo | None = UTC) -> str:
    """A time of day, with the date where it is another than that of `since_us`.

    >>> time_text(1_700_000_000_000_000, 1_699_999_000_000_000)
    '22:13:20'
    >>> time_text(1_700_000_000_000_000, 1_600_000_000_000_000)
    '2023-11-14 22:13:20'

    Args:
        time_us: the time.
        since_us: what it follows.
        zone: the zone to show it in; None for the machine's.
    """
    moment = datetime.fromtimestamp(time_us // US_PER_S, UTC).astimezone(zone)
    since = datetime.fromtimestamp(since_us // US_PER_S, UTC).astimezone(zone)
    same_day = moment.date() == since.date()
    return moment.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")
