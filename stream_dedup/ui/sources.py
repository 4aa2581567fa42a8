"""The port to what the pages show: the clusters of a namespace in Redis, of files or of pipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from stream_dedup.clustering.comparison import Inspector
from stream_dedup.features.patterns import readable
from stream_dedup.model import Summary
from stream_dedup.ui.patterns import Entry
from stream_dedup.ui.rules import SourceRules
from stream_dedup.volume.counts import Axis

MAX_GROUP = 200
"""Characters of a group."""


class Status(NamedTuple):
    """The state of a source.

    Attributes:
        problem: why it cannot be read now, or was not read whole; empty if it was.
        reading: how far the first reading is; empty once all is read.
        events: of all clusters that were read, also of those that are no longer kept.
        since_us: since when counts over time are exact; None if they are so from the beginning.
        passed: events that were not compared, and are in no cluster.
        note: what else happened, as that its input has ended; empty for nothing.
        unread: events of the index that are in no cluster read so far: they were counted since, or
            their clusters closed before they were read.
    """

    problem: str
    reading: str
    events: int
    since_us: int | None
    passed: int = 0
    note: str = ""
    unread: int = 0


class Name(NamedTuple):
    """By what events find a cluster.

    Attributes:
        exact: the exact hash of their pattern.
        distance: of their fingerprint from the representative's.
        searchable: whether their fingerprint is in the tables.
    """

    exact: str
    distance: int
    searchable: bool


class Details(NamedTuple):
    """Everything that is known of a cluster.

    Attributes:
        summary: the record that would be sent now, with its pattern.
        state: for people.
        names: by which events find it; none if that is not known.
    """

    summary: Summary
    state: str
    names: Sequence[Name] = ()


class Source(Protocol):
    """Clusters, and what is known of them.

    Attributes:
        name: in addresses.
        title: for people.
        kind: for people.
        rules: what people decided about its patterns.
    """

    name: str
    title: str
    kind: str
    rules: SourceRules

    @property
    def has_times(self) -> bool:
        """Whether times are known; if not, lines stand for them."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names of its files, whose events are counted each if there are several."""

    @property
    def axis(self) -> Axis:
        """Of the counts of all entries."""

    @property
    def inspector(self) -> Inspector | None:
        """Compares events as its recipe does; None if that is not known."""

    @property
    def entries(self) -> Mapping[int, Entry]:
        """All clusters by their ids; another task or thread may change them."""

    def entry(self, identity: int) -> Entry | None:
        """Return the cluster that an id names, also one that was given before rules changed."""

    @property
    def commands(self) -> Commands:
        """What finds events."""

    def status(self) -> Status:
        """Return its state."""

    def wanted(self, identities: Sequence[int] = ()) -> None:
        """Somebody looks at it, and at these clusters: keep them current for a while."""

    async def run(self) -> None:
        """Read until cancelled; never raises."""

    async def details(self, identity: int) -> Details | None:
        """Return everything about a cluster; None if it is gone.

        Raises:
            StreamDedupError: it cannot be read now.
        """

    async def firsts(self, identities: Sequence[int]) -> list[bytes | None]:
        """Return the values of clusters' first events; None of those that are gone.

        Raises:
            StreamDedupError: they cannot be read now.
        """


class Commands(Protocol):
    """Makes the commands that find a cluster's events."""

    def __call__(self, summary: Summary, expression: str) -> list[str]:
        """Return commands for a shell, with all that comes from events quoted.

        Args:
            summary: of the cluster.
            expression: an extended regular expression for its lines; empty if there is none.
        """


def group_text(group: str) -> str:
    """A group for people: names and values.

    >>> group_text('{"pod":"api-1"}')
    'pod=api-1'
    """
    try:
        values = msgspec.json.decode(group.encode("utf-8", "replace"), type=dict[str, str])
    except msgspec.MsgspecError:
        return readable(group.encode("utf-8", "replace"), MAX_GROUP)
    shown = (f"{name}={value}" for name, value in values.items())
    return readable(", ".join(shown).encode("utf-8", "replace"), MAX_GROUP)
