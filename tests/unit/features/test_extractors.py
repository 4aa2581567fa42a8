"""Extractors: the built-in ones, those of users by module and by entry point, and their caps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dedup import Deduplicator
from stream_dedup.errors import RecipeError
from stream_dedup.features.extractors import is_extractor_name, letters, load_extractor, syllables
from stream_dedup.features.prepare import MAX_FEATURES
from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.simhash import distance
from stream_dedup.fingerprint.siphash import PUBLIC_KEY

MODULE = """
from collections.abc import Iterable

NOT_A_FUNCTION = 3

def vowels(text: bytes) -> Iterable[tuple[bytes, int]]:
    return [(b"%c" % byte, 2) for byte in text if byte in b"aeiou"]

def failing(text: bytes) -> Iterable[tuple[bytes, int]]:
    if b"bad" in text:
        raise ValueError("no")
    return [(text, 1)]

def endless(text: bytes) -> Iterable[tuple[bytes, int]]:
    number = 0
    while True:
        yield b"%d" % number, 1
        number += 1

def negative(text: bytes) -> Iterable[tuple[bytes, int]]:
    return [(b"a", -1)]
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of a user with an entry point, as pip would install it."""
    name = "sd_test_own_extractors"
    (tmp_path / f"{name}.py").write_text(MODULE)
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[stream_dedup.extractors]\n"
        f"vowels = {name}:vowels\nbroken = {name}:missing\nnumber = {name}:NOT_A_FUNCTION\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def with_extractor(extractor: str, **changes: Any) -> Recipe:
    return replace(Recipe(), features__extractor=extractor, **changes)


def lows(recipe: Recipe, *texts: bytes) -> list[int]:
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    numbers = fingerprinter.fingerprints(fingerprinter.prepare(texts, None), full=True)
    return list(numbers.low)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"ab", [b"ab"]),
        (b"Hello, I!", [b"he", b"el", b"ll", b"lo", b"i"]),
        (b"a1b_c", [b"a", b"b", b"c"]),
        ("Été".encode(), ["ét".encode(), "té".encode()]),
        (b"\xffab\xff", [b"ab"]),
    ],
)
def test_syllables_are_pairs_of_letters(text: bytes, expected: list[bytes]) -> None:
    assert [(pair, 1) for pair in expected] == list(syllables(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"42 _!", []),
        (b"Ab, c1D", [b"a", b"b", b"c", b"d"]),
        ("Été".encode(), ["é".encode(), b"t", "é".encode()]),
        (b"\xffa\xff", [b"a"]),
    ],
)
def test_letters_are_taken_one_by_one(text: bytes, expected: list[bytes]) -> None:
    assert [(letter, 1) for letter in expected] == list(letters(text))


def test_letters_of_anagrams_are_the_same() -> None:
    listen, silent, other = lows(with_extractor("letters"), b"Listen!", b"silent", b"loudly")

    assert listen == silent != other


def test_syllables_distinguish_laughter_from_a_scream() -> None:
    recipe = with_extractor("syllables")
    laugh, longer, scream = lows(recipe, b"hahahahaha!", b"hahahahahahahahaha!", b"aaaaaaahhhhhhh!")

    assert distance(laugh, longer) == 0
    assert distance(laugh, scream) > 10


@pytest.mark.parametrize("form", ["{}:vowels", "vowels"])
def test_an_own_extractor_is_found_by_module_and_by_entry_point(form: str, own_module: str) -> None:
    name = form.format(own_module)
    assert is_extractor_name(name)

    one, same, other = lows(with_extractor(name), b"banana", b"b-a-n-a-n-a", b"bonono")

    assert one == same != other


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ("sd_test_no_such_module:f", "No module named 'sd_test_no_such_module'"),
        ("{}:missing", "has no attribute 'missing'"),
        ("broken", "has no attribute 'missing'"),
        ("{}:NOT_A_FUNCTION", "is not a function; name a function from bytes"),
        ("number", "is not a function; name a function from bytes"),
    ],
)
def test_an_own_extractor_that_cannot_be_had_is_named(
    form: str, part: str, own_module: str
) -> None:
    name = form.format(own_module)
    recipe = with_extractor(name, name="mine")
    with pytest.raises(RecipeError) as caught:
        Fingerprinter(recipe, PUBLIC_KEY)

    assert (caught.value.file, caught.value.key) == ("recipe mine", "features.extractor")
    assert repr(name) in str(caught.value)
    assert part in str(caught.value)


@pytest.mark.usefixtures("own_module")
def test_an_entry_point_that_is_gone_is_named() -> None:
    recipe = with_extractor("vowels")
    sys.path.pop(0)
    with pytest.raises(RecipeError, match="'vowels' cannot be imported"):
        load_extractor(recipe.features.extractor, "recipe x")


@pytest.mark.parametrize("name", ["", "a:", ":f", "a b:f", "os.path", "a:b:c", "../x:f"])
def test_an_impossible_extractor_name_is_refused_without_importing(name: str) -> None:
    assert not is_extractor_name(name)


def test_an_endless_extractor_is_cut_off(own_module: str) -> None:
    fingerprinter = Fingerprinter(with_extractor(f"{own_module}:endless"), PUBLIC_KEY)

    prepared: Any = fingerprinter.prepare([b"x"], None)

    assert [len(event) for event in prepared] == [MAX_FEATURES]


def test_an_event_with_a_negative_weight_is_passed(own_module: str) -> None:
    dedup = Deduplicator(with_extractor(f"{own_module}:negative"))

    with pytest.warns(RuntimeWarning, match="b'a', -1 is not a feature and weight"):
        assert dedup.process_one(b"x").kind.value == "passed"


def test_an_extractor_gets_max_bytes_but_the_rest_still_counts() -> None:
    recipe = with_extractor("syllables", input__max_bytes=64)
    begin = b"ab " * 40
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    numbers = fingerprinter.fingerprints(
        fingerprinter.prepare([begin, begin + b"x", begin], None), full=True
    )

    assert numbers.exact[0] == numbers.exact[2] != numbers.exact[1]


def test_an_own_extractor_runs_over_each_field_with_its_weight(own_module: str) -> None:
    fields = [{"path": "a", "weight": 3}, {"path": "b"}]
    recipe = with_extractor(f"{own_module}:vowels", input__fields=fields)
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)

    prepared: Any = fingerprinter.prepare([b""], [{"b": "xo", "a": "ae"}])

    ((a, e, o),) = prepared
    assert [a[:2], e[:2], o[:2]] == [(b"a", 6), (b"e", 6), (b"o", 2)]
    assert a[2] == e[2] != o[2]


def test_an_event_whose_extraction_fails_is_passed_others_decided(
    own_module: str,
) -> None:
    dedup = Deduplicator(with_extractor(f"{own_module}:failing"))
    with pytest.warns(RuntimeWarning, match="passed through: ValueError"):
        decisions = dedup.process([b"good one", b"bad one", b"good one"])

    assert [decision.kind.value for decision in decisions] == ["new", "passed", "duplicate"]


def test_a_mask_that_matches_nothing_at_all_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"text.mask\[0\].pattern: 'x\*' matches nothing at all"):
        replace(Recipe(), text__mask=[{"name": "x", "pattern": "x*"}])


def test_weights_are_lowered_with_the_words_they_are_looked_up_for() -> None:
    changes = {"text__case": "lower", "features__weights": {"table": {"Error": 7}}}

    assert replace(Recipe(), **changes).features.weights.table == {"error": 7}
