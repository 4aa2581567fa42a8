from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.verification import fastest_jaccard, reference_jaccard
from stream_dedup.fingerprint.kernel import native_module
from stream_dedup.fingerprint.numbers import SKETCH_SIZE

hashes = st.sets(st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1)), max_size=SKETCH_SIZE - 1)

jaccard = fastest_jaccard()


def sketch(features: set[int]) -> bytes:
    return array("Q", sorted(features)[:SKETCH_SIZE]).tobytes()


@given(hashes, hashes)
def test_below_the_sketch_size_the_index_is_exact(left: set[int], right: set[int]) -> None:
    expected = len(left & right) / len(left | right) if left | right else 1.0
    assert reference_jaccard(sketch(left), sketch(right)) == expected
    assert jaccard(sketch(left), sketch(right)) == expected


@given(
    st.sets(st.integers(0, 300), max_size=200),
    st.sets(st.integers(0, 300), max_size=200),
)
def test_the_native_index_is_the_reference_at_any_size(left: set[int], right: set[int]) -> None:
    assert native_module() is not None
    pair = sketch(left), sketch(right)
    assert reference_jaccard(*pair) == jaccard(*pair) == jaccard(*reversed(pair))


@pytest.mark.parametrize("shared", [50, 250, 450, 490])
def test_above_it_the_estimate_is_near_the_truth(shared: int) -> None:
    generator = random.Random(shared)
    true = shared / (2 * 500 - shared)
    estimates = []
    for _ in range(40):
        features = [generator.getrandbits(64) for _ in range(2 * 500 - shared)]
        pair = sketch(set(features[:500])), sketch(set(features[500 - shared :]))
        estimates.append(jaccard(*pair))
    # The deviation of one is sqrt(t (1 - t) / 64) <= .0625, of the mean of forty <= .01.
    assert pytest.approx(true, abs=0.04) == sum(estimates) / len(estimates)
    assert all(abs(estimate - true) < 0.28 for estimate in estimates)


def test_two_empty_sketches_are_equal_and_one_is_like_nothing() -> None:
    assert jaccard(b"", b"") == 1.0
    assert jaccard(b"", sketch({1, 2})) == 0.0
