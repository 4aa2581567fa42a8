from __future__ import annotations

import pytest

from stream_dedup.ui.counts import Axis, Counts
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.rules import Mark
from stream_dedup.ui.volume import MINUTE_US, Volume, leaving, shown_size, volume_of

MUTED = Mark("", muted=True, per_minute=0, merged=False, only=(), rules=())
KEPT = MUTED._replace(muted=False, per_minute=2)


def entry_of(axis: Axis, minutes: list[int], mark: Mark | None = None) -> Entry:
    """An entry with events of ten bytes each in these minutes."""
    entry = Entry(1, len(minutes), 0, 0, bytes=10 * len(minutes), mark=mark)
    for minute in minutes:
        axis.reach(minute * MINUTE_US)
        entry.counts.add(axis, minute * MINUTE_US, 1)
    return entry


@pytest.mark.parametrize(("mark", "left"), [(None, 60), (MUTED, 10), (KEPT, 30)])
def test_volume_is_that_of_the_rules_and_of_what_they_would_save(
    mark: Mark | None, left: int
) -> None:
    axis = Axis(MINUTE_US, slides=False)
    entry = entry_of(axis, [0, 0, 0, 0, 0, 1], mark)

    assert volume_of(entry, axis, 3, has_times=True) == Volume(60, left, 50, 20)


def test_without_times_nobody_knows_what_a_minute_holds() -> None:
    axis = Axis(MINUTE_US, slides=False)
    entry = entry_of(axis, [0, 0, 0], KEPT)

    assert volume_of(entry, axis, 1, has_times=False) == Volume(30, 30, 20, None)


@pytest.mark.parametrize(
    ("width", "values", "left"),
    [
        (MINUTE_US, [5, 1], 3),
        (2 * MINUTE_US, [5, 1], 5),
        (MINUTE_US // 2, [5, 1, 1, 0], 3),
        (MINUTE_US, [0, 0], None),
    ],
)
def test_events_leave_by_the_minutes_of_their_buckets(
    width: int, values: list[int], left: int | None
) -> None:
    axis = Axis(width, slides=False)
    axis.reach(0)

    assert leaving(values, axis, 2, sum(values)) == left


def test_sizes_are_written_for_people() -> None:
    assert [shown_size(size) for size in (0, 999, 1_000, 999_950, 123_456_789)] == [
        "0 B", "999 B", "1.0 kB", "1.0 MB", "123 MB",
    ]  # fmt: skip


def test_events_of_no_bucket_count_as_the_others_do() -> None:
    axis = Axis(MINUTE_US, slides=False)
    axis.reach(0)
    counts = Counts()
    counts.add(axis, 0, 4)

    assert leaving(counts.values(axis), axis, 1, 40) == 10
