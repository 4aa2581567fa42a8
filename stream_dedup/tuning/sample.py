"""The events that a recipe is tuned on: one of each pattern, and how many there were.

Problem: a trial has to run the engine on all events, and there are dozens of trials.

Idea: events with equal exact hashes share a cluster, whatever the trial. So one of them is kept,
the first, with their number, and a trial decides some thousand patterns instead of a million lines.
That holds only if no trial distinguishes them: they are compared by a recipe that keeps apart all
that a trial may keep apart (`finest`), by their groups, and by the fields that may become groups.

Memory is bounded: events of further patterns are counted and left out.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from stream_dedup.features.outcome_fields import OutcomeFields
from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.io.decoder import Events

MAX_PATTERNS = 10_000
"""Patterns kept, by default: some thirty trials then take less than a minute."""

MAX_BYTES = 64 << 20
"""Bytes of the events kept."""

MAX_FIELDS = 3
"""Fields of JSON events that are tried as groups."""

MIN_DOCUMENTS = 10
"""With fewer JSON events, no field is tried as a group."""

MAX_FIELD_VALUES = 20
"""A field with more values is not a group."""

MAX_FIELD_CHARACTERS = 64

_FIELD_NAME = re.compile(r"[A-Za-z_@][A-Za-z0-9_@-]{0,39}")


def finest(recipe: Recipe) -> Recipe:
    """Return the recipe under which events are equal only if no trial of `recipe` tells them apart.

    Protected words are not part of it: a word that a trial may protect is a word of the pattern, so
    events that differ in it are of different patterns anyway; but outcomes count in values too.
    """
    match = recipe.match
    if recipe.features.extractor != "words":
        return recipe
    variants = {"level", "status", *match.variants}
    changes: dict[str, Any] = {"match__variants": sorted(variants)}
    if not match.protected:
        changes["match__protected"] = "outcomes"
    return replace(recipe, **changes)


class Sample:
    """One event of each pattern, in the order of their first events.

    Args:
        recipe: the one that trials change.
        max_patterns: patterns kept.
        max_bytes: bytes of events kept.
        grouped_by: fields that are groups already.

    Attributes:
        key: the hash key of the trials, so that all of them compare equal hashes.
        texts: the events' texts.
        beside: of JSON events, the fields beside the text that a trial may take.
        documents: the decoded events, if the recipe takes fields.
        counts: how many events each pattern has.
        fields: names of JSON fields that may become groups.
        events: events counted in `counts`.
        left_out: events of further patterns.
        passed: events that are compared with none, by reason.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        max_patterns: int = MAX_PATTERNS,
        max_bytes: int = MAX_BYTES,
        grouped_by: Sequence[str] = (),
    ) -> None:
        self.key = HashKey.random()
        self.texts: list[bytes] = []
        self.beside: list[dict[str, Any]] = []
        self.documents: list[object] = []
        self.counts = array("Q")
        self.fields: tuple[str, ...] = ()
        self.events = 0
        self.left_out = 0
        self.passed: Counter[str] = Counter()
        self._groups: list[str] = []
        self._field_values: list[tuple[str | None, ...]] = []
        self._fingerprinter = Fingerprinter(finest(recipe), self.key)
        self._outcomes = OutcomeFields(finest(recipe))
        self._max_patterns = max_patterns
        self._room = max_bytes
        self._grouped_by = frozenset(grouped_by)
        self._begun = False
        self._known: dict[tuple[str, int, tuple[str | None, ...]], int] = {}

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def takes_fields(self) -> bool:
        """Whether the recipe reads fields of JSON events."""
        return self._fingerprinter.takes_fields

    @property
    def grouped(self) -> bool:
        """Whether some events are of groups."""
        return any(self._groups)

    def add(self, events: Events) -> None:
        """Add events that were decoded together, with their texts alone."""
        batch = events.batch
        if not self._begun and batch.values:
            self._begun = True
            self.fields = self._possible_groups(events)
        compared = self._outcomes.compared
        values = [
            text if document is None else compared(document, text)
            for document, text in zip(events.documents, batch.values, strict=True)
        ]
        prepared = self._fingerprinter.prepare(values, batch.documents)
        exacts = self._fingerprinter.fingerprints(prepared, full=False).exact
        groups, empty = batch.groups, self._fingerprinter.empty_exact
        known, counts = self._known, self.counts
        self.passed.update(batch.passed.values())
        for row, exact in enumerate(exacts):
            if row in batch.passed:
                continue
            if exact == empty:
                self.passed["nothing to fingerprint"] += 1
                continue
            fields = self._values_of(events.documents[row]) if self.fields else ()
            key = groups[row] if groups else "", exact, fields
            number = known.get(key)
            if number is None:
                number = self._keep(events, row, len(values[row]), key)
                if number is None:
                    self.left_out += 1
                    continue
            counts[number] += 1
            self.events += 1

    def _keep(
        self,
        events: Events,
        row: int,
        size: int,
        key: tuple[str, int, tuple[str | None, ...]],
    ) -> int | None:
        """Keep the first event of a pattern, of `size` bytes, or more as it was read.

        Returns:
            Its number; None if there is no room.
        """
        size = max(len(events.raws[row]), size)
        if len(self.texts) >= self._max_patterns or size > self._room:
            return None
        self._room -= size
        number = self._known[key] = len(self.texts)
        batch = events.batch
        document = events.documents[row] or {}
        self.texts.append(batch.values[row])
        self.beside.append({name: document[name] for name in self._outcomes.columns(document)})
        self.documents.append(batch.documents[row] if batch.documents else None)
        self.counts.append(0)
        self._groups.append(key[0])
        self._field_values.append(key[2])
        return number

    # ------------------------------------------------------------ groups

    def groups(self, *, field: str = "", grouped: bool = True) -> list[str] | None:
        """Return the groups of the events; None if there are none.

        Args:
            field: one of `fields`, which makes groups of its values.
            grouped: whether the events' own groups count.
        """
        groups = self._groups if grouped else [""] * len(self)
        if field:
            column = self.fields.index(field)
            pairs = zip(groups, self._field_values, strict=True)
            groups = [
                msgspec.json.encode([group, values[column]]).decode() for group, values in pairs
            ]
        return groups if any(groups) else None

    def label(self, field: str, row: int) -> str:
        """Return the value of one of `fields` in an event; empty if it has none."""
        return self._field_values[row][self.fields.index(field)] or ""

    def _values_of(self, document: dict[str, Any] | None) -> tuple[str | None, ...]:
        return tuple(_short(document, name) for name in self.fields)

    def _possible_groups(self, events: Events) -> tuple[str, ...]:
        """Choose fields with few values, that most events have."""
        texts = events.batch.values
        rows = [row for row, document in enumerate(events.documents) if document is not None]
        documents = [document for document in events.documents if document is not None]
        if len(documents) < MIN_DOCUMENTS:
            return ()
        names = Counter(name for document in documents for name in document)
        found = []
        for name, number in names.items():
            if number < 0.9 * len(documents) or not _FIELD_NAME.fullmatch(name):
                continue
            if any(
                _short(events.documents[row], name) == texts[row].decode(errors="replace")
                for row in rows
            ):
                continue  # it is the text
            values = {_short(document, name) for document in documents}
            most = min(MAX_FIELD_VALUES, len(documents) // 5)
            if None not in values and 1 < len(values) <= most and name not in self._grouped_by:
                found.append((len(values), name))
        return tuple(name for _, name in sorted(found)[:MAX_FIELDS])


def _short(document: dict[str, Any] | None, name: str) -> str | None:
    """Return a field's value if it is a short text."""
    value = None if document is None else document.get(name)
    return value if isinstance(value, str) and len(value) <= MAX_FIELD_CHARACTERS else None
