"""What the commands of ``stream-dedup index`` print of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from stream_dedup.cli.common import console, shown
from stream_dedup.features.fields import UNDECODABLE
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.prepare import Preparer
from stream_dedup.features.recipe import Recipe
from stream_dedup.tools.index_inspector.output import (
    Row,
    brief_time,
    print_rows,
    print_table,
    text_of,
    when,
    write_json,
)

if TYPE_CHECKING:
    from stream_dedup.index.redis.inspection import Namespace
    from stream_dedup.tools.index_inspector.details import Brief, Details, Name

MAX_TEXT = 1_000
"""Characters shown of a representative or sample."""


def namer(recipe: Recipe | None) -> Callable[[bytes], str]:
    """What makes a pattern of a representative; its text where the recipe is not known."""
    if recipe is None:
        return lambda value: shown(value, 300)
    patterns, takes_fields = Patterns(recipe), Preparer(recipe).takes_fields

    def pattern(value: bytes) -> str:
        document = None
        if takes_fields:
            try:
                document = msgspec.json.decode(value)
            except UNDECODABLE:
                pass  # cut short, or not JSON: its text is the pattern
        return patterns.pattern(value, document)

    return pattern


def print_clusters(found: Sequence[Brief], recipe: Recipe | None, form: str) -> None:
    """A list of clusters."""
    name = namer(recipe)
    if form == "json":
        write_json({"clusters": [_brief(brief, name, patterns=bool(recipe)) for brief in found]})
        return
    groups = any(brief.group for brief in found)
    print_table(
        "",
        ("cluster", "#count", "first", "last", "#rev.", *(["group"] if groups else []),
         "pattern" if recipe else "representative"),
        (
            (
                brief.identity.hex(),
                f"{brief.numbers.events:,}",
                brief_time(brief.numbers.first_us),
                brief_time(brief.numbers.latest_us),
                str(brief.numbers.revision),
                *([shown(brief.group, 30)] if groups else []),
                "" if brief.representative is None else name(brief.representative),
            )
            for brief in found
        ),
    )  # fmt: skip


def _brief(brief: Brief, name: Callable[[bytes], str], *, patterns: bool) -> dict[str, Any]:
    value = brief.representative
    numbers = brief.numbers
    return {
        "cluster": brief.identity.hex(),
        "count": numbers.events,
        "opened": when(numbers.opened_us),
        "first": when(numbers.first_us),
        "last": when(numbers.latest_us),
        "revision": numbers.revision,
        "group": text_of(brief.group),
        "position": text_of(brief.position),
        "representative": None if value is None else text_of(value),
        "pattern": name(value) if value is not None and patterns else None,
    }


def print_details(namespace: Namespace, found: Details, recipe: Recipe | None, form: str) -> None:
    """Everything about a cluster."""
    name = namer(recipe)
    numbers, fields = found.held.numbers, found.fields
    value = fields.get(b"r")
    position = text_of(fields.get(b"p", b"")).split(":", 2)
    snapshot = found.snapshot
    facts: dict[str, Any] = {
        "cluster": found.held.identity.hex(),
        "namespace": namespace.name,
        "shard": found.shard,
        "state": found.held.state,
        "count": numbers.events,
        "first": when(numbers.first_us),
        "last": when(numbers.latest_us),
        "opened": when(numbers.opened_us),
        "window_last": when(numbers.last_us),
        "revision": numbers.revision,
        "told": numbers.told,
        "told_at": when(numbers.told_us),
        "on_its_way": None
        if snapshot is None
        else dict(zip(("revision", "count", "new_count"), snapshot, strict=True)),
        "standing_in": {
            key: score if key == "gone" else _score(score) for key, score in found.scores.items()
        },
        "remembered_until": when(numbers.until_us) if numbers.until_us else None,
        "ttl_s": found.ttl_ms // 1000 if found.ttl_ms >= 0 else None,
        "group": text_of(fields.get(b"g", b"")),
        "position": dict(zip(("partition", "offset", "source"), position, strict=False)),
        "fingerprint": fields.get(b"f", b"").hex(),
        "pattern": name(value) if value is not None and recipe else None,
        "representative": None if value is None else text_of(value),
        "samples": list(map(text_of, found.samples)),
        "names": [_name(each, found.held.identity, namespace) for each in found.names],
    }
    if form == "json":
        write_json(facts)
        return
    print_rows(_readable(facts))
    if found.names:
        console().print()
        tables = namespace.stamp.layout.tables
        print_table(
            "names: the first is the representative's, the others are aliases",
            ("exact hash", "leads to", "fingerprint", "#distance", "in tables"),
            (
                (
                    each.exact.hex(),
                    _leads_to(each, found.held.identity),
                    _hex(each.fingerprint, namespace),
                    str(each.distance),
                    _in_tables(each, tables),
                )
                for each in found.names
            ),
        )
        console().print()
        first = found.names[0]
        if first.searchable:
            places = " ".join(f"{table}:{number}" for table, number in enumerate(first.slices))
            print_rows([("slices of the representative (table:slice)", places)])


def _readable(facts: dict[str, Any]) -> Iterable[Row]:
    for name, value in facts.items():
        label = "ttl (s)" if name == "ttl_s" else name.replace("_", " ")
        if name == "names" or value is None or value in ("", {}, []):
            continue
        if isinstance(value, dict):
            parts = (f"{key.replace('_', ' ')} {each}" for key, each in value.items())
            yield label, shown(", ".join(parts).encode("utf-8", "replace"), MAX_TEXT)
        elif isinstance(value, list):
            yield from (
                (label[:-1], shown(each.encode("utf-8", "replace"), MAX_TEXT)) for each in value
            )
        else:
            yield label, shown(str(value).encode("utf-8", "replace"), MAX_TEXT)


def _score(score: float) -> str:
    return "at once" if score == float("-inf") else when(score)


def _hex(fingerprint: int, namespace: Namespace) -> str:
    return f"{fingerprint:0{namespace.stamp.width // 4}x}"


def _leads_to(name: Name, identity: bytes) -> str:
    if name.leads_to is None:
        return "nothing"
    return "here" if name.leads_to == identity else name.leads_to.hex()


def _in_tables(name: Name, tables: int) -> str:
    if not name.searchable:
        return "not searched"
    if not name.missing:
        return f"all {tables}"
    return f"{tables - len(name.missing)} of {tables}; not in {sorted(name.missing)}"


def _name(name: Name, identity: bytes, namespace: Namespace) -> dict[str, Any]:
    return {
        "exact": name.exact.hex(),
        "leads_to": None if name.leads_to is None else name.leads_to.hex(),
        "leads_here": name.leads_to == identity,
        "fingerprint": _hex(name.fingerprint, namespace),
        "distance": name.distance,
        "searchable": name.searchable,
        "slices": name.slices if name.searchable else [],
        "missing_in": sorted(name.missing),
    }
