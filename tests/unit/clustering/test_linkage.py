from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.linkage import (
    Candidate,
    Linkage,
    fastest_jaccard,
    reference_jaccard,
)
from stream_dedup.features.recipe import Match, Recipe, replace
from stream_dedup.fingerprint.kernel import SKETCH_SIZE
from stream_dedup.native import extension

BANDS = replace(Recipe(), fingerprint__kind="bands", match__jaccard=0.42)

MOST_SIMILAR = Candidate(0.9, 6, 90, 4)
NEAREST = Candidate(0.8, 1, 80, 3)
OLDEST = Candidate(0.8, 2, 10, 2)
LEAST = Candidate(0.8, 2, 20, 0)
LAST = Candidate(0.8, 2, 20, 1)


def test_the_best_is_most_similar_then_nearest_then_oldest() -> None:
    candidates = [LAST, LEAST, OLDEST, NEAREST, MOST_SIMILAR]
    for winner in [MOST_SIMILAR, NEAREST, OLDEST, LEAST, LAST]:
        assert Linkage.best(candidates) == winner
        candidates.remove(winner)
    assert Linkage.best(candidates) is None


@given(st.randoms())
def test_the_best_does_not_depend_on_the_order(chance: random.Random) -> None:
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
    linkage = Linkage(Recipe(match=Match(k=6, jaccard=0.7)))
    assert linkage.verifies
    assert linkage.admits(b"", b"", similarity, distance) == admitted


@pytest.mark.parametrize(("distance", "admitted"), [(0, True), (6, True), (7, False)])
def test_without_verification_the_distance_decides(distance: int, admitted: bool) -> None:
    linkage = Linkage(Recipe(match=Match(k=6, jaccard=0)))
    assert not linkage.verifies
    assert linkage.admits(b"", b"", 0.0, distance) == admitted


@pytest.mark.parametrize(
    ("features", "similarity", "admitted"),
    [(24, 0.42, True), (24, 0.41, False), (23, 0.59, False), (23, 0.6, True), (1, 0.6, True)],
)
def test_of_few_features_in_bands_more_must_be_common(
    features: int, similarity: float, admitted: bool
) -> None:
    linkage = Linkage(BANDS)
    smaller, larger = bytes(2 + 2 * features), bytes(2 + 2 * 128)
    assert linkage.admits(smaller, larger, similarity, 15) == admitted
    assert linkage.admits(larger, smaller, similarity, 16) == admitted


def test_a_higher_threshold_of_bands_holds_for_few_features_too() -> None:
    linkage = Linkage(replace(BANDS, match__jaccard=0.8))
    assert not linkage.admits(bytes(4), bytes(4), 0.79, 0)


def test_the_distance_of_bands_is_the_number_of_differing_keys() -> None:
    assert Linkage(BANDS).distance(0, 1 << 48 | 0b111) == 2


hashes = st.sets(st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1)), max_size=SKETCH_SIZE - 1)

jaccard = fastest_jaccard()


def sketch(features: set[int]) -> bytes:
    return array("Q", sorted(features)[:SKETCH_SIZE]).tobytes()


@given(hashes, hashes)
def test_jaccard_of_small_sketches_is_exact(left: set[int], right: set[int]) -> None:
    expected = len(left & right) / len(left | right) if left | right else 1.0
    assert reference_jaccard(sketch(left), sketch(right)) == expected
    assert jaccard(sketch(left), sketch(right)) == expected


@given(
    st.sets(st.integers(0, 300), max_size=200),
    st.sets(st.integers(0, 300), max_size=200),
)
def test_native_jaccard_equals_the_reference(left: set[int], right: set[int]) -> None:
    assert extension("fingerprint._kernel") is not None
    pair = sketch(left), sketch(right)
    assert reference_jaccard(*pair) == jaccard(*pair) == jaccard(*reversed(pair))


@pytest.mark.parametrize("shared", [50, 250, 450, 490])
def test_jaccard_of_cut_sketches_is_a_good_estimate(shared: int) -> None:
    generator = random.Random(shared)
    true = shared / (2 * 500 - shared)
    estimates = []
    for _ in range(40):
        features = [generator.getrandbits(64) for _ in range(2 * 500 - shared)]
        pair = sketch(set(features[:500])), sketch(set(features[500 - shared :]))
        estimates.append(jaccard(*pair))
    # The deviation of one is sqrt(t (1 - t) / 64) <= .0625, of the mean of forty <= .01.
    assert sum(estimates) / len(estimates) == pytest.approx(true, abs=0.04)
    assert all(abs(estimate - true) < 0.28 for estimate in estimates)


def test_empty_sketches_are_equal_to_each_other_only() -> None:
    assert jaccard(b"", b"") == 1.0
    assert jaccard(b"", sketch({1, 2})) == 0.0
