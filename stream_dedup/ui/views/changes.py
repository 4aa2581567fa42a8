"""Two periods, or files, compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from stream_dedup.ui.comparing import Sides, compare
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.patterns import Pattern, pattern_of
from stream_dedup.ui.views.sources import SourceState, source_state
from stream_dedup.ui.views.text import moment

MAX_CHANGES = 100
"""Changes that are shown."""


class Side(Struct, frozen=True):
    """One of two periods, or files.

    Attributes:
        name: for people.
        start: when it begins, or its first line; empty for a file.
        end: when it ends, or its last line; empty for a file.
        events: in it.
    """

    name: str
    start: str
    end: str
    events: int


class Change(Struct, frozen=True):
    """What happened to a pattern between two periods, or files.

    Attributes:
        old, new: its events.
        change: what.
        times: how many times as high its rate is; null if one of the counts is 0.
        chance: how likely so large a difference is by chance; null if a side has no event.
        sure: whether it is significant, among all patterns.
    """

    pattern: Pattern
    old: int
    new: int
    change: Literal["new", "vanished", "more", "fewer"]
    times: float | None
    chance: float | None
    sure: bool


class ChangeList(Struct, frozen=True):
    """Two periods, or files, compared; the changes that are least likely by chance first.

    Attributes:
        per: what rates are divided by.
        patterns: that were compared.
        changed: that changed significantly.
        found: changes, also those that nobody can be sure of.
        changes: the first of them.
    """

    source: SourceState
    old: Side
    new: Side
    per: Literal["time", "events"]
    patterns: int
    changed: int
    found: int
    changes: list[Change]


def change_list(source: Source, entries: Sequence[Entry], sides: Sides) -> ChangeList:
    """Compare two periods, or files. With 10⁵ clusters it takes a second or so."""
    found = compare(entries, source.axis, sides)
    return ChangeList(
        source=source_state(source),
        old=Side(*_side(source, sides, old=True), found.old),
        new=Side(*_side(source, sides, old=False), found.new),
        per="events" if sides.files else "time",
        patterns=len(found.entries),
        changed=sum(each.sure for each in found.changes),
        found=len(found.changes),
        changes=[
            Change(
                pattern=pattern_of(source, found.entries[each.row]),
                old=each.counts.old,
                new=each.counts.new,
                change=each.kind,
                times=each.times and round(each.times, 3),
                chance=None if each.log_p is None else math.exp(each.log_p),
                sure=each.sure,
            )
            for each in found.changes[:MAX_CHANGES]
        ],
    )


def _side(source: Source, sides: Sides, *, old: bool) -> tuple[str, str, str]:
    """The name, beginning and end of a side."""
    if sides.files is not None:
        return source.inputs[sides.files[0 if old else 1]], "", ""
    first, last = sides.old if old else sides.new
    if last < first:
        return "no time", "", ""
    start, end = (moment(source, bucket * source.axis.width) for bucket in (first, last + 1))
    return f"{start} to {end}", start, end
