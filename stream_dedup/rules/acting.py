"""Rules in the engine: what they do with the events of a batch.

Most events match no pattern of any rule. One search of the text for the longest words of all
patterns (a regular expression in linear time) sorts these out. What is found for an event holds for
all events of the same words, so it is remembered by exact hash, and repeated lines cost a look-up.
Only where a value that is not a word decides, say a number that is split off, each event is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import re2

from stream_dedup.columnar import dictionary_encode, rows_of, take
from stream_dedup.features.masks import compile_pattern
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import Recipe
from stream_dedup.features.variants import ENDINGS
from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.rules.ruleset import Acted, RuleSet
from stream_dedup.rules.template import Template, read_event

MAX_REMEMBERED = 200_000
"""Exact hashes for which it is remembered what rules do; some 120 bytes each."""

LEAST_ANCHOR = 2
"""Characters of a word that is searched for."""

KeyedHash = Callable[[bytes], int]


class Outcome:
    """What rules do with events of equal words. Equal events share one object.

    Attributes:
        number: the hash that takes the place of the exact hash, and keeps the events apart from all
            others; None if they are found as ever.
        acted: what the rules do; None for nothing.
        limit: the rule that mutes them, or limits how many leave; None for none.
    """

    __slots__ = ("acted", "limit", "number")

    def __init__(self, number: int | None, acted: Acted | None) -> None:
        self.number = number
        self.acted = acted
        self.limit = None if acted is None else acted.limit


NOTHING = Outcome(None, None)
BY_VALUE = Outcome(None, None)


class ActedBatch(NamedTuple):
    """What rules do with a batch.

    Attributes:
        exact: the exact hashes, replaced where rules say so.
        scopes: of the rows whose hash is replaced, what keeps them apart from all other events.
        limited: rows whose events may not leave, ascending, each with the rule.
        counts: events that rules acted on, by kind of rule.
    """

    exact: Sequence[int]
    scopes: dict[int, int]
    limited: Sequence[tuple[int, PatternRule]]
    counts: dict[RuleKind, int]


class ActingRules:
    """A set of rules for the events of a recipe. Threads may share it.

    Args:
        rules: the rules.
        recipe: of the events.
        keyed_hash: hashes identities, under the index's key.

    Attributes:
        rules: as given.
        limits: ids of the rules that limit which events leave.
    """

    def __init__(self, rules: RuleSet, recipe: Recipe, keyed_hash: KeyedHash) -> None:
        self.rules = rules
        self.limits = frozenset(rule.id for _, rule in rules.limits)
        self._patterns = Patterns(recipe)
        self._hash = keyed_hash
        self._takes_fields = bool(recipe.input.fields)
        self._protected = frozenset(word.decode("utf-8", "replace") for word in recipe.protected)
        self._endings = ENDINGS.decode()
        # Elsewhere texts of equal hash may differ in what patterns show of them.
        self._by_hash = (
            recipe.features.extractor == "words"
            and recipe.fingerprint.kind != "minhash"
            and recipe.text.fold == "keep"
            and not recipe.text.boilerplate
        )
        self._known: dict[int, Outcome] = {}
        self._outcomes: dict[tuple[str, str, str, bool], Outcome] = {}
        self._by_anchor: dict[str, list[Template]] = {}
        self._always: list[Template] = []
        for template in rules.templates():
            anchor = _anchor(template)
            if anchor:
                self._by_anchor.setdefault(anchor, []).append(template)
            else:
                self._always.append(template)
        self._search = None if self._always else _search_of(self._by_anchor)

    def batch(
        self, exact: Sequence[int], values: Sequence[bytes], documents: Sequence[object] | None
    ) -> ActedBatch | None:
        """Return what the rules do with a batch; None if nothing.

        Args:
            exact: the events' exact hashes.
            values: their texts.
            documents: the decoded events, where the recipe takes fields.
        """
        outcomes = self._outcomes_of(exact, values, documents)
        different, codes = dictionary_encode(outcomes)
        if all(outcome is NOTHING for outcome in different):
            return None
        scopes: dict[int, int] = {}
        acted = rows_of(codes, [outcome.number is not None for outcome in different])
        if acted:
            exact = list(exact)
            numbers = take([outcome.number or 0 for outcome in different], codes)
            for row in acted:
                exact[row] = scopes[row] = numbers[row]
        counts: dict[RuleKind, int] = {}
        for code, events in Counter(codes).items():
            outcome = different[code]
            if outcome.acted is not None:
                for kind in {rule.kind for rule in outcome.acted.rules}:
                    counts[kind] = counts.get(kind, 0) + events
        limits = [outcome.limit for outcome in different]
        rows = rows_of(codes, [limit is not None for limit in limits])
        limited = [(row, limit) for row in rows if (limit := limits[codes[row]]) is not None]
        return ActedBatch(exact, scopes, limited, counts)

    def _outcomes_of(
        self, exact: Sequence[int], values: Sequence[bytes], documents: Sequence[object] | None
    ) -> Sequence[Outcome]:
        if not self._by_hash:
            return [
                self._outcome(value, documents[row] if documents else None)
                for row, value in enumerate(values)
            ]
        known = self._known
        found: list[Any] = list(map(known.get, exact))
        different, codes = dictionary_encode(found)
        open_rows = rows_of(codes, [each is None or each is BY_VALUE for each in different])
        if open_rows and len(known) > MAX_REMEMBERED:
            known.clear()
        for row in open_rows:
            one = known.get(exact[row])  # perhaps since an equal event before it
            if one is None or one is BY_VALUE:
                one = self._outcome(values[row], documents[row] if documents else None)
                by_value = one.acted is not None and one.acted.by_value
                known[exact[row]] = BY_VALUE if by_value else one
            found[row] = one
        return found

    def one(self, exact: int, value: bytes, document: object) -> int | None:
        """Return the exact hash of one event, or what replaces it; None if a rule limits it."""
        outcome = self._outcomes_of([exact], [value], [document])[0]
        if outcome.limit is not None:
            return None
        return exact if outcome.number is None else outcome.number

    def _outcome(self, value: bytes, document: object) -> Outcome:
        acted = self.acted(value, document)
        if acted is None:
            return NOTHING
        name, limit = acted.name, acted.limit
        # Events of one identity may differ in whether a value decides: in "job 8", not in "job a".
        key = (acted.identity, name.id if name else "", limit.id if limit else "", acted.by_value)
        outcome = self._outcomes.get(key)
        if outcome is None or acted.rules != (outcome.acted and outcome.acted.rules):
            number = None
            if acted.identity:
                number = self._hash(b"rules\n" + acted.identity.encode("utf-8", "surrogatepass"))
            outcome = Outcome(number, acted)
            if len(self._outcomes) < MAX_REMEMBERED:
                self._outcomes[key] = outcome
        return outcome

    def acted(self, value: bytes, document: object = None) -> Acted | None:
        """Return what the rules do with one event; None for nothing.

        Args:
            value: its text.
            document: the decoded event, where the recipe takes fields.
        """
        if self._search is not None and not self._takes_fields:
            text = self._patterns.legible(value)
            if not self._search.search(text):
                return None
        pieces = self._patterns.pieces(value, document)
        event = read_event(pieces)
        templates = list(self._always)
        words = {word for word in event.words if word is not None}
        for word in words:
            templates += self._by_anchor.get(word, ())
        templates = [template for template in templates if template.words <= words]
        if not templates:
            return None
        return self.rules.act(event, templates, pieces.variant, self._is_protected)

    def _is_protected(self, word: str) -> bool:
        return word.rstrip(self._endings).lower() in self._protected


def _anchor(template: Template) -> str:
    """Return the longest word that any text of the template has as it is."""
    fit = [word for word in template.words if word.isascii() and "\\" not in word]
    fit = [word for word in fit if len(word) >= LEAST_ANCHOR and not word.startswith("<")]
    return max(fit, key=lambda word: (len(word), word), default="")


def _search_of(anchors: dict[str, list[Template]]) -> re2._Regexp:
    pattern = "|".join(re2.escape(anchor) for anchor in sorted(anchors)) or "[^\\x00-\\xff]"
    return compile_pattern(pattern, max_mem=64 << 20)
