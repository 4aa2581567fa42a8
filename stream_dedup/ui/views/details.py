"""Everything about a cluster."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from stream_dedup.clustering.comparison import Inspector
from stream_dedup.emit.summaries import summary_json
from stream_dedup.model import Summary
from stream_dedup.rules.model import RuleKind
from stream_dedup.ui.finding import expression
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.sources import Details, Source
from stream_dedup.ui.views.pairs import MAX_COMPARED_BYTES
from stream_dedup.ui.views.patterns import Pattern, pattern_of
from stream_dedup.ui.views.sources import Axis, axis_of
from stream_dedup.ui.views.text import printable

MAX_NAMES = 50
"""Names of a cluster that are listed."""


class Value(Struct, frozen=True):
    """A value, and its share of the events in the sample."""

    value: str
    share: float


class Slot(Struct, frozen=True):
    """A place that varies, with its commonest values."""

    slot: str
    distinct: int
    values: list[Value]


class Joined(Struct, frozen=True):
    """An event of a cluster, and why it joined.

    Attributes:
        verdict: what `stream-dedup explain` says of the representative and this event.
        distance: bits in which their fingerprints differ.
        jaccard: the part of their words that they have in common.
    """

    event: str
    verdict: str
    distance: int
    jaccard: float


class NameOf(Struct, frozen=True):
    """By what events find a cluster: its exact hash, and how far its fingerprint is."""

    exact: str
    distance: int
    in_tables: bool


class Merged(Struct, frozen=True):
    """A cluster that merged into another one, and the events it had counted."""

    id: str
    count: int


class PatternDetails(Struct, frozen=True):
    """Everything about a cluster.

    Attributes:
        state: open, or why it closed.
        template: the id of its pattern without level and status.
        slots: the values of what varies, in a sample of its events.
        sampled: events in this sample.
        error: how far the shares of values may be off; 0 if all events are in the sample.
        joined: events of it, compared with its first one.
        names: by what events find it, as the index stores it.
        record: the record of its summary, as it would be sent now.
        commands: what finds its events, for a shell.
    """

    pattern: Pattern
    axis: Axis
    state: str
    template: str | None
    slots: list[Slot]
    sampled: int
    error: float
    representative: str
    joined: list[Joined]
    names: list[NameOf]
    merged: list[Merged]
    merged_into: str | None
    record: msgspec.Raw
    commands: list[str]


def pattern_details(source: Source, entry: Entry, found: Details) -> PatternDetails:
    """Everything about a cluster. Comparing its events takes some milliseconds each."""
    summary, variables = found.summary, found.summary.variables
    return PatternDetails(
        pattern=pattern_of(source, entry),
        axis=axis_of(source),
        state=found.state,
        template=summary.template_hex,
        slots=[
            Slot(slot.slot, slot.distinct, [Value(*value) for value in slot.values])
            for slot in (variables.slots if variables else ())
        ],
        sampled=variables.sampled if variables else 0,
        error=variables.error if variables else 0.0,
        representative=printable(summary.representative),
        joined=list(_joined(source.inspector, summary)),
        names=[NameOf(*name) for name in found.names[:MAX_NAMES]],
        merged=[Merged(f"{cluster:016x}", count) for cluster, count in summary.merged],
        merged_into=None if summary.merged_into is None else f"{summary.merged_into:016x}",
        record=msgspec.Raw(summary_json(summary, source.name).rstrip()),
        commands=source.commands(summary, _expression(source, entry, summary)),
    )


def _expression(source: Source, entry: Entry, summary: Summary) -> str:
    """A regular expression for the events of a cluster, and of what rules merge with it."""
    own = expression(summary.pattern, summary.representative)
    acting = set(entry.mark.rules if entry.mark else ())
    merged = (
        expression(pattern, pattern.encode("utf-8", "replace"))
        for rule in source.rules.book.acting()
        if rule.id in acting and rule.kind is RuleKind.MERGE
        for pattern in rule.patterns
    )
    return "|".join(dict.fromkeys(each for each in (own, *merged) if each)) if own else ""


def _joined(inspector: Inspector | None, summary: Summary) -> Iterable[Joined]:
    """Compare the events of a cluster with its first one."""
    if inspector is None or not summary.representative:
        return
    first = summary.representative[:MAX_COMPARED_BYTES]
    others = (event for event in summary.samples if event != summary.representative)
    for event in dict.fromkeys(others):
        found = inspector.compare(first, event[:MAX_COMPARED_BYTES])
        verdict = found.verdict()
        if not found.merge:
            verdict = f"It joined through other events of the cluster. Alone: {verdict}"
        yield Joined(printable(event), verdict, found.distance, round(found.jaccard, 3))
