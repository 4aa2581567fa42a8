from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.index.memory.queues import LazyHeap


@given(st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(0, 2**64 - 1)), max_size=50))
def test_ids_come_out_by_time_then_id(pairs: list[tuple[int, int]]) -> None:
    times = {identity: time_us for time_us, identity in pairs}
    heap = LazyHeap(times.get, times)
    for identity, time_us in times.items():
        heap.push(time_us, identity)
    expected = sorted(times, key=lambda identity: (times[identity], identity))
    assert list(heap.pop_until(2**61, len(times))) == expected
    assert len(heap) == 0


@given(st.data())
def test_ids_are_sorted_by_their_current_times(data: st.DataObject) -> None:
    times: dict[int, int] = {}
    heap = LazyHeap(times.get, times)
    for identity in range(data.draw(st.integers(1, 20))):
        times[identity] = data.draw(st.integers(0, 50))
        heap.push(times[identity], identity)
    for identity in list(times):
        move = data.draw(st.integers(-1, 30))
        if move < 0:
            del times[identity]
        else:
            times[identity] += move
    bound = data.draw(st.integers(0, 80))
    expected = sorted((time, i) for i, time in times.items() if time <= bound)
    assert heap.least() == (min((time, i) for i, time in times.items()) if times else None)
    assert list(heap.pop_until(bound, 100)) == [i for _, i in expected]


def test_at_most_the_limit_is_taken_and_the_rest_stays() -> None:
    times = dict.fromkeys(range(5), 7)
    heap = LazyHeap(times.get, times)
    for identity in times:
        heap.push(7, identity)
    assert list(heap.pop_until(7, 2)) == [0, 1]
    assert list(heap.pop_until(7, 0)) == []
    assert list(heap.pop_until(6, 9)) == []
    assert heap.least() == (7, 2)


def test_an_empty_heap_has_no_least() -> None:
    times: dict[int, int] = {}
    assert LazyHeap(times.get, times).least() is None


def test_entries_of_deleted_ids_take_bounded_memory() -> None:
    times: dict[int, int] = {}
    heap = LazyHeap(times.get, times)
    most = 0
    for identity in range(50_000):
        # A long-lived id in front keeps the stale ones behind it from surfacing.
        times[identity] = 0 if identity == 0 else 1000 + identity
        heap.push(times[identity], identity)
        if identity > 100:
            del times[identity - 100]
        most = max(most, len(heap))
    assert len(times) <= 102
    assert most <= 1024 + 1


def test_compaction_loses_no_id() -> None:
    times = {identity: random.Random(identity).randrange(10**6) for identity in range(5000)}
    heap = LazyHeap(times.get, times)
    for identity, time_us in times.items():
        heap.push(time_us, identity)
    assert len(heap) == 5000
    assert list(heap.pop_until(10**6, 5000)) == sorted(times, key=lambda i: (times[i], i))
