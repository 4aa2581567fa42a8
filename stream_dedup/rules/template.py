"""Templates: patterns as people read them, compiled so that events can be compared with them.

Problem: a person decides about a pattern that a list shows, ``session opened for <*> by
(uid=<number>)``. The decision has to hold for all events of that pattern, also when the cluster
that showed it is gone.

Idea: cut the pattern as it is shown into words and *slots*, and an event likewise, by the very same
rules: white space and punctuation separate words, what holds no letter or digit is not a word, and
placeholders side by side are one slot. So an event matches its own pattern, whatever the recipe.

A slot stands for a value: for what the event's own pattern shows as placeholders, or for as many
words as the pattern has placeholders there (a learned word is shown as ``<*>``). It never stands
for a protected word, a log level or a status class: those keep events apart. An ellipsis at the end
of a pattern stands for anything.

Cost: a bit for each element of the template; each word of an event shifts and masks that number, so
an event of `n` words and a template of `m` elements take ``n * m / 64`` steps, never more.

Worked example::

    pattern    session opened for <*> by (uid=<number>)
    template   session opened for  *  by  uid  *
    event      session opened for bob by (uid=7)        slot 1: bob, slot 2: 7
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from stream_dedup.features.patterns import MAX_FRAME, MAX_PATTERN, Patterns, Pieces, readable
from stream_dedup.features.variants import STANDS_FOR

MAX_PATTERN_CHARACTERS = 4_000
"""Characters of a rule's pattern."""

MAX_ELEMENTS = 400
"""Words and slots of a rule's pattern."""

MAX_WIDTH = 8
"""Words that one slot may stand for, however many placeholders are side by side."""

ELLIPSIS = "…"

_PLACEHOLDER = re.compile(r"<(?:\*|[a-z0-9_]{1,40})>")
_CUT = re.compile(rf"(.*?){ELLIPSIS}(?: at .{{1,{MAX_FRAME}}})?")  # a trace's frame follows
_WORD = re.compile(r"""[^\s=:,;()\[\]{}<>"'|‹›]+""")
_MASKED = re.compile(rb"<(?:\*|[a-z0-9_]{1,40})>|\x1a")
_SUBSTITUTE = re.compile(rb"\x1a[a-z0-9_]+")
_LONGEST = 1 << 20


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return [word for word in _WORD.findall(text) if _is_said(word)]


def _is_said(word: str) -> bool:
    return any(character.isalnum() or character == "_" or character > "\x7f" for character in word)


class Reading(NamedTuple):
    """An event, or a pattern, cut into words and slots.

    Attributes:
        words: its words; None for a slot.
        held: of each word itself, of each slot the value that is in it.
    """

    words: Sequence[str | None]
    held: Sequence[str]


def read_event(pieces: Pieces) -> Reading:
    """Cut an event."""
    words: list[str | None] = []
    held: list[str] = []

    def add_slot(value: str) -> None:
        if words and words[-1] is None:
            held[-1] = f"{held[-1]} {value}".strip()
        else:
            words.append(None)
            held.append(value)

    def add_text(text: bytes) -> None:
        at = 0
        for match in (*_SUBSTITUTE.finditer(text), None):  # of recipes whose text holds them
            found = words_of(readable(text[at : match.start() if match else None], _LONGEST))
            words.extend(found)
            held.extend(found)
            if match is not None:
                add_slot(match[0][1:].decode())
                at = match.end()

    text = b""
    for shown, run in (*pieces.pieces, (b"", b"")):
        if run is None:
            text += shown
            continue
        add_text(text)
        text = b""
        said = STANDS_FOR.fullmatch(shown.decode("latin-1"))
        if said:
            words.append(said[0])
            held.append(said[0])
        elif _MASKED.search(shown):
            add_slot(" ".join(words_of(readable(run, _LONGEST))))
    return Reading(words, held)


