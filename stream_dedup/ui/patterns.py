"""The clusters of a source as a list: what is known of each, search, order and pages. Pure."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from stream_dedup.clock import US_PER_S
from stream_dedup.features.masks import NAMED
from stream_dedup.features.variants import STANDS_FOR
from stream_dedup.ui.rules import Mark
from stream_dedup.volume.counts import Axis, Counts

Sort = Literal["count", "bytes", "newest", "growing", "vanished"]
State = Literal["all", "open", "closed"]

SEEN_S = {"any": None, "1m": 60, "5m": 300, "1h": 3_600, "1d": 86_400}
"""How long ago a cluster was last seen, at most."""

STEP = 2_000
"""Entries that are looked at in one step: some ten milliseconds at most."""

MAX_CHOICES = 100
"""Groups and levels to choose from."""


@dataclass(slots=True, eq=False)
class Entry:
    """What is known of a cluster.

    Attributes:
        identity: its id.
        count: its events, those of clusters that merged into it included where that is known.
        first: when it was first seen: microseconds, or a line.
        last: when it was last seen.
        counts: its events over time.
        pattern: its pattern.
        variant: as `Summary.variant`.
        group: its group, for people.
        open: whether it takes events.
        merged_into: the cluster that goes on for it.
        learned: as `Summary.learned`.
        read: when it was last read, in microseconds.
        mark: what rules do with its events; None for nothing.
        bytes: of its events, as they were read.
        inputs: its events of each file, by the file's number; None where there are no several.
    """

    identity: int
    count: int
    first: int
    last: int
    counts: Counts = field(default_factory=Counts)
    pattern: str = ""
    variant: tuple[str, ...] = ()
    group: str = ""
    open: bool = True
    merged_into: int | None = None
    learned: int = 0
    read: int = 0
    mark: Mark | None = None
    bytes: int = 0
    inputs: list[int] | None = None

    @property
    def hex(self) -> str:
        """Its id as 16 hex digits."""
        return f"{self.identity:016x}"


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is searched for, and what of it is shown."""

    sort: Sort = "count"
    words: Annotated[
        str, Meta(max_length=200, description="All must be in the pattern, or its name.")
    ] = ""
    group: Annotated[str, Meta(max_length=1_000, description="As a pattern names it.")] = ""
    level: Annotated[
        str, Meta(max_length=40, description="A log level, a status class, zero, or nonzero.")
    ] = ""
    seen: Annotated[
        Literal["any", "1m", "5m", "1h", "1d"],
        Meta(description="How long before the last event of all it was last seen, at most."),
    ] = "any"
    state: Annotated[State, Meta(description="Whether it takes events.")] = "all"
    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    limit: Annotated[int, Meta(ge=1, le=200, description="Patterns on a page.")] = 50


class Found(NamedTuple):
    """The answer to a query.

    Attributes:
        entries: those of the page, in order.
        patterns: all that were found.
        events: of them.
    """

    entries: list[Entry]
    patterns: int
    events: int


def find_in_steps(
    entries: Sequence[Entry], query: Query, axis: Axis, *, has_times: bool = True
) -> Generator[None, None, Found]:
    """Search, order, and cut out a page, in steps of a few milliseconds.

    It yields after each step, and returns the answer.
    """
    is_chosen = _chooser(entries, query, has_times=has_times)
    start, end = (query.page - 1) * query.limit, query.page * query.limit
    ordered: list[list[_Key]] = []
    patterns = events = began = 0
    if query.sort == "growing":
        began = min((each.first for each in entries), default=0) // axis.width
        yield
    for at in range(0, len(entries), STEP):
        chosen = [each for each in entries[at : at + STEP] if is_chosen(each)]
        keys = _keys(chosen, query.sort, axis, began)
        patterns += len(keys)
        events += sum(key[2].count for key in keys)
        # A few of many: no need to sort them all.
        few = end < len(keys) // 8
        ordered.append(heapq.nlargest(end, keys) if few else sorted(keys, reverse=True))
        yield
    page: list[Entry] = []
    for number, key in enumerate(heapq.merge(*ordered, reverse=True)):
        if number >= end:
            break
        if number >= start:
            page.append(key[2])
        if number % STEP == STEP - 1:
            yield
    return Found(page, patterns, events)


