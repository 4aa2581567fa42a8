"""A copy of a namespace's clusters in this process, read from Redis a little at a time.

Problem: the page sorts and searches 10⁵ clusters, and Redis, which has workers to serve, may lose
no more than a hundredth of its time to it.

Idea: this process keeps what the list needs of each cluster, and reads it again in turns: small
pipelines of GET, `CLUSTERS_PER_S` in all, never a command that takes long. Half of each turn is
for the clusters that somebody looks at now, that were seen last, or that have grown at their last
reading; the other half goes through all, one after the other, so none is forgotten. A cluster that
the scan does not find any more was closed: it is read once more, and kept as closed for a while.
When nobody has looked for `UNWATCHED_S`, nothing is read. Where the namespace, or a shard of it,
was lost or created again, the copy starts again too, empty.

What is read at two times gives a difference, and differences add up to the count, however rarely a
cluster is read (see `counts`). A cluster that is found for the first time has a past: its events
are spread from its first to its last time, in two parts, as its last summary tells how many there
were by then. The index counts the events of a namespace too. Those that are in no cluster that was
read are a number of their own, so all events are on the page, even if a cluster closed, and was
deleted, before its last reading.

Only rules are written, where somebody decides in a page. For all else a user who may read is
enough, as for the inspector (``+@read +@connection``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace

from stream_dedup.clock import US_PER_S, Clock, monotonic_s
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import ProtocolError, StreamDedupError
from stream_dedup.features.patterns import MAX_PATTERN, readable
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.model import Position, Summary
from stream_dedup.rules.book import RuleBook
from stream_dedup.tools.index_inspector.clusters import details as read_details
from stream_dedup.tools.index_inspector.reader import (
    Namespace,
    Reader,
    integer,
    numbers_of,
    unpack_numbers,
    unpack_texts,
)
from stream_dedup.ui.finding import InKafka
from stream_dedup.ui.patterns import STEP, Entry
from stream_dedup.ui.rules import InRedis, SourceRules, mark_of
from stream_dedup.ui.sources import Details, Name, Status, group_text
from stream_dedup.volume.counts import BUCKETS, Axis, Counts

TURN_S = 2.0
"""How often clusters are read; and how often a page asks for news."""

CLUSTERS_PER_S = 300
"""Clusters read a second. A reading takes Redis some 4 µs, and this process 15."""

FIRST_CLUSTERS_PER_S = 2_500
"""The same, until all are known."""

PIPELINE = 100
"""Clusters read with one call."""

LATEST = 50
"""Clusters of each shard that are read in each turn: those that were seen last, as new ones are,
and those that have just closed."""

UNWATCHED_S = 60.0
"""So long after the last request nothing is read."""

LOOKED_AT_S = 10.0
"""So long after a request for it a cluster is read in each turn."""

MAX_CLOSED = 20_000
"""Closed clusters that are kept."""

MAX_SAMPLED = 64
"""Events of a cluster whose values are counted."""

MAX_PAST_US = 2 * 24 * 3600 * US_PER_S
"""A past longer ago than this is not shown over time."""

log = logging.getLogger(__name__)


class RedisSource:
    """A namespace.

    Args:
        reader: makes the reader of the service, on the event loop.
        name: the namespace's name.
        recipe_of: finds the recipe of a namespace; None if it is not known.
        window_us: how far back counts over time go.
        clock: tells when something is read.
    """

    kind = "namespace"
    has_times = True
    inputs = ()

    def __init__(
        self,
        reader: Callable[[], Reader],
        name: str,
        recipe_of: RecipeOf,
        window_us: int,
        clock: Clock,
    ) -> None:
        self.name = self.title = name
        self.axis = Axis(max(1, window_us // BUCKETS), slides=True)
        self.rules = SourceRules(InRedis(reader, name))
        self._applied: RuleBook | None = None
        self.inspector: Inspector | None = None
        self.commands = InKafka()
        self._make_reader = reader
        self._recipe_of = recipe_of
        self._clock = clock
        self._namespace: Namespace | None = None
        self._incarnations: list[bytes | None] = []
        self._dedup: Deduplicator | None = None
        self._looked_at: dict[int, float] = {}
        self._problem = ""
        self._watched = asyncio.Event()
        self._watched_s = 0.0
        self._empty()

    def _empty(self) -> None:
        """Begin with an empty copy."""
        self.entries: dict[int, Entry] = {}
        self._closed: OrderedDict[int, None] = OrderedDict()
        self._growing: OrderedDict[int, None] = OrderedDict()
        self._again: deque[int] = deque()  # not found by the last scan, or changed
        self._scan: AsyncIterator[list[int]] | None = None
        self._whole: set[int] = set()  # to be read with what names them
        self._found: set[int] = set()  # by the scan that goes on
        self._rounds = 0
        self._events = 0
        self._total = 0  # events of the index
        self._since_us = 0

    @property
    def _reader(self) -> Reader:
        return self._make_reader()

    def entry(self, identity: int) -> Entry | None:
        """Return a cluster."""
        return self.entries.get(identity)

    def status(self) -> Status:
        """Return its state."""
        reading = ""
        if not self._rounds and not self._problem:
            reading = f"{len(self.entries):,} clusters read so far"
        problem = "; ".join(filter(None, (self._problem, self.rules.problem)))
        unread = max(0, self._total - self._events)
        return Status(problem, reading, self._events, self._since_us or None, unread=unread)

    def wanted(self, identities: Sequence[int] = ()) -> None:
        """Read on for a while, these clusters in each turn."""
        self._watched_s = monotonic_s()
        self._watched.set()
        for identity in identities:
            self._looked_at[identity] = self._watched_s

    async def run(self) -> None:
        """Read while somebody looks."""
        while True:
            if monotonic_s() - self._watched_s > UNWATCHED_S:
                self._watched.clear()
                await self._watched.wait()
            begun_s = monotonic_s()
            try:
                await self._turn()
                self._problem = ""
            except (StreamDedupError, ValueError) as error:
                if self._problem != str(error):
                    log.warning("%s: %s", self.name, error)
                self._problem, self._namespace, self._scan = str(error), None, None
            except Exception:
                log.exception("%s cannot be read", self.name)
                self._problem = "it cannot be read; the log says why"
                self._namespace = self._scan = None
            await asyncio.sleep(max(0.1, begun_s + TURN_S - monotonic_s()))

    async def details(self, identity: int) -> Details | None:
        """Return everything about a cluster, read now."""
        namespace = await self._open()
        try:
            found = await read_details(namespace, identity)
        except ValueError:
            found = None  # damaged: `index check` says more
        if found is None:
            return None
        numbers, texts = found.held.numbers, found.held.texts
        sampled = (
            (int.from_bytes(name[1:], "big"), value)
            for name, value in found.values.items()
            if len(name) == layouts.SAMPLED_FIELD_BYTES and name[0] == layouts.SAMPLED
        )
        summary = Summary(
            cluster=identity,
            revision=numbers.revision + 1,
            closing=numbers.closing,
            count=numbers.events,
            new_count=numbers.events - numbers.emitted,
            first_time_us=numbers.first_us,
            last_time_us=numbers.latest_us,
            position=_position(texts.position),
            representative=texts.representative,
            samples=tuple(found.samples),
            group=codec.plain_group(texts.group).decode("utf-8", "replace"),
            merged_into=_merged_into(numbers, texts),
            merged=tuple(
                (int.from_bytes(cluster, "big"), int(events))
                for cluster, events in layouts.MERGED_CLUSTER.struct.iter_unpack(texts.merged)
            ),
            learned=texts.learned,
            sampled=tuple(sorted(sampled)[:MAX_SAMPLED]),
        )
        if numbers.gone:  # a tombstone has no texts: show what was read before
            known = self.entries.get(identity)
            shown = (
                replace(summary, pattern=known.pattern, variant=known.variant) if known else summary
            )
        else:
            shown = self._described(summary)
        names = [Name(n.exact.hex(), n.distance, n.searchable) for n in found.names]
        return Details(shown, found.held.state, names)

    async def firsts(self, identities: Sequence[int]) -> list[bytes | None]:
        """Return the values of clusters' first events."""
        namespace = await self._open()
        found: dict[int, bytes | None] = {}
        for shard, ids in _by_shard(namespace, identities):
            keys = [shard.cluster(codec.pack_id(each)) for each in ids]
            answers = await self._reader.many(shard.meta, [("GET", key) for key in keys])
            texts = map(unpack_texts, answers)
            found.update(
                (each, held and held.representative) for each, held in zip(ids, texts, strict=True)
            )
        return [found.get(each) for each in identities]

    # ------------------------------------------------------------ a turn

    async def _open(self) -> Namespace:
        if self._namespace is None:
            namespace = await Namespace.find(self._reader, self.name)
            recipe, known = self._recipe_of(namespace), self.inspector
            if recipe is None:
                self._dedup = self.inspector = self._applied = None
            elif known is None or recipe.digest != known.recipe.digest:
                self._dedup, self.inspector = Deduplicator(recipe), Inspector(recipe)
                self._applied = None
            self._namespace = namespace
        return self._namespace

    async def _current(self) -> Namespace:
        """Return the namespace; if it was lost or created again, forget what was read of it."""
        namespace = await self._open()
        found = await self._from_shards(namespace, "incarnation")
        if found != self._incarnations:
            self._namespace = None
            namespace = await self._open()
            self._incarnations = found
            self._empty()
        return namespace

    async def _from_shards(self, namespace: Namespace, field: str) -> list[bytes | None]:
        read = self._reader.command
        return [await read(each.meta, "HGET", each.meta, field) for each in namespace.shards]

    async def _turn(self) -> None:
        namespace = await self._current()
        await self._follow_rules()
        now_us = self._clock.now_us()
        self._since_us = self._since_us or now_us
        self.axis.reach(now_us)
        rate = CLUSTERS_PER_S if self._rounds else FIRST_CLUSTERS_PER_S
        budget = round(rate * TURN_S)
        chosen = await self._hot(namespace, budget // 2)
        while len(chosen) < budget and (more := await self._next(namespace)):
            chosen.update(dict.fromkeys(more))
        calls = list(_by_shard(namespace, chosen))
        pause_s = 0.8 * TURN_S * PIPELINE / max(PIPELINE, len(chosen))
        for shard, ids in calls:
            for start in range(0, len(ids), PIPELINE):
                await self._read(shard, ids[start : start + PIPELINE])
                await asyncio.sleep(pause_s)
        self._total = sum(map(integer, await self._from_shards(namespace, "events")))

    async def _follow_rules(self) -> None:
        """Take up rules that have changed, and read again what they are about or were about."""
        await self.rules.refresh()
        book, dedup = self.rules.book, self._dedup
        if dedup is None or book is self._applied:
            return
        await asyncio.to_thread(dedup.use_rules, book.acting())
        self._applied = book
        for number, entry in enumerate(list(self.entries.values()), 1):
            if entry.mark is not None or self.rules.about(entry.pattern):
                self._whole.add(entry.identity)
                self._again.appendleft(entry.identity)
            if number % STEP == 0:
                await asyncio.sleep(0)

    async def _hot(self, namespace: Namespace, budget: int) -> dict[int, None]:
        """Choose the clusters that are most likely to have changed, or whose change is seen."""
        now_s, chosen = monotonic_s(), dict[int, None]()
        for identity, at_s in list(self._looked_at.items()):
            if now_s - at_s > LOOKED_AT_S:
                del self._looked_at[identity]
            else:
                chosen[identity] = None
        for shard in namespace.shards:
            commands = [
                ("ZRANGE", shard.recency, 0, LATEST - 1, "REV"),
                # Closed, and waiting for their final summaries.
                ("ZRANGE", shard.due, "-inf", "-inf", "BYSCORE", "LIMIT", 0, LATEST),
            ]
            for ids in await self._reader.many(shard.meta, commands):
                chosen.update((int.from_bytes(each, "big"), None) for each in ids or ())
        for _ in range(min(len(self._growing), budget)):
            identity, _none = self._growing.popitem(last=False)
            chosen[identity] = None
            if len(chosen) >= budget:
                break
        return chosen

    async def _next(self, namespace: Namespace) -> list[int]:
        """Choose the next of all clusters; none where a round has ended."""
        if self._again:
            return [self._again.popleft() for _ in range(min(PIPELINE, len(self._again)))]
        if self._scan is None:
            self._scan, self._found = _scan(namespace), set()
        async for found in self._scan:
            self._found.update(found)
            return found
        self._scan = None
        self._rounds += 1
        lost = (each.identity for each in self.entries.values() if each.open)
        self._again.extend(each for each in lost if each not in self._found)
        return []

    async def _read(self, shard: ShardKeys, ids: Sequence[int]) -> None:
        commands = []
        for identity in ids:
            packed = codec.pack_id(identity)
            whole = identity not in self.entries or identity in self._whole
            self._whole.discard(identity)
            commands.append(("GET", shard.cluster(packed)) if whole else numbers_of(shard, packed))
        answers = await self._reader.many(shard.meta, commands)
        now_us = self._clock.now_us()
        self.axis.reach(now_us)
        for identity, answer in zip(ids, answers, strict=True):
            self._take(identity, answer, now_us)

    def _take(self, identity: int, stored: bytes | None, now_us: int) -> None:
        entry = self.entries.get(identity)
        numbers, texts = unpack_numbers(stored), unpack_texts(stored)
        if numbers is None or numbers.events == 0:  # gone; or nothing was recorded yet
            if entry is not None:
                self._close(entry)
            return
        if numbers.gone:
            texts = None  # a tombstone has none
        if entry is None:
            if texts is not None:
                self._add(identity, numbers, texts, now_us)
            return
        grown = numbers.events - entry.count
        if grown < 0:  # a failover has lost the last writes
            self._events += grown
            entry.count, entry.counts = numbers.events, Counts()
            self._spread_past(entry, numbers, now_us)
        elif grown:
            entry.counts.spread(self.axis, min(entry.read, now_us), now_us, grown)
            entry.count += grown
            self._events += grown
            self._growing[identity] = None
        entry.first, entry.last = numbers.first_us, numbers.latest_us
        entry.read, entry.bytes = now_us, numbers.bytes
        if texts is not None:
            self._name(entry, numbers, texts)
        elif not numbers.gone and (
            numbers.learned_words != entry.learned.bit_count() or (entry.open and not numbers.open)
        ):
            self._whole.add(identity)
            self._again.append(identity)
        if numbers.open and not entry.open:
            entry.open = True
            self._closed.pop(identity, None)
        elif entry.open and not numbers.open:
            self._close(entry)

    def _add(
        self, identity: int, numbers: codec.Cluster, texts: codec.ClusterTexts, now_us: int
    ) -> None:
        entry = Entry(identity, numbers.events, numbers.first_us, numbers.latest_us, read=now_us)
        entry.bytes = numbers.bytes
        self._name(entry, numbers, texts)
        self.entries[identity] = entry
        self._events += numbers.events
        self._spread_past(entry, numbers, now_us)
        if not numbers.open:
            self._close(entry)

    def _name(self, entry: Entry, numbers: codec.Cluster, texts: codec.ClusterTexts) -> None:
        """Take what names a cluster."""
        first = texts.representative
        text = codec.plain_group(texts.group).decode("utf-8", "replace")
        entry.group = group_text(text) if text else ""
        entry.learned = texts.learned
        entry.merged_into = _merged_into(numbers, texts)
        described = self._described(_named(entry.identity, first, entry.learned))
        entry.pattern, entry.variant = described.pattern, described.variant
        entry.mark = None if self._dedup is None else mark_of(self._dedup, first)

    def _spread_past(self, entry: Entry, numbers: codec.Cluster, now_us: int) -> None:
        """Spread the events of before the first reading."""
        first_us, last_us = numbers.first_us, min(numbers.latest_us, now_us)
        if not now_us - MAX_PAST_US <= first_us <= last_us:
            entry.counts.before += numbers.events  # a replay of old events
            return
        until_us, emitted = min(numbers.emitted_us, last_us), min(numbers.emitted, numbers.events)
        if emitted and until_us > first_us:
            entry.counts.spread(self.axis, first_us, until_us, emitted)
            entry.counts.spread(self.axis, until_us, last_us, numbers.events - emitted)
        else:
            entry.counts.spread(self.axis, first_us, last_us, numbers.events)

    def _described(self, summary: Summary) -> Summary:
        if self._dedup is not None:
            return self._dedup.describe(summary)
        return replace(summary, pattern=readable(summary.representative, MAX_PATTERN))

    def _close(self, entry: Entry) -> None:
        entry.open = False
        self._growing.pop(entry.identity, None)
        self._closed[entry.identity] = None
        while len(self._closed) > MAX_CLOSED:
            identity, _ = self._closed.popitem(last=False)
            self.entries.pop(identity, None)


RecipeOf = Callable[[Namespace], Recipe | None]


def _named(identity: int, first: bytes, learned: int) -> Summary:
    """A summary that has what a pattern is made of."""
    return Summary(identity, 0, None, 0, 0, 0, 0, Position("", 0, 0), first, learned=learned)


def _merged_into(numbers: codec.Cluster, texts: codec.ClusterTexts) -> int | None:
    """The cluster into which a closed one has merged, if it has."""
    if numbers.open or not texts.into:
        return None
    return int.from_bytes(texts.into, "big")


def _position(packed: bytes) -> Position:
    try:
        return codec.unpack_position(packed)
    except ValueError:
        return Position("", 0, 0)


def _by_shard(
    namespace: Namespace, identities: Iterable[int]
) -> Iterable[tuple[ShardKeys, list[int]]]:
    """Group ids by shard; an id of no shard is left out."""
    found: dict[int, list[int]] = {}
    for identity in identities:
        try:
            shard = namespace.packer.shard_of(identity)
        except ProtocolError:
            continue
        found.setdefault(shard.number, []).append(identity)
    return [(namespace.shards[number], ids) for number, ids in found.items()]


async def _scan(namespace: Namespace) -> AsyncIterator[list[int]]:
    """Yield the ids of all open clusters, some perhaps twice, a few with each command."""
    for shard in namespace.shards:
        async for found in namespace.reader.open_clusters(shard, PIPELINE):
            yield [int.from_bytes(each, "big") for each in found]
