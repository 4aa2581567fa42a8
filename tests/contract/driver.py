"""An index under test, driven from plain test functions, and the table of adapters."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.features.recipe import Fingerprint, Match, Recipe
from stream_dedup.fingerprint.bands import KEY_BYTES
from stream_dedup.index.base import (
    ClusterDelta,
    Commit,
    Index,
    IndexSize,
    Limits,
    Ownership,
    Query,
    Representative,
    Resolution,
)
from stream_dedup.index.groups import cluster_id
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.spread_store import SpreadIndex
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Decision, Partition, Position, Summary
from stream_dedup.tables.sketches import sketch
from tests.services.redis import RedisCluster, RedisServer

T = TypeVar("T")

S = 1_000_000
"""Microseconds in a second."""

START_US = 1_700_000_000 * S
"""The clock, and event time zero, of most tests."""

PLAIN = Recipe(match=Match(k=3))
VERIFIED = Recipe(match=Match(k=6, jaccard=0.7))
BANDED = Recipe(fingerprint=Fingerprint(kind="bands"), match=Match(k=0, jaccard=0.42))
HOUR = Windows(idle_us=3600 * S, max_age_us=24 * 3600 * S)
WIDE = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
HERE = Partition("topic", 0)
THERE = Partition("topic", 1)


@dataclass(frozen=True)
class Setup:
    """What an index is made with."""

    recipe: Recipe = PLAIN
    windows: Windows = HOUR
    summaries: Summaries = field(default_factory=Summaries)
    limits: Limits = field(default_factory=Limits)


def with_bands(setup: Setup) -> Setup:
    """The same where fingerprints are the keys of bands."""
    match = setup.recipe.match
    changed = Match(k=0, jaccard=match.jaccard or BANDED.match.jaccard, aliases=match.aliases)
    recipe = Recipe(fingerprint=BANDED.fingerprint, match=changed)
    return replace(setup, recipe=recipe)


Opens = Callable[[Setup], AbstractAsyncContextManager[Index]]
"""Makes an empty index."""


@asynccontextmanager
async def memory(setup: Setup) -> AsyncIterator[Index]:
    yield MemoryIndex(
        setup.recipe,
        windows=setup.windows,
        summaries=setup.summaries,
        limits=setup.limits,
        each_call=True,
    )


@asynccontextmanager
async def redis(
    setup: Setup,
    service: RedisServer | RedisCluster,
    shards: int = 1,
    index: type[RedisIndex] = RedisIndex,
) -> AsyncIterator[Index]:
    for node in service.masters() if isinstance(service, RedisCluster) else [service]:
        node.command("FLUSHALL")
    server = RedisClient(service.url)
    try:
        yield await index.open(
            server,
            setup.recipe,
            windows=setup.windows,
            summaries=setup.summaries,
            limits=setup.limits,
            shards=shards,
        )
    finally:
        await server.aclose()


class Adapter(NamedTuple):
    """An adapter of the port.

    Attributes:
        opens: makes an empty index, given a setup and the service if it needs one.
        service: the fixture that gives it.
        any_recipe: whether it takes recipes that learn words, and those of bands.
        shards: how many it has.
    """

    opens: Callable[..., AbstractAsyncContextManager[Index]]
    service: str | None = None
    any_recipe: bool = True
    shards: int = 1

    def bind(self, request: pytest.FixtureRequest) -> Opens:
        """With its service started."""
        if self.service is None:
            return self.opens
        service = request.getfixturevalue(self.service)
        return lambda setup: self.opens(setup, service)


ADAPTERS = {
    "memory": Adapter(memory),
    "redis": Adapter(redis, "redis_server"),
    "redis-cluster": Adapter(redis, "redis_cluster"),
}
"""Every adapter of the port passes this suite: add it here."""

SPREAD_ADAPTERS = {
    "spread-alone": Adapter(partial(redis, index=SpreadIndex), "redis_server", any_recipe=False),
    "spread": Adapter(
        partial(redis, index=SpreadIndex, shards=5), "redis_cluster", any_recipe=False, shards=5
    ),
}
"""Those that take neither recipes that learn words, nor those of bands."""


class Text(NamedTuple):
    """The hashes of an event, as the kernel would compute them."""

    exact: int
    fingerprint: int
    words: tuple[int, ...] = ()


A = Text(0xA, 0x0F0F_0F0F_0F0F_0F0F, (1, 2, 3, 4))
B = Text(0xB, 0xF0F0_F0F0_F0F0_F0F0, (11, 12, 13, 14))
C = Text(0xC, 0x00FF_00FF_00FF_00FF, (21, 22, 23, 24))


def apart(text: Text, bits: int, exact: int, words: tuple[int, ...] | None = None) -> Text:
    """Another text, whose fingerprint differs from a text's in so many bits, spread out."""
    mask = sum(1 << (bit * 9 % 64) for bit in range(bits))
    return Text(exact, text.fingerprint ^ mask, text.words if words is None else words)


def banded(asked: Query) -> Query:
    """The same query where fingerprints are the keys of bands: each key is four of its bits."""
    fingerprint = 0
    for shift in range(60, -1, -4):
        fingerprint = fingerprint << 8 * KEY_BYTES | asked.fingerprint >> shift & 15
    return asked._replace(fingerprint=fingerprint, sketch=sketch_of(array("Q", asked.sketch)))


def sketch_of(words: Iterable[int]) -> bytes:
    """The sketch of features that small numbers stand for, which become hashes of 32 bits."""
    return sketch(word * 0x9E37_79B1 & 0xFFFF_FFFF for word in words)


