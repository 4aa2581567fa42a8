"""Counts over time add up to the events, whatever is read when."""

from __future__ import annotations

import random
from sys import getsizeof

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.volume.counts import BUCKETS, Axis, Counts

TIMES = st.integers(-(10**6), 10**6)


def test_differences_are_spread_between_two_readings() -> None:
    axis, counts = Axis(10, slides=True), Counts()
    axis.reach(129)
    counts.add(axis, 100, 5)
    counts.spread(axis, 100, 129, 7)
    assert counts.values(axis)[-3:] == [7, 2, 3]
    assert sum(counts.values(axis)) == 12


def test_old_buckets_of_a_sliding_axis_become_one_number() -> None:
    axis, counts = Axis(10, slides=True), Counts()
    axis.reach(0)
    counts.add(axis, 0, 3)
    axis.reach(10 * (BUCKETS - 1))
    assert (counts.before, counts.values(axis)[0]) == (0, 3)
    axis.reach(10 * BUCKETS)
    assert sum(counts.values(axis)) == 0
    counts.add(axis, 10 * BUCKETS, 1)
    assert (counts.before, sum(counts.values(axis))) == (3, 1)


def test_a_growing_axis_keeps_all_and_stays_bounded() -> None:
    axis, counts = Axis(1, slides=False), Counts()
    for at in range(10_000):
        axis.reach(at)
        counts.add(axis, at, 1)
    assert counts.before == 0
    assert sum(counts.values(axis)) == 10_000
    assert BUCKETS // 2 <= axis.buckets <= BUCKETS


@given(st.lists(st.tuples(TIMES, TIMES, st.integers(0, 10**12)), max_size=30), st.booleans())
def test_counts_add_up_to_the_events(
    given_events: list[tuple[int, int, int]], slides: bool
) -> None:
    axis, counts, all_events = Axis(100, slides=slides), Counts(), 0
    for one, other, events in given_events:
        start, end = min(one, other), max(one, other)
        if not slides:
            axis.reach(start)
        axis.reach(end)
        counts.spread(axis, start, end, events)
        all_events += events
        assert sum(counts.values(axis)) + counts.before == all_events
        assert counts.total == all_events
        assert sum(counts.change(axis)) == sum(counts.values(axis))
        assert min(counts.values(axis)) >= 0


def test_merged_counts_add_up() -> None:
    axis, one, other = Axis(1, slides=False), Counts(), Counts()
    rng = random.Random(1)
    for counts in (one, other):
        for _ in range(500):
            at = rng.randrange(100_000)
            axis.reach(at)
            counts.add(axis, at, 2)
    one.merge(axis, other)
    assert sum(one.values(axis)) == 2_000


def test_counts_take_bounded_memory() -> None:
    axis, counts = Axis(1, slides=True), Counts()
    for at in range(10 * BUCKETS):
        axis.reach(at)
        counts.add(axis, at, 1)
    assert getsizeof(counts._pairs) <= 16 * 2 * BUCKETS + 100


def test_the_last_quarter_is_compared_with_the_others() -> None:
    axis, counts = Axis(1, slides=True), Counts()
    axis.reach(BUCKETS - 1)
    counts.add(axis, 0, 5)
    counts.add(axis, BUCKETS - 1, 7)
    assert counts.change(axis) == (7, 5)


def test_events_between_two_buckets_are_those_of_the_bars() -> None:
    axis, counts = Axis(1, slides=False), Counts()
    for at in (*range(100), 57, 57):
        axis.reach(at)
        counts.add(axis, at, 1)
    values, first = counts.values(axis), axis.first
    for low, high in ((first, axis.last), (first + 3, first + 9), (axis.last, axis.last)):
        assert counts.between(axis, low, high) == sum(values[low - first : high - first + 1])
