"""Keys under which patterns that differ in one word find each other.

Problem: ``session closed for alice`` and ``session closed for bob`` say the same thing, and a
fingerprint finds that only by chance: one word of four is a quarter of the votes.

Idea: leave each word out in turn. What remains of the two lines is equal, and so is its hash. A
pattern of n words has the key `own` of all its words, and a *slot* for each word: the key of the
other n - 1, and the word's value there. Two patterns of n words that differ in the word i share the
key of slot i; if one of them has another word more, its key there is the other's own.

Keys in linear time. With the keyed hashes h_1 … h_n of the words, l and m the least two of them
(distinct ones, if there are two), and all sums modulo 2^64, a key is

    mix(l·B + m), the high `LEAST_BITS` bits, and
    mix(h_1·B^(n-1) + … + h_n·B^0  xor  n), the low bits

and leaving out h_i joins a prefix of the second sum, times a power of B, with a suffix of it. The
hashes are keyed, so nobody without the key can compute two sequences with equal sums. Whatever word
is left out, the least two are mostly the same. So the keys of a pattern begin with the same bits,
but for two slots, and an index finds their posting lists in three places.

A word that occurs again has a second slot, for all its places at once: ``copied a to a``. And words
that are values of keys, such as ``user=alice``, have a slot all together (`ASSIGNED`): lines that
list many keys differ in several values at once.

Worked example, the words as letters::

    a b c          own = key(abc)
    slot 0         key(bc), around 2, value a
    slot 1         key(ac), around 2, value b
    slot 2         key(ab), around 2, value c

In a pattern of two words only one other word is around a slot. That says little, so the key of such
a slot also has the *shape*: where placeholders are. ``Unpacking gcc (12.2)`` and ``Unpacking (12.1)
over (12.2)`` share no key. And beside a log level or the name of a kind there is no slot, as ``INFO
ready`` and ``INFO leaving`` are two things.

Left out: placeholders (they are not words), slots of protected words (two events of a cluster never
differ in those), other slots with fewer than two words around them, and events with fewer than two
words or more than `MAX_WORDS`.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import NamedTuple

from stream_dedup.features.recipe import MAX_LEARNED_WORDS
from stream_dedup.fingerprint.hashing import MASK64, mix

REPEATED = 64
"""Added to a slot's number, where it stands for all places of a word."""

MAX_WORDS = MAX_LEARNED_WORDS

ASSIGNED = REPEATED + MAX_WORDS
"""The number of the slot of all assigned words."""

LEAST_AROUND = 2
"""A slot has at least as many other words, but for patterns of two words; and one that counts."""

VALUE_BITS = 23
"""Of a value. In that of a word the highest one says whether a placeholder is beside the word, and
the others are of its hash: two words that share them count as one value."""

BESIDE_GAP = 1 << VALUE_BITS - 1
"""That bit of a value."""

KEY_BASE = 0x9E37_79B9_7F4A_7C15
"""Base of the polynomial that makes a key of a sequence."""

LEAST_BITS = 16
"""The high bits of a key: of the least two hashes."""

SHAPE_BITS = 56
"""Of a shape."""

GAP_BITS = VALUE_BITS
"""The low bits of a shape: where placeholders are, as far as that many words."""

ALL_GAPS = (1 << GAP_BITS) - 1
"""Placeholders everywhere."""

WORDS_BITS = 6
"""Of how many words a pattern has: `MAX_WORDS` at most."""

COUNTED_STEP = 2
"""How many of a pattern's words count is known in steps of so many, rounded down."""

MOST_COUNTED = 6
"""And no more than so many: with the step, two bits, as there is room for no more."""

_BYTE = 0xFF


class Keys(NamedTuple):
    """The keys of a pattern.

    Attributes:
        own: of all its words.
        words: how many words.
        slots: in order.
        shape: of what two patterns have in common that differ in words with a slot alone: the
            number of words, where placeholders are, and the words without a slot; 56 bits.
        counted: how many words count, as `WordSlot.around` says; a multiple of `COUNTED_STEP`,
            `MOST_COUNTED` at most.
    """

    own: int
    words: int
    slots: list[WordSlot]
    shape: int = 0
    counted: int = 0

    @property
    def gaps(self) -> int:
        """Where placeholders are: see `gaps_of`."""
        return self.shape & ALL_GAPS


class WordSlot(NamedTuple):
    """One word of a pattern, and what is around it.

    Attributes:
        key: of the other words.
        number: which word, from 0; `REPEATED` more for all places of a repeated one; or `ASSIGNED`.
        around: how many other words, without log levels and what has no letters, such as ``-``.
        value: see `VALUE_BITS`; of several words, the low bits of the key of their sequence.
        assigned: whether it is the value of a key.
    """

    key: int
    number: int
    around: int
    value: int
    assigned: bool = False


def sequence_key(hashes: Sequence[int]) -> int:
    """Return the key of a sequence of words."""
    total = 0
    for each in hashes:
        total = (total * KEY_BASE + each) & MASK64
    least = sorted(set(hashes))[:2]
    high = mix((least[0] * KEY_BASE + least[-1]) & MASK64)
    low_bits = 64 - LEAST_BITS
    return high >> low_bits << low_bits | mix(total ^ len(hashes)) & (1 << low_bits) - 1


