"""Rules as a TOML document, for a file under version control, and as the value of a key.

::

    [[rules]]
    id = "r-5d41402a"
    kind = "merge"
    patterns = ["job <*> ended", "task <*> done"]
    author = "ann"
    time = 2026-05-07T09:30:00Z
    reason = "one program, two versions"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import tomli_w

from stream_dedup.clock import US_PER_S
from stream_dedup.errors import RuleConflict, RuleError
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import SEVERAL, PatternRule, RuleKind, Undoing

MAX_BYTES = 64 << 20
"""Size of a document."""

_TEXTS = ("value", "name", "author", "reason", "id")
_NUMBERS = {"slot": "count the slots from 1", "per_minute": "write how many events leave a minute"}
_KEYS = frozenset((*_TEXTS, *_NUMBERS, "kind", "pattern", "patterns", "time", "undone"))


def read(text: str, place: str) -> RuleBook:
    """Read and check rules.

    Args:
        text: the document.
        place: names it in errors.

    Raises:
        RuleError: it is not TOML, or a rule is wrong; names the key, the value and the remedy.
        RuleConflict: two rules contradict each other.
    """
    if len(text) > MAX_BYTES:
        raise RuleError(place, "", f"has {len(text):,} characters", f"give {MAX_BYTES:,} at most")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RuleError(place, "", f"is not TOML ({error})", "correct it") from error
    unknown = [key for key in document if key != "rules"]
    if unknown:
        raise RuleError(place, unknown[0], "is not known", "rules are tables [[rules]]")
    tables = document.get("rules", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise RuleError(
            place, "rules", "is not a list of tables", "write [[rules]] before each rule"
        )
    rules = [_rule(table, f"{place}: rules[{at}]") for at, table in enumerate(tables)]
    try:
        return RuleBook().add(*rules)
    except RuleConflict:
        raise
    except RuleError as error:
        where = f"{place}: {error.place}"
        raise RuleError(where, error.key, error.problem, error.remedy) from error


def _rule(table: dict[str, Any], place: str) -> PatternRule:
    for key in table:
        if key not in _KEYS:
            raise RuleError(place, key, "is not known", f"give {', '.join(sorted(_KEYS))}")
    try:
        kind = RuleKind(table.get("kind", ""))
    except ValueError:
        kinds = ", ".join(RuleKind)
        if "kind" not in table:
            raise RuleError(place, "kind", "missing", f"give one of {kinds}") from None
        raise RuleError(place, "kind", f"{table['kind']!r} is not one of {kinds}") from None
    patterns = table.get("patterns", [])
    if "pattern" in table:
        if patterns:
            raise RuleError(place, "pattern", "and patterns are given", "give one of them")
        patterns = [table["pattern"]]
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        raise RuleError(place, "patterns", "are not a list of texts", 'write ["…", "…"]')
    for key in _TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise RuleError(place, key, f"{table[key]!r} is not text", "write it in quotes")
    for key, remedy in _NUMBERS.items():
        number = table.get(key, 0)
        if not isinstance(number, int) or isinstance(number, bool):
            raise RuleError(place, key, f"{number!r} is not a number", remedy)
    if (kind is RuleKind.NAME) == ("value" in table) and ("value" in table or "name" in table):
        raise RuleError(place, "value", f"is not of {kind.value}", "name has name, others value")
    return PatternRule(
        kind=kind,
        patterns=tuple(patterns),
        slot=table.get("slot", 0),
        value=table.get("name" if kind is RuleKind.NAME else "value", ""),
        author=table.get("author", ""),
        time_us=_time_us(table.get("time"), f"{place}"),
        reason=table.get("reason", ""),
        id=table.get("id", ""),
        undone=_undoing(table.get("undone"), place),
        per_minute=table.get("per_minute", 0),
    )


def _undoing(table: object, place: str) -> Undoing | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        raise RuleError(place, "undone", "is not a table", "write { author = …, time = … }")
    author, reason = table.get("author", ""), table.get("reason", "")
    if not isinstance(author, str) or not isinstance(reason, str):
        raise RuleError(place, "undone", "holds no texts", "write author and reason in quotes")
    return Undoing(author, _time_us(table.get("time"), f"{place}: undone"), reason)


def _time_us(given: object, place: str) -> int:
    if given is None:
        return 0
    if not isinstance(given, datetime):
        raise RuleError(place, "time", f"{given!r} is not a time", "write 2026-05-07T09:30:00Z")
    moment = given if given.tzinfo else given.replace(tzinfo=UTC)
    return round(moment.timestamp() * US_PER_S)


def written(rules: Iterable[PatternRule]) -> str:
    """Write rules; `read` gives equal ones.

    Nothing that a terminal obeys, or that hides text from a reviewer, stands there as it is. Such
    characters occur in strings only, where TOML has escapes for them.
    """
    text = tomli_w.dumps({"rules": [_table(rule) for rule in rules]})
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in line)


def _table(rule: PatternRule) -> dict[str, Any]:
    table: dict[str, Any] = {"id": rule.id, "kind": rule.kind.value}
    if rule.kind in SEVERAL:
        table["patterns"] = list(rule.patterns)
    else:
        table["pattern"] = rule.patterns[0]
    if rule.slot:
        table["slot"] = rule.slot
    if rule.value:
        table["name" if rule.kind is RuleKind.NAME else "value"] = rule.value
    if rule.per_minute:
        table["per_minute"] = rule.per_minute
    if rule.author:
        table["author"] = rule.author
    if rule.time_us:
        table["time"] = _moment(rule.time_us)
    if rule.reason:
        table["reason"] = rule.reason
    if rule.undone is not None:
        author, time_us, reason = rule.undone
        table["undone"] = {"author": author, "time": _moment(time_us), "reason": reason}
    return table


def _moment(time_us: int) -> datetime:
    seconds, microseconds = divmod(time_us, US_PER_S)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
