"""`Deduplicator`: the engine with an index in memory, for one process, without an event loop.

Long batches are decided in parts, so that each event costs the same however long the batch is, and
the summaries that wait stay bounded. Single events that the near cache knows are decided without
the machinery of batches, and counted together (see `engine.joins`): whatever else is done, they are
committed first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import replace
from typing import Any, cast

import msgspec

from stream_dedup.clock import Clock, SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.engine import NEAR_CACHE_SIZE, Counts, Engine, Named
from stream_dedup.errors import IndexFull, InputError, StateError
from stream_dedup.features.fields import UNDECODABLE
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import IndexSize, Limits, max_waiting
from stream_dedup.index.memory import MemoryIndex, run
from stream_dedup.index.memory.saved import SavedCluster
from stream_dedup.io.files import whole_file
from stream_dedup.model import Batch, Decision, Partition, Summary
from stream_dedup.rules.model import PatternRule
from stream_dedup.rules.ruleset import RuleSet
from stream_dedup.saved_state import Header, read_state, write_state

Value = bytes | bytearray | memoryview | str | dict[str, Any]
"""What `Deduplicator` takes as an event: a text, or a decoded JSON object."""


MAX_PART_EVENTS = 10_000
"""Events of a batch that are decided together at most: more would cost more for each."""


class Deduplicator:
    """Near-duplicate detection in one process. Threads may share it; they take turns.

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
        limits: how many clusters are kept, and how many summaries may wait for `due`.
        clock: gives arrival times and the time of leases.
        source: names the input in positions.
        keep_summaries: whether closed clusters wait for `due`. If not, their summaries are dropped:
            for callers that need decisions only.
        key: 16 secret bytes for the hashes that decide, so that no sender can make two texts
            equal; random by default. Give one only to compare hashes with those of another run.
        templates: whether decisions name templates; without, `templates` looks them up.
        rules: what people decided about patterns (`rules.book.RuleBook`); none by default.

    Attributes:
        part_events: events of a batch that are decided together. Whoever calls `due` after so many
            never gets `IndexFull`.
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
        keep_summaries: bool = True,
        key: bytes | None = None,
        templates: bool = False,
        rules: Iterable[PatternRule] = (),
    ) -> None:
        if not isinstance(recipe, Recipe):
            recipe = load_recipe(recipe)
        windows, summaries = windows or Windows(), summaries or Summaries()
        if not keep_summaries:
            summaries = replace(summaries, every_us=None, samples=0, values=0)
        limits = limits or Limits()
        # `_make_room` bounds what waits: between parts of a batch, as within one nothing may fail.
        self._index = MemoryIndex(
            recipe,
            windows=windows,
            summaries=summaries,
            limits=limits,
            key=None if key is None else HashKey(key),
            cap_waiting=False,
        )
        self.engine = Engine(
            recipe,
            self._index,
            windows=windows,
            summaries=summaries,
            clock=clock or SystemClock(),
            near_cache_size=min(NEAR_CACHE_SIZE, 16 * limits.max_clusters),
            templates=templates,
        )
        self.engine.use_rules(RuleSet(rules))
        self._partition = Partition(source, 0)
        self._offset = 0
        self._keep_summaries = keep_summaries
        self._max_waiting = max_waiting(limits.max_clusters)
        self.part_events = min(MAX_PART_EVENTS, self._max_waiting)
        self._max_future_us = windows.max_future_us
        self._turns = _Turns()

    @property
    def recipe(self) -> Recipe:
        """What counts as near."""
        return self.engine.recipe

    @property
    def waiting(self) -> int:
        """Closed clusters whose final summaries wait for `due`."""
        return self._index.waiting

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
            IndexFull: too many summaries wait: call `due`, and continue after the events whose
                decisions the error has.
        """
        if isinstance(values, str | bytes | bytearray | memoryview | dict):
            raise TypeError("one event is for process_one; process takes many")
        values = list(values)
        for kind in set(map(type, values)):
            _check_type(kind)
        count = len(values)
        for name, given in (("times_us", times_us), ("groups", groups)):
            if given is not None and len(given) != count:
                raise ValueError(f"{name} has {len(given)} entries for {count} values")
        decisions: list[Decision] = []
        with self._turns:
            for start in range(0, count, self.part_events):
                self._make_room(decisions)
                rows = slice(start, start + self.part_events)
                texts, documents, passed = self._decoded(values[rows])
                times = None if times_us is None else times_us[rows]
                part = None if groups is None else groups[rows]
                batch = self._next_batch(texts, documents, passed, times, part)
                decisions += self._decide(batch)
        return decisions

    def process_batch(self, batch: Batch) -> list[Decision]:
        """Decide a batch with positions that the caller gives.

        Raises:
            IndexFull: as for `process`.
        """
        decisions: list[Decision] = []
        with self._turns:
            self._commit_joins()
            for part in self._parts(batch):
                self._make_room(decisions)
                decisions += self._decide(part)
        return decisions

    def use_rules(self, rules: Iterable[PatternRule]) -> None:
        """Act by these rules on the events that follow.

        Raises:
            RuleError: one is wrong, or two contradict each other; the rules stay as they are.
        """
        chosen = RuleSet(rules)
        with self._turns:
            self._commit_joins()
            self.engine.use_rules(chosen)

    def process_one(self, value: Value, *, time_us: int | None = None, group: str = "") -> Decision:
        """Decide one event.

        Raises:
            TypeError: it is not an event.
            IndexFull: as for `process`.
        """
        kind, engine = type(value), self.engine
        with self._turns:
            passed: dict[int, str] = {}
            documents: list[object] | None = None
            if kind is str and not engine.takes_fields:
                texts = [_encoded(cast(str, value))]
            elif kind is bytes and not engine.takes_fields:
                texts = [cast(bytes, value)]
            else:
                _check_type(kind)
                texts, documents, passed = self._decoded([value])
            now_us = engine.clock.now_us()
            at_us = now_us if time_us is None else time_us
            if not passed and at_us <= now_us + self._max_future_us:
                document = None if documents is None else documents[0]
                decision = engine.join(
                    texts[0], document, at_us, now_us, group, self._index.is_open
                )
                if decision is not None:
                    if engine.joins.full:
                        self._commit_joins()
                    return decision
            self._make_room([])
            batch = self._next_batch(texts, documents, passed, [at_us], [group])
            return self._decide(batch)[0]

    def _decide(self, batch: Batch) -> list[Decision]:
        # No answer of an index in memory is lost, so decisions need not be kept for a retry.
        end = batch.offsets[-1] + 1 if batch.offsets else 0
        return run(self.engine.process(batch, committed=end))

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        count, step = len(batch.values), self.part_events
        if count <= step:
            yield batch
            return
        for start in range(0, count, step):
            yield batch.part(start, start + step)

    def _next_batch(
        self,
        texts: list[bytes],
        documents: list[object] | None,
        passed: dict[int, str],
        times_us: Sequence[int] | None,
        groups: Sequence[str] | None,
    ) -> Batch:
        """Return the next events of the deduplicator's own input."""
        self._commit_joins()
        offsets = range(self._offset, self._offset + len(texts))
        self._offset += len(texts)
        return Batch(self._partition, offsets, texts, times_us, groups, documents, passed)

    def _make_room(self, decisions: list[Decision]) -> None:
        """Refuse to go on while too many summaries wait."""
        self._drop_unwanted()
        waiting = self._index.waiting
        if waiting > self._max_waiting:
            raise IndexFull(
                f"{waiting} closed clusters wait for their final summary: call due(), or give "
                "keep_summaries=False if you need none",
                decisions,
            )

    def _drop_unwanted(self) -> None:
        if not self._keep_summaries and self._index.waiting:
            for _ in self._claimed(patterns=False):
                pass

    def _commit_joins(self) -> None:
        count = self.engine.joins.count
        if count:
            first_offset = self._offset
            self._offset += count
            run(self.engine.commit_joins(self._partition, first_offset))

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
            patterns: whether to compute their patterns, variants and templates; `describe` does it
                for a single one.
        """
        with self._turns:
            self._commit_joins()
            run(self._index.expire(self.engine.clock.now_us()))
            self._drop_unwanted()
            return list(self._claimed(patterns=patterns))

    def close(self, *, patterns: bool = True) -> list[Summary]:
        """Close all clusters and return their final summaries; they count as sent.

        Before, those merge that fit what others have learned since they were opened.
        """
        with self._turns:
            self._commit_joins()
            self._index.merge_all_fitting()
            run(self._index.finish(self.engine.clock.now_us()))
            return list(self._claimed(patterns=patterns))

    def summary(self, cluster: int) -> Summary | None:
        """Return the summary that a cluster would have now, with its pattern; None if it is gone.

        Nothing changes: it does not count as sent.
        """
        with self._turns:
            self._commit_joins()
            found = self._index.summary(cluster)
        return found and self.describe(found)

    def pattern(self, summary: Summary) -> str:
        """Return the pattern of a summary's cluster."""
        return summary.pattern or self.engine.pattern(summary.representative, summary.learned)

    def describe(self, summary: Summary) -> Summary:
        """Return a summary with its pattern, variant, and the id of its template."""
        return self.engine.describe([summary])[0]

    def patterns(self, decisions: Sequence[Decision]) -> list[str | None]:
        """Return the pattern of each decision's cluster; None for passed events."""
        return [named and named.pattern for named in self._named(decisions)]

    def templates(self, decisions: Sequence[Decision]) -> list[int | None]:
        """Return the id of the template of each decision's cluster; None for passed events."""
        return [named and named.template for named in self._named(decisions)]

    def parameters(
        self, values: Sequence[Value], decisions: Sequence[Decision]
    ) -> list[tuple[tuple[str, str], ...] | None]:
        """Return what is in the variables of events, each with what the pattern shows there.

        Args:
            values: the events, as for `process`.
            decisions: theirs.

        Returns:
            For each event at most 16 pairs of placeholder and value, of at most 64 characters; no
            pair if it lacks words of the pattern; None if it was passed.
        """
        texts, _, _ = self._decoded(list(values))
        return [
            named and self.engine.parameters(text, named.first)
            for text, named in zip(texts, self._named(decisions), strict=True)
        ]

    def _named(self, decisions: Sequence[Decision]) -> list[Named | None]:
        clusters = [d.cluster for d in decisions if d.cluster is not None]
        with self._turns:
            named = run(self.engine.named(clusters))
        return [None if d.cluster is None else named.get(d.cluster) for d in decisions]

    def release(self, partition: Partition) -> None:
        """Release a partition, given to `process_batch`, that was read to its end."""
        with self._turns:
            self._commit_joins()
            run(self.engine.release_partition(partition))

    def size(self) -> IndexSize:
        """Return how much the index holds."""
        with self._turns:
            self._commit_joins()
            return run(self._index.size())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything in a file, for `load`; only its owner may read it.

        The file appears when it is complete; until then an earlier one stays. It holds values of
        events, and the key of the hashes that decide. Not in it are the patterns that were compared
        to find words that vary together, and the keys by which clusters merge in `close`: clusters
        that were saved do not.

        Raises:
            InputError: it cannot be written.
        """
        with self._turns:
            self._commit_joins()
            index, clusters = self._index.saved()
            saved = list(clusters)
            header = Header(
                digest=self.recipe.digest,
                recipe=self.recipe.name,
                key=self._index.key.secret(),
                source=self._partition.source.encode("utf-8", "surrogatepass"),
                offset=self._offset,
                counts=self.counts,
                index=index,
                clusters=len(saved),
            )
            with whole_file(os.path.abspath(path), private=True) as file:  # noqa: PTH100 -- bytes too
                write_state(file, header, saved)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        recipe: str | os.PathLike[str] | Recipe = "logs",
        *,
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        keep_summaries: bool = True,
    ) -> Deduplicator:
        """Return a deduplicator that goes on where a saved one stopped.

        Args:
            path: the file that `save` has written.
            recipe: the same as then.
            windows: as for a new one; they may differ from those of the saved one.
            summaries: as `windows`.
            limits: as `windows`. Clusters above the limit are closed.
            clock: as for a new one.
            keep_summaries: as for a new one.

        Raises:
            StateError: the file is not a saved state, damaged, or of another recipe.
            InputError: it cannot be read.
        """
        name = os.fsdecode(path)
        try:
            with open(path, "rb") as file:  # noqa: PTH123 -- bytes too
                header, clusters = read_state(file, name)
                dedup = cls(
                    recipe,
                    windows=windows,
                    summaries=summaries,
                    limits=limits,
                    clock=clock,
                    source=header.source.decode("utf-8", "surrogatepass"),
                    key=header.key,
                    keep_summaries=keep_summaries,
                )
                if header.digest != dedup.recipe.digest:
                    theirs, ours = f"{header.recipe} ({header.digest})", dedup.recipe.digest
                    problem = f"was saved with recipe {theirs}, not {dedup.recipe.name} ({ours})"
                    raise StateError(
                        name, problem, "load it with that recipe, or start without a state"
                    )
                dedup._restore(header, clusters)
        except OSError as error:
            raise InputError(f"{name}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise StateError(name, f"is not valid: {error}", "load an earlier copy") from error
        return dedup

    def _restore(self, header: Header, clusters: Iterable[SavedCluster]) -> None:
        own = header.source, self._partition.number
        if any(name == own and mark >= header.offset for name, mark in header.index.partitions):
            raise ValueError("its next offset was used before")
        self._offset = header.offset
        self._index.restore(header.index, clusters)
        self.engine.counts = header.counts

    def _claimed(self, *, patterns: bool) -> Iterator[Summary]:
        while summaries := run(self.engine.claim_summaries()):
            run(self.engine.confirm_summaries(summaries))
            yield from self.engine.describe(summaries) if patterns else summaries

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


class _Turns:
    """Lets one thread in at a time; as a context manager.

    Raises:
        RuntimeError: the thread that is in enters again, from a signal handler, the clock or an
            extractor.
    """

    __slots__ = ("_busy", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._busy = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._busy:
            self._lock.release()
            raise RuntimeError("a Deduplicator was called from within itself; call it afterwards")
        self._busy = True

    def __exit__(self, *_: object) -> None:
        self._busy = False
        self._lock.release()


def _check_type(kind: type) -> None:
    if not issubclass(kind, bytes | bytearray | memoryview | str | dict):
        raise TypeError(f"{kind.__name__} is not an event: give text, bytes or a dict")


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold
        return text.encode("utf-8", "surrogatepass")