def pattern_keys(
    hashes: Sequence[int],
    protected: Sequence[bool],
    assigned: Sequence[bool] = (),
    weak: Sequence[bool] = (),
    uncounted: Sequence[bool] = (),
    gaps: int = 0,
) -> Keys:
    """Return the keys of a pattern; the plain form of what the native kernel does.

    Args:
        hashes: the keyed hashes of its words, 2 to `MAX_WORDS`.
        protected: for each word whether it is protected.
        assigned: for each word whether it is the value of a key; nothing: none is.
        weak: for each word whether it says too little of another one that has only it beside: a log
            level, the name of a kind; nothing: none does.
        uncounted: for each word whether it does not count among those around another one: a log
            level, or what has no letters, such as ``-``; nothing: all count.
        gaps: where placeholders are: bit i if one is before the word i, the last bit if one is
            behind the last word.
    """
    count = len(hashes)
    assigned = assigned or [False] * count
    uncounted = uncounted or [False] * count
    shape = 0
    for number, each in enumerate(hashes):
        shape = shape * KEY_BASE + (each if protected[number] else 0)
    shape = mix(((shape + gaps) * KEY_BASE + count) & MASK64) & (1 << SHAPE_BITS) - 1
    shape = shape & ~ALL_GAPS | gaps & ALL_GAPS
    counted = min(uncounted.count(False) // COUNTED_STEP * COUNTED_STEP, MOST_COUNTED)

    slots: list[WordSlot] = []

    def low_bits(value: int, number: int) -> int:
        """Return the bits of a word's value."""
        low = value & (1 << VALUE_BITS) - 1
        if number < REPEATED:
            low = low & ~BESIDE_GAP | (BESIDE_GAP if gaps >> number & 0b11 else 0)
        return low

    def add(number: int, out: Collection[int], value: int) -> None:
        """Add the slot of the words at the places `out`, if enough are around them."""
        others = [place for place in range(count) if place not in out]
        around = sum(not uncounted[place] for place in others)
        if len(others) < LEAST_AROUND or not around:
            return
        key = sequence_key([hashes[place] for place in others])
        slots.append(
            WordSlot(key, number, around, low_bits(value, number), bool(assigned[min(out)]))
        )

    if count == LEAST_AROUND:
        for number, each in enumerate(hashes):
            other = 1 - number
            if not (protected[number] or uncounted[other] or (weak and weak[other])):
                key, low = sequence_key((hashes[other], gaps)), low_bits(each, number)
                slots.append(WordSlot(key, number, 1, low, bool(assigned[number])))
        return Keys(sequence_key(hashes), count, slots, shape, counted)
    for number, each in enumerate(hashes):
        if not protected[number]:
            add(number, {number}, each)
    for number, each in enumerate(hashes):
        places = {place for place, other in enumerate(hashes) if other == each}
        if len(places) > 1 and min(places) == number and not protected[number]:
            add(REPEATED + number, places, each)
    if any(assigned):
        places = {place for place, is_value in enumerate(assigned) if is_value}
        values = [hashes[place] for place in sorted(places)]
        add(ASSIGNED, places, sequence_key(values))
    return Keys(sequence_key(hashes), count, slots, shape, counted)


def pack(keys: Keys) -> bytes:
    """Pack keys as the kernel returns them: 64-bit numbers in native byte order."""
    words = keys.words | keys.counted // COUNTED_STEP << WORDS_BITS
    numbers = array("Q", [keys.own, words | keys.shape << 8])
    for key, number, around, value, assigned in keys.slots:
        numbers.extend((key, number | around << 8 | assigned << 16 | value << 32))
    return numbers.tobytes()


def unpack(packed: bytes) -> Keys:
    """Unpack what `pack` packs."""
    numbers = array("Q", packed)
    slots = [word_slot(numbers, index) for index in range(len(slot_keys(numbers)))]
    return Keys(numbers[0], word_count(numbers), slots, shape_of(numbers), counted_of(numbers))


def word_count(numbers: array[int]) -> int:
    """Return how many words a pattern has, out of an array of what `pack` packs."""
    return numbers[1] & (1 << WORDS_BITS) - 1


def counted_of(numbers: array[int]) -> int:
    """Return how many words of a pattern count, as `Keys.counted`, likewise."""
    return ((numbers[1] & _BYTE) >> WORDS_BITS) * COUNTED_STEP


def shape_of(numbers: array[int]) -> int:
    """Return the shape of a pattern, likewise."""
    return numbers[1] >> 8


def gaps_of(numbers: array[int]) -> int:
    """Return where a pattern has placeholders, likewise.

    Bit i is set if one is before the word i, counted from 0; that behind the last word if one is
    behind it. Nothing is known beyond `GAP_BITS`.
    """
    return shape_of(numbers) & ALL_GAPS


def is_beside_gap(value: int) -> bool:
    """Return whether a placeholder is right before or right behind the word of a value."""
    return bool(value & BESIDE_GAP)


def slot_keys(numbers: array[int]) -> array[int]:
    """Return the keys of the slots, likewise."""
    return numbers[2::2]


def word_slot(numbers: array[int], index: int) -> WordSlot:
    """Return one slot, likewise."""
    low = numbers[3 + 2 * index]
    return WordSlot(
        numbers[2 + 2 * index], low & _BYTE, low >> 8 & _BYTE, low >> 32, bool(low >> 16 & 1)
    )
