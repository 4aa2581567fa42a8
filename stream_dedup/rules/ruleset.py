"""A set of rules, compiled: which events are one cluster, and which never share one.

Problem: rules overlap. ``merge`` joins two patterns, ``split`` takes a value out of one of them, a
third rule keeps one of them apart from a fourth pattern.

Idea: an event that rules act on gets an *identity* in the place of its words. Events of equal
identity are one cluster, events of different identities never are, by whatever stage of the search.
The identity is made of two things.

1. Its *join*. Patterns that are merged, directly or by way of others, are one join; so is a pattern
   in which something is always variable. Of several that an event matches, the pattern with the
   most words decides.
2. Its *sides*. Each pattern that is kept apart from others is a side, and so is each value in a
   slot that is split off or never variable. An event has the sides of all the patterns that it
   matches, and those of its join: what keeps one pattern of a join apart keeps the whole join
   apart.

So keeping apart is stronger than merging. Rules that would leave one of them without effect
contradict each other and are refused: a join has no two sides of one rule.

Worked example::

    merge        "job <*> ended", "task <*> ended"      join J
    split        "job <*> ended", slot 1: backup        side S
    job a ended       J        task b ended       J     one cluster
    job backup ended  J, S                              another
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from stream_dedup.errors import RuleConflict, RuleError
from stream_dedup.features.variants import ENDINGS, LEVELS, OUTCOMES
from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.rules.template import Reading, Template, with_value

MAX_RULES = 1_000
"""Rules that act at the same time."""

MAX_HISTORY = 10_000
"""Rules, those that were undone included."""

Protected = Callable[[str], bool]


class Apart(NamedTuple):
    """A pattern that is kept apart.

    Attributes:
        template: the pattern.
        text: the pattern as people read it.
        rule: the rule.
        slot: whose value makes the side, from 1 on; 0: the pattern itself is the side.
        value: the value that is split off; None: each value is a side.
    """

    template: Template
    text: str
    rule: PatternRule
    slot: int = 0
    value: str | None = None

    def sides(self, event: Reading, is_protected: Protected, *, joined: bool) -> Sequence[str]:
        """Return the side on which an event is.

        Args:
            event: the event, or the pattern of a join.
            is_protected: as for `Template.match`.
            joined: whether the event is of a join. Else those without the value that is split off
                need no side: they are found as ever.
        """
        values = self.template.match(event, is_protected)
        if values is None:
            return ()
        key = self.template.key
        if not self.slot:
            return (key,)
        held = values[self.slot - 1]
        if self.value is None:
            # Of a pattern that has a slot there no value is known.
            return (f"{key}\0{self.slot}\0{'?' if held is None else '=' + held}",)
        if held == self.value:
            return (f"{key}\0{self.slot}\0={self.value}",)
        return (f"{key}\0{self.slot}\0!{self.value}",) if joined else ()

    def shown(self, event: Reading, is_protected: Protected) -> str:
        """Return what people read of the events on the side of this one."""
        values = self.template.match(event, is_protected)
        value = values[self.slot - 1] if values and self.slot else None
        return self.text if value is None else with_value(self.text, self.slot, value)

    def decides_by_value(self, event: Reading, is_protected: Protected) -> bool:
        """Return whether another event of the same words may be on another side."""
        if not self.slot:
            return False
        bare = Reading(event.words, [word or "" for word in event.words])
        values = self.template.match(bare, is_protected)
        return values is not None and values[self.slot - 1] is None


@dataclass
class Join:
    """Patterns whose events are one cluster.

    Attributes:
        key: names it.
        pattern: what people read; the first pattern of its oldest rule.
        templates: its patterns.
        rules: that made it, the oldest first.
        sides: of all its events.
        name: of all its events; the rule that gives it.
        limit: the rule that mutes all its events, or limits how many leave.
    """

    key: str
    pattern: str
    templates: list[Template] = field(default_factory=list)
    rules: list[PatternRule] = field(default_factory=list)
    sides: frozenset[str] = frozenset()
    name: PatternRule | None = None
    limit: PatternRule | None = None


class Acted(NamedTuple):
    """What rules do with an event.

    Attributes:
        identity: what takes the place of its words; empty if it is found as ever.
        join: its join, if it has one.
        pattern: what people read of all events of that identity; empty if that is the pattern of
            their first one.
        rules: all that acted.
        name: the rule that names it.
        limit: the rule that mutes it, or limits how many of its pattern leave.
        by_value: whether events of the same words may be acted on otherwise, as a value that is not
            a word decides.
    """

    identity: str
    join: Join | None
    pattern: str
    rules: tuple[PatternRule, ...]
    name: PatternRule | None
    limit: PatternRule | None
    by_value: bool


class RuleSet:
    """The rules that act.

    Args:
        rules: any; those that were undone do not act.

    Attributes:
        rules: those that act, the oldest first.

    Raises:
        RuleError: one is wrong.
        RuleConflict: two contradict each other.
    """

    def __init__(self, rules: Iterable[PatternRule]) -> None:
        acting = [rule for rule in rules if rule.undone is None]
        self.rules = sorted(acting, key=lambda rule: (rule.time_us, rule.id))
        if len(self.rules) > MAX_RULES:
            problem = f"there are {len(self.rules):,}"
            raise RuleError("rules", "", problem, f"{MAX_RULES:,} may act; undo some")
        self.aparts: list[Apart] = []
        self.names: list[tuple[Template, PatternRule]] = []
        self.limits: list[tuple[Template, PatternRule]] = []
        self.joins: dict[str, Join] = {}  # the key of a pattern → its join
        self._templates: dict[str, list[Template]] = {}  # of each rule
        for rule in self.rules:
            self._add(rule)
        self._check_slots()
        for join in {id(join): join for join in self.joins.values()}.values():
            self._finish(join)

    def __bool__(self) -> bool:
        return bool(self.rules)

    # ------------------------------------------------------------ compiling

    def _add(self, rule: PatternRule) -> None:
        templates = self._templates[rule.id] = rule.templates()
        first = templates[0]
        match rule.kind:
            case RuleKind.MERGE:
                self._join(templates, rule)
            case RuleKind.ALWAYS_VARIABLE:
                self._join([first.with_slot(rule.value)] if rule.value else [first], rule)
            case RuleKind.NEVER_MERGE:
                named = zip(templates, rule.patterns, strict=True)
                self.aparts += (Apart(template, text, rule) for template, text in named)
            case RuleKind.SPLIT:
                value = " ".join(rule.value.split())
                self.aparts.append(Apart(first, rule.patterns[0], rule, rule.slot, value))
            case RuleKind.NEVER_VARIABLE:
                self.aparts.append(Apart(first, rule.patterns[0], rule, rule.slot))
            case RuleKind.NAME:
                for template, other in self.names:
                    if template.key == first.key and rule.value != other.value:
                        raise RuleConflict((other.id, rule.id), "name one pattern differently")
                self.names.append((first, rule))
            case RuleKind.MUTE | RuleKind.KEEP:
                for template, other in self.limits:
                    if template.key == first.key and RuleKind.KEEP in (rule.kind, other.kind):
                        problem = f"{other.kind.value} and {rule.kind.value} limit one pattern"
                        raise RuleConflict((other.id, rule.id), problem)
                self.limits.append((first, rule))

    def _join(self, templates: Sequence[Template], rule: PatternRule) -> None:
        joins = {id(self.joins[t.key]): self.joins[t.key] for t in templates if t.key in self.joins}
        first, *others = joins.values() or [Join(templates[0].key, shown_pattern(rule))]
        # The oldest of those that become one gives the name.
        first, *others = sorted([first, *others], key=lambda each: _age(each, rule))
        for other in others:
            first.templates += other.templates
            first.rules += other.rules
        known = {template.key for template in first.templates}
        first.templates += (template for template in templates if template.key not in known)
        first.rules.append(rule)
        first.rules.sort(key=lambda each: (each.time_us, each.id))
        for template in first.templates:
            self.joins[template.key] = first

    def _finish(self, join: Join) -> None:
        """Find what holds for all events of a join."""
        sides: set[str] = set()
        for apart, patterns in self._by_rule():
            found: dict[str, Template] = {}
            for template in join.templates:
                for one in patterns:
                    for side in one.sides(template.reading(), is_outcome, joined=True):
                        if side.endswith("\0?") or (found and side not in found):
                            self._refuse(join, apart)
                        found[side] = template
            sides.update(found)
        join.sides = frozenset(sides)
        readings = [template.reading() for template in join.templates]
        join.name = _narrowest(self.names, readings, is_outcome)
        join.limit = _narrowest(self.limits, readings, is_outcome)

    def _by_rule(self) -> list[tuple[PatternRule, list[Apart]]]:
        grouped: dict[str, tuple[PatternRule, list[Apart]]] = {}
        for apart in self.aparts:
            grouped.setdefault(apart.rule.id, (apart.rule, []))[1].append(apart)
        return list(grouped.values())

    def _refuse(self, join: Join, rule: PatternRule) -> None:
        # The rules of a join may only together be what contradicts.
        ids = [each.id for each in (*join.rules, rule)]
        kinds = sorted({each.kind.value for each in join.rules})
        raise RuleConflict(
            ids, f"{' and '.join(kinds)} would join what {rule.kind.value} keeps apart"
        )

    def _check_slots(self) -> None:
        """Refuse to keep apart what differs only in a word that is always variable."""
        for rule in self.rules:
            if rule.kind is not RuleKind.ALWAYS_VARIABLE:
                continue
            first = self._templates[rule.id][0]
            wide = first.with_slot(rule.value) if rule.value else first
            for other, aparts in self._by_rule():
                kind, here = other.kind, [a for a in aparts if _is_within(a.template, wide)]
                same_slots = any(a.template.elements == wide.elements for a in here)
                if (kind is RuleKind.NEVER_MERGE and len(here) > 1 and any(
                    _differ_in_slots(one.template, two.template, wide)
                    for one, two in combinations(here, 2)
                )) or (kind is not RuleKind.NEVER_MERGE and same_slots):  # fmt: skip
                    problem = f"{other.kind.value} keeps apart what is always variable"
                    raise RuleConflict((rule.id, other.id), problem)

    # ------------------------------------------------------------ acting

    def act(
        self,
        event: Reading,
        templates: Iterable[Template],
        variant: Sequence[bytes],
        is_protected: Protected,
    ) -> Acted | None:
        """Return what the rules do with an event; None if none acts on it.

        Args:
            event: the event.
            templates: those that it may match, at least.
            variant: what keeps it apart from others, however alike.
            is_protected: as for `Template.match`.
        """
        wanted = {
            template.key: template
            for template in templates
            if template.match(event, is_protected) is not None
        }
        if not wanted:
            return None
        of_joins = [template for key, template in wanted.items() if key in self.joins]
        join = None
        if of_joins:
            join = self.joins[max(of_joins, key=lambda template: template.rank).key]
        rules: dict[str, PatternRule] = {rule.id: rule for rule in join.rules} if join else {}
        sides = set(join.sides) if join else set()
        by_value = False
        narrowest: Apart | None = None
        for apart in self.aparts:
            if apart.template.key not in wanted:
                continue
            found = apart.sides(event, is_protected, joined=join is not None)
            sides.update(found)
            if found:
                rules[apart.rule.id] = apart.rule
                if narrowest is None or apart.template.rank > narrowest.template.rank:
                    narrowest = apart
            by_value = by_value or apart.decides_by_value(event, is_protected)
        readings = [event]
        name = _narrowest(self.names, readings, is_protected) or (join.name if join else None)
        limit = _narrowest(self.limits, readings, is_protected) or (join.limit if join else None)
        for rule in (name, limit):
            if rule:
                rules[rule.id] = rule
        identity = ""
        if join is not None or sides:
            # What is joined may differ in outcome and level: somebody said so.
            own = [] if join else [word.decode("utf-8", "backslashreplace") for word in variant]
            parts = [join.key if join else "", *sorted(sides), "", *own]
            identity = "\x1e".join(parts)
        if not rules and not by_value:
            return None
        pattern = (
            join.pattern if join else narrowest.shown(event, is_protected) if narrowest else ""
        )
        return Acted(identity, join, pattern, tuple(rules.values()), name, limit, by_value)

    def templates(self) -> list[Template]:
        """Return all patterns of the rules, each once."""
        found = [template for join in self.joins.values() for template in join.templates]
        found += (apart.template for apart in self.aparts)
        found += (template for template, _ in (*self.names, *self.limits))
        return list({template.key: template for template in found}.values())


def is_outcome(word: str) -> bool:
    """Return whether a word keeps events apart where nobody says otherwise."""
    bare = word.rstrip(ENDINGS.decode()).lower()
    return bare in OUTCOMES or bare in LEVELS


def shown_pattern(rule: PatternRule) -> str:
    """Return the pattern of the cluster that a rule joins."""
    pattern, word = rule.patterns[0], rule.value
    if rule.kind is not RuleKind.ALWAYS_VARIABLE or not word:
        return pattern
    at = pattern.find(word)
    while at > 0 and (pattern[at - 1].isalnum() or pattern[at - 1] in "_<"):
        at = pattern.find(word, at + 1)
    at = max(at, 0)
    return f"{pattern[:at]}<*>{pattern[at + len(word) :]}"


def _age(join: Join, rule: PatternRule) -> tuple[int, str]:
    oldest = join.rules[0] if join.rules else rule
    return oldest.time_us, oldest.id


def _narrowest(
    named: Sequence[tuple[Template, PatternRule]],
    readings: Sequence[Reading],
    is_protected: Protected,
) -> PatternRule | None:
    """Return the rule of the narrowest pattern that one of the readings matches."""
    found = [
        (template.rank, rule.time_us, rule.id, rule)
        for template, rule in named
        for reading in readings
        if template.match(reading, is_protected) is not None
    ]
    return max(found)[3] if found else None


def _is_within(one: Template, other: Template) -> bool:
    """Return whether what matches a template matches another."""
    return other.match(one.reading(), is_outcome) is not None


def _differ_in_slots(one: Template, two: Template, wide: Template) -> bool:
    """Return whether two templates have the same length and differ only where `wide` has slots."""
    if not len(one.elements) == len(two.elements) == len(wide.elements):
        return False
    differing = [
        at for at, (a, b) in enumerate(zip(one.elements, two.elements, strict=True)) if a != b
    ]
    slots = wide.free or {at for at, word in enumerate(wide.elements) if word is None}
    return all(at in slots for at in differing)
