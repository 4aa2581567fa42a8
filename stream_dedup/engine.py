"""The engine: from batches of events to decisions and summaries; and its embedded form.

`Engine` goes one batch's way (see `index.base`) over any index. `Deduplicator` is the engine with
the index in memory, for one process, called without an event loop.

Work is done once a batch: one kernel call for the exact hashes of all events, one for the rest of
those the near cache does not know, one `resolve`, one `record`. What is left for each event is a
dictionary look-up.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import msgspec

from stream_dedup.clock import Clock, SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexReset
from stream_dedup.features.fields import UNDECODABLE
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.hashing import hash_sequence
from stream_dedup.index.base import (
    Index,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Record,
    Resolution,
    Tally,
)
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.near_cache import Key, Known, Near, NearCache
from stream_dedup.model import Batch, Decision, Kind, Partition, Position, Summary

NEAR_CACHE_SIZE = 200_000
"""Exact hashes in the near cache, in each of its two generations; some 440 bytes each."""

CLAIM_BATCH = 1_000
"""Summaries claimed at once."""

NOTHING = Decision(Kind.PASSED, reason="nothing to fingerprint")
"""Decided of an event without any token: an empty line, or delimiters only."""

Value = bytes | bytearray | memoryview | str | dict[str, Any]
"""What `Deduplicator` takes as an event: a text, or a JSON object decoded."""

T = TypeVar("T")


@dataclass(slots=True)
class Counts:
    """What was decided so far.

    Attributes:
        events: all of them; new + duplicates + passed.
        new: events that opened a cluster.
        duplicates: events that joined one.
        passed: events that were not fingerprinted, by reason.
        clamped: events whose time lay too far in the future and was cut back.
    """

    events: int = 0
    new: int = 0
    duplicates: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    clamped: int = 0

    @property
    def removed(self) -> float:
        """The share of events that were duplicates."""
        return self.duplicates / self.events if self.events else 0.0


class Engine:
    """Decides batches of events against an index.

    Args:
        recipe: what counts as near.
        index: where clusters live; made with the same recipe and windows.
        windows: when clusters are live.
        summaries: how many samples are kept; the rest is the index's concern.
        clock: what tells arrival times.
        near_cache_size: exact hashes kept in process; 0 for none.

    Attributes:
        resets: how often the index was found to have lost its data.
    """

    def __init__(
        self,
        recipe: Recipe,
        index: Index,
        *,
        windows: Windows,
        summaries: Summaries,
        clock: Clock,
        near_cache_size: int = NEAR_CACHE_SIZE,
    ) -> None:
        self.recipe = recipe
        self.index = index
        self.counts = Counts()
        self._windows = windows
        self.clock = clock
        self._fingerprinter = Fingerprinter(recipe)
        self.exact_of_nothing, _ = hash_sequence([], recipe.fingerprint.seed)
        self._patterns = Patterns(recipe)
        self._pattern_of: dict[int, str] = {}
        self._near = NearCache(windows, near_cache_size, summaries.samples)
        self._owned: dict[Partition, Ownership] = {}
        self.resets = 0
        self._passed: dict[str, Decision] = {NOTHING.reason: NOTHING}

    @property
    def takes_fields(self) -> bool:
        """Whether the recipe looks at fields of decoded JSON events."""
        return self._fingerprinter.takes_fields

    async def process(self, batch: Batch) -> list[Decision]:
        """Decide a batch, count it, and return a decision an event, in order.

        One batch at a time: the next call waits for the one before. An index that lost its data
        is begun anew with this batch: what is decided and counted no longer knows what was before.
        """
        if not batch.values:
            return []
        while True:
            try:
                return await self._process(batch)
            except IndexReset:
                self.resets += 1
                self._near.clear()
                self._owned.clear()

    async def _process(self, batch: Batch) -> list[Decision]:
        now_us = self.clock.now_us()
        work = _Work(self, batch, now_us)
        todo: Sequence[int] = range(len(batch.values))
        if batch.passed:
            todo = [index for index in todo if index not in batch.passed]
            for index, reason in batch.passed.items():
                work.decisions[index] = self._pass(reason)
        try:
            while True:
                await work.decide(todo)
                closed = await self._record(batch, work, now_us)
                if not closed:
                    break
                self._forget(closed)
                todo = work.undo(closed)
        except BaseException:
            # Tried again, its events are asked for again: a cluster's first must be its first.
            self._forget(known.cluster for known in work.touched)
            raise
        finally:
            for known in work.touched:
                known.tally = None
        self._count(batch, work)
        return work.decisions

    def _forget(self, clusters: Iterable[int]) -> None:
        for cluster in clusters:
            self._near.forget(cluster)

    async def _record(self, batch: Batch, work: _Work, now_us: int) -> frozenset[int]:
        owned = self._owned.get(batch.partition)
        if owned is None:
            owned = await self.index.claim_partition(batch.partition, None, now_us)
            self._owned[batch.partition] = owned
        last = batch.offsets[-1]
        record = Record(
            partition=batch.partition,
            fence=owned.fence,
            first_offset=batch.offsets[0],
            last_offset=last,
            committed=last + 1,
            last_us=max(work.times) if batch.times_us else now_us,
            tallies=work.tallies,
        )
        return await self.index.record(record, now_us)

    async def release(self, partition: Partition) -> None:
        """A partition was read to its end."""
        self._owned.pop(partition, None)
        await self.index.release_partition(partition)

    async def due(self, limit: int = CLAIM_BATCH) -> list[Summary]:
        """Take summaries that are due, without patterns; `confirm` them once they are sent."""
        return await self.index.claim(limit, self.clock.now_us())

    async def confirm(self, summaries: Sequence[Summary]) -> None:
        """The summaries were sent."""
        names = [(summary.cluster, summary.revision) for summary in summaries]
        await self.index.confirm(names, self.clock.now_us())
        for summary in summaries:
            if summary.final:
                self._near.forget(summary.cluster)
                self._pattern_of.pop(summary.cluster, None)

    async def patterns(self, clusters: Sequence[int]) -> dict[int, str]:
        """The patterns of clusters, those that are gone left out."""
        known = self._pattern_of
        if len(known) > NEAR_CACHE_SIZE:
            known.clear()
        missing = [cluster for cluster in dict.fromkeys(clusters) if cluster not in known]
        if missing:
            values = await self.index.representatives(missing)
            known.update(
                (cluster, self.pattern(value))
                for cluster, value in zip(missing, values, strict=True)
                if value  # empty: opened, but nothing recorded yet
            )
        return {cluster: known[cluster] for cluster in clusters if cluster in known}

    def pattern(self, representative: bytes) -> str:
        """The pattern of a cluster, from its representative's value."""
        document = None
        if self.takes_fields:
            try:
                document = msgspec.json.decode(representative)
            except UNDECODABLE:
                pass  # cut short, or not JSON: its text is the pattern
        return self._patterns.pattern(representative, document)

    def _pass(self, reason: str) -> Decision:
        decision = self._passed.get(reason)
        if decision is None:
            decision = self._passed[reason] = Decision(Kind.PASSED, reason=reason)
        return decision

    def _count(self, batch: Batch, work: _Work) -> None:
        counts = self.counts
        reasons = list(batch.passed.values()) + [NOTHING.reason] * work.empty
        for reason in reasons:
            counts.passed[reason] = counts.passed.get(reason, 0) + 1
        counts.events += len(batch.values)
        counts.new += work.opened
        counts.duplicates += len(batch.values) - work.opened - len(reasons)


