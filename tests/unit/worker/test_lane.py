"""What a lane takes at once: within both bounds, in order, and nothing twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.connectors.base import Record, Records
from stream_dedup.model import Partition
from stream_dedup.worker.lane import Lane
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
    assert [3, 2] == [len(lane.take(0.0)[0]) for _ in range(2)]


def test_an_event_larger_than_a_batch_goes_with_what_came_before_it_or_alone() -> None:
    lane = opened([[10, 500, 10], [500], [10]], max_batch_bytes=100)
    assert [510, 510, 10] == [lane.take(0.0)[1] for _ in range(3)]
