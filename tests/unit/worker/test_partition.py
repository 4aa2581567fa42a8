"""The queue of a partition: when a batch is ready, and what it takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.config import WorkerConfig
from stream_dedup.io.base import Record, Records
from stream_dedup.model import Partition
from stream_dedup.worker.partition import PartitionState, State

polls = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), max_size=8)
"""Sizes of events, poll by poll; 0 is a tombstone."""


def opened(sizes: list[list[int]], **settings: Any) -> PartitionState:
    """A partition in whose queue events of these sizes wait."""
    partition = PartitionState(Partition("topic", 0), WorkerConfig(**settings))
    partition.open(0, 10**6)
    offset = 0
    for poll in sizes:
        records = [Record(offset + n, 0, None, b"x" * s or None) for n, s in enumerate(poll)]
        partition.add(Records.of(records), 0.0)
        offset += len(poll)
    return partition


@given(polls, st.integers(1, 15), st.integers(1, 200))
def test_batches_fill_their_bounds_and_keep_them(
    sizes: list[list[int]], max_events: int, max_bytes: int
) -> None:
    partition = opened(sizes, max_batch_events=max_events, max_batch_bytes=max_bytes)
    waiting = [size for poll in sizes for size in poll]
    offset = 0
    while not partition.idle and partition.events:
        records, size = partition.take(0.0)
        taken = waiting[offset : offset + len(records)]
        assert records.offsets == list(range(offset, offset + len(records)))
        assert size == sum(taken)
        assert 1 <= len(records) <= max_events
        assert sum(taken[:-1]) < max_bytes, "a batch ends with the event that fills it"
        offset += len(records)
        assert partition.events == len(waiting) - offset
        if partition.events:
            assert size >= max_bytes or len(records) == max_events, "there was room for more"
    assert offset == len(waiting)


def test_a_batch_ends_with_the_event_that_fills_it() -> None:
    partition = opened([[40, 40, 40, 40], [40]], max_batch_bytes=100)
    assert [len(partition.take(0.0)[0]) for _ in range(2)] == [3, 2]


def test_an_event_larger_than_a_batch_ends_its_batch() -> None:
    partition = opened([[10, 500, 10], [500], [10]], max_batch_bytes=100)
    assert [partition.take(0.0)[1] for _ in range(3)] == [510, 510, 10]


CONFIG = WorkerConfig(max_batch_events=4, batch_wait_s=0.5, ahead_batches=2)


def open_state() -> PartitionState:
    partition = PartitionState(Partition("topic", 0), CONFIG)
    partition.open(0, 10**6)
    return partition


def add(partition: PartitionState, events: int, now_s: float) -> None:
    partition.add(Records.of([Record(n, 0, None, b"x") for n in range(events)]), now_s)


def test_a_partition_has_room_until_two_batches_wait() -> None:
    partition = open_state()
    for events in (4, 3):
        add(partition, events, 0.0)
        assert partition.has_room
    add(partition, 1, 0.0)
    assert not partition.has_room
    partition.take(0.0)
    assert partition.has_room


@pytest.mark.parametrize("state", [State.OPENING, State.CLOSING, State.GONE])
def test_only_an_open_partition_queues_and_gives_events(state: State) -> None:
    partition = open_state()
    add(partition, 4, 0.0)
    partition.state = state
    assert not partition.has_room
    assert partition.ready_in_s(9.0) is None
    add(partition, 1, 0.0)
    assert partition.events == 4


def test_a_full_batch_is_ready_at_once_a_smaller_one_waits() -> None:
    partition = open_state()
    assert partition.ready_in_s(1.0) is None
    add(partition, 1, 1.0)
    add(partition, 2, 1.25)  # the first has waited since it came
    assert [partition.ready_in_s(now_s) for now_s in (1.0, 1.25, 1.5, 9.0)] == [0.5, 0.25, 0.0, 0.0]
    add(partition, 1, 1.25)
    assert [partition.ready_in_s(now_s) for now_s in (1.0, 1.25)] == [0.0, 0.0]


def test_remaining_events_wait_from_when_the_last_batch_was_taken() -> None:
    partition = open_state()
    add(partition, 6, 1.0)
    partition.take(2.0)
    partition.in_flight = 0  # delivered
    assert [partition.ready_in_s(now_s) for now_s in (2.0, 2.25)] == [0.5, 0.25]


def test_only_full_batches_follow_one_in_flight_up_to_the_limit() -> None:
    partition = open_state()
    add(partition, 7, 1.0)
    partition.take(1.0)
    assert partition.in_flight == 1
    assert partition.ready_in_s(9.0) is None, "a batch of three waits"
    add(partition, 5, 1.0)
    assert partition.ready_in_s(1.0) == 0.0
    partition.take(1.0)
    assert partition.in_flight == 2
    assert partition.events == 4
    assert partition.ready_in_s(9.0) is None
    partition.in_flight -= 1
    assert partition.ready_in_s(9.0) == 0.0


def test_closing_drops_waiting_events_and_takes_no_more() -> None:
    partition = open_state()
    add(partition, 6, 1.0)
    partition.take(1.0)
    partition.begin_closing()
    assert (partition.state, partition.events, partition.in_flight) == (State.CLOSING, 0, 1)
    add(partition, 3, 1.0)
    assert partition.events == 0
    assert partition.ready_in_s(9.0) is None
    partition.close()
    assert partition.gone
    assert partition.idle


def test_a_batch_that_is_just_full_takes_no_more_tombstones() -> None:
    partition = PartitionState(Partition("topic", 0), WorkerConfig(max_batch_bytes=100))
    partition.open(0, 10**6)
    values = [b"x" * 60, b"x" * 40, None, None]
    partition.add(Records.of([Record(n, 0, None, value) for n, value in enumerate(values)]), 0.0)
    assert [partition.take(0.0)[0].offsets for _ in range(2)] == [[0, 1], [2, 3]]
