from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.near_cache import CLOSED_US, CachedCluster, NearCache
from stream_dedup.index.base import Resolution
from stream_dedup.model import Decision, Kind

WINDOWS = Windows(idle_us=100, max_age_us=250)


def store(
    cache: NearCache,
    key: int,
    cluster: int,
    opened_us: int = 0,
    last_us: int = 0,
    *,
    recorded: bool = True,
) -> CachedCluster:
    decision = Decision(Kind.DUPLICATE, cluster, 0, key)
    return cache.store(
        key, Resolution(cluster, 0, False, opened_us, last_us, recorded), decision
    ).cluster


def found(cache: NearCache, key: int) -> CachedCluster | None:
    ((entry,), _) = cache.look_up([key])
    return entry.cluster if entry else None


def test_an_entry_is_live_until_its_window_ends() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    stored = store(cache, 1, 7, opened_us=0, last_us=50)
    assert (stored.cluster_id, stored.live_until_us, stored.samples_wanted) == (7, 150, 3)
    assert found(cache, 1) is stored
    assert found(cache, 2) is None
    stored.last_us = 140
    assert cache.is_live(stored, 240)
    assert not cache.is_live(stored, 241)
    stored.last_us = 240
    assert cache.is_live(stored, 250)
    assert not cache.is_live(stored, 251)  # max_age


def test_exact_hashes_of_a_cluster_share_one_object() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    assert store(cache, 1, 7, 0, 50) is store(cache, 2, 7, 0, 20)
    shared = found(cache, 1)
    assert shared is not None
    assert shared.last_us == 50  # it was seen later than the second answer says


def test_what_led_to_a_cluster_is_forgotten_when_it_reopens() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    former = store(cache, 1, 7, opened_us=0, last_us=50)
    decision = Decision(Kind.NEW, 7, 0, 2)
    opened = cache.store(2, Resolution(7, 0, True, 50, 50, recorded=True), decision).cluster
    assert not cache.is_live(former, 60)
    again = store(cache, 3, 7, opened_us=60, last_us=60)  # by another process
    assert not cache.is_live(opened, 60)
    assert cache.is_live(again, 60)


def test_a_reopened_cluster_is_live_until_the_later_window_ends() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    stored = store(cache, 1, 7, opened_us=0, last_us=50)
    assert store(cache, 2, 7, opened_us=200, last_us=200, recorded=False) is stored
    assert not cache.is_live(stored, 301)
    assert cache.is_live(stored, 300)


def test_a_forgotten_cluster_is_dead_for_all_its_hashes() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    first = store(cache, 1, 7)
    store(cache, 2, 7)
    cache.forget([7])
    cache.forget([7])
    first.last_us = 99  # by whoever was about to count an event
    assert not cache.is_live(first, 1)
    assert first.live_until_us == CLOSED_US
    assert found(cache, 2) is first
    assert first is not store(cache, 1, 7)


def test_clusters_with_an_unrecorded_representative_are_not_kept() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    unrecorded = store(cache, 1, 7, 0, 50, recorded=False)
    assert cache.is_live(unrecorded, 150)  # what waited for the answer may still take it
    assert not cache.is_live(unrecorded, 151)
    assert found(cache, 1) is None
    store(cache, 1, 7)
    assert found(cache, 1) is not None


def test_used_entries_stay_and_unused_ones_are_dropped() -> None:
    cache = NearCache(WINDOWS, 2, 3)
    for key in range(20):
        store(cache, key, key)
        assert found(cache, 0) is not None
        assert len(cache) <= 4
    assert found(cache, 1) is None


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(["store", "look", "forget"]), st.integers(0, 7)), max_size=60
    ),
)
def test_every_live_entry_can_be_forgotten(size: int, steps: list[tuple[str, int]]) -> None:
    cache = NearCache(WINDOWS, size, 3)
    alive: set[int] = set()
    for action, key in steps:
        cluster = key % 5  # some clusters have two hashes
        if action == "store":
            store(cache, key, cluster)
            alive.add(cluster)
        elif action == "look":
            cached = found(cache, key)
            assert cached is None or cached.live_until_us == CLOSED_US or cluster in alive
        else:
            cache.forget([cluster])
            alive.discard(cluster)
        assert len(cache) <= 2 * size + 1
        assert len(cache._clusters) <= 2 * size + 1
        for entry in (*cache._recent.values(), *cache._older.values()):
            if entry.cluster.live_until_us != CLOSED_US:
                assert entry.cluster is cache._clusters[entry.cluster.cluster_id]
