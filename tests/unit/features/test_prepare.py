"""What is done to a text before features are taken: Unicode, case, masks, white space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.prepare import Preparer
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from tests.strategies import recipes, texts

LOWER = {"text__case": "lower"}
NFKC = {"text__unicode": "nfkc"}


@pytest.mark.parametrize(
    ("changes", "text", "expected"),
    [
        ({}, " A\t\xffB ".encode("latin-1"), " A\t\xffB ".encode("latin-1")),
        (LOWER, b"ABC \x00", b"abc \x00"),
        (LOWER, "ÉÀ Ж".encode(), "éà ж".encode()),
        (LOWER, b"A\xffB\xc3", b"a\xffb\xc3"),
        (NFKC, "ﬁx \uff21\uff22 e\u0301".encode(), "fix AB é".encode()),
        (NFKC, b"A\xff", b"A\xff"),
        (LOWER | NFKC, "\uff21\uff22".encode(), b"ab"),
        ({"features__extractor": "characters"}, b"  a \t\r\n b  ", b"a b"),
        ({"text__masks": ["number"]}, b"a 12 b", b"a  \x1anumber  b"),
        ({"text__masks": ["number"], "features__extractor": "characters"}, b"a12 ", b"a12"),
        (
            {"text__masks": ["number"], "features__extractor": "characters"},
            b"a 12",
            b"a \x1anumber",
        ),
        (LOWER | {"text__mask": [{"name": "up", "pattern": "[A-Z]+"}]}, b"AB c", b"ab c"),
    ],
)
def test_a_text_is_prepared_by_case_unicode_and_masks(
    changes: dict[str, Any], text: bytes, expected: bytes
) -> None:
    preparer = Preparer(replace(Recipe(), **changes))

    assert preparer.text(text) == expected
    assert bool(changes) == preparer.changes_text


@given(recipe=recipes(), values=st.lists(texts, max_size=5))
def test_many_texts_are_prepared_as_single_ones(recipe: Recipe, values: list[bytes]) -> None:
    preparer = Preparer(recipe)
    one_by_one = [preparer.text(value) for value in values]

    assert preparer.texts(values) == one_by_one
    if not preparer.changes_text:
        assert values == one_by_one


def test_lower_case_ends_at_the_limit_in_texts_too() -> None:
    preparer = Preparer(replace(Recipe(), **LOWER, input__max_bytes=64))
    value = b"A" * 65

    assert preparer.texts([value, b"B"]) == [b"a" * 64 + b"A", b"b"]
    assert preparer.text(value) == b"a" * 64 + b"A"


def test_texts_beside_a_long_one_are_folded_at_once() -> None:
    preparer = Preparer(
        replace(
            Recipe(), text__fold="look-alikes", features__extractor="characters",
            input__max_bytes=64,
        )
    )  # fmt: skip
    fold, calls = preparer._fold, list[int]()
    assert fold is not None

    def counted(values: Sequence[bytes]) -> list[bytes]:
        calls.append(len(values))
        return fold(values)

    preparer._fold = counted
    long = "\uff21\uff22 ".encode() * 10 + b"A B"
    assert preparer.texts([b"A b", long, b"C d"]) == [b"ab", preparer.text(long), b"cd"]
    assert calls[0] == 3


@given(text=texts)
def test_words_are_prepared_once_and_for_all(text: bytes) -> None:
    preparer = Preparer(load_recipe("words"))

    assert preparer.text(text) == preparer.text(preparer.text(text))
