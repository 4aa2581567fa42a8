"""The spread index over a Redis Cluster: clusters of one group on many nodes, found and opened.

`docs/giant-domain.md` describes the protocol; `index.spread` is its caller and, in Python, what
a node does. Here ``steps.lua`` is the node, one for each shard of a namespace. A shard has its own
hash tag, so it lies on one node of the cluster, and each call is for one shard.

A round sends each shard one call, all at the same time, with as many of the requests for it as a
call's work allows; what is left goes with the next round. If all that is left waits for other
callers, a pause comes first.

A call whose answer was lost is sent again by `RedisClient`. What it asks then is what
`spread.Call` says: `Begin` under another ticket, because the first one may still be carried out.

An entry is a member of a sorted set: 32 bytes, the fingerprint, and some ten of the set. Slices are
planned for 32 to 64 entries, as those of the other tables are.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexReset, RecipeError
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import Limits, Query, opened_id
from stream_dedup.index.redis import codec, layouts, scripts
from stream_dedup.index.redis.client import RedisClient, Refusal
from stream_dedup.index.redis.keys import NamespaceLayout, check_namespace
from stream_dedup.index.redis.namespace import (
    CALL_WORK,
    describe_settings,
    open_spread,
    plan_layout,
    ttl_ms,
)
from stream_dedup.index.redis.scripts import Argument, Script
from stream_dedup.index.redis.steps import Steps
from stream_dedup.index.redis.store import gather_all
from stream_dedup.index.spread.protocol import (
    SWEEP_AFTER_US,
    Add,
    Begin,
    Call,
    Entry,
    Found,
    Join,
    Judge,
    Offer,
    Open,
    Places,
    Remove,
    Request,
    Withdraw,
    exact_key,
    table_keys,
)
from stream_dedup.tables.entries import make_entries

log = logging.getLogger(__name__)

PAUSES_S = (0.002, 0.064)
"""Between two rounds that wait for other callers: the first pause, doubled each time, and the
longest. An attempt takes some milliseconds, unless its caller has died."""

WORK: dict[type[Request], int] = {
    Begin: 7,
    Offer: 4,
    Judge: 2,
    Open: 6,
    Join: 2,
    Add: 2,
    Remove: 1,
    Withdraw: 2,
}
"""Work of a request, in commands; see `CALL_WORK`. A script that has spent its budget leaves
the rest."""

SWEPT = 100
"""Attempts that are looked at in a shard, about."""

QUERIES, MAX_QUERIES = 100, 1_000
"""Queries that go through the steps together: so many a shard, but no more in all. They take some
tenths of a second, and an intent holds for two."""


def _first(requests: Sequence[Request]) -> list[Request]:
    """Return as many of the requests as a call's work allows, and one at least."""
    work = accumulate(WORK[type(request)] for request in requests)
    return [request for request, done in zip(requests, work, strict=True) if done <= CALL_WORK]


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe whose clusters cannot lie on many nodes.

    Raises:
        RecipeError: it learns words, or its fingerprints are the keys of bands.
    """
    where, remedy = f"recipe {recipe.name}", "give the events groups, and the namespace shards"
    if recipe.match.learn:
        problem = "merges clusters, which one group on many nodes cannot do"
        raise RecipeError(where, "match.learn", problem, f"set it to 0, or {remedy}")
    if recipe.fingerprint.kind == "bands":
        problem = "is bands, whose near events need not share a slice"
        raise RecipeError(
            where, "fingerprint.kind", problem, f"use simhash or minhash, or {remedy}"
        )


class SpreadClusters:
    """The clusters of a namespace, spread over its shards: finds and opens them.

    Create it with `open`. Tasks of one event loop may share it.

    Args:
        client: the service; the caller closes it.
        recipe: what counts as near.
        namespace: its name.
        windows: when clusters close.
        summaries: how long what closes is kept.
        limits: how far a search goes.
        shards: how many it has.
        script: of the atomic steps.

    Attributes:
        rounds: rounds of calls, so far.
        requests: requests that were answered.
        resets: how often the namespace had lost its data.
    """

    def __init__(
        self,
        client: RedisClient,
        recipe: Recipe,
        *,
        namespace: str,
        windows: Windows,
        summaries: Summaries,
        limits: Limits,
        shards: int,
        script: Script,
    ) -> None:
        self.namespace = namespace
        self.rounds = self.requests = self.resets = 0
        self._client = client
        self._recipe = recipe
        self._windows = windows
        self._summaries = summaries
        self._limits = limits
        self._script = script
        # Tables are planned for one group: all clusters may share a prefix, wherever they lie.
        self._planned = plan_layout(recipe, limits.max_clusters, 1)._replace(shards=shards)
        self._opening = asyncio.Lock()
        self.places: Places
        self.layout: NamespaceLayout
        self._incarnation: bytes
        self._steps: Steps
        self._rules: bytes

    @classmethod
    async def open(
        cls,
        client: RedisClient,
        recipe: Recipe,
        *,
        namespace: str = "",
        windows: Windows | None = None,
        summaries: Summaries | None = None,
        limits: Limits | None = None,
        shards: int = 1,
        script: Script = scripts.STEPS,
    ) -> SpreadClusters:
        """Open a namespace, or create it.

        Raises:
            RecipeError: clusters of the recipe cannot lie on many nodes; see `check_recipe`.
            RecipeMismatch, IndexRefused, IndexUnavailable: see `open_spread`.
        """
        check_recipe(recipe)
        clusters = cls(
            client,
            recipe,
            namespace=check_namespace(namespace or recipe.name),
            windows=windows or Windows(),
            summaries=summaries or Summaries(),
            limits=limits or Limits(),
            shards=shards,
            script=script,
        )
        await clusters._open(HashKey.random())
        return clusters

    async def _open(self, key: HashKey) -> None:
        opened = await open_spread(
            self._client, self.namespace, self._recipe, self._planned, key,
            windows=self._windows, summaries=self._summaries,
            settings=describe_settings(self._windows, self._summaries, self._limits),
        )  # fmt: skip
        self.layout = layout = opened.layout
        self.places = Places(opened.key, layout.shards)
        self._incarnation = opened.incarnations[0]
        self._steps = Steps(self.namespace, layout, self.places)
        match, tables = self._recipe.match, layout.table_layout
        entries = make_entries(tables, layout.slices)
        self._rules = layouts.RULES.struct.pack(
            layout.k,
            match.jaccard,
            match.aliases,
            self._limits.max_candidates,
            self._limits.max_verified,
            entries.prefix_bytes,
            entries.member_bytes,
            tables.tables,
            CALL_WORK,
            0,
            0,
            layout.exact_slices.bit_length() - 1,
            layout.record_slices.bit_length() - 1,
        )

    def settings(self, now_us: int) -> bytes:
        """Pack the caller's clock and settings, as scripts take them."""
        each = -(-self._limits.max_clusters // self.layout.shards)
        ttl = ttl_ms(self._windows, self._summaries)
        return codec.pack_settings(now_us, self._windows, self._summaries, ttl, each)

    def identity(self, query: Query) -> int:
        """Return the id of the cluster that a query would open."""
        return self.places.identity(opened_id(self.namespace, query.group, query.position), query)

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[tuple[Found, bool]]:
        """Find or open a cluster for each query, in order.

        Returns:
            For each the cluster, and whether it was opened for the query, now or before.

        Raises:
            IndexReset: a shard has lost its data. All shards begin again, empty.
            IndexUnavailable, IndexRefused: see `RedisClient.run`.
        """
        most = min(QUERIES * self.layout.shards, MAX_QUERIES)
        answers: list[tuple[Found, bool]] = []
        for at in range(0, len(queries), most):
            answers += await self._resolve(queries[at : at + most], now_us)
        return answers

    async def _resolve(self, queries: Sequence[Query], now_us: int) -> list[tuple[Found, bool]]:
        call = Call(
            queries,
            [self.identity(query) for query in queries],
            self.layout.table_layout,
            since_us=now_us,
            caller=secrets.randbits(32),
            aliases=self._recipe.match.jaccard > 0,
            max_names=self._recipe.match.aliases,
        )
        incarnation = self._incarnation
        given: list[Argument] = [incarnation, self.settings(now_us), self._rules]
        pause_s, longest_s = PAUSES_S
        async with self._noticing_loss(incarnation):
            while not call.done:
                if call.waits:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, longest_s)
                else:
                    pause_s = PAUSES_S[0]
                await self._round(call, given)
        return call.answers

    @asynccontextmanager
    async def _noticing_loss(self, incarnation: bytes) -> AsyncIterator[None]:
        """Open the namespace again if a shard has lost the data of an incarnation."""
        try:
            yield
        except Refusal as refusal:
            if refusal.code != "SDRESET":
                raise
            await self._begin_again(incarnation)
            raise IndexReset(
                f"{self._client.address}: namespace {self.namespace!r} has lost its data: a server "
                "came back without it, or it was deleted"
            ) from refusal

    async def _begin_again(self, lost: bytes) -> None:
        async with self._opening:
            if self._incarnation != lost:
                return  # another task has done it
            await self._open(self.places.key)
            self.resets += 1
        log.warning(
            "%s: namespace %r has lost the data of a shard: going on with an empty index",
            self._client.address, self.namespace,
        )  # fmt: skip

    async def _round(self, call: Call, given: Sequence[Argument]) -> None:
        """Send each shard a call with what is to be asked there."""
        self.rounds += 1
        of_shard: dict[int, list[Request]] = {}
        for request in call.requests():
            of_shard.setdefault(self.places.of(request), []).append(request)
        await gather_all(
            self._ask(call, number, _first(requests), given)
            for number, requests in of_shard.items()
        )

    async def _ask(
        self, call: Call, number: int, requests: list[Request], given: Sequence[Argument]
    ) -> None:
        steps = self._steps
        keys, packed = steps.pack(steps.shards[number], requests)
        attempts = 0

        def of_attempt() -> list[Argument]:
            nonlocal packed, attempts
            attempts += 1
            if attempts > 1:
                # The keys stay: a `Begin` under another ticket is of the same cluster.
                requests[:] = self._again(call, requests)
                _, packed = steps.pack(steps.shards[number], requests)
            return [*given, *packed]

        answers = await self._client.run(self._script, keys, of_attempt)
        for request, answer in zip(requests, answers, strict=False):
            call.answer(request, steps.unpack(answer))
        self.requests += len(answers)

    async def sweep(self, older_than_s: float = SWEEP_AFTER_US / US_PER_S) -> int:
        """Remove what callers have left that died before they had opened or joined a cluster.

        Args:
            older_than_s: attempts that began so long ago, so that no request of them is under way.

        Returns:
            How many attempts were removed, at most some hundreds a shard: there may be more.

        Raises:
            IndexReset, IndexUnavailable, IndexRefused: see `resolve`.
        """
        swept = 0
        incarnation = self._incarnation
        given: list[Argument] = [incarnation, self.settings(0), self._rules]
        async with self._noticing_loss(incarnation):
            for shard in self._steps.shards:
                since_us = await self._client.time_us(shard.meta) - older_than_s * US_PER_S
                _, stored = await self._client.command(
                    shard.meta, "HSCAN", shard.begun, 0, "COUNT", SWEPT
                )
                for packed, value in stored.items():
                    entry, query, begun_us = self._steps.unpack_attempt(packed, value)
                    if begun_us > since_us:
                        continue
                    await self._remove(entry, query, given)
                    keys, steps = self._steps.pack(shard, [Withdraw(entry)])
                    await self._client.run(self._script, keys, [*given, *steps])
                    swept += 1
        return swept

    async def _remove(self, entry: Entry, query: Query, given: Sequence[Argument]) -> None:
        """Remove the entries of an attempt from their slices."""
        of_shard: dict[int, list[Request]] = {}
        for key in [exact_key(query), *table_keys(query, self.layout.table_layout)]:
            request = Remove(key, entry, query.fingerprint)
            of_shard.setdefault(self.places.of(request), []).append(request)
        for number, requests in of_shard.items():
            keys, steps = self._steps.pack(self._steps.shards[number], requests)
            await self._client.run(self._script, keys, [*given, *steps])

    @staticmethod
    def _again(call: Call, requests: Sequence[Request]) -> list[Request]:
        """Say that answers were lost; return what to ask instead, in the same order."""
        for request in requests:
            call.lost(request)
        begun = {r.entry.ticket[:3]: r for r in call.requests() if isinstance(r, Begin)}
        return [begun[r.entry.ticket[:3]] if isinstance(r, Begin) else r for r in requests]
