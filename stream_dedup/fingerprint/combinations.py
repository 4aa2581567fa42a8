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
- the *anchor*: the first word that does not vary. It is one of the first `ANCHORS` words.

Each word has a number and a value of 23 bits (`one_off.WordSlot`). With a factor f of 29 bits and
the factors f_i = (2·i + 1)·f modulo 2^29, the key without the words of a combination is

    shape + anchor · f                                             16 bits, and
    shape + combination · f + Σ value_i · f_i, of the words left   48 bits

and combinations are listed under

    shape                                                          16 bits, and
    shape - (a + 1) · f + value_a · f_a, for the anchor a          48 bits

No product has more than 53 bits, so a Lua script computes the same keys from the slots. The first
bits say in which part of Redis a record is: those of a pattern are in few of them, and those of a
flood of patterns with many anchors in many.

Bounds: a combination has words of the first `COMBINED_WORDS`, and all assigned words as one; and
`LEAST_LEFT` words or more are left.
"""

from __future__ import annotations

from array import array

from stream_dedup.fingerprint.one_off import (
    ASSIGNED,
    KEY_BASE,
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
"""So many words, the first ones, may be the anchor."""

LEAST_LEFT = 3
"""So many words of a pattern are left: fewer say too little."""

KEY_FACTORS = 1 << 29
"""Factors are less."""

KEY_FACTOR = KEY_BASE % KEY_FACTORS
"""The factor f."""

SUM_BITS = 48
"""The low bits of a key."""

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


class PatternWords:
    """The words of a pattern that may vary, as its slots say.

    Args:
        numbers: the keys of the pattern, as `one_off.pack` packs them.

    Attributes:
        slots: in order.
    """

    def __init__(self, numbers: array[int]) -> None:
        self.slots = [word_slot(numbers, index) for index in range(len(slot_keys(numbers)))]
        self._shape, self._count = shape_key(numbers), word_count(numbers)
        self._words = [slot for slot in self.slots if slot.number < REPEATED]
        self._repeated = sum(
            1 << slot.number - REPEATED
            for slot in self.slots
            if REPEATED <= slot.number < REPEATED + COMBINED_WORDS
        )

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
        return combination if self.is_possible(combination) else 0

    def with_slot(self, combination: int, slot: WordSlot) -> int:
        """Return a combination and one slot more; 0 if they cannot be one.

        The values of all assigned words say nothing where some of them vary anyway.
        """
        more = 0
        if slot.number == ASSIGNED:
            if not any(word.assigned and _is_in(combination, word) for word in self._words):
                more = combination | ALL_ASSIGNED
        elif slot.number < COMBINED_WORDS and not _is_in(combination, slot):
            more = combination | 1 << slot.number
        return more if self.is_possible(more) else 0

    def is_possible(self, combination: int) -> bool:
        """Return whether enough words are left without those of a combination."""
        left = self._count - sum(_is_in(combination, word) for word in self._words)
        return combination != 0 and left >= LEAST_LEFT and self._anchor(combination) < ANCHORS

    def list_key(self, combination: int) -> int:
        """Return the key under which a combination is listed."""
        anchor = self._anchor(combination)
        return _list_key(self._shape, anchor, self._value(anchor))

    def key(self, combination: int) -> int:
        """Return the key of the pattern without the words of a combination."""
        anchor = self._value(self._anchor(combination))
        high = (self._shape >> SUM_BITS) + anchor * KEY_FACTOR
        total = self._shape + combination * KEY_FACTOR
        for word in self._words:
            if not _is_in(combination, word):
                total += word.value * _factor(word.number)
        return (high & _HIGH_MASK) << SUM_BITS | total & _SUM_MASK

    def _anchor(self, combination: int) -> int:
        taken = {word.number for word in self._words if _is_in(combination, word)}
        return next(number for number in range(self._count + 1) if number not in taken)

    def _value(self, number: int) -> int:
        """Return the value of a word; 0 if it never varies, and is part of the shape."""
        return next((word.value for word in self._words if word.number == number), 0)


def numbers_of(combination: int) -> list[int]:
    """Return the numbers of the slots of a combination."""
    numbers = [number for number in range(COMBINED_WORDS) if combination >> number & 1]
    return numbers + ([ASSIGNED] if combination & ALL_ASSIGNED else [])


def _is_in(combination: int, word: WordSlot) -> bool:
    of_word = word.number < COMBINED_WORDS and combination >> word.number & 1
    return bool(of_word or (word.assigned and combination & ALL_ASSIGNED))


def _list_key(shape: int, anchor: int, value: int) -> int:
    total = shape - (anchor + 1) * KEY_FACTOR + value * _factor(anchor)
    return shape & ~_SUM_MASK | total & _SUM_MASK


def _factor(number: int) -> int:
    return (2 * number + 1) * KEY_FACTOR % KEY_FACTORS
