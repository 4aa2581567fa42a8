"""Patterns that differ in the words of a combination alone share a key, and others share none."""

from __future__ import annotations

from array import array
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.fingerprint.combinations import (
    ALL_ASSIGNED,
    COMBINED_WORDS,
    FACTOR_BITS,
    SHAPE_NUMBERS,
    WORD_FACTORS,
    PatternWords,
    list_keys,
    numbers_of,
    shape_key,
    shape_number,
)
from stream_dedup.fingerprint.hashing import mix
from stream_dedup.fingerprint.one_off import ASSIGNED, REPEATED, pack, pattern_keys

USER, BUCKET = 1 << 1, 1 << 6
LINE = "user bob uploaded a file to logs"
ALL_OF_KEYS = 1 << ASSIGNED - REPEATED


def numbers(line: str, *, assigned: str = "", gaps: int = 0) -> array[int]:
    """The keys of a line; words in capitals are protected."""
    words = line.split()
    hashes = [mix(int.from_bytes(word.encode(), "big")) for word in words]
    protected = [word.isupper() for word in words]
    keys = pattern_keys(hashes, protected, [word in assigned.split() for word in words], gaps=gaps)
    return array("Q", pack(keys))


def words(line: str, *, assigned: str = "", gaps: int = 0) -> PatternWords:
    return PatternWords(numbers(line, assigned=assigned, gaps=gaps))


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("user eve uploaded a file to logs", True),
        ("user eve uploaded a file to images", True),
        ("user eve uploaded a disk to images", False),
        ("user eve uploaded to a file images", False),
        ("user eve a uploaded file to images", False),
        ("user eve uploaded a file to images again", False),
        ("role eve uploaded a file to images", False),
    ],
)
def test_lines_of_a_pattern_share_the_key_of_what_is_left(other: str, is_same: bool) -> None:
    ours, theirs = words(LINE), words(other)
    assert (ours.key(USER | BUCKET) == theirs.key(USER | BUCKET)) == is_same
    assert ours.key(USER | BUCKET) != ours.key(USER)


def test_the_shape_has_placeholders_and_protected_words() -> None:
    line = "user bob uploaded a file FAILED"
    shapes = {
        shape_key(numbers(line)),
        shape_key(numbers(line, gaps=1 << 3)),
        shape_key(numbers("user bob uploaded a file OK")),
        shape_key(numbers("user bob uploaded a FAILED file")),
        shape_key(numbers("user bob uploaded a file")),
    }
    assert len(shapes) == 5
    assert shape_key(numbers("role eve read the disk FAILED")) == shape_key(numbers(line))


def test_a_combination_is_listed_where_its_lines_look() -> None:
    ours = words(LINE)
    for combination, other in (
        (USER, "user eve uploaded a file to logs"),
        (USER | BUCKET, "user eve uploaded a file to images"),
        (0b11, "role eve uploaded a file to logs"),
    ):
        assert ours.combination(combination) == combination
        assert set(ours.list_keys_of(combination)) <= set(list_keys(numbers(other)))
    first, second = ours.list_keys_of(USER)  # by "user", and by "uploaded"
    keys = list_keys(numbers("role bob uploaded a file to logs"))
    assert (first in keys, second in keys) == (False, True)
    assert len(ours.list_keys_of(0b11)) == 1  # the first words vary, so one anchor is left
    for key in list_keys(numbers(LINE)):
        assert shape_number(key) == shape_number(shape_key(numbers(LINE))) < SHAPE_NUMBERS


@pytest.mark.parametrize(
    ("line", "learned"),
    [
        ("a b c d e", 0),
        ("a b c d e", 0b111),  # two are left
        ("a b c d e f", 0b111),  # the anchor is the fourth word
        ("a b c b e f", 0b10),  # it stands in two places
        (" ".join(f"w{n}" for n in range(30)), 1 << 23),  # too far behind
        ("a b c d e", 1 << 30),
    ],
)
def test_what_is_no_combination(line: str, learned: int) -> None:
    assert words(line).combination(learned) == 0


def test_all_assigned_words_are_one_place() -> None:
    ours = words("login of uid root on tty console", assigned="root console")
    theirs = words("login of uid bob on tty pts", assigned="bob pts")
    combination = ours.combination(ALL_OF_KEYS)
    assert combination == ALL_ASSIGNED
    assert ours.key(combination) == theirs.key(combination)
    assert numbers_of(combination | 0b101) == [0, 2, ASSIGNED]
    beside = {each.slot.number: each.combination for each in ours.beside(combination)}
    assert beside == {number: combination | 1 << number for number in (0, 1, 2, 4, 5)}
    assert ASSIGNED not in {each.slot.number for each in ours.beside(1 << 3)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user ann copied a to b then b to a", "user ann copied b to a then a to b"),
        ("ports of ann green amber amber green", "ports of ann amber green green amber"),
    ],
)
def test_the_order_of_words_that_are_left_counts(one: str, other: str) -> None:
    assert words(one).key(USER) != words(other).key(USER)
    assert words(one).key(1 << 2) != words(other).key(1 << 2)


@given(st.permutations("abbaccadde"))
def test_no_permutation_of_words_has_the_same_key(order: list[str]) -> None:
    same = "user ann " + " ".join("abbaccadde")
    other = "user ann " + " ".join(order)
    assert (words(same).key(USER) == words(other).key(USER)) == (same == other)


def test_factors_have_nothing_to_do_with_each_other() -> None:
    differences = [one - other for one, other in permutations(WORD_FACTORS, 2)]
    assert len(set(differences)) == len(differences)
    assert all(factor % 2 and factor < 1 << FACTOR_BITS for factor in WORD_FACTORS)


letters = st.lists(st.sampled_from("abcdefghijk"), min_size=5, max_size=9).map(" ".join)


@given(letters, st.integers(1, 2**9 - 1), st.sampled_from(["", "a b", "a c e"]))
def test_what_is_beside_a_combination_has_the_key_of_both(
    line: str, combination: int, assigned: str
) -> None:
    ours = words(line, assigned=assigned)
    for slot, more, key in ours.beside(combination):
        assert key == ours.key(more)
        assert ours.is_possible(more)
        bit = ALL_ASSIGNED if slot.number == ASSIGNED else 1 << slot.number
        assert more == combination | bit != combination
        assert slot.number < COMBINED_WORDS or slot.number == ASSIGNED
