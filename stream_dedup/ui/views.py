"""What the pages and the JSON interface show of a source. The types describe the interface."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.emit.summaries import iso_time, summary_json
from stream_dedup.features.patterns import readable
from stream_dedup.model import Summary
from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.ui.comparing import Sides, compare
from stream_dedup.ui.finding import expression
from stream_dedup.ui.pairs import features_of, joining_word
from stream_dedup.ui.patterns import Entry, Found, Query
from stream_dedup.ui.rules import Mark
from stream_dedup.ui.sources import Details, Source
from stream_dedup.ui.volume import volume_of

MAX_EVENT = 2_000
"""Characters shown of an event."""

MAX_COMPARED_BYTES = 4_096
"""Bytes of an event that are compared: explaining a longer one would take long."""

RULES_A_PAGE = 50
"""Rules that are shown at once."""

VOLUME_A_PAGE = 50
"""Patterns that are shown at once with their bytes."""

NO_MARK = Mark("", muted=False, per_minute=0, merged=False, only=(), rules=())

MAX_CHANGES = 100
"""Changes that are shown."""

MAX_NAMES = 50
"""Names of a cluster that are listed."""


class Axis(Struct, frozen=True):
    """Where the buckets of counts over time lie.

    Attributes:
        start: where the first bucket begins: seconds since 1970, or a line.
        width: of a bucket, in seconds or lines.
        unit: of both.
    """

    start: float
    width: float
    unit: str


class SourceState(Struct, frozen=True):
    """A source, and what is known of it now.

    Attributes:
        problem: why it cannot be read now, or was not read whole; empty if it was.
        reading: how far the first reading is; empty once all was read.
        exact_since: since when counts over time are exact; null if from the beginning on.
        passed: events that were not compared, and are in no pattern.
        note: what else happened, as that its input has ended; empty for nothing.
        unread: events of the index that are in none of the patterns: they were counted since these
            were read, or their clusters closed before they were read.
    """

    name: str
    title: str
    kind: str
    recipe: str | None
    patterns: int
    events: int
    problem: str
    reading: str
    exact_since: str | None
    passed: int
    note: str
    unread: int


class Pattern(Struct, frozen=True):
    """A cluster in a list.

    Attributes:
        id: the cluster's id.
        pattern: the text with placeholders for what varies.
        variant: log levels, HTTP status classes and kinds of exit code.
        group: the values that are equal for all its events.
        count: its events.
        share: of the events of all clusters.
        counts: events in each bucket of the axis.
        before: events before the first bucket, or whose time is not known; all add up to the count.
        first, last: when, or in which line, it was first and last seen.
        open: whether it takes events.
        merged_into: the id of the cluster that goes on for it.
        name: what a rule calls it; empty for nothing.
        muted: whether a rule mutes it: its repeats are not written.
        per_minute: how many of its events leave a minute at most, as a rule says; 0 for all.
        merged: whether a rule merges it with other patterns.
        only: the values that its events have, where rules keep values apart.
        rules: the ids of the rules that act on its events.
    """

    id: str
    pattern: str
    variant: tuple[str, ...]
    group: str
    count: int
    share: float
    counts: list[int]
    before: int
    first: str
    last: str
    open: bool
    merged_into: str | None
    name: str
    muted: bool
    per_minute: int
    merged: bool
    only: tuple[str, ...]
    rules: tuple[str, ...]


class PatternList(Struct, frozen=True):
    """A page of a list.

    Attributes:
        found: patterns that were found, on all pages.
        events: of them.
    """

    source: SourceState
    axis: Axis
    found: int
    events: int
    page: int
    pages: int
    patterns: list[Pattern]


class PatternVolume(Struct, frozen=True):
    """How much a pattern takes, in bytes of its events as they were read.

    Attributes:
        share: of the bytes of all patterns.
        bytes_out: of the events that leave where they are annotated, as the rules of now say.
        drop_saves: what is saved where repeats are dropped.
        keep_saves: what a rule saves that keeps so many events a minute; null if that is not known.
    """

    pattern: Pattern
    bytes_in: int
    share: float
    bytes_out: int
    drop_saves: int
    keep_saves: int | None


class VolumeList(Struct, frozen=True):
    """Patterns by the bytes that they take, the largest first: a page of them.

    Attributes:
        per_minute: the events a minute that a rule would keep.
        bytes_in: of all patterns.
        drop_saves: of all patterns.
    """

    source: SourceState
    per_minute: int
    bytes_in: int
    drop_saves: int
    page: int
    pages: int
    patterns: list[PatternVolume]


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


class Neighbour(Struct, frozen=True):
    """A cluster with a similar pattern, and why it is another one."""

    pattern: Pattern
    verdict: str
    distance: int
    jaccard: float


class NeighbourList(Struct, frozen=True):
    """The clusters whose patterns share most words with one, the most similar first."""

    neighbours: list[Neighbour]


class PatternPair(Struct, frozen=True):
    """Two clusters side by side.

    Attributes:
        first, second: they.
        texts: the first event of each.
        verdict: why their first events merge or not, as `stream-dedup explain` says it; empty where
            the recipe is not known.
        merge: whether they would, if there were no other event and no rule.
        distance: bits in which their fingerprints differ.
        limit: the most bits with which events merge; null where the recipe does not go by bits.
        jaccard: the part of their words that they have in common.
        threshold: the least of it with which events merge; 0 where that is not asked.
        shared, first_only, second_only: the words that are compared.
        joining_word: the word of the first in which alone they differ: a rule that it is always a
            variable joins them; empty if there is none.
        rules: rules that act, and are about both.
    """

    first: Pattern
    second: Pattern
    texts: tuple[str, str]
    verdict: str
    merge: bool
    distance: int | None
    limit: int | None
    jaccard: float | None
    threshold: float
    shared: list[str]
    first_only: list[str]
    second_only: list[str]
    joining_word: str
    rules: list[Rule]


class Side(Struct, frozen=True):
    """One of two periods, or files.

    Attributes:
        name: for people.
        start: when it begins, or its first line; empty for a file.
        end: when it ends, or its last line; empty for a file.
        events: in it.
    """

    name: str
    start: str
    end: str
    events: int


class Change(Struct, frozen=True):
    """What happened to a pattern between two periods, or files.

    Attributes:
        old, new: its events.
        change: what.
        times: how many times as high its rate is; null if one of the counts is 0.
        chance: how likely so large a difference is by chance; null if a side has no event.
        sure: whether it is significant, among all patterns.
    """

    pattern: Pattern
    old: int
    new: int
    change: Literal["new", "vanished", "more", "fewer"]
    times: float | None
    chance: float | None
    sure: bool


class ChangeList(Struct, frozen=True):
    """Two periods, or files, compared; the changes that are least likely by chance first.

    Attributes:
        per: what rates are divided by.
        patterns: that were compared.
        changed: that changed significantly.
        found: changes, also those that nobody can be sure of.
        changes: the first of them.
    """

    source: SourceState
    old: Side
    new: Side
    per: Literal["time", "events"]
    patterns: int
    changed: int
    found: int
    changes: list[Change]


class CountList(Struct, frozen=True):
    """The counts over time of a cluster."""

    axis: Axis
    counts: list[int]
    before: int
    count: int


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


class Problem(Struct, frozen=True):
    """What is wrong."""

    error: str


# ------------------------------------------------------------ of a source


def source_state(source: Source) -> SourceState:
    """The state of a source."""
    status, inspector = source.status(), source.inspector
    since = None if status.since_us is None else iso_time(status.since_us // US_PER_S * US_PER_S)
    return SourceState(
        source.name,
        source.title,
        source.kind,
        None if inspector is None else inspector.recipe.name,
        len(source.entries),
        status.events,
        status.problem,
        status.reading,
        since,
        status.passed,
        status.note,
        status.unread,
    )


def axis_of(source: Source) -> Axis:
    """The axis of a source."""
    axis, scale = source.axis, US_PER_S if source.has_times else 1
    unit = "seconds" if source.has_times else "lines"
    return Axis(axis.first * axis.width / scale, axis.width / scale, unit)


def pattern_of(source: Source, entry: Entry) -> Pattern:
    """A cluster in a list."""
    events = source.status().events
    values = entry.counts.values(source.axis)
    return Pattern(
        entry.hex,
        entry.pattern,
        entry.variant,
        entry.group,
        entry.count,
        round(entry.count / events, 6) if events else 0.0,
        values,
        entry.count - sum(values),
        _moment(source, entry.first),
        _moment(source, entry.last),
        entry.open,
        None if entry.merged_into is None else f"{entry.merged_into:016x}",
        *(entry.mark or NO_MARK),
    )


def rule_of(rule: PatternRule) -> Rule:
    """A rule."""
    undone = rule.undone
    return Rule(
        rule.id,
        rule.kind,
        rule.patterns,
        rule.slot,
        rule.value,
        rule.per_minute,
        rule.author,
        _time(rule.time_us),
        rule.reason,
        None if undone is None else Undone(undone.author, _time(undone.time_us), undone.reason),
    )


def rule_list(source: Source, page: int, *, changeable: bool) -> RuleList:
    """A page of the rules that act."""
    rules = source.rules
    acting = sorted(rules.book.acting(), key=lambda rule: (rule.time_us, rule.id), reverse=True)
    return RuleList(
        rules.place.title if rules.place else "",
        rules.place.acts if rules.place else rules.hint,
        rules.problem,
        changeable,
        len(acting),
        page,
        max(1, -(-len(acting) // RULES_A_PAGE)),
        [rule_of(rule) for rule in acting[(page - 1) * RULES_A_PAGE : page * RULES_A_PAGE]],
    )


def audit_list(source: Source, page: int) -> AuditList:
    """A page of what was done with rules."""
    entries = source.rules.book.audit()[::-1]
    return AuditList(
        len(entries),
        page,
        max(1, -(-len(entries) // RULES_A_PAGE)),
        [
            AuditEntry(_time(each.time_us), each.action, each.author, each.reason,
                       rule_of(each.rule))
            for each in entries[(page - 1) * RULES_A_PAGE : page * RULES_A_PAGE]
        ],
    )  # fmt: skip


def pattern_list(source: Source, query: Query, found: Found) -> PatternList:
    """A page of a list."""
    return PatternList(
        source_state(source),
        axis_of(source),
        found.patterns,
        found.events,
        query.page,
        max(1, -(-found.patterns // query.limit)),
        [pattern_of(source, entry) for entry in found.entries],
    )


def volume_list(source: Source, found: Found, page: int, per_minute: int) -> VolumeList:
    """A page of patterns by their bytes."""
    entries = list(source.entries.values())
    total = sum(entry.bytes for entry in entries)
    saved = sum(entry.bytes - entry.bytes // max(1, entry.count) for entry in entries)
    patterns = []
    for entry in found.entries:
        volume = volume_of(entry, source.axis, per_minute, has_times=source.has_times)
        share = round(volume.read / total, 6) if total else 0.0
        patterns.append(PatternVolume(pattern_of(source, entry), volume.read, share, *volume[1:]))
    return VolumeList(
        source_state(source),
        per_minute,
        total,
        saved,
        page,
        max(1, -(-found.patterns // VOLUME_A_PAGE)),
        patterns,
    )


def count_list(source: Source, entry: Entry) -> CountList:
    """The counts over time of a cluster."""
    values = entry.counts.values(source.axis)
    return CountList(axis_of(source), values, entry.count - sum(values), entry.count)


def pattern_details(source: Source, entry: Entry, found: Details) -> PatternDetails:
    """Everything about a cluster. Comparing its events takes some milliseconds each."""
    summary, variables = found.summary, found.summary.variables
    slots = variables.slots if variables else ()
    return PatternDetails(
        pattern_of(source, entry),
        axis_of(source),
        found.state,
        summary.template_hex,
        [
            Slot(slot.slot, slot.distinct, [Value(*value) for value in slot.values])
            for slot in slots
        ],
        variables.sampled if variables else 0,
        variables.error if variables else 0.0,
        printable(summary.representative),
        list(_joined(source.inspector, summary)),
        [NameOf(*name) for name in found.names[:MAX_NAMES]],
        [Merged(f"{cluster:016x}", count) for cluster, count in summary.merged],
        None if summary.merged_into is None else f"{summary.merged_into:016x}",
        msgspec.Raw(summary_json(summary, source.name).rstrip()),
        source.commands(summary, _expression(source, entry, summary)),
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


def neighbour_list(
    source: Source, first: bytes, near: Iterable[tuple[Entry, bytes | None]]
) -> NeighbourList:
    """Compare a cluster with others, as `stream-dedup explain` does."""
    out = []
    inspector = source.inspector
    for entry, value in near:
        if inspector is None or not value:
            continue
        compared = inspector.compare(first[:MAX_COMPARED_BYTES], value[:MAX_COMPARED_BYTES])
        out.append(
            Neighbour(
                pattern_of(source, entry),
                compared.verdict(),
                compared.distance,
                round(compared.jaccard, 3),
            )
        )
    return NeighbourList(out)


def pattern_pair(
    source: Source, entries: tuple[Entry, Entry], values: tuple[bytes, bytes]
) -> PatternPair:
    """Compare two clusters by their first events. That takes some milliseconds."""
    first, second = entries
    about = {rule.id: rule for rule in source.rules.about(first.pattern)}
    both = [rule for rule in source.rules.about(second.pattern) if rule.id in about]
    pair = PatternPair(
        pattern_of(source, first), pattern_of(source, second), (printable(values[0]),
        printable(values[1])), "", False, None, None, None, 0.0, [], [], [],
        joining_word(first.pattern, second.pattern), [rule_of(rule) for rule in both],
    )  # fmt: skip
    inspector = source.inspector
    if inspector is None or not all(values):
        return pair
    compared = inspector.compare(*(value[:MAX_COMPARED_BYTES] for value in values))
    features, recipe = features_of(inspector, compared), inspector.recipe
    return msgspec.structs.replace(
        pair,
        verdict=compared.verdict(),
        merge=compared.merge,
        distance=compared.distance,
        limit=recipe.match.k if recipe.fingerprint.kind == "simhash" else None,
        jaccard=round(compared.jaccard, 3),
        threshold=compared.threshold,
        shared=features.shared,
        first_only=features.left,
        second_only=features.right,
    )


def change_list(source: Source, entries: Sequence[Entry], sides: Sides) -> ChangeList:
    """Compare two periods, or files. With 10⁵ clusters it takes a second or so."""
    found = compare(entries, source.axis, sides)
    names = [_side(source, sides, old=True), _side(source, sides, old=False)]
    return ChangeList(
        source_state(source),
        Side(*names[0], found.old),
        Side(*names[1], found.new),
        "events" if sides.files else "time",
        len(found.entries),
        sum(each.sure for each in found.changes),
        len(found.changes),
        [
            Change(
                pattern_of(source, found.entries[each.row]), *each.counts, each.kind,
                each.times and round(each.times, 3),
                None if each.log_p is None else math.exp(each.log_p), each.sure,
            )
            for each in found.changes[:MAX_CHANGES]
        ],
    )  # fmt: skip


def _side(source: Source, sides: Sides, *, old: bool) -> tuple[str, str, str]:
    """The name, beginning and end of a side."""
    if sides.files is not None:
        return source.inputs[sides.files[0 if old else 1]], "", ""
    first, last = sides.old if old else sides.new
    if last < first:
        return "no time", "", ""
    start, end = (_moment(source, bucket * source.axis.width) for bucket in (first, last + 1))
    return f"{start} to {end}", start, end


def _joined(inspector: Inspector | None, summary: Summary) -> Iterable[Joined]:
    if inspector is None or not summary.representative:
        return
    first = summary.representative[:MAX_COMPARED_BYTES]
    for event in dict.fromkeys(_others(summary)):
        found = inspector.compare(first, event[:MAX_COMPARED_BYTES])
        verdict = found.verdict()
        if not found.merge:
            verdict = f"It joined through other events of the cluster. Alone: {verdict}"
        yield Joined(printable(event), verdict, found.distance, round(found.jaccard, 3))


def _others(summary: Summary) -> Sequence[bytes]:
    return [event for event in summary.samples if event != summary.representative]


def printable(value: bytes, most: int = MAX_EVENT) -> str:
    """Lines of text for people, with escapes for what is not printable, and not too long."""
    lines = value[: 2 * most].split(b"\n")
    text = "\n".join(readable(line, most) for line in lines)
    cut = len(text) > most or len(value) > 2 * most
    return text[: most - 1] + "…" if cut else text


def _time(time_us: int) -> str:
    return iso_time(time_us // US_PER_S * US_PER_S) if time_us else ""


def _moment(source: Source, at: int) -> str:
    return iso_time(at // US_PER_S * US_PER_S) if source.has_times else f"line {at}"