def _chooser(entries: Sequence[Entry], query: Query, *, has_times: bool) -> Callable[[Entry], bool]:
    """Return what says whether an entry is searched for."""
    words = query.words.casefold().split()
    within_s, since = SEEN_S[query.seen], None
    if within_s is not None and has_times:
        since = max((each.last for each in entries), default=0) - within_s * US_PER_S

    def is_chosen(each: Entry) -> bool:
        if query.state != "all" and each.open != (query.state == "open"):
            return False
        if since is not None and each.last < since:
            return False
        if query.group and each.group != query.group:
            return False
        if query.level and query.level not in each.variant:
            return False
        if not words:
            return True
        name = each.mark.name if each.mark else ""
        text = f"{name}\n{each.pattern}".casefold()
        return all(word in text for word in words)

    return is_chosen


_Key = tuple[int, int, Entry]


def _keys(entries: list[Entry], sort: Sort, axis: Axis, began: int) -> list[_Key]:
    """Return those that belong to an order, each behind what it is ordered by.

    Equal ones are in the order of their ids, so that pages fit together.
    """
    if sort == "newest":
        return [(each.first, each.identity, each) for each in entries]
    if sort == "bytes":
        return [(each.bytes, each.identity, each) for each in entries]
    if sort == "growing":
        grown = ((growth(each, axis, began), each.identity, each) for each in entries)
        return [each for each in grown if each[0] > 0]
    if sort == "vanished":
        entries = [each for each in entries if _has_vanished(each, axis)]
    return [(each.count, each.identity, each) for each in entries]


def growth(entry: Entry, axis: Axis, began: int) -> int:
    """How many more events than before came in the last quarter of the axis.

    Before is the time from its beginning, or that of the stream, to that quarter, scaled to its
    length.

    Args:
        entry: what has grown.
        axis: of its counts.
        began: the bucket of the first event of all.
    """
    recent, earlier = entry.counts.change(axis)
    before = axis.recent - max(axis.first, began)
    return recent - earlier * (axis.last + 1 - axis.recent) // before if before > 0 else recent


def _has_vanished(entry: Entry, axis: Axis) -> bool:
    recent, earlier = entry.counts.change(axis)
    return earlier > 0 and recent == 0


def choices(entries: Iterable[Entry]) -> tuple[list[str], list[str]]:
    """Return the groups and the levels to choose from, the commonest first."""
    groups: Counter[str] = Counter()
    levels: Counter[str] = Counter()
    for each in entries:
        if each.group:
            groups[each.group] += 1
        levels.update(each.variant)
    return tuple(  # type: ignore[return-value] # of two
        [name for name, _ in counted.most_common(MAX_CHOICES)] for counted in (groups, levels)
    )


# ------------------------------------------------------------ slots

KINDS = {
    "number": "number", "hex": "number", "unit": "number", "ipv4": "place", "ipv6": "place",
    "url": "place", "path": "place", "email": "place", "mac": "place", "timestamp": "time",
    "uuid": "id",
}  # fmt: skip
"""What a placeholder's colour says."""

_NAMES = {*NAMED, "unit", "*"}
_SLOT = re.compile(r"<(\*|[a-z0-9_]+)>")


class Part(NamedTuple):
    """A part of a pattern.

    Attributes:
        text: as it is shown.
        kind: of the slot; empty for words.
    """

    text: str
    kind: str


def parts(pattern: str) -> list[Part]:
    """Cut a pattern into words and slots.

    >>> [part.text for part in parts("disk <*> is <number> full of <b>")]
    ['disk ', '<*>', ' is ', '<number>', ' full of <b>']
    """
    out: list[Part] = []
    at = 0
    for match in _SLOT.finditer(pattern):
        name = match[1]
        if name not in _NAMES and not STANDS_FOR.fullmatch(match[0]):
            continue
        if match.start() > at:
            out.append(Part(pattern[at : match.start()], ""))
        out.append(Part(match[0], KINDS.get(name, "other")))
        at = match.end()
    return [*out, Part(pattern[at:], "")] if at < len(pattern) else out


# ------------------------------------------------------------ neighbours

MAX_NEIGHBOURS = 6
"""Patterns compared with one, as `explain` does."""


def neighbours(entry: Entry, others: Sequence[Entry], limit: int = MAX_NEIGHBOURS) -> list[Entry]:
    """Return the clusters whose patterns share the largest part of their words with one."""
    own = frozenset(entry.pattern.split())
    least, most = len(own) / 3, 3 * len(own)
    best: list[tuple[float, int, Entry]] = []
    for other in others:
        words = frozenset(other.pattern.split())
        if other is entry or not least <= len(words) <= most:
            continue
        common = len(own & words)
        if not common:
            continue
        likeness = common / (len(own) + len(words) - common)
        item = likeness, other.identity, other
        if len(best) < limit:
            heapq.heappush(best, item)
        elif item > best[0]:
            heapq.heapreplace(best, item)
    return [other for _, _, other in sorted(best, reverse=True)]
