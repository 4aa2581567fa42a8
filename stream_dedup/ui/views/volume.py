"""How much patterns take, what leaves of it, and what a decision about them would save."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from stream_dedup.ui.patterns import Entry, Found
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.patterns import Pattern, page_count, pattern_of
from stream_dedup.ui.views.sources import SourceState, source_state
from stream_dedup.volume.counts import Axis
from stream_dedup.volume.savings import leaving, savings_of

VOLUME_A_PAGE = 50
"""Patterns that are shown at once with their bytes."""


class PatternVolume(Struct, frozen=True):
    """How much a pattern takes, in bytes of its events as they were read.

    Attributes:
        share: of the bytes of all patterns.
        bytes_out: of the events that leave where they are annotated, as the rules of now say.
        drop_saves: what is saved where repeats are dropped.
        keep_saves: what a rule saves that keeps so many events a minute; null if that is not known.
    """

    pattern: Pattern
    bytes_in: int
    share: float
    bytes_out: int
    drop_saves: int
    keep_saves: int | None


class VolumeList(Struct, frozen=True):
    """Patterns by the bytes that they take, the largest first: a page of them.

    Attributes:
        per_minute: the events a minute that a rule would keep.
        bytes_in: of all patterns.
        drop_saves: of all patterns.
    """

    source: SourceState
    per_minute: int
    bytes_in: int
    drop_saves: int
    page: int
    pages: int
    patterns: list[PatternVolume]


def volume_list(source: Source, found: Found, page: int, per_minute: int) -> VolumeList:
    """A page of patterns by their bytes."""
    entries = list(source.entries.values())
    total = sum(entry.bytes for entry in entries)
    saved = sum(entry.bytes - entry.bytes // max(1, entry.count) for entry in entries)
    patterns = []
    for entry in found.entries:
        volume = volume_of(entry, source.axis, per_minute, has_times=source.has_times)
        patterns.append(
            PatternVolume(
                pattern=pattern_of(source, entry),
                bytes_in=volume.read,
                share=round(volume.read / total, 6) if total else 0.0,
                bytes_out=volume.left,
                drop_saves=volume.dropped,
                keep_saves=volume.kept,
            )
        )
    return VolumeList(
        source=source_state(source),
        per_minute=per_minute,
        bytes_in=total,
        drop_saves=saved,
        page=page,
        pages=page_count(found.patterns, VOLUME_A_PAGE),
        patterns=patterns,
    )


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
