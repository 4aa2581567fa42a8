"""What a recipe makes of words: their classes, and the places where they differ."""

from __future__ import annotations

import pytest

from stream_dedup.features.recipe import load_recipe
from stream_dedup.tuning import places
from stream_dedup.tuning.places import Words
from stream_dedup.tuning.trials import Grouping
from tests.unit.tuning.helpers import LOGS, sample_of


def words_of(lines: list[bytes]) -> Words:
    sample = sample_of(lines)
    return Words(sample, Grouping(LOGS, sample, None))


def test_tokens_are_counted_by_class_in_all_events() -> None:
    lines = [b"job 17 of 10.0.0.1 failed after 12 ms", b"job 18 of 10.0.0.2 failed after 9 ms"]
    classes = words_of(lines).classes()

    assert dict(classes.counts) == {
        "word": 6, "<number>": 4, "protected word": 2, "<ipv4>": 2, "<unit>": 2,
    }  # fmt: skip
    assert dict(classes.protected) == {b"failed": 2}
    assert classes.covered == 1


def test_a_place_has_its_words_with_their_events() -> None:
    lines = [b"session closed for user %b" % name for name in (b"ann", b"bob", b"bob")]
    (place,) = words_of(lines).places

    assert place.pattern == "session closed for user <*>"
    assert place.counts == {b"bob": 2, b"ann": 1}
    assert (place.wanted, place.events, place.moved, place.learned) == (5, 3, 1, False)


def test_a_place_is_learned_with_enough_words() -> None:
    lines = [b"session closed for user %b" % name for name in (b"ann", b"bob", b"cid", b"dan")]

    assert [place.learned for place in words_of(lines).places] == [False]
    assert [place.learned for place in words_of([*lines, lines[0] + b"e"]).places] == [True]


def test_places_whose_events_are_most_come_first() -> None:
    lines = [b"open file a here", b"open file b here"]
    lines += [b"the user ann logs in", b"the user bob logs in", b"the user bob logs in"] * 2
    patterns = [place.pattern for place in words_of(lines).places]

    assert patterns == ["the user <*> logs in", "open file <*> here"]


def test_events_with_other_outcomes_have_no_place_in_common() -> None:
    assert words_of([b"job ann has failed now", b"job bob has passed now"]).places == []


def test_words_are_counted_over_all_places_that_are_not_learned() -> None:
    lines = [b"the user ann logs in", b"the user bob logs in", b"the user bob logs in"]
    lines += [b"home of ann is full", b"home of cid is full"]

    assert words_of(lines).words_apart() == {b"ann": 2, b"bob": 2, b"cid": 1}


def test_long_events_are_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MAX_READ_BYTES", 1_000)
    lines = [b"the user ann logs in", b"the user ann logs in", b"x" * 2_000 + b" one more word"]
    words = words_of(lines)

    assert words.classes().counts == {"word": 10}
    assert words.classes().covered == pytest.approx(2 / 3)
    assert words_of([line + b"0" * 5_000 for line in lines]).places == []


def test_a_recipe_that_learns_no_words_has_no_places() -> None:
    text = load_recipe("text")
    sample = sample_of([b"buy now at our shop", b"buy now at his shop"], text)

    assert Words(sample, Grouping(text, sample, None)).places == []
