"""What an index does with keys of bands: find who shares one, then compare sketches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from stream_dedup.fingerprint.bands import BANDS, CROWD, KEY_BYTES, MAX_VERIFIED
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import FoundBy, Position
from stream_dedup.tables.sketches import reference_jaccard
from tests.contract.driver import (
    ADAPTERS,
    BANDED,
    HERE,
    START_US,
    WIDE,
    Driver,
    S,
    Setup,
    delta,
    sketch_of,
)

Start = Callable[..., Driver]
COMMON = 7_777
"""A key that many have."""


@pytest.fixture(params=ADAPTERS)
def begin(request: pytest.FixtureRequest) -> Iterator[Start]:
    drivers: list[Driver] = []
    opens = ADAPTERS[request.param].bind(request)

    def made(limits: Limits | None = None) -> Driver:
        drivers.append(Driver(opens, Setup(BANDED, WIDE, limits=limits or Limits())))
        return drivers[-1]

    yield made
    for driver in drivers:
        driver.stop()


def own_keys(text: int, shared: Sequence[int] = ()) -> list[int]:
    """Sixteen keys that no other text has, the first of them replaced by shared ones."""
    return [*shared, *(text << 8 | band for band in range(len(shared), BANDS))]


def asked(
    offset: int, keys: Sequence[int], words: Sequence[int], at_s: float = 0, *, near: bool = True
) -> Query:
    fingerprint = 0
    for key in keys:
        fingerprint = fingerprint << 8 * KEY_BYTES | key
    time_us = START_US + round(at_s * S)
    position = Position(HERE.source, HERE.number, offset)
    return Query("", offset + 1, fingerprint, sketch_of(words), near, time_us, time_us, position)


WORDS = range(30)


@pytest.mark.parametrize("shared", range(BANDS + 1))
def test_one_key_in_common_is_near_enough(begin: Start, shared: int) -> None:
    index = begin()
    first = own_keys(1)
    second = [first[band] if band >= BANDS - shared else 99 for band in range(BANDS)]
    (opened,) = index.resolve(asked(0, first, WORDS))
    (answer,) = index.resolve(asked(1, second, WORDS))
    if shared:
        assert (answer.cluster, answer.distance) == (opened.cluster, BANDS - shared)
        assert answer.found_by is FoundBy.FINGERPRINT
    else:
        assert answer.new


def test_a_key_of_another_band_is_no_key_in_common(begin: Start) -> None:
    index = begin()
    keys = own_keys(1)
    index.resolve(asked(0, keys, WORDS))
    (answer,) = index.resolve(asked(1, [*keys[1:], keys[0]], WORDS))
    assert answer.new


@pytest.mark.parametrize(
    ("words", "joins"),
    [
        (range(12, 42), True),  # 18 of 42: .43
        (range(13, 43), False),  # 17 of 43: .40
        (range(13), True),  # 13 of 30, but few of one: 13 of 30 is .43
    ],
)
def test_four_tenths_of_the_features_are_in_common(begin: Start, words: range, joins: bool) -> None:
    index = begin()
    index.resolve(asked(0, own_keys(1), WORDS))
    (answer,) = index.resolve(asked(1, own_keys(1), words))
    assert (joins and len(words) >= 24) != answer.new


@pytest.mark.parametrize(("words", "joins"), [(range(12), True), (range(11), False)])
def test_of_few_features_six_tenths_are_in_common(begin: Start, words: range, joins: bool) -> None:
    index = begin()
    index.resolve(asked(0, own_keys(1), range(20)))  # 12 of 20: .6
    (answer,) = index.resolve(asked(1, own_keys(1), words))
    assert joins != answer.new


@pytest.mark.parametrize("size", [1_000, 100])  # of the hashes of 100 fewer bits are kept
@pytest.mark.parametrize(("replaced", "joins"), [(0.2, True), (0.7, False)])
def test_of_many_features_the_least_of_both_are_compared(
    begin: Start, size: int, replaced: float, joins: bool
) -> None:
    index = begin()
    ours = [*range(0, 2 * size, 2)]
    theirs = [*range(1, int(2 * replaced * size), 2), *ours[int(replaced * size) :]]
    theirs += range(10**6, 10**6 + size // 2)
    similarity = reference_jaccard(sketch_of(ours), sketch_of(theirs))
    assert joins == (similarity >= BANDED.match.jaccard)
    index.resolve(asked(0, own_keys(1), ours))
    (answer,) = index.resolve(asked(1, own_keys(1), theirs))
    assert joins != answer.new


ALIKE = range(30)


@pytest.mark.parametrize(
    ("texts", "best"),
    [
        # Most similar, though another is nearer; then the nearest; then the oldest.
        ([(4, [*ALIKE, 40]), (9, [*ALIKE, 40, 50])], 0),
        ([(4, [*ALIKE, 40, 41]), (9, [*ALIKE, 40, 50])], 1),
        ([(4, [*ALIKE, 40, 41]), (4, [*ALIKE, 50, 51])], 0),
    ],
)
def test_the_most_similar_wins_then_the_nearest_then_the_oldest(
    begin: Start, texts: list[tuple[int, list[int]]], best: int
) -> None:
    index = begin()
    keys = own_keys(1)
    queries = [
        asked(0, [*keys[: texts[0][0]], *own_keys(2)[texts[0][0] :]], texts[0][1], 0),
        asked(
            1, [*own_keys(3)[: BANDS - texts[1][0]], *keys[BANDS - texts[1][0] :]], texts[1][1], 1
        ),
    ]
    opened = index.resolve(*queries)
    assert [answer.new for answer in opened] == [True, True]
    (answer,) = index.resolve(asked(2, keys, ALIKE, 2))
    assert (answer.cluster, answer.distance) == (opened[best].cluster, BANDS - texts[best][0])


def test_few_features_match_by_exact_hash_alone(begin: Start) -> None:
    index = begin()
    index.resolve(asked(0, own_keys(1), WORDS))
    (few,) = index.resolve(asked(1, own_keys(1), WORDS, near=False))
    assert few.new
    assert index.size().fingerprints == 1


def test_joined_events_lead_nowhere_by_their_keys(begin: Start) -> None:
    index = begin()
    middle = [*own_keys(1)[:1], *own_keys(2)[1:]]
    first, joined = index.resolve(asked(0, own_keys(1), WORDS), asked(1, middle, WORDS))
    (far,) = index.resolve(asked(2, own_keys(2), WORDS))
    assert (joined.cluster, far.new) == (first.cluster, True)
    assert index.size().fingerprints == 2


# ---------------------------------------------------------------- crowds


def crowd(count: int, shared: int = 1) -> list[Query]:
    """Queries that share one key, or more, and nothing else."""
    return [
        asked(n, own_keys(n + 1, [COMMON] * shared), range(1000 * n, 1000 * n + 30), n)
        for n in range(count)
    ]


@pytest.mark.parametrize(("shared", "counted"), [(BANDS // 2, 0), (BANDS // 2 + 1, 3)])
def test_clusters_that_half_their_keys_do_not_lead_to_are_counted(
    begin: Start, shared: int, counted: int
) -> None:
    index = begin()
    index.resolve(*crowd(CROWD, shared))
    assert index.size().truncated == 0
    index.resolve(*crowd(CROWD + 3, shared))
    assert index.size().truncated == counted


def test_a_full_key_gets_no_more_members(begin: Start) -> None:
    index = begin()
    opened = index.resolve(*crowd(CROWD + 3))
    assert all(answer.new for answer in opened)
    assert index.size()[:2] == (CROWD + 3, CROWD + 3)
    for n in (0, CROWD - 1, CROWD, CROWD + 2):
        by_other_key = [*own_keys(999)[:1], *own_keys(n + 1)[1:]]
        by_common_key = own_keys(500 + n, [COMMON])
        words = range(1000 * n, 1000 * n + 30)
        found, missed = index.resolve(
            asked(100 + n, by_other_key, words, 50), asked(200 + n, by_common_key, words, 50)
        )
        assert found.cluster == opened[n].cluster
        assert (n >= CROWD) == missed.new


def test_who_leaves_a_full_key_makes_room(begin: Start) -> None:
    index = begin(Limits(max_clusters=CROWD))
    queries = crowd(CROWD + 2)
    for first in range(0, len(queries), 2):
        answers = index.resolve(*queries[first : first + 2])
        deltas = [delta(answer, at_s=first) for answer in answers]
        assert index.count(first + 1, *deltas, at_s=first, first_offset=first) == frozenset()
    index.expire()
    assert index.size().evicted == 2
    late = asked(300, own_keys(300, [COMMON]), range(900_000, 900_030), 60)
    (opened,) = index.resolve(late)
    (answer,) = index.resolve(asked(301, own_keys(301, [COMMON]), range(900_000, 900_030), 61))
    assert (opened.new, answer.cluster) == (True, opened.cluster)


def test_a_representative_in_a_crowd_finds_its_own_cluster(begin: Start) -> None:
    index = begin()
    queries = crowd(CROWD + 3)
    opened = index.resolve(*queries)
    assert [answer.cluster for answer in index.resolve(*queries)] == [a.cluster for a in opened]
    assert index.size()[:2] == (CROWD + 3, CROWD + 3)


def test_a_cluster_without_a_sketch_is_like_no_other_event(begin: Start) -> None:
    index = begin()
    keys = own_keys(1)
    index.resolve(asked(0, keys, ()))
    (answer,) = index.resolve(asked(1, keys, WORDS, 1))
    assert answer.new


def leaves_out_some(index: Driver) -> bool:
    """Whether the index may not compare an event with all that share a key with it."""
    return isinstance(index.index, RedisIndex) and not index.index.mirrored


def test_at_most_sixteen_of_the_nearest_are_verified(begin: Start) -> None:
    index = begin()
    keys = own_keys(1)
    # Each shares one key of the query's; the best one shares two.
    others = [
        asked(n, [*own_keys(n + 2)[: n % 16], keys[n % 16], *own_keys(n + 2)[n % 16 + 1 :]],
              range(1000 * n, 1000 * n + 30), n)
        for n in range(2 * MAX_VERIFIED)
    ]  # fmt: skip
    index.resolve(*others)
    words = range(50_000, 50_030)
    near = asked(90, [*own_keys(90)[:14], *keys[14:]], words, 90)
    (opened,) = index.resolve(near)
    before = index.size().truncated
    (answer,) = index.resolve(asked(91, keys, words, 91))
    assert answer.cluster == opened.cluster
    assert index.size().truncated == before + leaves_out_some(index)


def test_a_cap_on_those_verified_leaves_out_the_furthest(begin: Start) -> None:
    index = begin(Limits(max_verified=1))
    keys, words = own_keys(1), range(30)
    alike = asked(0, [*keys[:4], *own_keys(2)[4:]], words, 0)
    nearer = asked(1, [*own_keys(3)[:8], *keys[8:]], range(500, 530), 1)
    index.resolve(alike, nearer)
    (answer,) = index.resolve(asked(2, keys, words, 2))
    left_out = leaves_out_some(index)
    assert (answer.new, index.size().truncated) == (left_out, left_out)


def test_a_cluster_opened_again_keeps_the_keys_it_still_has(begin: Start) -> None:
    index = begin()
    old, new = own_keys(1), [*own_keys(1)[:8], *own_keys(2)[8:]]
    index.resolve(asked(0, old, WORDS))
    (taken,) = index.resolve(asked(0, new, range(500, 530))._replace(exact=77))
    assert index.count(0, delta(taken)) == frozenset()
    index.expire()  # what led to the former text is gone
    (by_kept,) = index.resolve(asked(1, [*old[:8], *own_keys(3)[8:]], range(500, 530)))
    (by_old,) = index.resolve(asked(2, [*own_keys(4)[:8], *old[8:]], range(500, 530)))
    (by_new,) = index.resolve(asked(3, [*own_keys(5)[:8], *new[8:]], range(500, 530)))
    assert [by_kept.cluster, by_new.cluster] == [taken.cluster] * 2
    assert by_old.new
