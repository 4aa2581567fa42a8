"""Rules: what people decided about patterns, with who, when and why.

A rule is never changed. It is undone by a note of who, when and why; then it no longer acts, and
stays in the list.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from stream_dedup.errors import RuleError
from stream_dedup.rules.template import Template, read_pattern

MAX_PATTERNS = 16
"""Patterns of a rule."""

MAX_NAME = 120
"""Characters of a name, and of an author."""

MAX_REASON = 500
"""Characters of a reason."""

MAX_VALUE = 200
"""Characters of a value."""

MAX_PER_MINUTE = 1_000_000
"""Events that a rule keeps a minute."""


class RuleKind(StrEnum):
    """What a rule does.

    Attributes:
        MERGE: events of any of its patterns are one cluster.
        SPLIT: events that hold a value in a slot are a cluster of their own.
        NEVER_MERGE: events of its patterns are never in one cluster.
        ALWAYS_VARIABLE: events that differ only in slots of the pattern, or also in a word of it,
            are one cluster.
        NEVER_VARIABLE: events that differ in a slot are never in one cluster.
        NAME: the pattern has a name.
        MUTE: repeats of the pattern are not written; they are counted.
        KEEP: of the pattern so many events leave a minute, at most; all are counted.
    """

    MERGE = "merge"
    SPLIT = "split"
    NEVER_MERGE = "never_merge"
    ALWAYS_VARIABLE = "always_variable"
    NEVER_VARIABLE = "never_variable"
    NAME = "name"
    MUTE = "mute"
    KEEP = "keep"


_SURROGATE = re.compile("[\ud800-\udfff]")
SEVERAL = frozenset((RuleKind.MERGE, RuleKind.NEVER_MERGE))
"""Kinds of rules about several patterns."""

_WITH_SLOT = frozenset((RuleKind.SPLIT, RuleKind.NEVER_VARIABLE))


class Undoing(NamedTuple):
    """That a rule was undone.

    Attributes:
        author: who did it.
        time_us: when, in microseconds since 1970-01-01 UTC.
        reason: why.
    """

    author: str
    time_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PatternRule:
    """A rule about patterns.

    Attributes:
        kind: what it does.
        patterns: about which patterns, as they are shown.
        slot: which slot of the pattern, from 1 on; placeholders side by side are one slot.
        value: of `split` the value in the slot, of `always_variable` the word that is variable
            (empty: the pattern has slots where it is), of `name` the name.
        author: who made it.
        time_us: when, in microseconds since 1970-01-01 UTC.
        reason: why.
        id: names it; made of all these if it is empty.
        undone: that it was undone; None while it acts.
        per_minute: of `keep` the events that leave a minute; else 0.
    """

    kind: RuleKind
    patterns: tuple[str, ...]
    slot: int = 0
    value: str = ""
    author: str = ""
    time_us: int = 0
    reason: str = ""
    id: str = ""
    undone: Undoing | None = None
    per_minute: int = 0

    def __post_init__(self) -> None:
        if not self.id:
            limit = (self.per_minute,) if self.per_minute else ()
            what = (self.kind, *self.patterns, self.slot, self.value, *limit)
            fields = (*what, self.author, self.time_us)
            text = "\0".join(map(str, fields)).encode("utf-8", "surrogatepass")
            name = f"r-{hashlib.blake2b(text, digest_size=4).hexdigest()}"
            object.__setattr__(self, "id", name)

    @property
    def place(self) -> str:
        """How errors name it."""
        return f"rule {self.id} ({self.kind.value})"

    def templates(self) -> list[Template]:
        """Compile its patterns, and check it.

        Raises:
            RuleError: it is wrong; the error names the key and the remedy.
        """
        key = "patterns" if self.kind in SEVERAL else "pattern"
        if self.kind in SEVERAL and not 2 <= len(self.patterns) <= MAX_PATTERNS:
            self._refuse(key, f"has {len(self.patterns)}", f"give 2 to {MAX_PATTERNS}")
        if self.kind not in SEVERAL and len(self.patterns) != 1:
            self._refuse(
                key,
                f"has {len(self.patterns)}",
                "give one; on the command line, --value names the rest",
            )
        templates = []
        for pattern in self.patterns:
            if _SURROGATE.search(pattern):  # a file or Redis could not hold it
                self._refuse(key, f"{_short(pattern)} is not UTF-8", "write \\xff for such bytes")
            try:
                templates.append(read_pattern(pattern))
            except ValueError as error:
                problem, _, remedy = str(error).partition("; ")
                self._refuse(key, f"{_short(pattern)} {problem}", remedy)
        if self.kind in SEVERAL and len({each.key for each in templates}) < len(templates):
            self._refuse(key, "names one pattern twice", "give different ones")
        self._check_texts()
        self._check_slot(templates[0])
        self._check_limit()
        return templates

    def _check_texts(self) -> None:
        for key, text, most in (
            ("author", self.author, MAX_NAME),
            ("reason", self.reason, MAX_REASON),
            ("name" if self.kind is RuleKind.NAME else "value", self.value,
             MAX_NAME if self.kind is RuleKind.NAME else MAX_VALUE),
        ):  # fmt: skip
            if len(text) > most:
                self._refuse(key, f"has {len(text):,} characters", f"give {most} at most")
            if not text.isprintable():
                problem = f"{_short(text)} holds characters that cannot be printed"
                self._refuse(key, problem, "leave them out")
        if self.kind is RuleKind.NAME and not self.value.strip():
            self._refuse("name", "is empty", "give one; on the command line, by --value")

    def _check_slot(self, template: Template) -> None:
        if self.kind in _WITH_SLOT:
            if not 1 <= self.slot <= template.slots:
                problem = f"is {self.slot}, and the pattern has {template.slots}"
                self._refuse("slot", problem, "count the placeholders from 1; those side by side "
                             "are one")  # fmt: skip
        elif self.slot:
            self._refuse("slot", f"is {self.slot}", f"leave it out of {self.kind.value}")
        if self.kind is RuleKind.SPLIT and not self.value.strip():
            self._refuse("value", "is empty", "give the value that is in the slot")
        if self.kind is RuleKind.ALWAYS_VARIABLE:
            count = template.elements.count(self.value) if self.value else template.slots
            if not self.value and not count:
                self._refuse("pattern", "has no slot", "write <*> for the word that is variable, "
                             "or give the word")  # fmt: skip
            if self.value and count != 1:
                problem = f"{_short(self.value)} is {count} times in the pattern"
                self._refuse("value", problem, "give a word that is there once, or write <*> for "
                             "it in the pattern")  # fmt: skip
            if self.value and len(template.words) == 1:
                self._refuse("value", "is the only word of the pattern", "give another")
        elif self.value and self.kind not in (RuleKind.SPLIT, RuleKind.NAME):
            self._refuse("value", f"is {_short(self.value)}", f"leave it out of {self.kind.value}")

    def _check_limit(self) -> None:
        if self.kind is RuleKind.KEEP:
            if not 1 <= self.per_minute <= MAX_PER_MINUTE:
                remedy = f"give 1 to {MAX_PER_MINUTE:,}; mute lets no repeat leave"
                self._refuse("per_minute", f"is {self.per_minute:,}", remedy)
        elif self.per_minute:
            problem = f"is {self.per_minute:,}"
            self._refuse("per_minute", problem, f"leave it out of {self.kind.value}")

    def _refuse(self, key: str, problem: str, remedy: str) -> None:
        raise RuleError(self.place, key, problem, remedy)


def _short(text: str) -> str:
    shown = ascii(text) if not text.isprintable() else repr(text)
    return shown if len(shown) <= 80 else shown[:79] + "…"
