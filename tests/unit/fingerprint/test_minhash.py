"""Minhash: the documented bits, what it depends on, and how likely two sets agree."""

from __future__ import annotations

import random
from functools import reduce
from math import comb, sqrt
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.prepare import NO_SALT, Part
from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.minhash import minhash
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.native import extension

hashes = st.lists(st.integers(0, 2**64 - 1), max_size=30)
leasts = st.integers(1, 8)


def test_the_worked_bits_of_the_documentation() -> None:
    disk, sda, sdb, sdc, full, warn = 0b0010, 0b1011, 0b1001, 0b0100, 0b0111, 0b1110

    assert minhash([disk, sda, full, warn], 2) == 0b0101
    assert minhash([disk, sdb, full, warn], 2) == 0b0101
    assert minhash([disk, sdc, full, warn], 2) == 0b0110


@given(values=hashes, least=leasts, random_=st.randoms(use_true_random=False))
def test_order_and_repeats_do_not_matter(
    values: list[int], least: int, random_: random.Random
) -> None:
    mixed = values * 2
    random_.shuffle(mixed)

    assert minhash(values, least) == minhash(mixed, least)


@given(values=hashes, least=leasts)
def test_only_the_least_matter(values: list[int], least: int) -> None:
    chosen = sorted(set(values))[:least]

    assert reduce(xor, chosen, 0) == minhash(values, least)
    assert minhash(chosen, least) == minhash(values, least)
    if len(chosen) == least:
        assert minhash(values, least) == minhash([*values, chosen[-1] + 1, 2**64 - 1], least) or (
            chosen[-1] + 1 in values or chosen[-1] == 2**64 - 1
        )


@given(values=st.lists(st.integers(0, 2**128 - 1), max_size=20), least=leasts)
def test_wider_hashes_are_ranked_by_their_low_half(values: list[int], least: int) -> None:
    wide = minhash(values, least, 128)

    assert minhash([value & 2**64 - 1 for value in values], least, 64) == wide & 2**64 - 1
    assert minhash(values, least, 32) == wide & 2**32 - 1


@pytest.mark.parametrize(
    ("least", "shared", "union"), [(1, 9, 12), (2, 9, 12), (4, 9, 12), (4, 28, 30)]
)
def test_two_sets_agree_as_often_as_the_formula_says(least: int, shared: int, union: int) -> None:
    trials = 4_000
    random_ = random.Random(least * union)
    events: list[list[Part]] = []
    for _ in range(trials):
        features = [(random_.randbytes(8), 1, NO_SALT) for _ in range(union)]
        apart = shared + (union - shared) // 2
        events.append(features[:apart])
        events.append(features[:shared] + features[apart:])
    recipe = replace(Recipe(), fingerprint__kind="minhash", fingerprint__least=least, match__k=0)
    numbers = extension("fingerprint._kernel").Kernel(recipe, PUBLIC_KEY).fold(events, full=True)

    low, chosen = numbers.low, numbers.chosen
    agreed = sum(low[i] == low[i + 1] for i in range(0, 2 * trials, 2)) / trials
    assert agreed == sum(chosen[i] == chosen[i + 1] for i in range(0, 2 * trials, 2)) / trials

    expected = comb(shared, least) / comb(union, least)
    assert pytest.approx(agreed, abs=4 * sqrt(expected * (1 - expected) / trials)) == expected


def test_a_weight_of_nought_leaves_a_word_out_of_the_fingerprint() -> None:
    for kind in ("minhash", "simhash"):
        recipe = replace(
            Recipe(),
            fingerprint__kind=kind,
            match__k=0,
            features__weights__table={"the": 0, "a": 0, "an": 0},
        )
        with_articles, without, other = (
            Fingerprinter(recipe, PUBLIC_KEY)
            .fingerprints([b"the cat a tree an owl", b"cat tree owl", b"cat tree"], full=True)
            .low
        )
        assert with_articles == without != other
