"""Finds words that vary together in patterns that opened clusters lately.

Problem: words are known to vary together once one of them was learned alone, from lines that are
equal but for this word. Of lines with three names out of fifty each, hardly two are equal but for
one name: each would open a cluster for ever.

Idea: compare whole patterns. Those of one kind of line have the same shape (`one_off.Keys.shape`),
and most of them the same least word, by its hash, because most words of a line do not vary. So the
patterns that opened clusters are kept in lists by group, shape and least word. From time to time
the newest one is compared with its list: words vary together if enough of the newest patterns
differ from it in these words alone, and if

- each of these words has many values (`least_values`). Verbs are fewer;
- each has values that come with different values of the others, as names do. In unlike messages of
  one form, ``cannot bind the queue`` and ``cannot read the frame``, words come once. If all values
  come once, more patterns are wanted.

The caller passes the combination to the index, which from then on finds such lines by it (see
`fingerprint.combinations`). What one process remembers need not be complete: a process that starts
again has empty lists, and each of several processes sees a part of the lines.

Bounds: `MOST_PATTERNS` in a list and `MAX_PATTERNS` in all, the lists least recently added to give
way; and a comparison after every eighth pattern of a list, of a long one after every 32nd. Patterns
that are too old to be in the same cluster as the newest do not count.

A pattern is kept as one number, of 64 bits for each of its words, so that two are compared word by
word in three operations.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stream_dedup.clustering.learning import wanted_together
from stream_dedup.fingerprint.combinations import COMBINED_WORDS, PatternWords
from stream_dedup.fingerprint.one_off import MAX_WORDS, REPEATED, shape_of, word_count

MOST_PATTERNS = 512
"""Patterns of a list."""

MAX_PATTERNS = 20_000
"""Patterns of all lists; some 500 bytes each, with its list."""

LONG_LIST = 128
COMPARED_EVERY, LONG_COMPARED_EVERY = 8, 32
"""After so many patterns more a list is compared, and a long one."""

MOST_TRIED = 8
"""Sets of words that are tried in a comparison: those in which the most patterns differ."""

NEWEST = 4
"""The values of so many patterns are counted, the newest ones, times `wanted_together`."""

ALL_NEW = 6
"""So many patterns are enough if all values come once, likewise."""

LEAST_RECOMBINED = 2
"""Otherwise so many patterns, or more, have a value that another one has too, in each place."""

_BITS = 64  # of a word
_WORD = (1 << _BITS) - 1
_NUMBER = 0xFF
_HIGHEST = [sum(1 << _BITS * place + _BITS - 1 for place in range(n)) for n in range(MAX_WORDS + 1)]
"""The highest bits of so many words."""


def are_few(varying: int, words: int) -> bool:
    """Return whether fewer words of a pattern vary than stay, so that whole patterns show it."""
    return 2 * varying < words


def least_values(learn: int) -> int:
    """Return how many different values each word must have.

    More than where one word was learned alone: of ten to seventeen verbs none is a variable.

    >>> [least_values(learn) for learn in (2, 5, 8)]
    [7, 18, 28]

    Args:
        learn: as `Match.learn`.
    """
    return wanted_together(learn) * 9 // 5


@dataclass(slots=True)
class _List:
    """The latest different patterns of a group, a shape and a least word.

    Attributes:
        times_us: by pattern, when it opened a cluster; the newest last.
        added: how many there were.
    """

    times_us: dict[int, int] = field(default_factory=dict)
    added: int = 0

    @property
    def is_due(self) -> bool:
        """Whether it is to be compared."""
        is_long = len(self.times_us) > LONG_LIST
        return not self.added % (LONG_COMPARED_EVERY if is_long else COMPARED_EVERY)


class OpenedPatterns:
    """Patterns that opened clusters lately.

    Args:
        learn: as `Match.learn`.
        idle_us: patterns that are so much older than the newest do not count.
    """

    def __init__(self, learn: int, idle_us: int) -> None:
        self._wanted, self._least = wanted_together(learn), least_values(learn)
        self._idle_us = idle_us
        self._lists: OrderedDict[int, _List] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, group: str, one_off: bytes, time_us: int) -> int:
        """Add a pattern that has opened a cluster.

        Args:
            group: only patterns of it are compared.
            one_off: the packed keys of the pattern.
            time_us: the event's time.

        Returns:
            The combination of words that vary together in it; 0 if none is found.
        """
        numbers = array("Q", one_off)
        words = _words(numbers)
        if len(words) <= 1:
            return 0
        least = min(words) >> 32  # by their values, which are the high bits
        key = hash((group, shape_of(numbers), least))
        of_key = self._lists.get(key)
        if of_key is None:
            of_key = self._lists[key] = _List()
        self._lists.move_to_end(key)
        pattern = int.from_bytes(words.tobytes(), sys.byteorder)
        if pattern in of_key.times_us:
            return 0
        of_key.times_us[pattern] = time_us
        of_key.added += 1
        self._count += 1
        self._keep_bounds(of_key)
        combination = 0
        if of_key.is_due:
            combination = self._compared(numbers, len(words), pattern, of_key, time_us)
        if combination:  # lines of this kind open no clusters from now on
            self._count -= len(of_key.times_us)
            del self._lists[key]
        return combination

    def add_all(self, patterns: Iterable[tuple[str, bytes, int]]) -> dict[int, int]:
        """Add patterns that have opened clusters in one call of an index.

        Args:
            patterns: the arguments of `add` for each.

        Returns:
            By their places, those of which a combination is found, and that; of patterns that are
            equal but for these words the first: one cluster is enough to find the others.
        """
        found: dict[int, int] = {}
        known: set[tuple[str, int]] = set()
        for place, (group, one_off, time_us) in enumerate(patterns):
            combination = self.add(group, one_off, time_us)
            if combination:
                others = group, PatternWords(array("Q", one_off)).key(combination)
                if others not in known:
                    known.add(others)
                    found[place] = combination
        return found

    def _keep_bounds(self, grown: _List) -> None:
        if len(grown.times_us) > MOST_PATTERNS:
            del grown.times_us[next(iter(grown.times_us))]
            self._count -= 1
        while self._count > MAX_PATTERNS and len(self._lists) > 1:
            _, oldest = self._lists.popitem(last=False)
            self._count -= len(oldest.times_us)

    def _compared(
        self, numbers: array[int], count: int, newest: int, of_key: _List, time_us: int
    ) -> int:
        """Return the combination of the fewest words that vary, by the patterns of a list."""
        since_us, highest = time_us - self._idle_us, _HIGHEST[count]
        others = [each for each, at_us in reversed(of_key.times_us.items()) if at_us >= since_us]
        if len(others) < self._least:
            return 0
        lower = highest - (highest >> _BITS - 1)  # all bits of each word but the highest
        # The highest bit of each word in which they differ: below it, a carry says so.
        differing = [
            (((other ^ newest) & lower) + lower | other ^ newest) & highest for other in others
        ]
        counts = Counter(places for places in differing if places.bit_count() > 1)
        tried = [places for places, _ in counts.most_common(MOST_TRIED)]
        pattern = PatternWords(numbers)
        for places in sorted(tried, key=int.bit_count):
            shifts = [
                _BITS * place for place in range(count) if places >> _BITS * place + _BITS - 1 & 1
            ]
            combination = _combination(pattern, numbers, [newest >> s & _NUMBER for s in shifts])
            if combination:
                alike = [
                    o for o, differs in zip(others, differing, strict=True) if not differs & ~places
                ]
                if self._vary(alike, shifts):
                    return combination
        return 0

    def _vary(self, alike: Sequence[int], shifts: Sequence[int]) -> bool:
        """Return whether words vary together in patterns.

        Args:
            alike: the patterns, which differ in these words alone; the newest first.
            shifts: where the words are.
        """
        newest = alike[: NEWEST * self._wanted]
        values = [len({pattern >> shift & _WORD for pattern in newest}) for shift in shifts]
        recombine = max(values) <= len(newest) - LEAST_RECOMBINED
        enough = recombine or len(alike) >= ALL_NEW * self._wanted
        return enough and min(values) >= self._least


def _combination(pattern: PatternWords, numbers: array[int], varying: Sequence[int]) -> int:
    """Return the combination of words by their numbers; 0 if there can be none of them."""
    if not are_few(len(varying), word_count(numbers)) or max(varying) >= COMBINED_WORDS:
        return 0
    return pattern.combination(sum(1 << number for number in varying))


def _words(numbers: array[int]) -> array[int]:
    """Return the slots of the words of a pattern, without those of several places at once."""
    abouts = numbers[3::2]
    while abouts and abouts[-1] & _NUMBER >= REPEATED:
        abouts.pop()
    return abouts
