"""Patterns that differ in one word share a key, and others share none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.fingerprint.fingerprinter import make_kernel
from stream_dedup.fingerprint.one_off import (
    ASSIGNED,
    LEAST_BITS,
    MAX_WORDS,
    REPEATED,
    WordSlot,
    is_beside_gap,
    pack,
    pattern_keys,
    unpack,
)
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.siphash import HashKey

hashes = st.integers(0, 2**64 - 1)


def slots_of(line: bytes) -> tuple[int, dict[int, WordSlot]]:
    recipe = replace(load_recipe("logs"), match__learn=5)
    kernel = make_kernel(recipe, HashKey(b"sixteen secrets!"))
    keys = unpack(kernel.scan([line], full=True).one_off(0))
    return keys.own, {slot.number: slot for slot in keys.slots}


def test_lines_that_differ_in_a_word_share_the_key_of_its_slot() -> None:
    _, ours = slots_of(b"session closed for user alice")
    _, theirs = slots_of(b"session closed for user bob")

    assert ours[4].key == theirs[4].key
    assert ours[4].value != theirs[4].value
    assert {ours[n].key for n in ours if n < 4}.isdisjoint(slot.key for slot in theirs.values())


def test_a_line_with_a_word_more_has_the_other_s_key_in_a_slot() -> None:
    own, _ = slots_of(b"session for user alice")
    _, more = slots_of(b"session for new user alice")

    assert [slot.number for slot in more.values() if slot.key == own] == [2]


def test_placeholders_take_part_in_no_key() -> None:
    own, slots = slots_of(b"session 7 for user alice")
    other_own, others = slots_of(b"12 session for user alice 9")
    assert own == other_own
    assert [slot._replace(value=0) for slot in slots.values()] == [
        slot._replace(value=0) for slot in others.values()
    ]
    beside = [number for number, slot in slots.items() if is_beside_gap(slot.value)]
    assert beside == [0, 1]  # session, for
    assert [number for number, slot in others.items() if is_beside_gap(slot.value)] == [0, 3]


def test_the_slots_of_two_words_know_where_placeholders_are() -> None:
    own, slots = slots_of(b"Unpacking gcc (12.2)")
    _, same = slots_of(b"Unpacking cmake (3.25) (1) ...")
    over_own, over = slots_of(b"Unpacking (12.2) over (12.3)")
    _, before = slots_of(b"7 Unpacking gcc (12.2)")

    assert [slots[number].around for number in slots] == [1, 1]
    assert same[1].key == slots[1].key
    assert same[1].value != slots[1].value
    assert {own, over_own}.isdisjoint(slot.key for slot in slots.values())
    others = {slot.key for slot in (*over.values(), *before.values())}
    assert others.isdisjoint(slot.key for slot in slots.values())


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        (b"unpacking gcc", [0, 1]),
        (b"Downloaded serde v1.0", [1]),  # the other one is protected
        (b"nginx started", [0]),
        (b"started failed", []),
        (b"7 INFO main", []),
        (b"error: quota", []),
        (b"GET 7 x", []),
        (b"SSLError in", []),
    ],
)
def test_slots_of_two_words(line: bytes, numbers: list[int]) -> None:
    assert list(slots_of(line)[1]) == numbers


def test_protected_words_have_no_slot_but_stand_around_others() -> None:
    own, slots = slots_of(b"job nightly finished: FAILED")
    other_own, other = slots_of(b"job nightly finished: OK")

    assert list(slots) == [0, 1, 2]
    assert own != other_own
    assert {s.key for s in slots.values()}.isdisjoint(s.key for s in other.values())


def test_a_repeated_word_has_a_slot_for_all_its_places() -> None:
    _, slots = slots_of(b"user ann logged out: ann")
    _, other = slots_of(b"user bob logged out: bob")

    assert slots[REPEATED + 1].key == other[REPEATED + 1].key
    assert slots[REPEATED + 1].around == 3


def test_all_values_of_keys_have_a_slot_together() -> None:
    own, empty = slots_of(b"login refused; uid= tty= user=")
    _, one = slots_of(b"login refused; uid=root tty=console user=ann")
    _, other = slots_of(b"login refused; uid=x tty= user=bob")

    assert one[ASSIGNED].key == other[ASSIGNED].key == own
    assert one[ASSIGNED].value != other[ASSIGNED].value
    assert one[ASSIGNED].around == 5
    assert ASSIGNED not in empty


@pytest.mark.parametrize("line", [b"job ran: result=done", b"job ran: ok=true", b"f(key=value) is"])
def test_outcomes_and_values_in_brackets_are_not_assigned(line: bytes) -> None:
    _, slots = slots_of(line)

    assert ASSIGNED not in slots


@pytest.mark.parametrize(
    ("line", "around"),
    [
        (b"2026 - app - DEBUG - flushing", {0: 2, 1: 1, 2: 2, 4: 2, 5: 1, REPEATED: 2}),
        (b"2026 - 7 - DEBUG - flushing", {0: 1, 1: 1, 3: 1, REPEATED: 1}),
        (b"DEBUG flushing", {}),
        (b"DEBUG - flushing", {1: 1}),
        (b"- flushing", {0: 1}),
        (b"DEBUG flushing the cache", {1: 2, 2: 2, 3: 2}),
        (b"INFO - x=ann y=bob", {1: 4, 2: 3, 3: 3, 4: 3, 5: 3, ASSIGNED: 2}),
    ],
)
def test_levels_and_dashes_are_no_words_around_another(line: bytes, around: dict[int, int]) -> None:
    _, slots = slots_of(line)
    assert {number: slot.around for number, slot in slots.items()} == around


@pytest.mark.parametrize(
    ("line", "counted"),
    [
        (b"INFO - - up", 0),
        (b"2026 - app - DEBUG - flushing", 2),
        (b"2026-05-01 10:00:00 INFO Session - Received packet from peer", 4),
        (b"2026-05-01 10:00:00 INFO Session - Received malformed packet from peer", 6),
        (b"Received some more malformed packets from the same peer", 6),
    ],
)
def test_of_a_pattern_it_is_known_how_many_words_count(line: bytes, counted: int) -> None:
    recipe = replace(load_recipe("logs"), match__learn=5)
    for kernel in (make_kernel, ReferenceKernel):
        numbers = kernel(recipe, HashKey(b"sixteen secrets!")).scan([line], full=True)
        assert unpack(numbers.one_off(0)).counted == counted


@given(st.lists(hashes, min_size=4, max_size=48, unique=True))
def test_all_keys_but_two_slots_begin_with_the_same_bits(words: list[int]) -> None:
    keys = pattern_keys(words, [False] * len(words))
    first = [key >> 64 - LEAST_BITS for key in (keys.own, *(slot.key for slot in keys.slots))]

    assert sum(bits != first[0] for bits in first) <= 2


@pytest.mark.parametrize(("words", "keys"), [(0, 0), (1, 0), (2, 3), (3, 4), (48, 49), (49, 0)])
def test_lines_of_too_few_words_or_too_many_have_no_keys(words: int, keys: int) -> None:
    line = b" ".join(b"w" + b"x" * n for n in range(words))
    recipe = replace(load_recipe("logs"), match__learn=5)
    kernel = make_kernel(recipe, HashKey(b"sixteen secrets!"))
    packed = kernel.scan([line], full=True).one_off(0)

    assert (1 + len(unpack(packed).slots) if packed else 0) == keys
    assert MAX_WORDS == 48


def test_recipes_that_learn_nothing_have_no_keys() -> None:
    kernel = make_kernel(load_recipe("words"), HashKey(b"sixteen secrets!"))

    assert kernel.scan([b"session closed for user alice"], full=True).one_offs == []


@given(st.lists(hashes, min_size=2, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_packed_keys_unpack(words: list[int], flags: list[bool]) -> None:
    keys = pattern_keys(words, flags[: len(words)], uncounted=flags[-len(words) :])

    assert unpack(pack(keys)) == keys
