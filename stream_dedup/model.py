"""The data model: positions, batches, decisions and summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Position(NamedTuple):
    """The permanent identity of an event: (topic, partition, offset), or (path, 0, line number)."""

    source: str
    partition: int
    offset: int


class Partition(NamedTuple):
    """An ordered part of a source; positions in it differ only by their offset."""

    source: str
    number: int


@dataclass(slots=True)
class Batch:
    """Events of one partition, as columns: one object for each event would cost too much.

    Attributes:
        partition: where they come from.
        offsets: their offsets, ascending.
        values: their bytes as received, without line ends.
        times_us: event times in microseconds since 1970-01-01 UTC; None: the arrival time.
        groups: the values that must be equal for events to be compared, as a JSON object's text;
            None if there are no groups.
        documents: the decoded JSON values, if the recipe takes fields.
        passed: row → reason, for events that are not to be fingerprinted.
        raws: their bytes as they were read, if `values` are a field of them; these are measured.
    """

    partition: Partition
    offsets: Sequence[int]
    values: list[bytes]
    times_us: Sequence[int] | None = None
    groups: Sequence[str] | None = None
    documents: Sequence[object] | None = None
    passed: dict[int, str] = field(default_factory=dict)
    raws: Sequence[bytes | None] | None = None

    def part(self, start: int, end: int) -> Batch:
        """Return the events of some rows as a batch."""
        rows = slice(start, end)
        passed = self.passed.items()
        return Batch(
            partition=self.partition,
            offsets=self.offsets[rows],
            values=self.values[rows],
            times_us=self.times_us[rows] if self.times_us is not None else None,
            groups=self.groups[rows] if self.groups is not None else None,
            documents=self.documents[rows] if self.documents is not None else None,
            passed={row - start: reason for row, reason in passed if start <= row < end},
            raws=self.raws[rows] if self.raws is not None else None,
        )


class Kind(StrEnum):
    """The kinds of decision."""

    NEW = "new"
    DUPLICATE = "duplicate"
    PASSED = "passed"


class Decision(NamedTuple):
    """What was decided for an event. Equal events share one object.

    Attributes:
        kind: new, duplicate or passed.
        cluster: the cluster's 64-bit id; None when passed.
        distance: bits in which the event's fingerprint differs from the representative's, of bands
            keys; None when passed.
        fingerprint: the event's fingerprint; None when passed, and for bands, which are secret.
        reason: why the event was passed; empty otherwise.
        template: the id of the cluster's template (`fingerprint.templates`) when this was decided;
            None when passed, or if nobody asked for it.
        varied: bit i for each word i of the event that stood for a learned variable of the cluster
            when this was decided; 0 if nobody asked for it.
        withheld: the kind of the rule by which the event is not written where duplicates are:
            ``mute`` or ``keep``; empty if it is written. It is counted like any other.
    """

    kind: Kind
    cluster: int | None = None
    distance: int | None = None
    fingerprint: int | None = None
    reason: str = ""
    template: int | None = None
    varied: int = 0
    withheld: str = ""

    @property
    def cluster_hex(self) -> str | None:
        """The cluster's id as 16 hex digits, as every output writes it."""
        return None if self.cluster is None else f"{self.cluster:016x}"

    @property
    def template_hex(self) -> str | None:
        """The template's id as 16 hex digits."""
        return None if self.template is None else f"{self.template:016x}"


class FoundBy(StrEnum):
    """How the cluster of an event was found.

    Attributes:
        EXACT: by its exact hash.
        LEARNED: it differs in a word that is a known variable.
        WORDS: by its words: the same, or one more or less.
        FINGERPRINT: by its fingerprint.
        NEW: none was found; it opened one.
    """

    EXACT = "exact"
    LEARNED = "learned"
    WORDS = "words"
    FINGERPRINT = "fingerprint"
    NEW = "new"


class Closing(StrEnum):
    """Why a cluster takes no more events."""

    EXPIRED = "expired"
    EVICTED = "evicted"
    ENDED = "ended"
    MERGED = "merged"


class SlotValues(NamedTuple):
    """The values in one place of a pattern, in a sample of a cluster's events.

    Attributes:
        slot: what the pattern shows there.
        values: the commonest values, each with its share of the sample.
        distinct: how many different values there are in the sample.
    """

    slot: str
    values: tuple[tuple[str, float], ...]
    distinct: int


class Variables(NamedTuple):
    """What varies in a cluster, as far as a sample says.

    Attributes:
        sampled: events in the sample.
        error: how far a share may be off, in 95 of 100 cases; 0 if all events are in the sample.
        slots: in the order of the pattern.
    """

    sampled: int
    error: float
    slots: tuple[SlotValues, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A record about a cluster. (cluster, revision) identifies it, however often it is sent.

    Attributes:
        cluster: the cluster's id.
        revision: 1, 2, 3, … within the cluster.
        closing: why the cluster closed, if this is its final summary; else None.
        count: events of the cluster so far, the first included.
        new_count: events that no earlier revision counted; over all revisions these add up to the
            final count.
        first_time_us: earliest event time.
        last_time_us: latest event time.
        position: of the representative.
        representative: the first event's value (capped).
        samples: a few later events' values (capped).
        group: as in `Batch`.
        pattern: the representative with its variable parts masked. This and the next two are
            filled in by whoever sends it (`Engine.describe`).
        template: the id of the pattern without level and status (`fingerprint.templates`).
        variant: log levels, HTTP status classes and kinds of exit code, which keep it apart from
            other clusters of the template: `ERROR`, `5xx`, `nonzero`.
        merged_into: the cluster that goes on for it, if it closed because it merged.
        merged: clusters that merged into this one since its last summary, each with the events that
            it had counted (capped). Their events are not among this one's.
        learned: bit i for each word i of the representative that varies: it is learned, or events
            lack it.
        sampled: values of events chosen by chance, also of clusters that merged into it, each
            behind its priority, the least first.
        variables: what they say of the pattern's variables; None if there are none. Filled in like
            the pattern.
        name: what a rule calls the pattern; empty for none. Filled in like the pattern.
        muted: whether a rule mutes the pattern. Filled in like the pattern.
        since_us: earliest event time of the new events, `last_time_us` if there are none; None in
            what was not claimed.
    """

    cluster: int
    revision: int
    closing: Closing | None
    count: int
    new_count: int
    first_time_us: int
    last_time_us: int
    position: Position
    representative: bytes
    samples: tuple[bytes, ...] = ()
    group: str = ""
    pattern: str = ""
    template: int | None = None
    variant: tuple[str, ...] = ()
    merged_into: int | None = None
    merged: tuple[tuple[int, int], ...] = ()
    learned: int = 0
    sampled: tuple[tuple[int, bytes], ...] = ()
    variables: Variables | None = None
    name: str = ""
    muted: bool = False
    since_us: int | None = None

    @property
    def final(self) -> bool:
        """Whether no further revision follows while the cluster stays closed."""
        return self.closing is not None

    @property
    def cluster_hex(self) -> str:
        """The cluster's id as 16 hex digits."""
        return f"{self.cluster:016x}"

    @property
    def template_hex(self) -> str | None:
        """The template's id as 16 hex digits."""
        return None if self.template is None else f"{self.template:016x}"
