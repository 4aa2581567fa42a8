"""A stretch: a part of a batch that is decided, counted and recorded at once.

`stretch_end` says where it ends. Its events are recorded by the near cache as far as that knows,
all others by one question to the index; an event like one that is asked for waits for its answer.
What it adds to clusters is counted on the way, once a cluster, and recorded by the engine.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import or_
from typing import TypeVar

from stream_dedup.columnar import dictionary_encode, group_min_max, rows_of, take
from stream_dedup.engine.hashing import NOTHING, REPLAYED, Decider, HashedBatch, Owned
from stream_dedup.engine.near_cache import DEAD_US, Key, Known, Near
from stream_dedup.index.base import (
    DELTA_BYTES,
    MAX_DELTAS,
    ClusterDelta,
    Query,
    Resolution,
)
from stream_dedup.model import Decision, Kind, Position

T = TypeVar("T")

NEW, DUPLICATE = Kind.NEW, Kind.DUPLICATE  # looked up in an enumeration they cost as much as a call


def stretch_end(
    hashed: HashedBatch, times: Sequence[int], start: int, owned: Owned, decider: Decider
) -> tuple[int, list[Near | None]]:
    """Where the stretch ends that begins at the index `start` of a batch.

    All of it was recorded before, or none of it; the same for what may have been; it does not go
    beyond a cut; and what it adds to clusters is little enough that counting it makes nobody wait
    (see `MAX_DELTAS`).

    Returns:
        Its end, and what the near cache knows of its events; nothing where all were recorded.
    """
    offsets, keys, values = hashed.batch.offsets, hashed.keys, hashed.batch.values
    end = len(offsets)
    if offsets[start] <= owned.high_water:
        return bisect_right(offsets, owned.high_water, start), []
    for cut in owned.cuts:
        if cut >= offsets[start]:
            end = bisect_right(offsets, cut, start)
            break
    if offsets[start] <= owned.in_doubt:
        end = min(end, bisect_right(offsets, owned.in_doubt, start))
    nears = list(map(decider.near.recent.get, keys[start:end]))
    latest_us = max(times[start:end])
    # At most a delta for each cluster that is live for all of it, and one for each other event;
    # and values of those and of clusters that take samples.
    different, places = dictionary_encode(nears)
    news = [near is None or near.known.live_until_us < latest_us for near in different]
    keeps = [near is None or near.known.samples > 0 for near in different]
    most_bytes, room = decider.kept_bytes, MAX_DELTAS * DELTA_BYTES
    needed = (len(different) + len(rows_of(places, news))) * DELTA_BYTES
    for row in rows_of(places, list(map(or_, news, keeps))):
        needed += min(most_bytes, len(values[start + row]))
    if needed <= room:
        return end, nears
    # Each is looked at, as many may be alike. A new cluster's second event counts as another delta:
    # with it the cluster is due to be told of.
    live = decider.windows.live
    seen: dict[Key, tuple[int, int, int, Known | None]] = {}
    for row, (key, near, time_us) in enumerate(
        zip(keys[start:end], nears, times[start:end], strict=True)
    ):
        if key in seen:
            before, opened_us, last_us, known = seen[key]
        else:
            before, opened_us, last_us, known = 0, time_us, time_us, None
            if near and near.known.live_until_us != DEAD_US:
                known = near.known
                opened_us, last_us = known.opened_us, known.last_us
        if not live(opened_us, last_us, time_us):  # it opens another
            before, opened_us, last_us, known = 0, time_us, time_us, None
        seen[key] = before + 1, opened_us, max(last_us, time_us), known
        if before < (1 if known else 2):
            room -= DELTA_BYTES
        if before < (known.samples if known else 1 + decider.samples):
            room -= min(most_bytes, len(values[start + row]))
        if room < 0:
            end = start + max(1, row)
            break
    return end, nears[: end - start]


@dataclass(slots=True)
class Stretch:
    """A part of a batch on its way.

    Attributes:
        decider: what it is decided by.
        hashed: the batch.
        times: the event times of the batch.
        decisions: those of the batch, filled in here for this part of it.
        now_us: the clock.
        nears: what the near cache knew of its events when its end was looked for.
        deltas: what it adds to clusters, by what the near cache knows of each. Kept here: what is
            forgotten meanwhile still counts, and other batches are on their way.
        opened: events that opened a cluster.
        passed: events that were passed, by reason.
        asked: events that the index was asked about.
    """

    decider: Decider
    hashed: HashedBatch
    times: Sequence[int]
    decisions: list[Decision]
    now_us: int
    nears: list[Near | None]
    deltas: dict[Known, ClusterDelta] = field(default_factory=dict)
    opened: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    asked: int = 0

    def settle_passed(
        self, start: int, end: int, journal: Mapping[int, Decision]
    ) -> tuple[Sequence[int], int]:
        """Decide what needs no index.

        Returns:
            The indexes of the events that are left, and how many the journal told.
        """
        passed, offsets = self.hashed.batch.passed, self.hashed.batch.offsets
        if not journal and not passed:
            return range(start, end), 0
        left, told = [], 0
        for index in range(start, end):
            decision = journal.get(offsets[index])
            if decision is not None:
                self.decisions[index] = decision
                told += 1
            elif index in passed:
                self._pass(index, self.decider.passes(passed[index]))
            else:
                left.append(index)
        return left, told

    def _pass(self, index: int, decision: Decision) -> None:
        self.decisions[index] = decision
        self.passed[decision.reason] = self.passed.get(decision.reason, 0) + 1

    async def decide(self, todo: Sequence[int], *, in_doubt: bool = False) -> None:
        """Decide events, and delta them.

        Args:
            todo: their indexes.
            in_doubt: they may have been decided before: the index is asked about all, as it alone
                knows which of them opened a cluster.
        """
        nears = self.nears
        if not isinstance(todo, range):  # not the whole of it
            nears = list(map(self.decider.near.recent.get, _chosen(self.hashed.keys, todo)))
        while todo:
            unknown = todo if in_doubt else self._settle(todo, nears)
            in_doubt = False
            asked, waiting = self._gather(unknown)
            learnt = {
                index: self._learn(index, query, answer)
                for index, (query, answer) in (await self._ask(asked)).items()
            }
            # An event that waited takes the answer it waited for, not a later one to its like.
            todo, nears = list(waiting), [learnt[first] for first in waiting.values()]

    async def repeat(self, todo: Sequence[int]) -> None:
        """Decide events that were counted before, from the index as it stands."""
        asked, waiting = self._gather(todo)
        answers = await self._ask(asked)
        for index, (query, answer) in answers.items():
            kind = Kind.NEW if answer.new else Kind.DUPLICATE
            self.decisions[index] = Decision(
                kind, answer.cluster, answer.distance, query.fingerprint, REPLAYED
            )
        for index, first in waiting.items():
            self.decisions[index] = self.decisions[first]._replace(kind=Kind.DUPLICATE)

    def _settle(self, todo: Sequence[int], nears: list[Near | None]) -> Sequence[int]:
        """Decide what is known of; the indexes of the others.

        In a storm this is all there is to do, so an event costs no more than its place in a few
        columns: what is counted is counted once a `Near`. Those of a cluster that may have closed
        between two of its events, or that still takes samples, are looked at one by one.
        """
        different, places = self._different(todo, nears)
        live = self.decider.near.live
        spanned = group_min_max(places, _chosen(self.times, todo), len(different))
        singly = {
            near.known
            for near, (_, _, last_us) in zip(different, spanned, strict=True)
            if near
            and (
                near.known.samples
                or (last_us > near.known.live_until_us and not live(near.known, last_us))
            )
        }
        left = []
        for near, (count, first_us, last_us) in zip(different, spanned, strict=True):
            if near is None or near.known in singly:
                left.append(True)
            else:
                left.append(False)
                self._count(near.known, count, first_us, last_us)
        decided = take([near.decision if near else NOTHING for near in different], places)
        if isinstance(todo, range):
            self.decisions[todo.start : todo.stop] = decided
        else:
            for index, decision in zip(todo, decided, strict=True):
                self.decisions[index] = decision
        unknown = []
        for row in rows_of(places, left):
            near = different[places[row]]
            if near is None or not self._join(todo[row], near):
                unknown.append(todo[row])
        return unknown

    def _different(
        self, todo: Sequence[int], nears: list[Near | None]
    ) -> tuple[list[Near | None], array[int]]:
        """What is known of events, taken apart; those not known are looked for once more."""
        different, places = dictionary_encode(nears)
        cache = self.decider.near
        if None not in different or not cache.older:
            return different, places
        for row in rows_of(places, [near is None for near in different]):
            nears[row] = cache.find(self.hashed.keys[todo[row]])
        return dictionary_encode(nears)

    def _count(self, known: Known, count: int, first_us: int, last_us: int) -> ClusterDelta:
        delta = self.deltas.get(known)
        if delta is None:
            delta = self.deltas[known] = ClusterDelta(known.cluster, count, first_us, last_us)
        else:
            delta.count += count
            delta.first_us = min(delta.first_us, first_us)
            delta.last_us = max(delta.last_us, last_us)
        known.last_us = max(known.last_us, last_us)
        return delta

    def _join(self, index: int, near: Near) -> bool:
        """Have one event join a cluster, if that is live yet; whether it was."""
        known, time_us = near.known, self.times[index]
        if not self.decider.near.live(known, time_us):
            return False
        delta = self._count(known, 1, time_us, time_us)
        if known.samples:
            known.samples -= 1
            delta.samples.append(self.hashed.batch.values[index])
        return True

    def _gather(self, todo: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Who is to be asked about; those without a token are decided as they stand.

        Returns:
            The events to ask the index about, each with the latest time it asks for; and those
            that wait, each for the answer to an equal event before it.
        """
        keys, exact, times = self.hashed.keys, self.hashed.exact, self.times
        nothing, live = self.decider.exact_of_nothing, self.decider.windows.live
        asked: dict[int, int] = {}
        asking: dict[Key, int] = {}  # key → the event that asks
        waiting: dict[int, int] = {}
        for index in todo:
            if exact[index] == nothing:
                self._pass(index, NOTHING)
                continue
            key, time_us = keys[index], times[index]
            first = asking.get(key)
            if first is not None and live(times[first], asked[first], time_us):
                asked[first] = max(asked[first], time_us)
                waiting[index] = first
            else:
                asking[key] = index
                asked[index] = time_us
        return asked, waiting

    async def _ask(self, asked: dict[int, int]) -> dict[int, tuple[Query, Resolution]]:
        """What the index answers to each event asked about."""
        if not asked:
            return {}
        decider, hashed, batch = self.decider, self.hashed, self.hashed.batch
        indexes = list(asked)
        self.asked += len(indexes)
        numbers = await decider.fingerprints(hashed, indexes)
        source, partition = batch.partition
        queries = [
            Query(
                group=batch.groups[index] if batch.groups else "",
                exact=hashed.exact[index],
                fingerprint=numbers.fingerprint(row),
                sketch=numbers.sketches[row],
                near=numbers.words[row] >= decider.searched_from,
                first_us=self.times[index],
                last_us=asked[index],
                position=Position(source, partition, batch.offsets[index]),
            )
            for row, index in enumerate(indexes)
        ]
        answers = await decider.index.resolve(queries, self.now_us)
        return dict(zip(indexes, zip(queries, answers, strict=True), strict=True))

    def _learn(self, index: int, query: Query, answer: Resolution) -> Near:
        fingerprint = query.fingerprint
        duplicate = Decision(DUPLICATE, answer.cluster, answer.distance, fingerprint)
        near = self.decider.near.learn(self.hashed.keys[index], answer, duplicate)
        value = self.hashed.batch.values[index]
        known = near.known
        delta = self._count(known, 1, query.first_us, query.first_us)
        if answer.new:
            delta.representative = value
            self.opened += 1
            self.decisions[index] = Decision(NEW, answer.cluster, 0, fingerprint)
        else:
            self.decisions[index] = duplicate
            if known.samples:
                known.samples -= 1
                delta.samples.append(value)
        return near

    def undo(self, todo: Sequence[int], closed: frozenset[int]) -> list[int]:
        """Take back what was decided, of `todo`, for clusters that are closed; those indexes."""
        self.deltas = {k: delta for k, delta in self.deltas.items() if k.cluster not in closed}
        undone = [index for index in todo if self.decisions[index].cluster in closed]
        self.opened -= sum(self.decisions[index].kind is Kind.NEW for index in undone)
        return undone


def _chosen(column: Sequence[T], indexes: Sequence[int]) -> Sequence[T]:
    """The rows of a column at these indexes."""
    if isinstance(indexes, range):
        return column[indexes.start : indexes.stop]
    return [column[index] for index in indexes]
