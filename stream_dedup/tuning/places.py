"""What a recipe makes of the words of a sample: their classes, and the places where they differ.

A *place* is a slot of the one-off index (`fingerprint.one_off`): a word between the same other
words. Its values are the words that events have there. The index takes the word for a variable once
it has seen enough values; until then, events with different values are of different clusters.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from stream_dedup.clustering.learning import wanted_values
from stream_dedup.features.outcome_fields import OutcomeFields
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.variants import ENDINGS
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.one_off import REPEATED, unpack
from stream_dedup.fingerprint.reference import Feature, ReferenceKernel
from stream_dedup.tuning.sample import Sample
from stream_dedup.tuning.trials import Grouping

MAX_READ = 5_000
"""Patterns whose words are classed: those with the most events."""

MAX_READ_BYTES = 8 << 20
"""Bytes of all events whose words are classed: they are read in Python."""

MAX_PLACE_BYTES = 4_096
"""Longer events have no places: those have few words, which are read in Python too."""

MAX_WORDS = 1_000_000
"""Places that are looked at; a pattern has one for each of its words."""

WORD, PROTECTED = "word", "protected word"
"""Classes of tokens that are compared as they are; all others are placeholders (`<number>`)."""

_NAME = re.compile(rb"<(?:[a-z0-9_]+|\*)>")


@dataclass(frozen=True, slots=True)
class TokenClasses:
    """How many tokens of each class the events have.

    Attributes:
        counts: tokens by class; equal placeholders in a row count once, as in a pattern.
        protected: the protected words, by their events.
        covered: the share of the events that were looked at.
    """

    counts: Counter[str]
    protected: Counter[bytes]
    covered: float


@dataclass(frozen=True, slots=True)
class Place:
    """A place where words differ.

    Attributes:
        pattern: of its first event, the word there shown as variable.
        before: the word before it; empty if there is none.
        wanted: how many values make it a variable.
        values: which rows of the sample have each value, the one with the most events first.
        counts: the events of each value.
        clusters: the clusters that these events are in, by number.
    """

    pattern: str
    before: bytes
    wanted: int
    values: dict[bytes, tuple[int, ...]]
    counts: dict[bytes, int]
    clusters: frozenset[int]

    @property
    def learned(self) -> bool:
        """Whether enough values were seen, and all events with them are in one cluster."""
        return len(self.values) >= self.wanted and len(self.clusters) == 1

    @property
    def events(self) -> int:
        """The events of all its values."""
        return sum(self.counts.values())

    @property
    def moved(self) -> int:
        """The events that would join others if the place were a variable."""
        return self.events - max(self.counts.values())


class Words:
    """The words of a sample, as a recipe sees them.

    Args:
        sample: the events.
        base: what the recipe makes of them.
    """

    def __init__(self, sample: Sample, base: Grouping) -> None:
        self._sample = sample
        self._base = base
        compared = OutcomeFields(base.recipe).compared
        self._values = list(map(compared, sample.beside, sample.texts))
        self._fingerprinter = Fingerprinter(base.recipe, sample.key)
        self._kernel = ReferenceKernel(base.recipe, sample.key)
        self._patterns = Patterns(base.recipe)
        self._read: dict[int, list[Feature]] = {}

    def variant(self, row: int) -> list[bytes]:
        """Return the words that make the variant of an event."""
        value, document = self._values[row], self._sample.documents[row]
        return self._fingerprinter.take_apart(value, document, self._kernel).variant

    def classes(self) -> TokenClasses:
        """Count tokens by class."""
        counts: Counter[str] = Counter()
        protected: Counter[bytes] = Counter()
        events, covered = self._sample.counts, 0
        rows = sorted(range(len(events)), key=lambda row: (-events[row], row))[:MAX_READ]
        limit, room = self._base.recipe.input.max_bytes, MAX_READ_BYTES
        for row in rows:
            room -= min(limit, len(self._values[row]))
            if room < 0:
                break
            covered += events[row]
            for token in self._tokens(row):
                if token.variable:
                    for name in _NAME.findall(self._patterns.named(token.text)):
                        counts[name.decode()] += events[row]
                elif token.protected:
                    counts[PROTECTED] += events[row]
                    protected[token.text.rstrip(ENDINGS).lower()] += events[row]
                else:
                    counts[WORD] += events[row]
        share = covered / self._sample.events if self._sample.events else 0.0
        return TokenClasses(counts, protected, share)

    def _tokens(self, row: int) -> list[Feature]:
        value, document = self._values[row], self._sample.documents[row]
        return self._fingerprinter.take_apart(value, document, self._kernel).tokens

    def _words(self, row: int) -> list[Feature]:
        if row not in self._read:
            self._read[row] = [token for token in self._tokens(row) if not token.variable]
        return self._read[row]

    # ------------------------------------------------------------ places

    @cached_property
    def places(self) -> list[Place]:
        """The places with two values or more, those whose events are most worth a look first."""
        if not self._base.recipe.match.learn:
            return []
        found = [self._place(*one) for one in self._slots()]
        every = [place for place in found if len(place.values) > 1]
        return sorted(every, key=lambda place: (-place.moved, place.pattern))

    def words_apart(self) -> Counter[bytes]:
        """Return the words in places that are not learned, with the events that have them there."""
        rows_of: defaultdict[bytes, set[int]] = defaultdict(set)
        for place in self.places:
            if not place.learned:
                for word, rows in place.values.items():
                    rows_of[word].update(rows)
        events = self._sample.counts
        return Counter({word: sum(events[row] for row in of) for word, of in rows_of.items()})

    def _slots(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return places that several patterns have: number, words around, rows."""
        groups = self._sample.groups() or [""] * len(self._sample)
        first: dict[int, int] = {}
        several: defaultdict[int, list[int]] = defaultdict(list)
        slots: dict[int, tuple[int, int]] = {}
        prepared = self._fingerprinter.prepare(self._values, self._sample.documents)
        numbers = self._fingerprinter.fingerprints(prepared, full=True)
        for row, packed in enumerate(numbers.one_offs):
            if not packed or len(self._values[row]) > MAX_PLACE_BYTES:
                continue
            scope = groups[row], numbers.variants[row]
            for slot in unpack(packed).slots:
                place = hash((scope, slot.key, slot.number))
                if slot.number >= REPEATED or (len(first) >= MAX_WORDS and place not in first):
                    continue
                before = first.setdefault(place, row)
                if before != row:
                    slots[place] = slot.number, slot.around
                    several[place].append(row)
        return [
            (*slots[place], (first[place], *rows))
            for place, rows in several.items()
        ]  # fmt: skip

    def _place(self, number: int, around: int, rows: Sequence[int]) -> Place:
        rows_of: defaultdict[bytes, list[int]] = defaultdict(list)
        for row in rows:
            rows_of[self._words(row)[number].text].append(row)
        events = self._sample.counts
        counts = {word: sum(events[row] for row in of) for word, of in rows_of.items()}
        ranked = sorted(rows_of, key=lambda word: (-counts[word], word))
        value, document = self._values[rows[0]], self._sample.documents[rows[0]]
        words = self._words(rows[0])
        return Place(
            pattern=self._patterns.pattern(value, document, 1 << number),
            before=words[number - 1].text if number else b"",
            wanted=wanted_values(self._base.recipe.match.learn, around),
            values={word: tuple(rows_of[word]) for word in ranked},
            counts={word: counts[word] for word in ranked},
            clusters=frozenset(self._base.labels[row] for row in rows),
        )
