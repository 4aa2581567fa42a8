from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.linkage import Candidate, Linkage, cluster_id
from stream_dedup.features.recipe import Match
from stream_dedup.model import Position

MOST_SIMILAR = Candidate(0.9, 6, 90, 4)
NEAREST = Candidate(0.8, 1, 80, 3)
OLDEST = Candidate(0.8, 2, 10, 2)
LEAST = Candidate(0.8, 2, 20, 0)
LAST = Candidate(0.8, 2, 20, 1)


def test_the_most_similar_wins_then_the_nearest_then_the_oldest_then_the_least_id() -> None:
    candidates = [LAST, LEAST, OLDEST, NEAREST, MOST_SIMILAR]
    for winner in [MOST_SIMILAR, NEAREST, OLDEST, LEAST, LAST]:
        assert Linkage.best(candidates) == winner
        candidates.remove(winner)
    assert Linkage.best(candidates) is None


@given(st.randoms())
def test_the_winner_does_not_depend_on_the_order_of_the_candidates(chance: random.Random) -> None:
    candidates = [LAST, LEAST, OLDEST, NEAREST]
    chance.shuffle(candidates)
    assert Linkage.best(candidates) == NEAREST


@pytest.mark.parametrize(
    ("similarity", "distance", "admitted"),
    [(0.7, 60, True), (0.69, 0, False), (1.0, 7, True)],
)
def test_with_verification_the_sketches_decide(
    similarity: float, distance: int, admitted: bool
) -> None:
    linkage = Linkage(Match(k=6, jaccard=0.7))
    assert linkage.verifies
    assert linkage.admits(similarity, distance) == admitted


@pytest.mark.parametrize(("distance", "admitted"), [(0, True), (6, True), (7, False)])
def test_without_verification_the_distance_decides(distance: int, admitted: bool) -> None:
    linkage = Linkage(Match(k=6, jaccard=0))
    assert not linkage.verifies
    assert linkage.admits(0.0, distance) == admitted


def test_ids_differ_by_every_part_of_namespace_and_position() -> None:
    positions = [
        Position("a", 0, 0),
        Position("a", 0, 1),
        Position("a", 1, 0),
        Position("a", 10, 1),
        Position("a", 1, 1),
        Position("b", 0, 0),
    ]
    ids = {cluster_id(namespace, p) for namespace in ("x", "y") for p in positions}
    assert 2 * len(positions) == len(ids)
    assert all(0 <= identity < 2**64 for identity in ids)


def test_ids_are_the_same_for_ever() -> None:
    assert cluster_id("logs", Position("app.log", 0, 17)) == 0xE3E788EC37CE54A9
    assert cluster_id("logs", Position("\udcff.log", 0, 1))  # a file name that is no text
