"""Bands: how often sets share a key, what their hashes depend on, and numbers that never change."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.recipe import BANDS_BITS, Recipe, replace
from stream_dedup.fingerprint import bands
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.kernel import Fingerprints
from stream_dedup.fingerprint.siphash import PUBLIC_KEY, HashKey, siphash
from stream_dedup.tables.sketches import SKETCH

TEXTS = replace(
    Recipe(),
    features__extractor="characters",
    features__ngram=4,
    text__fold="look-alikes",
    fingerprint__kind="bands",
    match__jaccard=0.42,
)
WIN = b"You have won a prize of 1000 pounds, call 09061701461 now to claim it"

hashes = st.sets(st.integers(0, 2**32 - 1), max_size=60)


def numbers(*texts: bytes, recipe: Recipe = TEXTS, key: HashKey = PUBLIC_KEY) -> Fingerprints:
    fingerprinter = Fingerprinter(recipe, key)
    return fingerprinter.fingerprints(fingerprinter.prepare(texts, None), full=True)


def test_a_fingerprint_has_as_many_bits_as_recipes_say() -> None:
    assert BANDS_BITS == bands.BITS == TEXTS.fingerprint.bits
    assert Recipe().fingerprint.bits == 64


@given(hashes)
def test_keys_and_fingerprint_are_the_same_bits(features: set[int]) -> None:
    value = bands.fingerprint(features)
    joined = b"".join(key.to_bytes(4, "big") for key in bands.keys(value))

    assert joined == value.to_bytes(64, "big")
    assert bands.differing_keys(value, value) == 0


few_bits = st.lists(st.integers(0, bands.BITS - 1), max_size=6).map(
    lambda bits: sum(1 << bit for bit in set(bits))
)


@given(few_bits, few_bits | st.integers(0, 2**bands.BITS - 1))
def test_the_distance_counts_keys_that_differ(left: int, right: int) -> None:
    pairs = zip(bands.keys(left), bands.keys(right), strict=True)

    assert bands.differing_keys(left, right) == sum(ours != theirs for ours, theirs in pairs)


@pytest.mark.parametrize("shared", [10, 40, 60, 75, 90])
def test_sets_share_a_key_as_often_as_the_formula_says(shared: int) -> None:
    generator = random.Random(shared)
    trials, met = 400, 0
    for _ in range(trials):
        common = [generator.getrandbits(32) for _ in range(shared)]
        left, right = (
            {*common, *(generator.getrandbits(32) for _ in range((100 - shared) // 2))}
            for _ in range(2)
        )
        apart = bands.differing_keys(bands.fingerprint(left), bands.fingerprint(right))
        met += apart < bands.BANDS
    expected = bands.chance_of_meeting(shared / (shared + 2 * ((100 - shared) // 2)))

    assert met / trials == pytest.approx(expected, abs=0.08)  # three deviations of the mean


def test_seed_and_key_change_all_bands() -> None:
    public = numbers(WIN).fingerprint(0)
    seeded = numbers(WIN, recipe=replace(TEXTS, fingerprint__seed=1)).fingerprint(0)
    keyed = numbers(WIN, key=HashKey(b"sixteen secrets!")).fingerprint(0)

    apart = [bands.differing_keys(public, other) for other in (seeded, keyed)]
    assert apart == [bands.BANDS] * 2


def aimed_at(victim: bytes, band: int, key: HashKey) -> bytes:
    """Return an unlike text that shares a band under a key: the three features that are least."""
    grams = [victim[start : start + 4] for start in range(len(victim) - 3)]
    hashes = [siphash(key, gram) >> 32 for gram in grams]
    least = [
        min(zip(hashes, grams, strict=True), key=lambda each: a * each[0] + b & 0xFFFF_FFFF)[1]
        for a, b in bands.factors(0)[bands.ROWS * band : bands.ROWS * (band + 1)]
    ]
    wanted = bands.keys(numbers(victim, key=key).fingerprint(0))[band]
    generator = random.Random(band)
    while True:
        filler = (bytes(generator.choices(b"vwxyz", k=6)) for _ in range(bands.ROWS + 1))
        text = b"".join(part for pair in zip(filler, [*least, b""], strict=True) for part in pair)
        if bands.keys(numbers(text, key=key).fingerprint(0))[band] == wanted:
            return text


def test_texts_aimed_at_bands_miss_them_under_another_key() -> None:
    victim, secret = (
        b"youhavewonaprizeofathousandpoundscaiinowtocoiiect",
        HashKey(b"operator's own!!"),
    )
    aimed = [aimed_at(victim, band, PUBLIC_KEY) for band in range(bands.BANDS)]

    def sharing(key: HashKey) -> int:
        found = numbers(victim, *aimed, key=key)
        values = [found.fingerprint(index) for index in range(len(aimed) + 1)]
        return sum(bands.differing_keys(values[0], each) < bands.BANDS for each in values[1:])

    assert (sharing(PUBLIC_KEY), sharing(secret)) == (bands.BANDS, 0)


def test_the_seed_does_not_change_the_sketch() -> None:
    seeded = numbers(WIN, recipe=replace(TEXTS, fingerprint__seed=1))

    assert numbers(WIN).sketches == seeded.sketches


def test_placeholders_and_weightless_words_are_in_no_band() -> None:
    recipe = replace(
        Recipe(),
        text__classes=True,
        features__weights={"table": {"the": 0}},
        fingerprint__kind="bands",
        match__jaccard=0.42,
    )
    found = numbers(b"disk full now", b"disk the full now 4711", recipe=recipe)

    assert found.keys(0) == found.keys(1)


def test_long_texts_have_a_bounded_sketch() -> None:
    generator = random.Random(1)
    text = bytes(generator.choices(b"abcdefghij", k=60_000))

    (sketch,) = numbers(text, b"ab" * 30_000).sketches[:1]

    assert 2 * SKETCH - 8 <= len(sketch) <= 2 + 2 * SKETCH
    assert len(numbers(b"ab" * 30_000).sketches[0]) == 2 + 2 * 2
