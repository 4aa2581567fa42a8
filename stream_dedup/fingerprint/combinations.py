"""Keys under which patterns find each other that differ in several words at once.

Problem: `one_off` finds ``user bob wrote to images`` beside ``user bob wrote to logs``. It cannot
find ``user greta wrote to tables`` if both words are new, though the pattern that is shown,
``user <*> wrote to <*>``, fits.

Idea: leave out all words at once that vary in a pattern. Which ones is called a *combination*: a
bit for each. What remains is equal for all lines that the pattern fits, and so is its key. A line
does not say what its combination is. So an index lists the combinations that it knows, by what such
lines have in common in any case:

- the *shape* (`one_off.Keys.shape`): the number of words, where placeholders are, and the words
  that never vary;
- an *anchor*: the first word that is left, or the second, of the first `ANCHORS` words.

Each word has a number and a value of 23 bits (`one_off.WordSlot`). With a factor f, and a factor
f_i for each word, all odd and of 29 bits, the key without the words of a combination is

    shape + f_0 · value of the first word that is left + f_1 · value of the last   16 bits, and
    shape + f · combination + Σ f_i · value_i, of the words left                   48 bits

and combinations are listed under

    shape                                                          16 bits, and
    shape - f · (a + 1) + f_a · value_a, for the anchor a          48 bits

No product has more than 53 bits, so a Lua script computes the same keys from the slots. The values
are of keyed hashes. The factors have nothing to do with each other: were they a progression, words
could change places. Two patterns that differ in one word that is left have equal keys with chance
2^-23, as two words that share their value count as one.

The first bits say in which part of Redis a posting list is: those of a pattern are in few of them,
and those of a flood of patterns in many.

Bounds: a combination has words of the first `COMBINED_WORDS`, and all assigned words as one; and
`LEAST_LEFT` words or more are left.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from stream_dedup.fingerprint.hashing import mix
from stream_dedup.fingerprint.one_off import (
    ASSIGNED,
    KEY_BASE,
    MAX_WORDS,
    REPEATED,
    WordSlot,
    shape_of,
    slot_keys,
    word_count,
    word_slot,
)

COMBINED_WORDS = 23
"""A combination has a bit for each of the first words, and one more for all assigned words."""

ALL_ASSIGNED = 1 << COMBINED_WORDS
"""The bit of all assigned words."""

ANCHORS = 3
"""So many words, the first ones, may be anchors."""

MOST_ANCHORS = 2
"""So many anchors a combination has: where the first word varies, too, it is found by the next."""

LEAST_LEFT = 3
"""So many words of a pattern are left: fewer say too little."""

FACTOR_BITS = 29

COMBINATION_FACTOR = KEY_BASE & (1 << FACTOR_BITS) - 1
"""The factor f."""

WORD_FACTORS = tuple(mix(number) & (1 << FACTOR_BITS) - 1 | 1 for number in range(1, MAX_WORDS + 1))
"""The factors f_i."""

SUM_BITS = 48
"""The low bits of a key."""

SHAPE_NUMBERS = 1 << 12
"""Shapes have so many numbers."""

_SHAPE_SHIFT = 8  # a shape has 56 bits
_SUM_MASK = (1 << SUM_BITS) - 1
_HIGH_MASK = 0xFFFF
_BYTE = 0xFF


def shape_key(numbers: array[int]) -> int:
    """Return the shape of a pattern as the bits that keys are made of.

    Args:
        numbers: the keys of the pattern, as `one_off.pack` packs them.
    """
    return shape_of(numbers) << _SHAPE_SHIFT


def shape_number(key: int) -> int:
    """Return the number of a pattern's shape, below `SHAPE_NUMBERS`; other shapes may have it, too.

    Args:
        key: `shape_key`, or one under which combinations of the shape are listed.
    """
    return key >> 64 - 12


def list_keys(numbers: array[int]) -> list[int]:
    """Return the keys under which combinations are listed that a pattern may have.

    Args:
        numbers: the keys of the pattern, likewise.
    """
    values = [0] * ANCHORS
    for about in numbers[3 : 3 + 2 * ANCHORS : 2]:  # the words of least numbers come first
        number = about & _BYTE
        if number < ANCHORS:
            values[number] = about >> 32
    shape = shape_key(numbers)
    return [_list_key(shape, anchor, value) for anchor, value in enumerate(values)]


class Beside(NamedTuple):
    """A slot beside the words of a combination.

    Attributes:
        slot: the slot.
        combination: with it.
        key: of the pattern without these words.
    """

    slot: WordSlot
    combination: int
    key: int


class PatternWords:
    """The words of a pattern that may vary, as its slots say.

    Args:
        numbers: the keys of the pattern, as `one_off.pack` packs them.
    """

    def __init__(self, numbers: array[int]) -> None:
        self._slots = [word_slot(numbers, index) for index in range(len(slot_keys(numbers)))]
        self._shape, self._count = shape_key(numbers), word_count(numbers)
        self._repeated = 0
        self._words: list[_Word] = []
        for slot in self._slots:
            number = slot.number
            if number < REPEATED:
                bits = 1 << number & ALL_ASSIGNED - 1 | ALL_ASSIGNED * slot.assigned
                self._words.append(
                    _Word(number, bits, slot.value, slot.value * WORD_FACTORS[number])
                )
            elif number < REPEATED + COMBINED_WORDS:
                self._repeated |= 1 << number - REPEATED
        self._sum = self._shape + sum(word.product for word in self._words)

    def combination(self, learned: int) -> int:
        """Return the combination of the words that vary.

        Args:
            learned: bit i for the word i, and that of `one_off.ASSIGNED`, modulo
                `one_off.REPEATED`, for all assigned words.

        Returns:
            The combination; 0 if it cannot be one: a word is too far behind, or stands in several
            places, or too few words are left, or none of them is an anchor.
        """
        combination = learned & ALL_ASSIGNED - 1
        all_assigned = 1 << ASSIGNED - REPEATED
        if (learned & ~all_assigned) != combination or combination & self._repeated:
            return 0
        if learned & all_assigned:
            combination |= ALL_ASSIGNED
        return combination if combination and self.is_possible(combination) else 0

    def is_possible(self, combination: int) -> bool:
        """Return whether enough words are left without those of a combination."""
        return self._are_left(self._words_of(combination))

    def list_keys_of(self, combination: int) -> list[int]:
        """Return the keys under which a combination is listed: of its anchors."""
        taken = {word.number for word in self._words_of(combination)}
        anchors = [number for number in range(ANCHORS) if number not in taken][:MOST_ANCHORS]
        return [_list_key(self._shape, anchor, self._value(anchor)) for anchor in anchors]

    def key(self, combination: int) -> int:
        """Return the key of the pattern without the words of a combination."""
        return self._key(combination, self._words_of(combination))

    def slots_of(self, combination: int) -> list[WordSlot]:
        """Return the slots of the words of a combination."""
        numbers = numbers_of(combination)
        return [slot for slot in self._slots if slot.number in numbers]

    def beside(self, combination: int) -> Iterator[Beside]:
        """Return the slots that may vary beside the words of a combination.

        The values of all assigned words say nothing where some of them vary anyway.
        """
        taken = self._words_of(combination)
        for slot in self._slots:
            if slot.number == ASSIGNED:
                more = [word for word in self._words if word.bits & ALL_ASSIGNED]
                varies = combination & ALL_ASSIGNED or any(word in more for word in taken)
                bit = 0 if varies else ALL_ASSIGNED
            else:
                more = [word for word in self._words if word.number == slot.number]
                bit = 0 if more and more[0] in taken else 1 << slot.number & ALL_ASSIGNED - 1
            words = taken + more
            if bit and self._are_left(words):
                yield Beside(slot, combination | bit, self._key(combination | bit, words))

    def _words_of(self, combination: int) -> list[_Word]:
        return [word for word in self._words if word.bits & combination]

    def _are_left(self, taken: list[_Word]) -> bool:
        return self._count - len(taken) >= LEAST_LEFT and _anchor(taken) < ANCHORS

    def _key(self, combination: int, taken: list[_Word]) -> int:
        first, last = self._value(_anchor(taken)), self._value(self._last(taken))
        high = (self._shape >> SUM_BITS) + first * WORD_FACTORS[0] + last * WORD_FACTORS[1]
        total = self._sum + combination * COMBINATION_FACTOR - sum(word.product for word in taken)
        return (high & _HIGH_MASK) << SUM_BITS | total & _SUM_MASK

    def _last(self, taken: list[_Word]) -> int:
        """Return the number of the last word that is left."""
        numbers = {word.number for word in taken}
        last = self._count - 1
        while last in numbers:
            last -= 1
        return last

    def _value(self, number: int) -> int:
        """Return the value of a word; 0 if it never varies, and is part of the shape."""
        for word in self._words:
            if word.number >= number:
                return word.value if word.number == number else 0
        return 0


class _Word(NamedTuple):
    number: int
    bits: int  # of the combinations that it is in
    value: int
    product: int


def _anchor(taken: list[_Word]) -> int:
    """Return the number of the first word that is left."""
    numbers = {word.number for word in taken}
    anchor = 0
    while anchor in numbers:
        anchor += 1
    return anchor


def learned_of(combination: int) -> int:
    """Return the words of a combination, as `PatternWords.combination` takes them."""
    all_assigned = 1 << ASSIGNED - REPEATED if combination & ALL_ASSIGNED else 0
    return combination & ALL_ASSIGNED - 1 | all_assigned


def numbers_of(combination: int) -> list[int]:
    """Return the numbers of the slots of a combination."""
    numbers = [number for number in range(COMBINED_WORDS) if combination >> number & 1]
    return numbers + ([ASSIGNED] if combination & ALL_ASSIGNED else [])


def _list_key(shape: int, anchor: int, value: int) -> int:
    total = shape - (anchor + 1) * COMBINATION_FACTOR + value * WORD_FACTORS[anchor]
    return shape & ~_SUM_MASK | total & _SUM_MASK
