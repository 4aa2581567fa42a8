"""Values of a pattern's slots: what events have in the place of ``<number>`` and ``<*>``.

Problem: a pattern says where events differ, and a person wants to know in what: one user or a
hundred, always the same host or a new one each time.

Idea: a few events of each cluster are kept as a sample. Of each, the parts between the
words of the pattern are the values of its slots. Values are counted in the sample alone, so the
work for a cluster is bounded, whatever its size.

A *slot* is a run of variables, learned words included, that the pattern shows as one placeholder or
several. Most events of a cluster have the same text between their slots as its first event, down to
the spaces: these are cut at that text. The others are read token by token, and cut at its words.

Error: a share of `p` in a random sample of `s` of `n` events is known to about
``1.96 sqrt(p (1 - p) / s) sqrt((n - s) / (n - 1))``, in 95 of 100 cases; `Variables.error` is that
for ``p = 1/2``, the largest. It is 0 if the sample holds all events. The number of different values
is that of the sample: there are at least so many.

Worked example::

    first event    session opened for user ann by (uid=0)
    pattern        session opened for user <*> by (uid=<number>)
    bob by 7       session opened for user bob by (uid=7)          → bob, 7
    slots          <*>: ann, bob;  <number>: 0, 7
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import sqrt
from operator import itemgetter

from stream_dedup.features.lines import LineReader, learned_words
from stream_dedup.features.masks import without_time
from stream_dedup.features.outcome_fields import split
from stream_dedup.features.patterns import Patterns, readable
from stream_dedup.features.recipe import MAX_LEARNED_WORDS, Recipe
from stream_dedup.features.tokens import Token
from stream_dedup.features.traces import WRITTEN_LINE_END, lines_of, trace_of
from stream_dedup.model import SlotValues, Variables

MAX_SLOTS = 16
"""Slots of a pattern whose values are given; later ones are left out."""

MAX_VALUES = 5
"""Values listed of a slot."""

MAX_VALUE = 64
"""Characters of a value."""

_TIME, _BEHIND_TIME = "<timestamp>", " \t,:;|)]}"
_MAX_BYTES = 2_048
_CERTAIN = 1.96


class SlotReader:
    """Finds the slots of patterns and their values in events.

    Args:
        recipe: of the clusters.
        patterns: the recipe's; made here if not given. If the pattern of an event is asked for just
            before its slots, the event is read once.

    Attributes:
        has_slots: whether its patterns have slots: not where it takes fields, or another extractor
            than words.
    """

    def __init__(self, recipe: Recipe, patterns: Patterns | None = None) -> None:
        self._patterns = patterns or Patterns(recipe)
        self._reader = self._patterns.reader
        self.has_slots = recipe.features.extractor == "words" and not recipe.input.fields

    def slots(self, first: bytes, learned: int = 0) -> Slots:
        """Return the slots of a cluster's pattern.

        Args:
            first: the value of its first event.
            learned: as `Summary.learned`.
        """
        if not self.has_slots:
            return Slots(self._reader, [first], [], [])
        first = self._reader.without_escapes(_line(first))
        is_learned = learned_words(self._reader.read(first).tokens if learned else (), learned)
        tokens = self._reader.read(first, lists=False).tokens
        variable = [(start, end, b"") for start, end in self._patterns.variables(first, tokens)]
        fixed: list[tuple[int, int, bytes]] = []
        for token in tokens:
            if not token.variable:
                place = variable if is_learned(token) else fixed
                place.append((token.start, token.end, token.text))
        spans = sorted([(span, True) for span in variable] + [(span, False) for span in fixed])
        pieces, at = [b""], 0
        names: list[str] = []
        order: list[bytes | None] = []
        for is_slot, run in groupby(spans, key=itemgetter(1)):
            runs = [span for span, _ in run]
            if not is_slot:
                order += [text for _, _, text in runs]
                continue
            start, end = max(at, runs[0][0]), max(span[1] for span in runs)
            pieces[-1] = first[at:start]
            pieces.append(b"")
            names.append(self._name(first, start, end, learned=any(text for _, _, text in runs)))
            order.append(None)
            at = end
        pieces[-1] = first[at:]
        return Slots(self._reader, pieces, names, order)

    def lacking(self, first: bytes, slots: Slots, events: Iterable[bytes]) -> int:
        """Return which words of a cluster's first event some events lack: bit i for its word i.

        Lines may also join by their fingerprint, and differ in words that are not learned.

        Args:
            first: the value of the first event.
            slots: those of its pattern.
            events: values of events of the cluster. One that has all words of the pattern lacks
                none, whatever is in the slots.
        """
        missing = 0
        words: list[bytes] = []
        for event in events:
            if event == first or (slots.names and slots.values(event) is not None):
                continue
            words = words or self._words(first)
            known = set(self._words(event))
            missing |= sum(1 << n for n, word in enumerate(words) if word not in known)
        return missing

    def _words(self, event: bytes) -> list[bytes]:
        tokens = self._reader.read(self._reader.without_escapes(_line(event))).tokens
        return [token.text for token in tokens if not token.variable][:MAX_LEARNED_WORDS]

    def parameters(self, event: bytes, varied: int) -> tuple[tuple[str, str], ...]:
        """Return the values of an event by its text and its decision alone; see `Slots.parameters`.

        Args:
            event: its text.
            varied: as `Decision.varied`.
        """
        return self.slots(event, varied).parameters(event)

    def _name(self, text: bytes, start: int, end: int, *, learned: bool) -> str:
        if learned or start == end:
            return "<*>"
        return readable(self._patterns.named_in(text, start, end), MAX_VALUE)


class Slots:
    """The slots of one pattern.

    Args:
        reader: reads events.
        pieces: what is before, between and behind them in the first event.
        names: what the pattern shows in their places.
        order: its words, None for a slot.
    """

    def __init__(
        self,
        reader: LineReader,
        pieces: Sequence[bytes],
        names: Sequence[str],
        order: Sequence[bytes | None],
    ) -> None:
        self._reader = reader
        self._pieces = pieces
        self.names = names
        self._order = order

    def values(self, event: bytes) -> list[bytes] | None:
        """Return the values of an event, one a slot; None if it lacks words of the pattern."""
        line = self._reader.without_escapes(_line(event))
        found = self._between(line)
        return self._by_words(line) if found is None else found

    def _between(self, line: bytes) -> list[bytes] | None:
        """Cut a line at the text of the first event."""
        first, *inner, last = self._pieces if len(self._pieces) > 1 else (b"", b"")
        end = len(line) - len(last)
        if not line.startswith(first) or not line.endswith(last) or end < len(first):
            return None
        values, at = [], len(first)
        for piece in inner:
            next_at = line.find(piece, at, end)
            if next_at < 0:
                return None
            values.append(line[at:next_at].strip())
            at = next_at + len(piece)
        return [*values, line[at:end].strip()] if self.names else []

    def varied(self, event: bytes) -> int:
        """Return which words of an event are in slots: bit i for its word i."""
        line = self._reader.without_escapes(_line(event))
        parts = self._parts(self._reader.read(line, lists=False).tokens) or []
        known = {token.text for part in parts for token in part if not token.variable}
        words = [token.text for token in self._reader.read(line).tokens if not token.variable]
        learnable = words[:MAX_LEARNED_WORDS]
        return sum(1 << number for number, word in enumerate(learnable) if word in known)

    def _by_words(self, line: bytes) -> list[bytes] | None:
        """Cut a line at the words of the first event."""
        parts = self._parts(self._reader.read(line, lists=False).tokens)
        if parts is None:
            return None
        return [line[part[0].start : part[-1].end] if part else b"" for part in parts]

    def _parts(self, tokens: Sequence[Token]) -> list[Sequence[Token]] | None:
        """Return the tokens of each slot; None if words of the first event are missing."""
        parts: list[Sequence[Token]] = []
        at, is_open = 0, False  # the next token; whether a slot begins there
        for word in self._order:
            if word is None:
                is_open = True
                continue
            places = range(at, len(tokens))
            found = next(
                (n for n in places if not tokens[n].variable and tokens[n].text == word), -1
            )
            if found < 0:
                return None
            if is_open:
                parts.append(tokens[at:found])
            at, is_open = found + 1, False
        return [*parts, tokens[at:]] if is_open else parts

    def parameters(self, event: bytes) -> tuple[tuple[str, str], ...]:
        """Return the values of an event to show, each behind its slot's name; none if it has none.

        They are as many and as long as those of `describe`.
        """
        values = self.values(event) or []
        pairs = zip(self.names[:MAX_SLOTS], values, strict=False)
        return tuple((name, readable(value, MAX_VALUE)) for name, value in pairs)

    def describe(self, sample: Iterable[bytes], events: int) -> Variables | None:
        """Count the values in a sample; None if there are none. What is always empty is left out.

        Of a time and what is beside it (``<timestamp> <*>``: a host), the time is left out.

        Args:
            sample: values of events, chosen at random, none twice.
            events: how many it was chosen from.
        """
        rows = [values for values in map(self.values, sample) if values is not None]
        count = len(rows)
        described: list[SlotValues] = []
        for slot, column in zip(self.names, zip(*rows, strict=True), strict=False):
            if len(described) == MAX_SLOTS:
                break
            name = slot if slot == _TIME else slot.removeprefix(_TIME).lstrip(_BEHIND_TIME)
            counted = Counter(column if name == slot else map(without_time, column))
            if counted.keys() == {b""}:
                continue
            commonest = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:MAX_VALUES]
            values = tuple((readable(each, MAX_VALUE), n / count) for each, n in commonest)
            described.append(SlotValues(name, values, len(counted)))
        if not described:
            return None
        return Variables(count, error_of(count, events), tuple(described))


def error_of(sampled: int, events: int) -> float:
    """Return how far a share of a sample may be off, in 95 of 100 cases.

    >>> error_of(10, 10)
    0.0
    >>> round(error_of(64, 10_000), 3)
    0.122
    """
    if sampled >= events:
        return 0.0
    if not sampled:
        return 1.0
    return min(1.0, _CERTAIN / 2 / sqrt(sampled) * sqrt((events - sampled) / (events - 1)))


def _line(value: bytes) -> bytes:
    """Return what is read of an event: the first line of its text."""
    value = split(value).text[:_MAX_BYTES]
    if WRITTEN_LINE_END in value and trace_of(value) is not None:
        return lines_of(value)[0]
    return value.split(b"\n", 1)[0]
