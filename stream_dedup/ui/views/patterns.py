"""Clusters in a list, and their counts over time."""

from __future__ import annotations

from msgspec import Struct

from stream_dedup.ui.patterns import Entry, Found, Query
from stream_dedup.ui.rules import Mark
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.sources import Axis, SourceState, axis_of, source_state
from stream_dedup.ui.views.text import moment

NO_MARK = Mark("", muted=False, per_minute=0, merged=False, only=(), rules=())


class Pattern(Struct, frozen=True):
    """A cluster in a list.

    Attributes:
        id: the cluster's id.
        pattern: the text with placeholders for what varies.
        variant: log levels, HTTP status classes and kinds of exit code.
        group: the values that are equal for all its events.
        count: its events.
        share: of the events of all clusters.
        counts: events in each bucket of the axis.
        before: events before the first bucket, or whose time is not known; all add up to the count.
        first, last: when, or in which line, it was first and last seen.
        open: whether it takes events.
        merged_into: the id of the cluster that goes on for it.
        name: what a rule calls it; empty for nothing.
        muted: whether a rule mutes it: its repeats are not written.
        per_minute: how many of its events leave a minute at most, as a rule says; 0 for all.
        merged: whether a rule merges it with other patterns.
        only: the values that its events have, where rules keep values apart.
        rules: the ids of the rules that act on its events.
    """

    id: str
    pattern: str
    variant: tuple[str, ...]
    group: str
    count: int
    share: float
    counts: list[int]
    before: int
    first: str
    last: str
    open: bool
    merged_into: str | None
    name: str
    muted: bool
    per_minute: int
    merged: bool
    only: tuple[str, ...]
    rules: tuple[str, ...]


class PatternList(Struct, frozen=True):
    """A page of a list.

    Attributes:
        found: patterns that were found, on all pages.
        events: of them.
    """

    source: SourceState
    axis: Axis
    found: int
    events: int
    page: int
    pages: int
    patterns: list[Pattern]


class CountList(Struct, frozen=True):
    """The counts over time of a cluster."""

    axis: Axis
    counts: list[int]
    before: int
    count: int


def pattern_of(source: Source, entry: Entry) -> Pattern:
    """A cluster in a list."""
    events = source.status().events
    values = entry.counts.values(source.axis)
    return Pattern(
        id=entry.hex,
        pattern=entry.pattern,
        variant=entry.variant,
        group=entry.group,
        count=entry.count,
        share=round(entry.count / events, 6) if events else 0.0,
        counts=values,
        before=entry.count - sum(values),
        first=moment(source, entry.first),
        last=moment(source, entry.last),
        open=entry.open,
        merged_into=None if entry.merged_into is None else f"{entry.merged_into:016x}",
        **(entry.mark or NO_MARK)._asdict(),
    )


def pattern_list(source: Source, query: Query, found: Found) -> PatternList:
    """A page of a list."""
    return PatternList(
        source=source_state(source),
        axis=axis_of(source),
        found=found.patterns,
        events=found.events,
        page=query.page,
        pages=page_count(found.patterns, query.limit),
        patterns=[pattern_of(source, entry) for entry in found.entries],
    )


def page_count(found: int, limit: int) -> int:
    """Return how many pages show what was found, at least one."""
    return max(1, -(-found // limit))


def count_list(source: Source, entry: Entry) -> CountList:
    """The counts over time of a cluster."""
    values = entry.counts.values(source.axis)
    return CountList(axis_of(source), values, entry.count - sum(values), entry.count)
