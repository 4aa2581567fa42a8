"""Simhash: the documented bits, what it does not depend on, and how far one word moves it."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.simhash import WIDTHS, distance, simhash, votes
from stream_dedup.fingerprint.siphash import PUBLIC_KEY

weighted = st.lists(st.tuples(st.integers(0, 2**128 - 1), st.integers(0, 1000)), max_size=20)


def test_the_worked_bits_of_the_documentation() -> None:
    disk, sda, sdb, full = 0b10110, 0b00111, 0b01010, 0b10010

    assert votes([(disk, 1), (sda, 1), (full, 1)], 5) == [-1, 3, 1, -3, 1]
    assert simhash([(disk, 1), (sda, 1), (full, 1)], 5) == 0b10110
    assert votes([(disk, 1), (sdb, 1), (full, 1)], 5) == [-3, 3, -1, -1, 1]
    assert simhash([(disk, 1), (sdb, 1), (full, 1)], 5) == 0b10010
    assert distance(0b10110, 0b10010) == 1


def test_no_features_and_tied_votes_give_no_bits() -> None:
    assert simhash([]) == 0
    assert simhash([(0b01, 1), (0b10, 1)], 2) == 0
    assert simhash([(0b01, 1), (0b10, 2)], 2) == 0b10
    assert simhash([(2**64 - 1, 0)]) == 0


@pytest.mark.parametrize("width", WIDTHS)
@given(features=weighted, random_=st.randoms(use_true_random=False))
def test_the_order_of_features_does_not_matter(
    width: int, features: list[tuple[int, int]], random_: random.Random
) -> None:
    mixed = features.copy()
    random_.shuffle(mixed)

    assert simhash(features, width) == simhash(mixed, width)


@given(features=weighted)
def test_a_narrower_simhash_is_the_low_bits_of_a_wider_one(features: list[tuple[int, int]]) -> None:
    wide = simhash(features, 128)

    assert [simhash(features, 32), simhash(features, 64)] == [wide & 2**32 - 1, wide & 2**64 - 1]


@given(features=weighted, factor=st.integers(1, 9))
def test_only_the_proportion_of_weights_matters(
    features: list[tuple[int, int]], factor: int
) -> None:
    assert simhash(features) == simhash([(value, weight * factor) for value, weight in features])
    repeated = [(value, 1) for value, weight in features for _ in range(weight % 5)]
    assert simhash((v, w % 5) for v, w in features) == simhash(repeated)


@given(a=st.integers(0, 2**128 - 1), b=st.integers(0, 2**128 - 1), c=st.integers(0, 2**128 - 1))
def test_distance_is_a_metric(a: int, b: int, c: int) -> None:
    assert distance(a, a) == 0
    assert (distance(a, b) == 0) == (a == b)
    assert distance(b, a) == distance(a, b)
    assert distance(a, c) <= distance(a, b) + distance(b, c)
    assert sum((a >> bit & 1) != (b >> bit & 1) for bit in range(128)) == distance(a, b)


@pytest.mark.parametrize(
    ("tokens", "within_3", "within_8"), [(8, 0.01, 0.49), (15, 0.09, 0.77), (40, 0.43, 0.98)]
)
def test_one_replaced_token_moves_the_fingerprint_as_in_the_study(
    tokens: int, within_3: float, within_8: float
) -> None:
    random_ = random.Random(tokens)
    trials = 2_000
    texts: list[bytes] = []
    for _ in range(trials):
        words = [random_.randbytes(6).hex().encode() for _ in range(tokens + 1)]
        place = random_.randrange(tokens)
        texts.append(b" ".join(words[:tokens]))
        texts.append(b" ".join([*words[:place], words[tokens], *words[place + 1 : tokens]]))
    fingerprinter = Fingerprinter(Recipe(), PUBLIC_KEY)
    low = fingerprinter.fingerprints(texts, full=True).low
    moved = [distance(low[i], low[i + 1]) for i in range(0, 2 * trials, 2)]

    # The standard error is at most .011.
    assert pytest.approx(sum(d <= 3 for d in moved) / trials, abs=0.05) == within_3
    assert pytest.approx(sum(d <= 8 for d in moved) / trials, abs=0.05) == within_8


def test_unrelated_events_are_half_the_width_apart() -> None:
    random_ = random.Random(3)
    for width in WIDTHS:
        recipe = replace(Recipe(), fingerprint__width=width)
        texts = [
            b" ".join(random_.randbytes(4).hex().encode() for _ in range(11)) for _ in range(401)
        ]
        numbers = Fingerprinter(recipe, PUBLIC_KEY).fingerprints(texts, full=True)
        prints = [numbers.fingerprint(i) for i in range(401)]
        apart = [distance(a, b) for a, b in pairwise(prints)]
        assert pytest.approx(sum(apart) / len(apart), rel=0.03) == width / 2


def test_weights_bring_sentences_with_the_same_rare_words_together() -> None:
    # "Simhashing (hopefully) made simple": weight 1 for common words, 3 for the others.
    sentences = [
        b"the cat in the tree is white",
        b"the man in the suit is happy",
        b"a white cat is in a tree",
    ]
    common = dict.fromkeys(["the", "in", "is", "a"], 1)
    table: dict[str, Any] = {"default": 3, "table": common}

    def closer(seed: int) -> int:
        recipe = replace(Recipe(), features__weights=table, fingerprint__seed=seed)
        one, two, three = Fingerprinter(recipe, PUBLIC_KEY).fingerprints(sentences, full=True).low
        return distance(one, two) - distance(one, three)

    gains = [closer(seed) for seed in range(200)]
    assert closer(0) > 0
    assert sum(gain > 0 for gain in gains) > 190
