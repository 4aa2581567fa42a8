from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.near_cache import DEAD_US, Known, NearCache
from stream_dedup.index.base import Resolution
from stream_dedup.model import Decision, Kind

WINDOWS = Windows(idle_us=100, max_age_us=250)


def learn(
    cache: NearCache,
    key: int,
    cluster: int,
    opened_us: int = 0,
    last_us: int = 0,
    *,
    recorded: bool = True,
) -> Known:
    decision = Decision(Kind.DUPLICATE, cluster, 0, key)
    return cache.learn(
        key, Resolution(cluster, 0, False, opened_us, last_us, recorded), decision
    ).known


def known(cache: NearCache, key: int) -> Known | None:
    near = cache.find(key)
    return near.known if near else None


def test_what_was_learned_is_known_until_its_window_ends() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    learned = learn(cache, 1, 7, opened_us=0, last_us=50)
    assert (learned.cluster, learned.live_until_us, learned.samples) == (7, 150, 3)
    assert known(cache, 1) is learned
    assert known(cache, 2) is None
    learned.last_us = 140
    assert cache.live(learned, 240)
    assert not cache.live(learned, 241)
    learned.last_us = 240
    assert cache.live(learned, 250)
    assert not cache.live(learned, 251)  # max_age


def test_exact_hashes_of_a_cluster_share_what_is_known_of_it() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    assert learn(cache, 1, 7, 0, 50) is learn(cache, 2, 7, 0, 20)
    shared = known(cache, 1)
    assert shared is not None
    assert shared.last_us == 50  # it was seen later than the second answer says


def test_a_cluster_stays_live_as_long_as_the_index_said_though_it_was_opened_anew() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    learned = learn(cache, 1, 7, opened_us=0, last_us=50)
    assert learn(cache, 2, 7, opened_us=200, last_us=200, recorded=False) is learned
    assert not cache.live(learned, 301)
    assert cache.live(learned, 300)


def test_a_forgotten_cluster_is_dead_for_all_its_hashes() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    first = learn(cache, 1, 7)
    learn(cache, 2, 7)
    cache.forget(7)
    cache.forget(7)
    first.last_us = 99  # by whoever was about to count an event
    assert not cache.live(first, 1)
    assert first.live_until_us == DEAD_US
    assert known(cache, 2) is first
    assert first is not learn(cache, 1, 7)


def test_of_a_cluster_whose_representative_is_not_recorded_nothing_is_kept() -> None:
    cache = NearCache(WINDOWS, 10, 3)
    unsettled = learn(cache, 1, 7, 0, 50, recorded=False)
    assert cache.live(unsettled, 150)  # what waited for the answer may still take it
    assert not cache.live(unsettled, 151)
    assert known(cache, 1) is None
    learn(cache, 1, 7)
    assert known(cache, 1) is not None


def test_what_is_asked_for_stays_and_what_is_not_goes() -> None:
    cache = NearCache(WINDOWS, 2, 3)
    for key in range(20):
        learn(cache, key, key)
        assert known(cache, 0) is not None
        assert len(cache) <= 4
    assert known(cache, 1) is None


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(["learn", "look", "forget"]), st.integers(0, 7)), max_size=60
    ),
)
def test_whatever_is_found_alive_can_be_forgotten(size: int, steps: list[tuple[str, int]]) -> None:
    cache = NearCache(WINDOWS, size, 3)
    alive: set[int] = set()
    for action, key in steps:
        cluster = key % 5  # some clusters have two hashes
        if action == "learn":
            learn(cache, key, cluster)
            alive.add(cluster)
        elif action == "look":
            found = known(cache, key)
            assert found is None or found.live_until_us == DEAD_US or cluster in alive
        else:
            cache.forget(cluster)
            alive.discard(cluster)
        assert len(cache) <= 2 * size + 1
        assert len(cache._clusters) <= 2 * size + 1
        for near in (*cache.recent.values(), *cache.older.values()):
            if near.known.live_until_us != DEAD_US:
                assert near.known is cache._clusters[near.known.cluster]
