"""A period of a source against another one, or a file against another one.

Periods are whole buckets of the counts over time. Rates are counts divided by the periods' lengths,
or by the files' events; which differences mean something is decided as by `stream-dedup diff` (see
`changes.rates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from stream_dedup.changes.rates import Counts, Exposure, RateChange, changes
from stream_dedup.cli.common import parse_moment
from stream_dedup.ui.patterns import Entry
from stream_dedup.volume.counts import Axis

Moment = Annotated[str, Meta(max_length=40, description="2024-05-07T09:30, UTC; or a line.")]
FileNumber = Annotated[int, Meta(ge=0, le=1_000, description="Of a file, from 1 on; 0: none.")]


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two files, or two periods.

    What is empty is chosen: the last quarter of the time shown, and all before it since the first
    event.
    """

    old_file: FileNumber = 0
    new_file: FileNumber = 0
    old_start: Moment = ""
    old_end: Moment = ""
    new_start: Moment = ""
    new_end: Moment = ""


class Sides(NamedTuple):
    """What is compared.

    Attributes:
        files: the indexes of two files; None for periods.
        old, new: first and last bucket of each period.
    """

    files: tuple[int, int] | None
    old: tuple[int, int]
    new: tuple[int, int]


class Compared(NamedTuple):
    """The result.

    Attributes:
        entries: the patterns that have events in one of the sides.
        changes: what changed; rows are those of the entries.
        old, new: events.
    """

    entries: list[Entry]
    changes: list[RateChange]
    old: int
    new: int


def sides_of(
    chosen: Chosen, axis: Axis, files: int, entries: Iterable[Entry], *, has_times: bool
) -> Sides:
    """Return what is compared.

    Args:
        chosen: by a person.
        axis: of the counts.
        files: how many there are whose events are counted each.
        entries: all; in the time before their first event there is no rate.
        has_times: whether times are known; if not, lines stand for them.

    Raises:
        ValueError: it is not a period, or no file.
    """
    nothing = (0, -1)
    if chosen.old_file or chosen.new_file:
        if not (0 < chosen.old_file <= files and 0 < chosen.new_file <= files):
            raise ValueError(f"choose two of the {files} files")
        return Sides((chosen.old_file - 1, chosen.new_file - 1), nothing, nothing)
    if axis.least is None:
        return Sides(None, nothing, nothing)

    def begin(text: str, otherwise: int) -> int:
        """The bucket that begins nearest to a moment: periods that meet share none."""
        if not text.strip():
            return otherwise
        return (_at(text.strip(), has_times=has_times) + axis.width // 2) // axis.width

    recent = axis.recent if axis.recent > axis.first else axis.last
    new = begin(chosen.new_start, recent), begin(chosen.new_end, axis.last + 1) - 1
    began = min((each.first for each in entries), default=0) // axis.width
    earliest = began if axis.first < began < new[0] else axis.first
    old = begin(chosen.old_start, earliest), begin(chosen.old_end, new[0]) - 1
    for first, last, name in ((*old, "first"), (*new, "second")):
        if last < first:
            raise ValueError(f"the {name} period ends before it begins")
    return Sides(None, old, new)


def _at(text: str, *, has_times: bool) -> int:
    if not has_times:
        if not text.isdecimal() or len(text) > 15:
            raise ValueError(f"{text!r} is not a line: give a number")
        return int(text)
    return parse_moment(text)


def compare(entries: Sequence[Entry], axis: Axis, sides: Sides) -> Compared:
    """Compare the patterns of two sides."""
    kept: list[Entry] = []
    counts: list[Counts] = []
    for each in entries:
        if sides.files is None:
            found = Counts(
                each.counts.between(axis, *sides.old), each.counts.between(axis, *sides.new)
            )
        else:
            inputs = each.inputs or []
            found = Counts(*(inputs[at] if at < len(inputs) else 0 for at in sides.files))
        if found.old or found.new:
            kept.append(each)
            counts.append(found)
    old, new = (sum(each[side] for each in counts) for side in (0, 1))
    exposure = None
    if old and new:
        lengths = (sides.old[1] - sides.old[0] + 1, sides.new[1] - sides.new[0] + 1)
        exposure = Exposure(old, new) if sides.files is not None else Exposure(*lengths)
    return Compared(kept, changes(counts, exposure), old, new)