class _Work:
    """One batch on its way through the engine."""

    def __init__(self, engine: Engine, batch: Batch, now_us: int) -> None:
        self._engine = engine
        self._batch = batch
        self._now_us = now_us
        fingerprinter = engine._fingerprinter  # noqa: SLF001 -- the engine's own helper
        self._prepared = fingerprinter.prepare(batch.values, batch.documents)
        exact = fingerprinter.fingerprints(self._prepared, full=False)
        self._exact = exact.exact
        self.keys: Sequence[Key] = (
            [(g, e) if g else e for g, e in zip(batch.groups, exact.exact, strict=True)]
            if batch.groups
            else exact.exact
        )
        self.times = self._clamped()
        self.decisions: list[Decision] = [NOTHING] * len(batch.values)
        self.touched: list[Known] = []
        self.tallies: list[Tally] = []  # kept apart: what is forgotten meanwhile still counts
        self.opened = 0
        self.empty = 0

    def _clamped(self) -> Sequence[int]:
        times = self._batch.times_us
        if times is None:
            return [self._now_us] * len(self._batch.values)
        latest = self._now_us + self._engine._windows.max_future_us  # noqa: SLF001
        if max(times) > latest:
            self._engine.counts.clamped += sum(time > latest for time in times)
            times = [min(time, latest) for time in times]
        return times

    async def decide(self, todo: Sequence[int]) -> None:
        """Decide the events at the indexes `todo`."""
        cached = self._engine._near.recent.get  # noqa: SLF001
        nears: Iterable[Near | None] = map(cached, map(self.keys.__getitem__, todo))
        while todo:
            asked, waiting = self._settle(todo, nears)
            answers = await self._ask(asked) if asked else {}
            # An event that waited takes the answer it waited for, not a later one to its like.
            todo, nears = list(waiting), [answers[first] for first in waiting.values()]

    def _settle(
        self, todo: Sequence[int], nears: Iterable[Near | None]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Decide what is known.

        Args:
            todo: indexes of events.
            nears: what is known of each.

        Returns:
            The events to ask the index about, each with the latest time it asks for; and those
            that wait, each for the answer to an equal event before it.
        """
        near_cache = self._engine._near  # noqa: SLF001
        keys, times, decisions = self.keys, self.times, self.decisions
        windows = self._engine._windows  # noqa: SLF001
        asked: dict[int, int] = {}
        asking: dict[Key, int] = {}  # key → the event that asks
        waiting: dict[int, int] = {}
        for index, found in zip(todo, nears, strict=True):
            time_us = times[index]
            near = found or near_cache.older(keys[index])
            if near is not None and time_us <= near.known.live_until_us:
                known = near.known
                decisions[index] = near.decision
                tally = known.tally
                if tally is None:
                    tally = self._tally(known, time_us)
                tally.count += 1
                if time_us > tally.last_us:
                    tally.last_us = time_us
                    if time_us > known.last_us:
                        near_cache.seen(known, time_us)
                elif time_us < tally.first_us:
                    tally.first_us = time_us
                if known.samples:
                    known.samples -= 1
                    tally.samples.append(self._batch.values[index])
                continue
            if self._exact[index] == self._engine.exact_of_nothing:
                self.empty += 1  # decided as it stands
                continue
            key = keys[index]
            first = asking.get(key)
            if first is not None and windows.live(times[first], asked[first], time_us):
                asked[first] = max(asked[first], time_us)
                waiting[index] = first
            else:
                asking[key] = index
                asked[index] = time_us
        return asked, waiting

    async def _ask(self, asked: dict[int, int]) -> dict[int, Near]:
        """Have the index decide the events asked about, and keep what it answers."""
        engine, batch = self._engine, self._batch
        indexes = list(asked)
        fingerprinter = engine._fingerprinter  # noqa: SLF001
        numbers = fingerprinter.fingerprints(
            fingerprinter.select(self._prepared, indexes), full=True
        )
        least = engine.recipe.match.min_features
        source, partition = batch.partition
        queries = [
            Query(
                group=batch.groups[index] if batch.groups else "",
                exact=self._exact[index],
                fingerprint=numbers.fingerprint(row),
                sketch=numbers.sketches[row],
                near=numbers.words[row] >= least,
                first_us=self.times[index],
                last_us=asked[index],
                position=Position(source, partition, batch.offsets[index]),
            )
            for row, index in enumerate(indexes)
        ]
        answers = await engine.index.resolve(queries, self._now_us)
        return {
            index: self._learn(index, query, answer)
            for index, query, answer in zip(indexes, queries, answers, strict=True)
        }

    def _learn(self, index: int, query: Query, answer: Resolution) -> Near:
        duplicate = Decision(Kind.DUPLICATE, answer.cluster, answer.distance, query.fingerprint)
        near = self._engine._near.learn(self.keys[index], answer, duplicate)  # noqa: SLF001
        known = near.known
        value = self._batch.values[index]
        tally = known.tally
        if tally is None:
            tally = self._tally(known, query.first_us)
        elif query.first_us < tally.first_us:
            tally.first_us = query.first_us
        elif query.first_us > tally.last_us:
            tally.last_us = query.first_us
        tally.count += 1
        if answer.new:
            tally.representative = value
            self.opened += 1
            self.decisions[index] = Decision(Kind.NEW, answer.cluster, 0, query.fingerprint)
        else:
            self.decisions[index] = duplicate
            if known.samples:
                known.samples -= 1
                tally.samples.append(value)
        return near

    def _tally(self, known: Known, time_us: int) -> Tally:
        known.tally = tally = Tally(known.cluster, 0, time_us, time_us)
        if time_us > known.last_us:
            self._engine._near.seen(known, time_us)  # noqa: SLF001
        self.touched.append(known)
        self.tallies.append(tally)
        return tally

    def undo(self, closed: frozenset[int]) -> list[int]:
        """Take back what was decided for clusters that are closed; the indexes of their events."""
        self.tallies = [tally for tally in self.tallies if tally.cluster not in closed]
        undone = [i for i, d in enumerate(self.decisions) if d.cluster in closed]
        self.opened -= sum(self.decisions[i].kind is Kind.NEW for i in undone)
        return undone


class Deduplicator:
    """Near-duplicate detection in one process.

    Example:
        >>> dedup = Deduplicator(recipe="logs")
        >>> first, second = dedup.process(["disk sda1 is 91% full", "disk sdb7 is 64% full"])
        >>> first.kind.value, second.kind.value, first.cluster == second.cluster
        ('new', 'duplicate', True)
        >>> dedup.process_one("out of memory: killed process 4711").kind.value
        'new'
        >>> [(summary.count, summary.pattern) for summary in dedup.close()]
        [(2, 'disk <*> is <number> full'), (1, 'out of memory: killed process <number>')]

    Args:
        recipe: a shipped recipe's name, a TOML file's path, or a `Recipe`.
        windows: when clusters close; an hour idle or a day old by default.
        summaries: how often `due` tells of a cluster, and how much is kept of it.
        limits: how many clusters are held.
        clock: what tells arrival times and leases.
        source: names the input in positions.
    """

    def __init__(
        self,
        recipe: str | os.PathLike[str] | Recipe = "logs",
        *,
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        source: str = "input",
    ) -> None:
        if not isinstance(recipe, Recipe):
            recipe = load_recipe(recipe)
        windows, summaries = windows or Windows(), summaries or Summaries()
        limits = limits or Limits()
        index = MemoryIndex(recipe, windows=windows, summaries=summaries, limits=limits)
        self.engine = Engine(
            recipe,
            index,
            windows=windows,
            summaries=summaries,
            clock=clock or SystemClock(),
            near_cache_size=min(NEAR_CACHE_SIZE, 16 * limits.max_clusters),
        )
        self._partition = Partition(source, 0)
        self._offset = 0

    @property
    def recipe(self) -> Recipe:
        """What counts as near."""
        return self.engine.recipe

    @property
    def counts(self) -> Counts:
        """What was decided so far."""
        return self.engine.counts

    def process(
        self,
        values: Iterable[Value],
        *,
        times_us: Sequence[int] | None = None,
        groups: Sequence[str] | None = None,
    ) -> list[Decision]:
        """Decide a batch of events.

        Args:
            values: texts, or JSON objects (decoded, or as text) where the recipe takes fields.
            times_us: event times in microseconds since 1970-01-01 UTC; arrival time without.
            groups: only events of an equal group are compared.

        Returns:
            A decision an event, in order.

        Raises:
            TypeError: `values` is one event, not many, or holds what is no event.
        """
        if isinstance(values, str | bytes | bytearray | memoryview | dict):
            raise TypeError("one event is for process_one; process takes many")
        texts, documents, passed = self._decoded(list(values))
        count = len(texts)
        for name, given in (("times_us", times_us), ("groups", groups)):
            if given is not None and len(given) != count:
                raise ValueError(f"{name} has {len(given)} entries for {count} values")
        batch = Batch(
            partition=self._partition,
            offsets=range(self._offset, self._offset + count),
            values=texts,
            times_us=times_us,
            groups=groups,
            documents=documents,
            passed=passed,
        )
        self._offset += count
        return self.process_batch(batch)

    def process_batch(self, batch: Batch) -> list[Decision]:
        """Decide a batch whose positions the caller knows."""
        return run(self.engine.process(batch))

    def process_one(self, value: Value, *, time_us: int | None = None, group: str = "") -> Decision:
        """Decide one event; a batch of many costs little more."""
        return self.process(
            [value], times_us=None if time_us is None else [time_us], groups=[group]
        )[0]

    async def stream(
        self,
        values: AsyncIterable[Value],
        *,
        time_us: Callable[[Value], int] | None = None,
        group: Callable[[Value], str] | None = None,
    ) -> AsyncIterator[tuple[Value, Decision]]:
        """Decide events as they come: (value, decision) pairs.

        Args:
            values: the events, as for `process`.
            time_us: tells an event's time; arrival time without.
            group: tells an event's group.
        """
        async for value in values:
            yield (
                value,
                self.process_one(
                    value,
                    time_us=None if time_us is None else time_us(value),
                    group="" if group is None else group(value),
                ),
            )

    def due(self, *, patterns: bool = True) -> list[Summary]:
        """The summaries that are due by now: news of clusters, and the final word on closed ones.

        They count as sent when this returns.

        Args:
            patterns: whether to work their patterns out; `pattern` does it for single ones.
        """
        run(self.engine.index.expire(self.engine.clock.now_us()))
        return list(self._claimed(patterns))

    def close(self, *, patterns: bool = True) -> list[Summary]:
        """The input has ended: the final summaries of all clusters. They count as sent."""
        run(self.engine.index.finish(self.engine.clock.now_us()))
        return list(self._claimed(patterns))

    def pattern(self, summary: Summary) -> str:
        """The pattern of the cluster that a summary tells of."""
        return summary.pattern or self.engine.pattern(summary.representative)

    def patterns(self, decisions: Sequence[Decision]) -> list[str | None]:
        """The pattern of each decision's cluster; None for passed events."""
        clusters = [d.cluster for d in decisions if d.cluster is not None]
        patterns = run(self.engine.patterns(clusters))
        return [None if d.cluster is None else patterns.get(d.cluster) for d in decisions]

    def release(self, partition: Partition) -> None:
        """A partition given to `process_batch` was read to its end."""
        run(self.engine.release(partition))

    def size(self) -> IndexSize:
        """How much the index holds."""
        return run(self.engine.index.size())

    def _claimed(self, patterns: bool) -> Iterator[Summary]:
        while summaries := run(self.engine.due()):
            run(self.engine.confirm(summaries))
            for summary in summaries:
                yield replace(summary, pattern=self.pattern(summary)) if patterns else summary

    def _decoded(
        self, values: list[Value]
    ) -> tuple[list[bytes], list[object] | None, dict[int, str]]:
        takes_fields = self.engine.takes_fields
        if not takes_fields and set(map(type, values)) == {bytes}:
            return cast(list[bytes], values), None, {}
        texts: list[bytes] = []
        documents: list[object] = []
        passed: dict[int, str] = {}
        for value in values:
            document: object = None
            if isinstance(value, bytes | bytearray | memoryview):
                text = bytes(value)
            elif isinstance(value, str):
                text = _encoded(value)
            elif not isinstance(value, dict):
                raise TypeError(f"{type(value).__name__} is no event: give text, bytes or a dict")
            else:
                try:
                    text, document = msgspec.json.encode(value), value
                except (TypeError, UnicodeEncodeError, RecursionError):
                    text = b""
                    passed[len(texts)] = "not JSON"
            if takes_fields and document is None and len(texts) not in passed:
                try:
                    document = msgspec.json.decode(text)
                except UNDECODABLE:
                    passed[len(texts)] = "not JSON"
                if not isinstance(document, dict):
                    passed.setdefault(len(texts), "not a JSON object")
                    document = None
            texts.append(text)
            documents.append(document)
        return texts, documents if takes_fields else None, passed


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone half of a surrogate pair, as JSON can hold
        return text.encode("utf-8", "surrogatepass")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends: those of an engine over the index in memory.

    Raises:
        RuntimeError: it did suspend.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("the index waits for something: await the engine instead")
