"""What a person can decide about a pattern, and the rule that is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from stream_dedup.features.fields import decoded
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import Recipe
from stream_dedup.rules.model import (
    MAX_NAME,
    MAX_PATTERNS,
    MAX_PER_MINUTE,
    MAX_REASON,
    MAX_VALUE,
    RuleKind,
)
from stream_dedup.rules.ruleset import is_outcome
from stream_dedup.rules.template import (
    MAX_PATTERN_CHARACTERS,
    Template,
    read_event,
    read_pattern,
)

MAX_VALUES = 40
"""Values of a slot that are offered."""

MAX_READ_BYTES = 16 * 1024
"""Bytes of an event whose values are offered: a longer one is not read."""

Text = Annotated[str, Meta(max_length=MAX_PATTERN_CHARACTERS)]
Author = Annotated[str, Meta(max_length=MAX_NAME, description="Who; of a user header, that user.")]
Reason = Annotated[str, Meta(max_length=MAX_REASON, description="Why.")]


class NewRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule to add."""

    kind: RuleKind
    patterns: Annotated[list[Text], Meta(min_length=1, max_length=MAX_PATTERNS)]
    slot: Annotated[int, Meta(ge=0, le=1_000, description="Counted from 1; 0 for none.")] = 0
    value: Annotated[
        str, Meta(max_length=MAX_VALUE, description="Value of a split, word, or name.")
    ] = ""
    per_minute: Annotated[
        int, Meta(ge=0, le=MAX_PER_MINUTE, description="Of keep the events that leave a minute.")
    ] = 0
    author: Author = ""
    reason: Reason = ""


class NewUndo(Struct, frozen=True, forbid_unknown_fields=True):
    """Who undoes a rule, and why."""

    author: Author = ""
    reason: Reason = ""


class Slot(NamedTuple):
    """A slot, as rules count them.

    Attributes:
        number: from 1 on.
        label: it, between the words beside it.
        values: the commonest values in a sample of events.
    """

    number: int
    label: str
    values: list[str]


class Choices(NamedTuple):
    """What can be decided about a pattern.

    Attributes:
        problem: why nothing can be; empty if it can.
        slots: its slots.
        words: those of its words that may be said to be variable.
    """

    problem: str
    slots: list[Slot]
    words: list[str]


def choices_of(pattern: str, events: Iterable[bytes], recipe: Recipe | None) -> Choices:
    """Return what can be decided about a pattern.

    Args:
        pattern: the pattern.
        events: some events of it, for the values in its slots.
        recipe: by which they are read; None if it is not known.
    """
    try:
        template = read_pattern(pattern)
    except ValueError as error:
        return Choices(f"The pattern {error}.", [], [])
    values = _values(template, events, recipe) if template.slots and recipe else []
    slots = [
        Slot(number, label, values[number - 1] if values else [])
        for number, label in enumerate(_labels(template), 1)
    ]
    words = [word for word in template.elements if word is not None]
    once = [word for word in words if words.count(word) == 1 and len(word) <= MAX_VALUE]
    return Choices("", slots, once if len(template.words) > 1 else [])


def _labels(template: Template) -> list[str]:
    elements = template.elements
    labels = []
    for at, element in enumerate(elements):
        if element is None:
            before, after = elements[at - 1] if at else None, elements[at + 1 : at + 2]
            labels.append(" ".join(filter(None, (before, "<*>", *after))))
    return labels


def _values(template: Template, events: Iterable[bytes], recipe: Recipe) -> Sequence[list[str]]:
    """Return the commonest values of each slot, as `split` compares them."""
    patterns, takes_fields = Patterns(recipe), bool(recipe.input.fields)
    found = [Counter[str]() for _ in range(template.slots)]
    for event in events:
        if len(event) > MAX_READ_BYTES:
            continue
        pieces = patterns.pieces(event, decoded(event) if takes_fields else None)
        held = template.match(read_event(pieces), is_outcome)
        for counted, value in zip(found, held or (), strict=False):
            if value and len(value) <= MAX_VALUE and value.isprintable():
                counted[value] += 1
    return [[value for value, _ in counted.most_common(MAX_VALUES)] for counted in found]
