"""What a lane takes at once: within both bounds, in order, and nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.io.base import Record, Records
from stream_dedup.model import Partition
from stream_dedup.worker.partition import Lane, State
from stream_dedup.worker.policy import Flow

polls = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), max_size=8)
"""Sizes of events, poll by poll; 0 is a tombstone."""


def opened(sizes: list[list[int]], **flow: int) -> Lane:
    """A lane in which events of these sizes wait."""
    lane = Lane(Partition("topic", 0), Flow(**flow))
    lane.open(0, 10**6)
    offset = 0
    for poll in sizes:
        records = [Record(offset + n, 0, None, b"x" * s or None) for n, s in enumerate(poll)]
        lane.add(Records.of(records), 0.0)
        offset += len(poll)
    return lane


@given(polls, st.integers(1, 15), st.integers(1, 200))
def test_batches_are_as_large_as_their_bounds_let_them_be_and_no_larger(
    sizes: list[list[int]], max_events: int, max_bytes: int
) -> None:
    lane = opened(sizes, max_batch_events=max_events, max_batch_bytes=max_bytes)
    waiting = [size for poll in sizes for size in poll]
    offset = 0
    while not lane.idle and lane.events:
        records, size = lane.take(0.0)
        taken = waiting[offset : offset + len(records)]
        assert list(range(offset, offset + len(records))) == records.offsets
        assert sum(taken) == size
        assert 1 <= len(records) <= max_events
        assert sum(taken[:-1]) < max_bytes, "without its last event it was not full"
        offset += len(records)
        assert len(waiting) - offset == lane.events
        if lane.events:
            assert size >= max_bytes or len(records) == max_events, "there was room for more"
    assert len(waiting) == offset


def test_a_batch_ends_with_the_event_that_fills_it_also_within_a_poll() -> None:
    lane = opened([[40, 40, 40, 40], [40]], max_batch_bytes=100)
    assert [len(lane.take(0.0)[0]) for _ in range(2)] == [3, 2]


def test_an_event_larger_than_a_batch_goes_with_what_came_before_it_or_alone() -> None:
    lane = opened([[10, 500, 10], [500], [10]], max_batch_bytes=100)
    assert [lane.take(0.0)[1] for _ in range(3)] == [510, 510, 10]


FLOW = Flow(max_batch_events=4, batch_wait_s=0.5, ahead_batches=2)


def lane_of() -> Lane:
    lane = Lane(Partition("topic", 0), FLOW)
    lane.open(0, 10**6)
    return lane


def add(lane: Lane, events: int, now_s: float) -> None:
    lane.add(Records.of([Record(n, 0, None, b"x") for n in range(events)]), now_s)


def test_more_is_read_until_two_batches_wait() -> None:
    lane = lane_of()
    for events in (4, 3):
        add(lane, events, 0.0)
        assert lane.has_room
    add(lane, 1, 0.0)
    assert not lane.has_room
    lane.take(0.0)
    assert lane.has_room


@pytest.mark.parametrize("state", [State.OPENING, State.CLOSING, State.GONE])
def test_only_an_open_lane_reads_and_gives(state: State) -> None:
    lane = lane_of()
    add(lane, 4, 0.0)
    lane.state = state
    assert not lane.has_room
    assert lane.ready_in_s(9.0) is None
    add(lane, 1, 0.0)
    assert lane.events == 4


def test_a_full_batch_is_ready_at_once_and_others_wait_for_company() -> None:
    lane = lane_of()
    assert lane.ready_in_s(1.0) is None
    add(lane, 1, 1.0)
    add(lane, 2, 1.25)  # the first has waited since it came
    assert [lane.ready_in_s(now_s) for now_s in (1.0, 1.25, 1.5, 9.0)] == [0.5, 0.25, 0.0, 0.0]
    add(lane, 1, 1.25)
    assert [lane.ready_in_s(now_s) for now_s in (1.0, 1.25)] == [0.0, 0.0]


def test_what_is_left_waits_from_when_the_batch_before_was_taken() -> None:
    lane = lane_of()
    add(lane, 6, 1.0)
    lane.take(2.0)
    lane.ahead = 0  # delivered
    assert [lane.ready_in_s(now_s) for now_s in (2.0, 2.25)] == [0.5, 0.25]


def test_behind_a_batch_on_its_way_only_a_full_one_is_taken_and_no_more_than_are_allowed() -> None:
    lane = lane_of()
    add(lane, 7, 1.0)
    lane.take(1.0)
    assert lane.ahead == 1
    assert lane.ready_in_s(9.0) is None, "three may wait for a fourth"
    add(lane, 5, 1.0)
    assert lane.ready_in_s(1.0) == 0.0
    lane.take(1.0)
    assert lane.ahead == 2
    assert lane.events == 4
    assert lane.ready_in_s(9.0) is None
    lane.ahead -= 1
    assert lane.ready_in_s(9.0) == 0.0


def test_what_is_dropped_leaves_no_trace() -> None:
    lane = lane_of()
    add(lane, 6, 1.0)
    lane.take(1.0)
    lane.drop()
    assert lane.events == 0
    assert lane.ready_in_s(9.0) is None
    add(lane, 3, 1.0)
    records, size = lane.take(1.0)
    assert (records.offsets, size) == ([0, 1, 2], 3)


def test_a_batch_that_is_just_full_takes_no_tombstones_more() -> None:
    lane = Lane(Partition("topic", 0), Flow(max_batch_bytes=100))
    lane.open(0, 10**6)
    values = [b"x" * 60, b"x" * 40, None, None]
    lane.add(Records.of([Record(n, 0, None, value) for n, value in enumerate(values)]), 0.0)
    assert [lane.take(0.0)[0].offsets for _ in range(2)] == [[0, 1], [2, 3]]