@dataclass(frozen=True)
class Template:
    """A compiled pattern.

    Attributes:
        elements: its words; None for a slot.
        widths: of each slot the most words that it stands for; of a word 1.
        rest: whether anything may follow.
        free: elements, by their numbers, that are slots for any word, protected ones too.
    """

    elements: tuple[str | None, ...]
    widths: tuple[int, ...]
    rest: bool = False
    free: frozenset[int] = frozenset()

    @cached_property
    def key(self) -> str:
        """What names it: equal for patterns that differ in punctuation alone."""
        parts = [
            word if word is not None else f"<{'any' if number in self.free else '*'}{width}>"
            for number, (word, width) in enumerate(zip(self.elements, self.widths, strict=True))
        ]
        return " ".join((*parts, ELLIPSIS) if self.rest else parts)

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words."""
        return frozenset(word for word in self.elements if word is not None)

    @cached_property
    def slots(self) -> int:
        """How many slots it has."""
        return self.elements.count(None)

    @cached_property
    def rank(self) -> tuple[int, int, str]:
        """Orders templates: of two that match an event, the greater says more about it."""
        words = [word for word in self.elements if word is not None]
        return len(words), sum(map(len, words)), self.key

    def reading(self) -> Reading:
        """Return it as if it were an event, with slots for variables."""
        return Reading(self.elements, [word or "" for word in self.elements])

    def with_slot(self, word: str) -> Template:
        """Return it with a slot for anything in the place of a word."""
        at = self.elements.index(word)
        elements = (*self.elements[:at], None, *self.elements[at + 1 :])
        return Template(elements, self.widths, self.rest, self.free | {at})

    @cached_property
    def _machine(self) -> tuple[dict[str, int], int, int, int, list[int]]:
        """Bits of words, of slots, of slots for anything, of what may be left out; slot numbers."""
        by_word: dict[str, int] = {}
        values = free = optional = 0
        numbers: list[int] = []  # for each bit its slot, 0 for a word
        slot = 0
        for at, (word, width) in enumerate(zip(self.elements, self.widths, strict=True)):
            if word is not None:
                by_word[word] = by_word.get(word, 0) | 1 << len(numbers)
                numbers.append(0)
                continue
            slot += 1
            for repeat in range(width):
                bit = 1 << len(numbers)
                values |= bit
                free |= bit if at in self.free else 0
                optional |= bit if repeat else 0
                numbers.append(slot)
        return by_word, values, free, optional, numbers

    def match(
        self, event: Reading, is_protected: Callable[[str], bool]
    ) -> tuple[str | None, ...] | None:
        """Return what is in the slots; None if the event does not match.

        A slot takes as few words as it can. Its value is None where `event` is a template that has
        a slot there.

        Args:
            event: the event, or a template's reading.
            is_protected: whether a word keeps events apart.
        """
        by_word, values, free, optional, numbers = self._machine
        end = 1 << len(numbers)
        # Bit e of `after[i]`: the event from word i on matches the template from bit e on.
        after = [0] * (len(event.words) + 1)
        reached = after[-1] = self._skipped(end, optional)
        for at in range(len(event.words) - 1, -1, -1):
            word = event.words[at]
            if word is None:
                takes = values
            else:
                takes = by_word.get(word, 0)
                takes |= free if STANDS_FOR.fullmatch(word) or is_protected(word) else values
            reached = reached >> 1 & takes
            if self.rest:
                reached |= end
            reached = after[at] = self._skipped(reached, optional)
            if not reached:
                return None
        if not reached & 1:
            return None
        return self._values(event, after, optional, numbers)

    def _skipped(self, reached: int, optional: int) -> int:
        for _ in range(max(self.widths, default=1) - 1):
            reached |= reached >> 1 & optional
        return reached

    def _values(
        self, event: Reading, after: list[int], optional: int, numbers: list[int]
    ) -> tuple[str | None, ...]:
        taken: list[list[str] | None] = [[] for _ in range(self.slots)]
        at = bit = 0
        while bit < len(numbers):
            if optional >> bit & 1 and after[at] >> bit + 1 & 1:
                bit += 1
                continue
            slot = numbers[bit]
            if slot:
                values = taken[slot - 1]
                if event.words[at] is None and not event.held[at]:
                    taken[slot - 1] = None
                elif values is not None:
                    values.append(event.held[at])
            at, bit = at + 1, bit + 1
        return tuple(None if values is None else " ".join(values) for values in taken)


def read_pattern(pattern: str) -> Template:
    """Compile a pattern.

    Raises:
        ValueError: it has no word, or too many; the message says what is wrong, and the remedy.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(
            f"has {len(pattern):,} characters; give {MAX_PATTERN_CHARACTERS:,} at most, with "
            f"{ELLIPSIS} at the end for what follows"
        )
    text, rest = _without_ellipsis(pattern)
    elements: list[str | None] = []
    widths: list[int] = []
    at = 0
    for match in (*_PLACEHOLDER.finditer(text), None):
        for word in words_of(text[at : match.start() if match else None]):
            elements.append(word)
            widths.append(1)
        if match is None:
            break
        at = match.end()
        if STANDS_FOR.fullmatch(match[0]):
            elements.append(match[0])
            widths.append(1)
        elif elements and elements[-1] is None:
            widths[-1] = min(widths[-1] + 1, MAX_WIDTH)
        else:
            elements.append(None)
            widths.append(1)
    if all(element is None for element in elements):
        raise ValueError(
            "has no word, so it would be the pattern of events of every kind; give one with a word"
        )
    if len(elements) > MAX_ELEMENTS:
        raise ValueError(
            f"has {len(elements):,} words and slots; give {MAX_ELEMENTS} at most, with {ELLIPSIS} "
            "at the end for what follows"
        )
    return Template(tuple(elements), tuple(widths), rest)


