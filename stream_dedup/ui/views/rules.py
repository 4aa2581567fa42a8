"""Rules, and what was done with them."""

from __future__ import annotations

from msgspec import Struct

from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.patterns import page_count
from stream_dedup.ui.views.text import second_of

RULES_A_PAGE = 50
"""Rules that are shown at once."""


class Undone(Struct, frozen=True):
    """Who undid a rule, when and why."""

    author: str
    time: str
    reason: str


class Rule(Struct, frozen=True):
    """A lasting decision about patterns.

    Attributes:
        kind: what it does.
        patterns: about which.
        slot: about which slot, from 1 on; 0 for none.
        value: of a split the value, of what is variable the word, of a name the name.
        per_minute: how many events of its pattern leave a minute; 0 for all.
        time: when it was made; empty if that is not known.
        undone: that it was undone; null while it acts.
    """

    id: str
    kind: RuleKind
    patterns: tuple[str, ...]
    slot: int
    value: str
    per_minute: int
    author: str
    time: str
    reason: str
    undone: Undone | None


class RuleList(Struct, frozen=True):
    """Rules that act, the newest first: a page of them.

    Attributes:
        place: where they are stored; empty if there is no place.
        acts: when a change of them acts; without a place, how to get one.
        problem: why they cannot be read now; empty if they can.
        changeable: whether they may be changed here.
        found: rules that act, on all pages.
    """

    place: str
    acts: str
    problem: str
    changeable: bool
    found: int
    page: int
    pages: int
    rules: list[Rule]


class AuditEntry(Struct, frozen=True):
    """That a rule was added, or undone."""

    time: str
    action: str
    author: str
    reason: str
    rule: Rule


class AuditList(Struct, frozen=True):
    """Everything that was done with rules, the latest first: a page of it."""

    found: int
    page: int
    pages: int
    entries: list[AuditEntry]


def rule_of(rule: PatternRule) -> Rule:
    """A rule."""
    undone = rule.undone
    return Rule(
        id=rule.id,
        kind=rule.kind,
        patterns=rule.patterns,
        slot=rule.slot,
        value=rule.value,
        per_minute=rule.per_minute,
        author=rule.author,
        time=_time(rule.time_us),
        reason=rule.reason,
        undone=undone and Undone(undone.author, _time(undone.time_us), undone.reason),
    )


def rule_list(source: Source, page: int, *, changeable: bool) -> RuleList:
    """A page of the rules that act."""
    rules = source.rules
    acting = sorted(rules.book.acting(), key=lambda rule: (rule.time_us, rule.id), reverse=True)
    return RuleList(
        place=rules.place.title if rules.place else "",
        acts=rules.place.acts if rules.place else rules.hint,
        problem=rules.problem,
        changeable=changeable,
        found=len(acting),
        page=page,
        pages=page_count(len(acting), RULES_A_PAGE),
        rules=[rule_of(rule) for rule in acting[_rows(page)]],
    )


def audit_list(source: Source, page: int) -> AuditList:
    """A page of what was done with rules."""
    entries = source.rules.book.audit()[::-1]
    return AuditList(
        found=len(entries),
        page=page,
        pages=page_count(len(entries), RULES_A_PAGE),
        entries=[
            AuditEntry(
                time=_time(each.time_us),
                action=each.action,
                author=each.author,
                reason=each.reason,
                rule=rule_of(each.rule),
            )
            for each in entries[_rows(page)]
        ],
    )


def _rows(page: int) -> slice:
    return slice((page - 1) * RULES_A_PAGE, page * RULES_A_PAGE)


def _time(time_us: int) -> str:
    return second_of(time_us) if time_us else ""
