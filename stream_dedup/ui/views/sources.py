"""A source, as pages and the JSON interface show it."""

from __future__ import annotations

from msgspec import Struct

from stream_dedup.clock import US_PER_S
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.text import second_of


class Axis(Struct, frozen=True):
    """Where the buckets of counts over time lie.

    Attributes:
        start: where the first bucket begins: seconds since 1970, or a line.
        width: of a bucket, in seconds or lines.
        unit: of both.
    """

    start: float
    width: float
    unit: str


class SourceState(Struct, frozen=True):
    """A source, and what is known of it now.

    Attributes:
        problem: why it cannot be read now, or was not read whole; empty if it was.
        reading: how far the first reading is; empty once all was read.
        exact_since: since when counts over time are exact; null if from the beginning on.
        passed: events that were not compared, and are in no pattern.
        note: what else happened, as that its input has ended; empty for nothing.
        unread: events of the index that are in none of the patterns: they were counted since these
            were read, or their clusters closed before they were read.
    """

    name: str
    title: str
    kind: str
    recipe: str | None
    patterns: int
    events: int
    problem: str
    reading: str
    exact_since: str | None
    passed: int
    note: str
    unread: int


def source_state(source: Source) -> SourceState:
    """The state of a source."""
    status, inspector = source.status(), source.inspector
    return SourceState(
        name=source.name,
        title=source.title,
        kind=source.kind,
        recipe=None if inspector is None else inspector.recipe.name,
        patterns=len(source.entries),
        events=status.events,
        problem=status.problem,
        reading=status.reading,
        exact_since=None if status.since_us is None else second_of(status.since_us),
        passed=status.passed,
        note=status.note,
        unread=status.unread,
    )


def axis_of(source: Source) -> Axis:
    """The axis of a source."""
    axis, scale = source.axis, US_PER_S if source.has_times else 1
    unit = "seconds" if source.has_times else "lines"
    return Axis(axis.first * axis.width / scale, axis.width / scale, unit)
