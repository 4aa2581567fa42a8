"""The rules of one place, a file or a namespace: adding, undoing, and the list of what was done.

A book is a value: `add` and `undo` return another one, which whoever keeps it stores, or not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stream_dedup.errors import RuleError
from stream_dedup.rules.model import MAX_NAME, MAX_REASON, PatternRule, Undoing
from stream_dedup.rules.ruleset import MAX_HISTORY, RuleSet

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""An id is part of addresses and of the output of a terminal."""


class Entry(NamedTuple):
    """One line of the audit list.

    Attributes:
        time_us: when, in microseconds since 1970-01-01 UTC.
        action: ``add`` or ``undo``.
        author: who.
        reason: why.
        rule: the rule.
    """

    time_us: int
    action: str
    author: str
    reason: str
    rule: PatternRule


@dataclass(frozen=True)
class RuleBook:
    """All rules that were ever made, those that were undone included.

    Attributes:
        rules: in the order in which they were added.
        version: of the place that keeps them; names what was read.
    """

    rules: tuple[PatternRule, ...] = ()
    version: int = 0

    def acting(self) -> list[PatternRule]:
        """Return the rules that act."""
        return [rule for rule in self.rules if rule.undone is None]

    def compiled(self) -> RuleSet:
        """Compile the rules that act.

        Raises:
            RuleError: one is wrong.
            RuleConflict: two contradict each other.
        """
        return RuleSet(self.rules)

    def add(self, *rules: PatternRule) -> RuleBook:
        """Return the book with more rules.

        Raises:
            RuleError: one is wrong, is there already, or there are too many.
            RuleConflict: one contradicts another; both are named.
        """
        known = {rule.id for rule in self.rules}
        for rule in rules:
            if not _ID.fullmatch(rule.id):
                remedy = "give at most 64 of A-Z a-z 0-9 . _ -, or leave it out"
                raise RuleError("rule", "id", f"{ascii(rule.id)[:80]} is not an id", remedy)
            if rule.id in known:
                raise RuleError(rule.place, "id", "is there already", "leave the rule out")
            known.add(rule.id)
        added = RuleBook((*self.rules, *rules), self.version)
        if len(added.rules) > MAX_HISTORY:
            problem = f"there would be {len(added.rules):,}, those that were undone included"
            remedy = f"{MAX_HISTORY:,} are kept; export them, and begin another list"
            raise RuleError("rules", "", problem, remedy)
        added.compiled()
        return added

    def undo(self, rule_id: str, undoing: Undoing) -> RuleBook:
        """Return the book with a rule undone. It stays in the list.

        Raises:
            RuleError: there is no such rule, or it was undone before.
            RuleConflict: what it decided between other rules is open then: they contradict.
        """
        for key, text, most in (
            ("author", undoing.author, MAX_NAME), ("reason", undoing.reason, MAX_REASON),
        ):  # fmt: skip
            if len(text) > most or not text.isprintable():
                problem = f"has {len(text):,} characters, or some that cannot be printed"
                raise RuleError(f"rule {rule_id}", key, problem, f"give {most} printable ones")
        for at, rule in enumerate(self.rules):
            if rule.id != rule_id:
                continue
            if rule.undone is not None:
                raise RuleError(rule.place, "", "was undone before", "there is nothing to do")
            rules = (*self.rules[:at], replace(rule, undone=undoing), *self.rules[at + 1 :])
            undone = RuleBook(rules, self.version)
            undone.compiled()
            return undone
        raise RuleError(f"rule {rule_id}", "id", "is not there", "list the rules for their ids")

    def merged(self, other: Sequence[PatternRule]) -> RuleBook:
        """Return the book with the rules of another place: new ones, and what was undone there.

        Raises:
            RuleError, RuleConflict: as `add`.
        """
        theirs = {rule.id: rule for rule in other}
        kept = tuple(
            replace(rule, undone=rule.undone or theirs[rule.id].undone)
            if rule.id in theirs
            else rule
            for rule in self.rules
        )
        known = {rule.id for rule in kept}
        return RuleBook(kept, self.version).add(*(r for r in other if r.id not in known))

    def audit(self) -> list[Entry]:
        """Return everything that was done, the oldest first."""
        entries = [
            Entry(rule.time_us, "add", rule.author, rule.reason, rule) for rule in self.rules
        ]
        for rule in self.rules:
            if rule.undone is not None:
                author, time_us, reason = rule.undone
                entries.append(Entry(time_us, "undo", author, reason, rule))
        return sorted(entries, key=lambda entry: (entry.time_us, entry.rule.id, entry.action))