def words_shown_as_variables(pattern: str, patterns: Patterns) -> list[str]:
    """Return the words of a pattern that events show as placeholders, so no event has them.

    Args:
        pattern: a pattern.
        patterns: make the patterns of the events.
    """
    text, _ = _without_ellipsis(pattern)
    example = _PLACEHOLDER.sub(lambda found: "./a" if found[0] == "<*>" else "7", text)
    event = read_event(patterns.pieces(example.encode("utf-8", "replace")))
    shown = {word for word in event.words if word is not None}
    said = (word for word in words_of(_PLACEHOLDER.sub(" ", text)) if word not in shown)
    return list(dict.fromkeys(said))


def with_value(pattern: str, slot: int, value: str) -> str:
    """Return a pattern with a value in the place of the ``<*>`` of one of its slots.

    Other placeholders say what a value is, so they stay.
    """
    spans: list[tuple[int, int]] = []
    at = 0
    for match in _PLACEHOLDER.finditer(pattern):
        if STANDS_FOR.fullmatch(match[0]):
            continue
        if spans and not words_of(pattern[at : match.start()]):  # side by side: one slot
            spans[-1] = spans[-1][0], match.end()
        else:
            spans.append(match.span())
        at = match.end()
    if slot > len(spans):
        return pattern
    start, end = spans[slot - 1]
    held = pattern[start:end]
    if set(_PLACEHOLDER.findall(held)) != {"<*>"}:
        return pattern
    return pattern[:start] + value + pattern[end:]


def _without_ellipsis(pattern: str) -> tuple[str, bool]:
    """Return what is before an ellipsis that stands for the rest, and whether there is one.

    A pattern that was too long to be shown ends in the middle of a word, which is left out.
    """
    cut = _CUT.fullmatch(pattern) if len(pattern) == MAX_PATTERN else None
    if cut and not cut[1].endswith(" "):
        head = cut[1]
        kept = _WORD.sub(lambda m: "" if m.end() == len(head) else m[0], head)
        return kept.rpartition("<")[0] if kept.rfind("<") > kept.rfind(">") else kept, True
    stripped = pattern.rstrip()
    if stripped.endswith(f" {ELLIPSIS}"):
        return stripped[: -len(ELLIPSIS)], True
    return pattern, False
