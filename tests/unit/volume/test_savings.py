from __future__ import annotations

import pytest

from stream_dedup.volume.counts import Axis, Counts
from stream_dedup.volume.savings import MINUTE_US, Savings, leaving, savings_of, shown_size


def test_what_is_saved_is_never_more_than_all_but_one_event() -> None:
    axis = Axis(MINUTE_US, slides=False)
    axis.reach(0)

    assert savings_of(1_000, 4, [4], axis, 1) == Savings(750, 750)
    assert savings_of(1_000, 4, [4], axis, 3) == Savings(750, 250)
    assert savings_of(1_000, 4, [4], axis, 9) == Savings(750, 0)
    assert savings_of(1_000, 4, [], axis, 1) == Savings(750, None)


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
