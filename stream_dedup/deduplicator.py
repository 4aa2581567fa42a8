"""`Deduplicator`: the engine with an index in memory, for one process, without an event loop."""

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
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec

from stream_dedup.clock import Clock, SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.engine import NEAR_CACHE_SIZE, Counts, Engine
from stream_dedup.features.fields import UNDECODABLE
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.index.base import IndexSize, Limits
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.model import Batch, Decision, Partition, Summary

Value = bytes | bytearray | memoryview | str | dict[str, Any]
"""What `Deduplicator` takes as an event: a text, or a decoded JSON object."""

T = TypeVar("T")


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
        summaries: how often summaries are due, and what they hold.
        limits: how many clusters are kept.
        clock: gives arrival times and the time of leases.
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
        # One batch may close any number of clusters before the caller can claim their summaries.
        index = MemoryIndex(
            recipe, windows=windows, summaries=summaries, limits=limits, cap_waiting=False
        )
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
            times_us: event times in microseconds since 1970-01-01 UTC; by default the arrival
                time.
            groups: only events of an equal group are compared.

        Returns:
            A decision for each event, in order.

        Raises:
            TypeError: `values` is a single event, or one of the values is not an event.
            ValueError: `times_us` or `groups` differ in length from `values`.
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
        """Decide a batch with positions that the caller gives."""
        return run(self.engine.process(batch))

    def process_one(self, value: Value, *, time_us: int | None = None, group: str = "") -> Decision:
        """Decide one event. A batch of many costs little more."""
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
        """Decide events as they arrive, and yield (value, decision) pairs.

        Args:
            values: the events, as for `process`.
            time_us: returns an event's time; by default the arrival time.
            group: returns an event's group.
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
        """Return the due summaries: of clusters with news, and final ones of closed clusters.

        They count as sent when this returns.

        Args:
            patterns: whether to compute their patterns; `pattern` does it for a single one.
        """
        run(self.engine.index.expire(self.engine.clock.now_us()))
        return list(self._claimed(patterns))

    def close(self, *, patterns: bool = True) -> list[Summary]:
        """Close all clusters and return their final summaries; they count as sent."""
        run(self.engine.index.finish(self.engine.clock.now_us()))
        return list(self._claimed(patterns))

    def pattern(self, summary: Summary) -> str:
        """Return the pattern of a summary's cluster."""
        return summary.pattern or self.engine.pattern(summary.representative)

    def patterns(self, decisions: Sequence[Decision]) -> list[str | None]:
        """Return the pattern of each decision's cluster; None for passed events."""
        clusters = [d.cluster for d in decisions if d.cluster is not None]
        patterns = run(self.engine.patterns(clusters))
        return [None if d.cluster is None else patterns.get(d.cluster) for d in decisions]

    def release(self, partition: Partition) -> None:
        """Release a partition, given to `process_batch`, that was read to its end."""
        run(self.engine.release_partition(partition))

    def size(self) -> IndexSize:
        """Return how much the index holds."""
        return run(self.engine.index.size())

    def _claimed(self, patterns: bool) -> Iterator[Summary]:
        while summaries := run(self.engine.claim_summaries()):
            run(self.engine.confirm_summaries(summaries))
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
                raise TypeError(
                    f"{type(value).__name__} is not an event: give text, bytes or a dict"
                )
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
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold
        return text.encode("utf-8", "surrogatepass")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as those of an engine with an index in memory.

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
