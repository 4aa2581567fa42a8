"""Periods that are compared: those that a person chooses, and those that nobody has chosen."""

from __future__ import annotations

import pytest

from stream_dedup.clock import US_PER_S
from stream_dedup.ui.comparing import Chosen, compare, sides_of
from stream_dedup.ui.patterns import Entry
from stream_dedup.volume.counts import BUCKETS, Axis

AXIS = Axis(60 * US_PER_S, slides=True)
AXIS.reach((BUCKETS - 1) * AXIS.width)


def entry(identity: int, buckets: range, each: int) -> Entry:
    made = Entry(identity, each * len(buckets), buckets[0] * AXIS.width, buckets[-1] * AXIS.width)
    for bucket in buckets:
        made.counts.add(AXIS, bucket * AXIS.width, each)
    return made


@pytest.mark.parametrize("began", [0, 1, 30, 40, 44])
def test_a_stream_that_began_lately_is_steady(began: int) -> None:
    entries = [entry(n, range(began, BUCKETS), 10 * n) for n in range(1, 6)]
    sides = sides_of(Chosen(), AXIS, 0, entries, has_times=True)
    found = compare(entries, AXIS, sides)

    assert sides.old == (began, 44)
    assert [each.kind for each in found.changes if each.sure] == []
    assert found.old + found.new == sum(each.count for each in entries)


def test_a_new_pattern_of_a_stream_that_began_lately_is_new() -> None:
    entries = [entry(1, range(30, BUCKETS), 10), entry(2, range(50, BUCKETS), 10)]
    found = compare(entries, AXIS, sides_of(Chosen(), AXIS, 0, entries, has_times=True))

    assert [(each.row, each.kind) for each in found.changes if each.sure] == [(1, "new")]


def test_a_period_that_is_chosen_may_begin_before_the_stream() -> None:
    entries = [entry(1, range(30, BUCKETS), 10)]
    chosen = Chosen(old_start="1970-01-01T00:10")

    assert sides_of(chosen, AXIS, 0, entries, has_times=True).old == (10, 44)