def query(
    offset: int,
    text: Text = A,
    at_s: float = 0,
    *,
    until_s: float | None = None,
    group: str = "",
    near: bool = True,
    partition: Partition = HERE,
) -> Query:
    first_us = START_US + round(at_s * S)
    return Query(
        group=group,
        exact=text.exact,
        fingerprint=text.fingerprint,
        sketch=array("Q", sorted(text.words)).tobytes(),
        near=near,
        first_us=first_us,
        last_us=first_us if until_s is None else START_US + round(until_s * S),
        position=Position(partition.source, partition.number, offset),
    )


class Driver:
    """The port's methods, called and waited for; and what most tests do with them.

    Args:
        opens: makes the index.
        setup: what it is made with.
        converts: makes the queries that it is asked of those that a test asks.

    Attributes:
        now_us: the clock that is handed to every call.
    """

    def __init__(
        self,
        opens: Opens,
        setup: Setup,
        converts: Callable[[Query], Query] = lambda asked: asked,
    ) -> None:
        self._converts = converts
        self._name = setup.recipe.name
        self._runner = asyncio.Runner()
        self._context = opens(setup)
        self.index = self._run(self._context.__aenter__())
        self.now_us = START_US
        self.fences: dict[Partition, int] = {}

    def stop(self) -> None:
        self._run(self._context.__aexit__(None, None, None))
        self._runner.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def wait(self, seconds: float) -> None:
        self.now_us += round(seconds * S)

    # ------------------------------------------------------------ the port

    def claim_partition(
        self, partition: Partition = HERE, end_offset: int | None = None, identity: str = ""
    ) -> Ownership:
        owned = self._run(self.index.claim_partition(partition, end_offset, self.now_us, identity))
        self.fences[partition] = owned.fence
        return owned

    def read_partition(self, partition: Partition = HERE) -> Ownership:
        return self._run(self.index.read_partition(partition, self.fences[partition]))

    def note_committed(self, offset: int, partition: Partition = HERE, fence: int = 0) -> None:
        fence = fence or self.fences[partition]
        self._run(self.index.note_committed(partition, fence, offset))

    def release(self, partition: Partition) -> None:
        self._run(self.index.release_partition(partition))

    def resolve(self, *queries: Query) -> list[Resolution]:
        converted = [self._converts(asked) for asked in queries]
        return self._run(self.index.resolve(converted, self.now_us))

    def record(self, commit: Commit) -> frozenset[int]:
        return self._run(self.index.record(commit, self.now_us))

    def claim(self, limit: int = 1000) -> list[Summary]:
        return self._run(self.index.claim(limit, self.now_us))

    def merge_fitting(
        self, *queries: Query, clusters: Sequence[int] | None = None
    ) -> list[int | None]:
        """Without clusters, those that the queries would open."""
        if clusters is None:
            clusters = [cluster_id(self._name, query.position) for query in queries]
        return self._run(self.index.merge_fitting(clusters, queries, self.now_us))

    def confirm(self, summaries: Sequence[Summary]) -> None:
        names = [(summary.cluster, summary.revision) for summary in summaries]
        self._run(self.index.confirm(names, self.now_us))

    def expire(self) -> None:
        self._run(self.index.expire(self.now_us))

    def finish(self) -> None:
        self._run(self.index.finish(self.now_us))

    def representatives(self, *clusters: int) -> list[Representative | None]:
        return self._run(self.index.representatives(clusters))

    def size(self) -> IndexSize:
        return self._run(self.index.size())

    # ------------------------------------------------------------ what most tests do

    def count(
        self,
        offset: int,
        *deltas: ClusterDelta,
        at_s: float = 0,
        partition: Partition = HERE,
        first_offset: int | None = None,
        committed: int | None = None,
        decisions: Mapping[int, Decision] | None = None,
    ) -> frozenset[int]:
        """Commit a batch that ends at an offset."""
        decisions = decisions or {}
        if partition not in self.fences:
            self.claim_partition(partition)
        return self.record(
            Commit(
                partition=partition,
                fence=self.fences[partition],
                first_offset=offset if first_offset is None else first_offset,
                last_offset=offset,
                committed=offset + 1 if committed is None else committed,
                last_us=START_US + round(at_s * S),
                deltas=deltas,
                offsets=list(decisions),
                decisions=list(decisions.values()),
            )
        )

    def add(
        self,
        offset: int,
        text: Text = A,
        at_s: float = 0,
        *,
        group: str = "",
        partition: Partition = HERE,
        value: bytes | None = None,
    ) -> Resolution:
        """Resolve and record one event."""
        asked = query(offset, text, at_s, group=group, partition=partition)
        (answer,) = self.resolve(asked)
        value = b"value %d" % offset if value is None else value
        delta = ClusterDelta(answer.cluster, 1, asked.first_us, asked.first_us)
        if answer.new:
            delta.representative = value
        else:
            delta.samples = [value]
        assert self.count(offset, delta, at_s=at_s, partition=partition) == frozenset()
        return answer

    def confirm_all(self) -> list[Summary]:
        """Claim and confirm until nothing is due."""
        summaries: list[Summary] = []
        while claimed := self.claim():
            self.confirm(claimed)
            summaries += claimed
        return summaries


def delta(answer: Resolution, count: int = 1, at_s: float = 0) -> ClusterDelta:
    """What these events add: one of them is the representative, if the answer says so."""
    time_us = START_US + round(at_s * S)
    representative = b"first" if answer.new else None
    return ClusterDelta(answer.cluster, count, time_us, time_us, representative)
