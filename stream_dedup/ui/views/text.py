"""Times and events as text."""

from __future__ import annotations

from stream_dedup.clock import US_PER_S
from stream_dedup.emit.summaries import iso_time
from stream_dedup.features.patterns import readable
from stream_dedup.ui.sources import Source

MAX_EVENT = 2_000
"""Characters shown of an event."""


def second_of(time_us: int) -> str:
    """Return a time to the second."""
    return iso_time(time_us // US_PER_S * US_PER_S)


def moment(source: Source, at: int) -> str:
    """Return a time of a source, or the line that stands for it."""
    return second_of(at) if source.has_times else f"line {at}"


def printable(value: bytes, most: int = MAX_EVENT) -> str:
    """Lines of text for people, with escapes for what is not printable, and not too long."""
    lines = value[: 2 * most].split(b"\n")
    text = "\n".join(readable(line, most) for line in lines)
    cut = len(text) > most or len(value) > 2 * most
    return text[: most - 1] + "…" if cut else text
