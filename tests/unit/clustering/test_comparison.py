"""Two events held against each other: measures, voters and the verdict."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dedup import Deduplicator, Kind, Recipe, load_recipe
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.features.recipe import replace
from stream_dedup.fingerprint.bands import chance_of_meeting
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.simhash import votes
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.index.base import Query
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.model import Position
from tests.strategies import RECIPE_OF_BANDS

LOGS = load_recipe("logs")
LEARNS = replace(LOGS, match__learn=5)
BOB = b"user bob logged in from 10.0.0.7 port 22 over ssh today"
EQUAL = "They merge: their words and variables are equal, in order."
EVE = b"user eve logged in from 10.0.0.9 port 23 over ssh today"

pieces = st.lists(
    st.sampled_from(
        ["user", "bob", "logged", "in", "from", "10.0.0.7", "42", "disk", "is", "full"]
    ),
    max_size=12,
).map(lambda words: " ".join(words).encode())


@given(
    pieces,
    pieces,
    st.sampled_from([0, 3, 6, 20]),
    st.sampled_from([0.0, 0.5, 0.7]),
    st.sampled_from([0, 2, 5]),
)
@example(b"bob user user user bob", b"bob user user user bob bob", 0, 0.0, 2)
def test_the_engine_decides_as_the_comparison_says(
    left: bytes, right: bytes, k: int, jaccard: float, learn: int
) -> None:
    recipe = replace(LOGS, match__k=k, match__jaccard=jaccard, match__learn=learn)
    _, second = Deduplicator(recipe).process([left, right])

    assert Inspector(recipe).compare(left, right).merge == (second.kind is Kind.DUPLICATE)


@given(pieces, pieces, st.sampled_from([0, 2, 5]))
def test_the_verdict_agrees_with_merge(left: bytes, right: bytes, learn: int) -> None:
    found = Inspector(replace(LOGS, match__learn=learn)).compare(left, right)

    assert found.merge == found.verdict().startswith("They merge")


FIRST_MORE = "They do not merge: the first has one word more:"
MANY_WORDS = b"".join(b" word%c" % letter for letter in b"abcdefghijklmnopqrstuvwxyzABCDEFGH")
ONCE_5 = "Once 5 different words were seen there, it is a variable, and they merge."


@pytest.mark.parametrize(
    ("recipe", "left", "right", "verdict"),
    [
        (LOGS, b"disk 1 is full", b"disk 2 is full", EQUAL),
        (LOGS, b"17 18", b"17 18", "They merge: their texts are equal."),
        (LOGS, b"17", b"18", ("They do not merge: the first has no word, so only the same text "
         "would do.")),
        (LOGS, b"", b"a b", "They do not merge: the first is empty, so it is passed through."),
        (LOGS, b"a b", b"a", ("They do not merge: the second has 1 word(s), below min_features = "
         "2, so only an equal pattern would do.")),
        (replace(LOGS, match__k=60, match__jaccard=0.0), BOB, b"a b c",
         "They merge: distance 36 is within k = 60."),
        (LEARNS, b"session for 10.0.0.1 was closed", b"session for localhost was closed",
         ("They merge: the second has one word more, which a placeholder replaces in the other; "
          "all others are common.")),
        (LEARNS, b"the session was closed for user ann", b"the session closed for user ann",
         ("They merge: the first has one word more, and it is neither the first nor the last one; "
          "all others are common.")),
        (LEARNS, b"old session closed for user ann", b"session closed for user ann",
         f"{FIRST_MORE} the first one, which is never missing. {ONCE_5}"),
        (LEARNS, b"session closed for user ann late", b"session closed for user ann",
         f"{FIRST_MORE} the last one, and no placeholder replaces it in the other. {ONCE_5}"),
        (LEARNS, b"session closed for uid 7 late", b"session closed for uid 8",
         f"{FIRST_MORE} beside a placeholder that both have, so none replaces it. {ONCE_5}"),
        (LEARNS, b"session was closed for user ann", b"session closed for user ann",
         (f"{FIRST_MORE} no placeholder replaces it in the other, and 5 others are common, of 6 "
          f"that are needed. {ONCE_5}")),
        (LEARNS, b"login localhost refused", b"login 10.0.0.1 refused",
         (f"{FIRST_MORE} a placeholder replaces it in the other, and 2 others are common, of 3 "
          f"that are needed. {ONCE_5.replace('5', '10')}")),
        (LEARNS, b"INFO Session - Received bad packet from peer",
         b"INFO Session - Received packet from peer",
         (f"{FIRST_MORE} no placeholder replaces it in the other, and 5 others are common, of 6 "
          f"that are needed; a log level and what has no letters do not count. {ONCE_5}")),
        (LEARNS, b"INFO - worker stopped", b"INFO - 7 stopped",
         (f"{FIRST_MORE} a placeholder replaces it in the other, and 1 other is common, of 2 that "
          "are needed; a log level and what has no letters do not count. "
          f"{ONCE_5.replace('5', '20')}")),
        (LEARNS, b"INFO [worker]: Shutting down", b"INFO [worker-7]: Shutting down",
         ("They merge: the first has one word more, which a placeholder replaces in the other; "
          "all others are common.")),
        (LEARNS, b"one two two three four five six", b"one two three four five six",
         ("They merge: the first has one word more, and it is neither the first nor the last one; "
          "all others are common.")),
        (LEARNS, b"one one two three four five six", b"one two three four five six",
         ("They merge: the first has one word more, and it is neither the first nor the last one; "
          "all others are common.")),
        (LEARNS, b"session 7 closed for user ann", b"session closed for 9 user ann",
         "They merge: their words are equal, in order."),
        (LEARNS, b"took a" + MANY_WORDS, b"gave a" + MANY_WORDS,
         ("They do not merge: they differ outside brackets and values of keys, where a fingerprint "
          "admits no other word. They differ in one place: once 5 different words were seen there, "
          "it is a variable, and they merge.")),
        (LEARNS, b"took (for a week)" + MANY_WORDS, b"took (for a year)" + MANY_WORDS,
         "They merge: distance 5 is within k = 6, and Jaccard 0.95 reaches 0.9."),
        (LEARNS, b"session closed for user ann", b"session closed for user bob",
         ("They do not merge: the first has only 5 words, and with so few one different word "
          "is too many for Jaccard 0.9. They differ in one place: once 5 different words were "
          "seen there, it is a variable, and they merge.")),
        (LEARNS, b"user ann wrote to the logs", b"user bob wrote to the images",
         ("They do not merge: the first has only 6 words, and with so few one different word "
          "is too many for Jaccard 0.9. They differ in 2 places: once 18 different words "
          "were seen in each of these, in lines that are otherwise equal, all are variables, and "
          "they merge.")),
        (LEARNS, b"user ann moved logs to tape", b"user bob copied images to tape",
         ("They do not merge: the first has only 6 words, and with so few one different word "
          "is too many for Jaccard 0.9. They differ in 3 places: once 10 different words "
          "were seen in each of these, and one of them is a variable by itself, all are "
          "variables, and they merge.")),
        (LEARNS, b"user ann moved file from ann to disk", b"user bob moved file from bob to tape",
         ("They do not merge: the first has only 8 words, and with so few one different word "
          "is too many for Jaccard 0.9.")),
        (LEARNS, b"user ann wrote to the logs", b"user bob read from the images",
         ("They do not merge: the first has only 6 words, and with so few one different word "
          "is too many for Jaccard 0.9.")),
        (LEARNS, b"login failed: uid=root tty=console user=ann", b"login failed: uid=x tty= user=b",
         ("They do not merge: the first has only 8 words, and with so few one different word "
          "is too many for Jaccard 0.9. They differ only in values of keys: once 5 different words "
          "were seen there, it is a variable, and they merge.")),
    ],
)  # fmt: skip
def test_the_verdict_gives_its_reason(
    recipe: Recipe, left: bytes, right: bytes, verdict: str
) -> None:
    assert Inspector(recipe).compare(left, right).verdict() == verdict


def test_lines_of_other_texts_show_what_words_they_share() -> None:
    found = Inspector(LEARNS).compare(b"took a" + MANY_WORDS, b"gave a" + MANY_WORDS)
    assert found.jaccard == pytest.approx(35 / 37)
    assert not found.merge


def test_features_are_split_into_shared_left_and_right() -> None:
    shared, left, right = Inspector(LOGS).compare(BOB, EVE).features()

    assert [feature.text for feature in left] == [b"bob"]
    assert [feature.text for feature in right] == [b"eve"]
    assert len(shared) == 9


def test_each_differing_bit_has_the_votes_that_cause_it() -> None:
    found = Inspector(LOGS).compare(BOB, EVE)
    bits = found.bits()
    sums = votes(((f.bits, f.weight) for f in found.left.counted), 64)

    assert found.distance == len(bits) > 0
    assert [bit.left for bit in bits] == [sums[bit.number] for bit in bits]
    for bit in bits:
        assert (bit.left > 0) != (bit.right > 0)
        ((mover, vote),) = bit.left_only
        assert (mover, vote > 0) == (b"bob", bit.left > 0)
        assert bit.left - vote + bit.right_only[0][1] == bit.right


def test_minhash_has_no_votes() -> None:
    settings = {"match__k": 0, "match__jaccard": 0.0, "match__learn": 0}
    recipe = replace(LOGS, fingerprint__kind="minhash", **settings)

    assert Inspector(recipe).compare(BOB, EVE).bits() == []


def test_json_events_are_analysed_by_field_and_others_as_text() -> None:
    inspector = Inspector(load_recipe("json"))

    look = inspector.look(b'{"msg": "disk full", "id": 7}')
    assert look.pattern == "msg=disk full id=<number>"
    assert [f.text for f in look.taken.features if not f.variable] == [b"msg=disk", b"msg=full"]
    assert inspector.look(b"not json").pattern == "not json"


def test_features_of_another_extractor_are_shown() -> None:
    recipe = replace(Recipe(), features__extractor="syllables")

    assert [f.text for f in Inspector(recipe).look(b"hah").taken.features] == [b"ha", b"ah"]


OFFER = "Congratulations, you have won a free cruise to the Bahamas! Call 0800 111 222 to claim"


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [
        (OFFER, OFFER.replace("111", "333"), "They merge: their words and variables are equal"),
        (
            OFFER,
            OFFER + " it now",
            r"They merge: Jaccard 0\.9\d reaches 0\.42, and they share \d+ of",
        ),
        (
            OFFER,
            "where are you, i am at the bus stop near the station",
            r"not merge: Jaccard 0\.\d+ is below 0\.42\.",
        ),
        ("see you at home", "see me at hope", r"not merge: Jaccard 0\.\d+ is below 0\.6\."),
        ("ok", "ok you", r"the first has 1 feature\(s\), below min_features = 8"),
    ],
)
def test_verdicts_of_bands_name_similarity_and_keys(left: str, right: str, verdict: str) -> None:
    found = Inspector(RECIPE_OF_BANDS).compare(left.encode(), right.encode())

    assert re.search(verdict, found.verdict()), found.verdict()
    assert found.verdict().startswith("They merge") == found.merge


def test_the_chance_that_two_events_share_a_key_is_said() -> None:
    common = b"we meet at the old harbour tonight and bring "
    pairs = [
        Inspector(replace(RECIPE_OF_BANDS, fingerprint__seed=seed)).compare(
            common + b"nobody else along with you", common + b"some cake for Jo and his wife"
        )
        for seed in range(20)
    ]
    apart = next(pair for pair in pairs if not pair.near)

    assert 0.42 <= apart.jaccard < 0.6
    assert f"with chance {chance_of_meeting(apart.jaccard):.2f}" in apart.verdict()
    assert not apart.merge


@given(pieces, pieces)
def test_the_engine_decides_by_bands_as_the_comparison_says(left: bytes, right: bytes) -> None:
    index = MemoryIndex(RECIPE_OF_BANDS, key=PUBLIC_KEY)
    fingerprinter = Fingerprinter(RECIPE_OF_BANDS, PUBLIC_KEY)
    numbers = fingerprinter.fingerprints(fingerprinter.prepare([left, right], None), full=True)
    queries = [
        Query("", numbers.exact[n], numbers.fingerprint(n), numbers.sketches[n],
              numbers.words[n] >= 8, 0, 0, Position("x", 0, n))
        for n in range(2)
    ]  # fmt: skip
    _, second = asyncio.run(index.resolve(queries, 0))

    if left and right:
        assert Inspector(RECIPE_OF_BANDS).compare(left, right).merge != second.new
