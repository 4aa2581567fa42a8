"""Finds words that vary together in patterns that opened clusters lately.

Problem: words are known to vary together once one of them was learned alone, from lines that are
equal but for this word. Of lines with three names out of fifty each, hardly two are equal but for
one name: each would open a cluster for ever.

Idea: compare whole patterns. Those of one kind of line have the same shape (`one_off.Keys.shape`),
and most of them the same least word, by its hash, because most words of a line do not vary. So the
patterns that opened clusters are kept in lists by shape and least word, the latest `MOST_PATTERNS`
of each. From time to time the newest one is compared with its list: if enough others differ from it
in the same words alone, and each of these words has enough values, they vary together.

The index is told, and from then on finds such lines by their *combination* (see
`fingerprint.combinations`). What one process remembers need not be complete: a process that starts
again has empty lists, and each of several processes sees a part of the lines.

Bounds: `MAX_PATTERNS` in all lists together, the lists least recently added to give way; and a
comparison after every eighth pattern of a list, later after every thirty-second.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from stream_dedup.clustering.learning import wanted_together
from stream_dedup.fingerprint.combinations import COMBINED_WORDS, PatternWords
from stream_dedup.fingerprint.one_off import REPEATED, shape_of, word_count

MOST_PATTERNS = 128
"""Patterns of a list."""

MAX_PATTERNS = 20_000
"""Patterns of all lists, some 300 bytes each."""

COMPARED_EVERY, COMPARED_LATER = 8, 32
"""After so many patterns more a list is compared, until it is full; and from then on."""

MOST_TRIED = 8
"""Sets of words that are tried in a comparison: those in which the most patterns differ."""


@dataclass(slots=True)
class _List:
    """The latest patterns of a shape and a least word, and how many there were."""

    patterns: list[array[int]] = field(default_factory=list)
    count: int = 0


def are_few(varying: int, words: int) -> bool:
    """Return whether fewer words of a pattern vary than stay, so that whole patterns show it."""
    return 2 * varying < words


class OpenedPatterns:
    """Patterns that opened clusters lately.

    Args:
        learn: as `Match.learn`.
    """

    def __init__(self, learn: int) -> None:
        self._wanted = wanted_together(learn)
        self._lists: OrderedDict[tuple[str, int, int], _List] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, group: str, one_off: bytes) -> int:
        """Add a pattern that has opened a cluster.

        Args:
            group: only patterns of it are compared.
            one_off: the packed keys of the pattern.

        Returns:
            The combination of words that vary together in it; 0 if none is found.
        """
        numbers = array("Q", one_off)
        words = _words(numbers)
        if len(words) <= 1:
            return 0
        key = group, shape_of(numbers), min(about >> 32 for about in words)
        of_key = self._lists.get(key)
        if of_key is None:
            of_key = self._lists[key] = _List()
        self._lists.move_to_end(key)
        of_key.patterns.append(words)
        of_key.count += 1
        if len(of_key.patterns) > MOST_PATTERNS:
            del of_key.patterns[0]
        else:
            self._count += 1
            if self._count > MAX_PATTERNS:
                _, oldest = self._lists.popitem(last=False)
                self._count -= len(oldest.patterns)
        every = COMPARED_EVERY if of_key.count <= MOST_PATTERNS else COMPARED_LATER
        if of_key.count % every or len(of_key.patterns) < self._wanted:
            return 0
        return self._compared(numbers, words, of_key.patterns)

    def _compared(self, numbers: array[int], words: array[int], patterns: list[array[int]]) -> int:
        """Return the combination of the fewest words that vary, by the patterns of a list."""
        differing = [
            (sum(1 << place for place, about in enumerate(other) if about != words[place]), other)
            for other in patterns
        ]
        counts = Counter(places for places, _ in differing if places.bit_count() > 1)
        tried = [places for places, _ in counts.most_common(MOST_TRIED)]
        pattern = PatternWords(numbers)
        for places in sorted(tried, key=int.bit_count):
            alike = [other for differs, other in differing if not differs & ~places]
            combination = self._combination(pattern, numbers, words, places)
            if combination and self._vary(alike, places):
                return combination
        return 0

    def _combination(
        self, pattern: PatternWords, numbers: array[int], words: array[int], places: int
    ) -> int:
        """Return the combination of the words in some places; 0 if too many words vary in it."""
        varying = [words[place] & _NUMBER for place in range(len(words)) if places >> place & 1]
        if not are_few(len(varying), word_count(numbers)) or varying[-1] >= COMBINED_WORDS:
            return 0
        return pattern.combination(sum(1 << number for number in varying))

    def _vary(self, alike: list[array[int]], places: int) -> bool:
        """Return whether the words in these places have enough values each.

        Half of the patterns have one of their own: twelve verbs in sixty patterns are no variable.
        """
        wanted = max(self._wanted, len(alike) / 2)
        varying = [place for place in range(len(alike[0])) if places >> place & 1]
        return all(len({words[place] for words in alike}) >= wanted for place in varying)


_NUMBER = 0xFF


def _words(numbers: array[int]) -> array[int]:
    """Return the slots of the words of a pattern, without those of several places at once."""
    abouts = numbers[3::2]
    while abouts and abouts[-1] & _NUMBER >= REPEATED:
        abouts.pop()
    return abouts
