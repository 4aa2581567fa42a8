"""The systems that recipes rebuild: what they have printed, and how they work, as Python."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable
from math import comb, sqrt
from typing import Any

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.errors import RecipeError
from stream_dedup.features.recipe import Recipe, load_recipe, replace, shipped
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.hashing import lookup3
from stream_dedup.fingerprint.kernel import is_native
from stream_dedup.fingerprint.simhash import distance, simhash, votes
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis.namespace import plan_layout
from tests.strategies import log_lines, recipes_of_other_systems, texts

# 0x1A begins a mask's placeholder: sources know nothing of it.
lines = (log_lines | st.binary(max_size=60)).map(lambda line: line.replace(b"\x1a", b""))


def fingerprints(recipe: str | Recipe, *texts: bytes | str) -> list[int]:
    fingerprinter = Fingerprinter(
        load_recipe(recipe) if isinstance(recipe, str) else recipe, PUBLIC_KEY
    )
    values = [text.encode() if isinstance(text, str) else text for text in texts]
    numbers = fingerprinter.fingerprints(fingerprinter.prepare(values, None), full=True)
    return [numbers.fingerprint(index) for index in range(len(values))]


def majority(hashes: Iterable[int], width: int, *, tie: bool = False) -> int:
    """The rule of all of them, by counting ones."""
    held = list(hashes)
    ones = [sum(value >> bit & 1 for value in held) for bit in range(width)]
    return sum(
        1 << bit
        for bit, one in enumerate(ones)
        if 2 * one > len(held) or (tie and 2 * one == len(held))
    )


# ---------------------------------------------------------------- java32


def test_java32_gives_the_published_fingerprints() -> None:
    six, eight, one, two = fingerprints("java32", "6", "8", "this is string1", "this is string2")

    assert (six, eight, distance(six, eight)) == (54, 56, 3)
    assert (one, two, distance(one, two)) == (1445386, 1445386, 0)


def test_java32_gives_the_published_hashes_of_words() -> None:
    features = Inspector(load_recipe("java32")).look(b"this is string1").taken.features

    assert [(feature.text, f"{feature.bits:b}") for feature in features] == [
        (b"this", "1101100100111010011110"),
        (b"is", "110100101010"),
        (b"string1", "10001111110101101010001001000000"),
    ]


java_texts = st.lists(st.sampled_from([" ", "  ", "a", "b1", "é", "漢", "😀", "\t"])).map("".join)


@given(text=java_texts | st.text(max_size=30).map(lambda text: text.replace("\x1a", "")))
def test_java32_works_as_the_source_does(text: str) -> None:
    pieces = text.split(" ")
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    if text and pieces == [""]:  # of spaces alone Java leaves nothing
        pieces = []
    hashes = []
    for piece in pieces:
        value = 0
        encoded = piece.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(encoded), 2):
            value = (value * 31 + int.from_bytes(encoded[at : at + 2], "big")) % 2**32
        hashes.append(value)

    assert [majority(hashes, 32)] == fingerprints("java32", text)


# ---------------------------------------------------------------- md5-128


def test_the_worked_example_of_the_erlang_simhash() -> None:
    printed = [1, 3, -3, -5, 1]  # its sums, the highest bit first
    assert sum(16 >> at for at, total in enumerate(printed) if total > 0) == 0b11001

    # They are not those of its hashes: in the middle and at the end there are two ones each, so no
    # rule can distinguish these two bits. They are those of 01001 in the place of its fourth.
    def summed(hashes: list[int]) -> tuple[list[int], int]:
        features = [(value, 1) for value in hashes]
        assert majority(hashes, 5) == simhash(features, 5)
        return votes(features, 5)[::-1], simhash(features, 5)

    as_printed = [0b10101, 0b11001, 0b11000, 0b01100, 0b01000]
    assert summed(as_printed) == ([1, 3, -1, -5, -1], 0b11000)
    assert summed([0b10101, 0b11001, 0b11000, 0b01001, 0b01000]) == (printed, 0b11001)


@given(line=lines)
def test_md5_128_works_as_the_source_does(line: bytes) -> None:
    words = [word for word in re.split(rb"\W", line) if word]
    hashes = [int(hashlib.md5(word).hexdigest(), 16) for word in words]  # noqa: S324 -- the source's

    assert [majority(hashes, 128)] == fingerprints("md5-128", line)


# ---------------------------------------------------------------- window-cyclic


@given(line=lines)
def test_window_cyclic_works_as_the_source_does(line: bytes) -> None:
    mask, window, current, hashes = 2**64 - 1, [0, 0, 0], 0, []
    for at, word in enumerate(re.findall(rb"[A-Za-z]+", line)):
        leaving, window[at % 3] = window[at % 3], lookup3(word)
        turned = (current << 1 | current >> 63) & mask
        current = turned ^ (leaving << 3 | leaving >> 61) & mask ^ window[at % 3]
        hashes.append(current)

    assert [majority(hashes, 64)] == fingerprints("window-cyclic", line)


def test_a_window_that_fills_has_an_n_gram_for_each_word() -> None:
    features = (
        Inspector(load_recipe("window-cyclic")).look(b"one, two; three 4 four").taken.features
    )

    assert [f.text for f in features] == [b"one", b"one two", b"one two three", b"two three four"]
    assert features[0].bits == lookup3(b"one")


# ---------------------------------------------------------------- letters5


def test_letters5_gives_the_published_groups() -> None:
    banana, bozo, cabana, ozone, five = fingerprints(
        "letters5", "banana", "bozo", "cabana", "ozone", "sssss"
    )

    assert (banana, bozo, cabana, ozone) == (0b00011, 0b01111, 0b00011, 0b01111)
    assert five == 0b10011
    assert [distance(five, word) for word in (banana, bozo, cabana, ozone)] == [1, 3, 1, 3]


@given(text=st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_letters5_works_as_the_source_does(text: str) -> None:
    sums = [sum(1 if ord(letter) >> bit & 1 else -1 for letter in text) for bit in range(5)]

    assert [sum(1 << bit for bit in range(5) if sums[bit] >= 0)] == fingerprints("letters5", text)
    assert (
        majority((ord(letter) for letter in text), 5, tie=True) == fingerprints("letters5", text)[0]
    )


def test_fingerprints_of_five_bits_cannot_be_indexed() -> None:
    recipe = load_recipe("letters5")
    makers: list[Any] = [MemoryIndex, Deduplicator, lambda recipe: plan_layout(recipe, 1_000, 1)]
    for make in makers:
        with pytest.raises(
            RecipeError, match=r"fingerprint\.width: is 5, .*use one of 32, 64, 128"
        ):
            make(recipe)


# ---------------------------------------------------------------- minhash-n


@given(words=st.lists(st.sampled_from("disk is full on host one two".split()), max_size=20))
def test_minhash_n_is_the_xor_of_the_n_least_hashes_of_a_set(words: list[str]) -> None:
    lows = [mmh3.hash64(word.encode(), 0, signed=False)[0] for word in words]
    count = min(len(words), 3)
    grams = {tuple(lows[at : at + 3]) for at in range(len(words) - count + 1)} if words else set()
    hashes = set()
    for gram in grams:
        packed = b"".join(low.to_bytes(8, "little") for low in gram)
        hashes.add(mmh3.hash64(packed, 0, signed=False)[0])
    expected = 0
    for value in sorted(hashes)[:4]:
        expected ^= value

    assert fingerprints("minhash-n", " ".join(words)) == [expected]


@pytest.mark.parametrize(
    ("least", "shared_words", "own_words"), [(1, 20, 4), (2, 20, 4), (4, 40, 2), (8, 60, 1)]
)
def test_minhash_n_matches_as_often_as_the_source_says(
    least: int, shared_words: int, own_words: int
) -> None:
    trials = 1_500
    random_ = random.Random(least)
    texts = []
    for _ in range(trials):
        words = [random_.randbytes(6).hex() for _ in range(shared_words + 2 * own_words)]
        shared = words[:shared_words]
        texts.append(" ".join(shared + words[shared_words : shared_words + own_words]))
        texts.append(" ".join(shared + words[shared_words + own_words :]))
    found = fingerprints(replace(load_recipe("minhash-n"), fingerprint__least=least), *texts)

    agreed = sum(found[at] == found[at + 1] for at in range(0, 2 * trials, 2)) / trials

    i = shared_words - 2  # three words in a row
    u = i + 2 * own_words
    expected = comb(i, least) / comb(u, least)
    assert pytest.approx(agreed, abs=4 * sqrt(expected * (1 - expected) / trials)) == expected


def test_with_minhash_n_items_do_not_change_other_items_clusters() -> None:
    random_ = random.Random(1)
    texts = [
        " ".join(random_.choices("disk full on host the a user bob eve".split(), k=7))
        for _ in range(300)
    ]
    texts += [f"{text} {end}" for text in texts[:100] for end in ("once", "twice")]
    keys = fingerprints("minhash-n", *texts)

    for order in (list(range(500)), random_.sample(range(500), 500)):
        dedup = Deduplicator("minhash-n")
        clusters: dict[int, set[int | None]] = {}
        for at in order:
            clusters.setdefault(keys[at], set()).add(dedup.process_one(texts[at]).cluster)
        assert all(len(held) == 1 for held in clusters.values())
        assert len(set.union(*clusters.values())) == len(clusters)


# ---------------------------------------------------------------- all


@given(line=st.binary(max_size=80))
def test_any_bytes_have_a_fingerprint_of_the_recipes_width(line: bytes) -> None:
    for name in shipped():
        recipe = load_recipe(name)
        if not recipe.input.fields:
            (found,) = fingerprints(recipe, line)
            assert 0 <= found < 1 << recipe.fingerprint.bits


@given(recipe=recipes_of_other_systems(), batch=st.lists(texts, max_size=4))
def test_only_fingerprints_depend_on_hash_tie_and_width(recipe: Recipe, batch: list[bytes]) -> None:
    plain = replace(
        recipe, fingerprint__hash="murmur3", fingerprint__tie="zero", fingerprint__width=128
    )
    ours, theirs = (
        made.fingerprints(made.prepare(batch, None), full=True)
        for made in (Fingerprinter(plain, PUBLIC_KEY), Fingerprinter(recipe, PUBLIC_KEY))
    )

    assert (ours.exact, ours.words, ours.sketches) == (theirs.exact, theirs.words, theirs.sketches)
    width = recipe.fingerprint.width
    for at in range(len(batch)):
        assert 0 <= theirs.fingerprint(at) < 1 << width
        if (recipe.fingerprint.hash, recipe.fingerprint.tie) == ("murmur3", "zero"):
            assert ours.fingerprint(at) % (1 << width) == theirs.fingerprint(at)


@given(recipe=recipes_of_other_systems())
def test_such_a_recipe_written_out_and_read_again_is_the_same(recipe: Recipe) -> None:
    again = replace(recipe)

    assert (recipe, recipe.digest) == (again, again.digest)


@given(recipe=recipes_of_other_systems(), left=texts, right=texts)
def test_votes_explain_the_bits_in_which_two_events_differ(
    recipe: Recipe, left: bytes, right: bytes
) -> None:
    found = Inspector(recipe).compare(left, right)

    tie = recipe.fingerprint.tie == "one"
    for bit in found.bits():
        for total, look in ((bit.left, found.left), (bit.right, found.right)):
            assert bool(look.fingerprint >> bit.number & 1) == (total > 0 or (total == 0 and tie))


def test_settings_unknown_to_the_native_kernel_use_the_reference() -> None:
    by_reference = {"java32", "md5-128", "window-cyclic", "letters5"}
    assert {name for name in shipped() if not is_native(load_recipe(name))} == by_reference


@pytest.mark.parametrize("name", ["java32", "md5-128", "window-cyclic"])
def test_texts_with_equal_bits_differ_by_their_exact_hashes(name: str) -> None:
    # To Java's hash of strings "Aa" and "BB" are equal; exact hashes and sketches are not Java's.
    looks = [Inspector(load_recipe(name)).look(text) for text in (b"Aa x Aa", b"BB x BB")]
    (left, right) = looks

    assert (name == "java32") == (left.fingerprint == right.fingerprint)
    assert left.exact != right.exact
    assert left.sketch != right.sketch


@pytest.mark.parametrize("name", ["java32", "md5-128", "window-cyclic"])
def test_equal_words_in_different_fields_vote_differently(name: str) -> None:
    recipe = replace(load_recipe(name), input__fields=[{"path": "a"}, {"path": "b"}])
    looks = [Inspector(recipe).look(b'{"%b": "disk is full"}' % key) for key in (b"a", b"b")]

    assert looks[0].fingerprint != looks[1].fingerprint
