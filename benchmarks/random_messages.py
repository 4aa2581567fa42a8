"""Messages of random words, as many as wanted, for benches of speed and of size.

A few words are frequent and most are rare, as in a language; no two messages have much in common.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import Query
from stream_dedup.model import Position

WORDS = 20_000
LENGTHS = (2, 3, 4, 4, 5, 5, 6, 7, 8, 10)
LETTERS = {
    "e": 12, "t": 9, "a": 8, "o": 8, "i": 7, "n": 7, "s": 6, "h": 6, "r": 6, "d": 4, "l": 4,
    "c": 3, "u": 3, "m": 2, "w": 2, "f": 2, "g": 2, "y": 2, "p": 2, "b": 1, "v": 1, "k": 1,
}  # fmt: skip
"""Letters of English words, about as frequent as they are."""


class RandomMessages:
    """Makes messages; equal seeds make equal ones.

    Args:
        seed: of the words and of the messages.
        least: words of a message.
        most: likewise.
    """

    def __init__(self, seed: int, least: int = 8, most: int = 20) -> None:
        self._rng = random.Random(seed)
        self._lengths = least, most
        letters, shares = (*LETTERS,), (*LETTERS.values(),)
        self._words = [
            "".join(self._rng.choices(letters, shares, k=self._rng.choice(LENGTHS)))
            for _ in range(WORDS)
        ]
        self._weights = [*accumulate(1 / (place + 3) for place in range(WORDS))]

    def make(self, count: int) -> list[bytes]:
        """Make as many messages."""
        chosen = self._rng.choices
        return [
            " ".join(
                chosen(self._words, cum_weights=self._weights, k=self._rng.randint(*self._lengths))
            ).encode()
            for _ in range(count)
        ]

    def changed(self, message: bytes) -> bytes:
        """Return a message with one word of ten replaced, one at least."""
        words = message.split()
        for place in self._rng.sample(range(len(words)), max(1, len(words) // 10)):
            words[place] = self._rng.choice(self._words).encode()
        return b" ".join(words)


def query_at(
    start_us: int, offset: int, exact: int, fingerprint: int, sketch: bytes, *, near: bool
) -> Query:
    """Return the query of an event, of which there is one a millisecond from the start on."""
    time_us = start_us + 1_000 * offset
    position = Position("bench", 0, offset)
    return Query("", exact, fingerprint, sketch, near, time_us, time_us, position)


def queries_of(
    recipe: Recipe, key: HashKey, messages: Sequence[bytes], first: int, start_us: int
) -> list[Query]:
    """Hash messages under a recipe and a key; the first one has the offset `first`."""
    fingerprinter = Fingerprinter(recipe, key)
    numbers = fingerprinter.fingerprints(fingerprinter.prepare(messages, None), full=True)
    return [
        query_at(start_us, first + n, numbers.exact[n], numbers.fingerprint(n), numbers.sketches[n],
                 near=numbers.words[n] >= recipe.match.min_features)
        for n in range(len(messages))
    ]  # fmt: skip
