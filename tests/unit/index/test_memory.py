from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.fingerprint.hashing import mix
from stream_dedup.fingerprint.one_off import pack, pattern_keys, sequence_key
from stream_dedup.index.base import Query
from stream_dedup.index.memory import LazyHeap, MemoryIndex, run
from stream_dedup.model import FoundBy, Position
from tests.contract.test_learned_words import random_query
from tests.effort import scaled


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


LEARNS = Recipe(match=Match(k=3, jaccard=0.9, learn=5))
PATTERNS = st.builds(  # any word in a place, and in another one a word, another one, or none
    lambda word, other: [101, word, *other, 104, 105],
    st.integers(201, 208),
    st.sampled_from([[103], [103], [203], []]),
)


def asked(offset: int, pattern: list[int]) -> Query:
    exact = mix(sequence_key(pattern))
    keys = pack(pattern_keys(pattern, [False] * len(pattern)))
    position = Position("lines", 0, offset)
    return Query("", exact, mix(exact), b"", False, offset, offset, position, keys)


def decided(queries: list[Query], size: int) -> tuple[MemoryIndex, list[bool]]:
    """An index that never closes a cluster, given so many queries at a time, and what taught it."""
    index = MemoryIndex(LEARNS, windows=Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US))
    taught: list[bool] = []
    for start in range(0, len(queries), size):
        run(index.resolve(queries[start : start + size], 0))
        taught += index.taught
    return index, taught


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_what_teaches_no_variable_may_be_left_out(seed: int) -> None:
    chance, forever = random.Random(seed), Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
    recipe = Recipe(match=Match(k=3, jaccard=0.9, learn=chance.choice([2, 3, 5])))
    whole, part = (MemoryIndex(recipe, windows=forever) for _ in range(2))
    for offset in range(700):
        query = random_query(chance, offset, offset)
        (answer,) = run(whole.resolve([query], 0))
        if whole.taught[0]:
            (other,) = run(part.resolve([query], 0))
            assert (other.cluster, other.learned) == (answer.cluster, answer.learned)


@given(st.lists(PATTERNS, min_size=10, max_size=60), st.integers(1, 60))
def test_what_teaches_nothing_may_be_left_out(patterns: list[list[int]], size: int) -> None:
    queries = [asked(offset, pattern) for offset, pattern in enumerate(patterns)]
    whole, taught = decided(queries, size)
    part, _ = decided([q for q, teaches in zip(queries, taught, strict=True) if teaches], size)
    assert run(part.size()).clusters == run(whole.size()).clusters
    turned = enumerate(patterns[::-1], len(queries))
    found = run(part.resolve([asked(offset, each) for offset, each in turned], 0))
    assert not any(each.found_by is FoundBy.NEW for each in found)
    # Of lines that the whole index knows by their exact hash, this one sees that they fit two.
    assert run(part.size()).clusters <= run(whole.size()).clusters
