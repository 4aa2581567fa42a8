"""Pairs of lines that differ in an outcome, a log level or a status: none may ever merge.

Lines of 5 to 40 words are made in pairs. Of each pair, the second says another outcome, another
level, another HTTP status class, or that an exit code is zero or is not; or the word is missing
there. Each pair meets one of the stages
at which lines are matched:

* exact: nothing else differs but a number;
* in one batch: one more word differs, in brackets, and both lines come together;
* by the index: one more word differs, in brackets, and the second comes in a later batch;
* one word more: the second has one more word;
* learned: one more word differs, in a place where other lines had six values before;
* learned together: two more words differ, in two places where other lines had ten values each.

A check that nothing merges would also pass where nothing could. So the first pairs are made a
second time with the outcome, level or status left equal: the share of those that merge is given
beside it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.grouping import group_clusters
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.variants import LEVELS, OUTCOMES

PAIRS = 100_000
PART = 5_000
"""Pairs that one deduplicator sees."""

STAGES = (
    "exact", "in one batch", "by the index", "one word more", "learned", "learned together"
)  # fmt: skip
MIN_WORDS, MAX_WORDS = 5, 40
_BYTES = 600
"""Random bytes for a line: enough for the words of the longest and for the values of a place."""

_VALUES = {1: 6, 2: 10}
"""Values of each place before a pair of the last two stages comes, by the number of places."""

_SHARED = 5
"""Pairs of such a stage that share them."""

_LETTERS = b"abcdefghijklmnopqrstuvwxyz" * 8 + b" " * 48
"""Random bytes become words of five letters on average."""

_STATUSES = ('HTTP/1.1" {}04', "code: {}02", "HTTP {}00:", "TCP_MISS/{}16 512")
_EXIT_CODES = ("exit code {}:", "rc={}")
_KINDS = (
    sorted(OUTCOMES - LEVELS),
    ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"],
    *([form.format(first) for first in "12345"] for form in _STATUSES),
    *([form.format(code) for code in (0, 137)] for form in _EXIT_CODES),
)
_ALL = [outcome for kind in _KINDS for outcome in kind]


@dataclass(frozen=True, slots=True)
class PairResult:
    """What became of the pairs of one stage.

    Attributes:
        pairs: how many there were.
        merged: how many of them merged.
        merged_equal: the share that merges of pairs that do not differ in what keeps lines apart.
    """

    pairs: int
    merged: int
    merged_equal: float


def check_pairs(
    recipe: str | Recipe = "logs", pairs: int = PAIRS, seed: int = 0
) -> dict[str, PairResult]:
    """Group generated pairs, and count those that merged, by stage."""
    given: Counter[str] = Counter()
    merged: Counter[str] = Counter()
    for start in range(0, pairs, PART):
        part = _Part(random.Random(f"{seed} {start}"), min(PART, pairs - start))
        given.update(stage for stage, *_ in part.places)
        merged.update(_merged(part, recipe, seed))
    equal = _Part(random.Random(f"{seed} 0"), min(PART, pairs), differ=False)
    merged_equal = Counter(_merged(equal, recipe, seed))
    in_part = Counter(stage for stage, *_ in equal.places)
    return {
        stage: PairResult(given[stage], merged[stage], merged_equal[stage] / in_part[stage])
        for stage in STAGES
    }


class _Base(NamedTuple):
    """What the lines of a pair have in common.

    Attributes:
        words: all but the outcome.
        at: where the outcome is.
        changed: the words that differ, if any does: one or two.
        values: what may be in their places.
        outcome: of the first line.
    """

    words: list[str]
    at: int
    changed: list[int]
    values: list[str]
    outcome: str

    def with_word(self, value: str, place: int = 0, *, instead: bool = True) -> _Base:
        """The same with another word at a place of change, or with one more before it."""
        words, changed = [*self.words], self.changed[place]
        words[changed : changed + instead] = [value]
        at = self.at + (changed < self.at and not instead)
        return self._replace(words=words, at=at)

    def with_brackets(self) -> _Base:
        """The same with brackets around the word that changes, and around its values."""
        words, (changed,) = [*self.words], self.changed
        words[changed] = f"({words[changed]})"
        return self._replace(words=words, values=[f"({value})" for value in self.values])


class _Part:
    """Some pairs, laid out in two batches."""

    def __init__(self, rng: random.Random, count: int, *, differ: bool = True) -> None:
        self._rng = rng
        self.first: list[bytes] = []
        self.second: list[bytes] = []
        self._learned: dict[str, tuple[_Base, int]] = {}  # of a stage: what its lines share, a row
        self.places: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
        """Stage, and (batch, row) of both lines."""
        for number in range(count):
            self._add(STAGES[number % len(STAGES)], differ=differ)

    def _add(self, stage: str, *, differ: bool) -> None:
        if not stage.startswith("learned"):
            base = self._base()
            if stage in ("in one batch", "by the index"):
                base = base.with_brackets()
            row = self._put(self.first, base, base.outcome)
        else:
            if len(self.places) // len(STAGES) % _SHARED == 0:
                self._learned[stage] = self._learn(1 + (stage == "learned together"))
            base, row = self._learned[stage]
        other = self._other(base.outcome) if differ else base.outcome
        batch = int(stage != "in one batch")
        if stage == "one word more":
            base = base.with_word(base.values[0], instead=False)
        elif stage != "exact":
            for place, value in enumerate(base.values[: len(base.changed)]):
                base = base.with_word(value, place)
        self.places.append(
            (stage, (0, row), (batch, self._put((self.first, self.second)[batch], base, other)))
        )

    def _learn(self, places: int) -> tuple[_Base, int]:
        """Put lines that show so many words of a line to vary; return that line."""
        base = self._base(places)
        row = self._put(self.first, base, base.outcome)
        values = base.values[places:]
        for value in values[: _VALUES[1]]:
            self._put(self.first, base.with_word(value, 0), base.outcome)
        if places == 2:
            for value, other in zip(values, values[1:] + values[:1], strict=True):
                both = base.with_word(value, 0).with_word(other, 1)
                self._put(self.first, both, base.outcome)
        return base, row

    def _base(self, places: int = 1) -> _Base:
        rng = self._rng
        words = rng.randbytes(_BYTES).translate(_LETTERS).decode().split()
        values = words[-_VALUES[places] - places :]
        del words[rng.randint(MIN_WORDS, MAX_WORDS) - 1 :]  # the outcome is one
        at, changed = rng.randrange(len(words) + 1), rng.sample(range(len(words)), places)
        return _Base(words, at, changed, values, rng.choice(_ALL))

    def _put(self, into: list[bytes], base: _Base, outcome: str) -> int:
        """Append a line and return its row."""
        words = [*base.words, str(self._rng.randrange(10**6))]
        words[base.at : base.at] = [outcome] if outcome else []
        into.append(" ".join(words).encode())
        return len(into) - 1

    def _other(self, outcome: str) -> str:
        """Another text for the place of an outcome, which keeps the lines apart."""
        kind = next(kind for kind in _KINDS if outcome in kind)
        found = self._rng.choice(kind)
        return found if found != outcome else ""


def _merged(part: _Part, recipe: str | Recipe, seed: int) -> Iterator[str]:
    """Yield the stage of each pair that is in one cluster, at once or in the end."""
    found = group_clusters([part.first, part.second], recipe, seed)
    starts = 0, len(part.first)
    for stage, *places in part.places:
        one, other = (starts[batch] + row for batch, row in places)
        if any(labels[one] == labels[other] for labels in (found.online, found.final)):
            yield stage
