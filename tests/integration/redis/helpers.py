"""What the tests over real Redis share: an index, a worker as the engine is one, and streams."""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, ParamSpec

from stream_dedup.clock import Clock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import AlreadyRecorded
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import ClusterDelta, Commit, Index, Limits, Ownership, Resolution
from stream_dedup.index.redis.client import RedisClient, RetryPolicy
from stream_dedup.index.redis.connection import Tls
from stream_dedup.index.redis.mirror import MIRROR_SIZE
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Decision, Kind, Partition, Summary
from tests.contract.driver import HERE, HOUR, PLAIN, START_US, S, Text, query
from tests.services.redis import RedisServer

P = ParamSpec("P")

NAMESPACE = "tests"

STEADY = RetryPolicy(within_s=30, first_delay_s=0.01, max_delay_s=0.1, timeout_s=5)
"""Outlasts every disturbance, on a slow machine too."""

HASTY = RetryPolicy(within_s=30, first_delay_s=0.01, max_delay_s=0.1, timeout_s=0.3)
"""Outlasts them as well, and does not wait long for an answer."""

BRIEF = RetryPolicy(within_s=0.4, first_delay_s=0.01, max_delay_s=0.1, timeout_s=20)
"""Gives up soon after an error, and waits long for an answer."""

LIMITS = Limits(max_clusters=1000)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def opened(
    url: str,
    recipe: Recipe = PLAIN,
    *,
    retry_policy: RetryPolicy = STEADY,
    tls: Tls | None = None,
    namespace: str = NAMESPACE,
    windows: Windows = HOUR,
    summaries: Summaries | None = None,
    limits: Limits = LIMITS,
    shards: int = 1,
    mirror_size: int = MIRROR_SIZE,
    clock: Clock | None = None,
) -> AsyncIterator[RedisIndex]:
    """An index, and its server closed afterwards."""
    server = RedisClient(url, retry_policy=retry_policy, tls=tls)
    try:
        yield await RedisIndex.open(
            server,
            recipe,
            namespace=namespace,
            windows=windows,
            summaries=summaries,
            limits=limits,
            shards=shards,
            mirror_size=mirror_size,
            clock=clock,
        )
    finally:
        await server.aclose()


class Event(NamedTuple):
    """An event of a stream."""

    offset: int
    text: Text
    at_s: float = 0
    group: str = ""


class Worker:
    """Resolves and records batches of a partition, as the engine does.

    Attributes:
        now_us: the clock that is handed to every call.
        owned: what the last claim of the partition said.
    """

    def __init__(self, index: Index, partition: Partition = HERE) -> None:
        self.index = index
        self.partition = partition
        self.now_us = START_US
        self.owned: Ownership

    async def own(self) -> Ownership:
        """Claim the partition."""
        self.owned = await self.index.claim_partition(self.partition, None, self.now_us)
        return self.owned

    async def resolve(self, events: Sequence[Event]) -> list[Resolution]:
        """Find the events' clusters."""
        asked = [
            query(e.offset, e.text, e.at_s, group=e.group, partition=self.partition) for e in events
        ]
        return await self.index.resolve(asked, self.now_us)

    def record_of(
        self,
        events: Sequence[Event],
        answers: Sequence[Resolution],
        *,
        committed: int | None = None,
    ) -> Commit:
        """What is recorded of a resolved batch; its decisions too from `committed` on."""
        deltas: dict[int, ClusterDelta] = {}
        decisions: list[Decision] = []
        for event, answer in zip(events, answers, strict=True):
            time_us = START_US + round(event.at_s * S)
            delta = deltas.setdefault(
                answer.cluster, ClusterDelta(answer.cluster, 0, time_us, time_us)
            )
            delta.count += 1
            delta.first_us = min(delta.first_us, time_us)
            delta.last_us = max(delta.last_us, time_us)
            value = b"%s %d" % (self.partition.source.encode(), event.offset)
            if answer.new:
                delta.representative = value
            else:
                delta.samples = [*delta.samples, value]
            kind = Kind.NEW if answer.new else Kind.DUPLICATE
            decisions.append(Decision(kind, answer.cluster, answer.distance, 0))
        if committed is None:
            committed = events[-1].offset + 1
        first = sum(event.offset < committed for event in events)
        return Commit(
            partition=self.partition,
            fence=self.owned.fence,
            first_offset=events[0].offset,
            last_offset=events[-1].offset,
            committed=committed,
            last_us=max(START_US + round(event.at_s * S) for event in events),
            deltas=list(deltas.values()),
            offsets=[event.offset for event in events[first:]],
            decisions=decisions[first:],
        )

    async def process(
        self, events: Sequence[Event], *, committed: int | None = None
    ) -> list[Resolution]:
        """Resolve and record a batch."""
        while True:
            answers = await self.resolve(events)
            record = self.record_of(events, answers, committed=committed)
            try:
                if not await self.index.record(record, self.now_us):
                    return answers
            except AlreadyRecorded:  # by this call: its answer was lost
                return answers

    async def take_summaries(self) -> list[Summary]:
        """Claim and confirm summaries until none is due."""
        summaries: list[Summary] = []
        while claimed := await self.index.claim(100, self.now_us):
            await self.index.confirm([(s.cluster, s.revision) for s in claimed], self.now_us)
            summaries += claimed
        return summaries

    async def end(self) -> list[Summary]:
        """Close all clusters; return their summaries, also those whose answer was lost."""
        await self.index.finish(self.now_us)
        summaries = await self.take_summaries()
        while (await self.index.size()).waiting:
            self.now_us += 31 * S  # leases run out
            summaries += await self.take_summaries()
        return summaries


def counts(summaries: Iterable[Summary]) -> Counter[int]:
    """Events a cluster, as its summaries add up."""
    counted: Counter[int] = Counter()
    for identity, _, new_count in {(s.cluster, s.revision, s.new_count) for s in summaries}:
        counted[identity] += new_count
    return counted


def families(number: int, seed: int = 0) -> list[Text]:
    """Texts of which no two are alike."""
    rng = random.Random(seed)
    return [
        Text(
            rng.getrandbits(64), rng.getrandbits(64), tuple(rng.getrandbits(63) for _ in range(40))
        )
        for _ in range(number)
    ]


def twin(text: Text, rng: random.Random) -> Text:
    """A text so near that any two twins are near-duplicates: one bit and one word differ."""
    words = (*text.words[1:], rng.getrandbits(63))
    return Text(rng.getrandbits(64), text.fingerprint ^ 1 << rng.randrange(64), words)


def stream(length: int, *, of: int, seed: int = 0, every_s: float = 0) -> list[Event]:
    """Twins and repetitions of some families, in any order."""
    rng = random.Random(f"stream {seed}")  # not what the families are drawn from
    texts = families(of, seed)
    events = []
    for offset in range(length):
        text = rng.choice(texts)
        chosen = text if rng.random() < 0.5 else twin(text, rng)
        events.append(Event(offset, chosen, offset * every_s))
    return events


def batches(events: Sequence[Event], size: int) -> list[Sequence[Event]]:
    """The events in pieces."""
    return [events[start : start + size] for start in range(0, len(events), size)]


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Return once a condition holds."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    while not condition():
        assert clock() < end, "it did not come to pass"
        await asyncio.sleep(0.005)


def keys_of(server: RedisServer, pattern: str = "*") -> list[bytes]:
    """All keys of a server."""
    found = server.command("KEYS", pattern)
    assert isinstance(found, list)
    return [key for key in found if isinstance(key, bytes)]
