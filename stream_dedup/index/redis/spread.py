"""The spread index over a Redis Cluster: clusters of one group on many nodes, found and opened.

`docs/sharding-by-fingerprint.md` describes the protocol; `index.spread` is its caller, and
``steps.lua`` the node, one for each shard of a namespace. A shard has its own hash tag, so it lies
on one node of the cluster, and each call is for one shard.

A round sends each shard one call, all at the same time, with as many of the requests for it as a
call's work allows; what is left goes with the next round. If all that is left waits for other
callers, a pause comes first.

A call whose answer was lost is sent again by `RedisClient`. What it asks then is what
`protocol.Call` says: `Begin` under another ticket, because the first one may still be carried out.

An entry is a member of a sorted set: 32 bytes, the fingerprint, and some ten of the set. Slices are
planned for 32 to 64 entries, as those of the other tables are.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from stream_dedup.clock import US_PER_S
from stream_dedup.errors import IndexFull, RecipeError
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.groups import opened_id
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.calls import gather_all
from stream_dedup.index.redis.client import Arguments, RedisClient
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.keys import NamespaceLayout
from stream_dedup.index.redis.namespace import CALL_WORK, pack_matching
from stream_dedup.index.redis.runner import ScriptRunner
from stream_dedup.index.redis.scripts import Argument, Script
from stream_dedup.index.redis.steps import Steps
from stream_dedup.index.spread.protocol import (
    SWEEP_AFTER_US,
    Add,
    Answered,
    Begin,
    Call,
    Join,
    Judge,
    Offer,
    Open,
    Places,
    Remove,
    Request,
    Withdraw,
    exact_key,
    not_spread,
    table_keys,
)

PAUSES_S = (0.002, 0.064)
"""Between two rounds that wait for other callers: the first pause, doubled each time, and the
longest. An attempt takes some milliseconds, unless its caller has died."""

WORK: dict[type[Request], int] = {
    Begin: 7,
    Offer: 4,
    Judge: 2,
    Open: 8,
    Join: 3,
    Add: 2,
    Remove: 1,
    Withdraw: 2,
}
"""Work of a request, in commands; see `CALL_WORK`. A script that has spent its budget leaves
the rest."""

SWEPT = 100
"""Attempts that are looked at in a shard."""

QUERIES, MAX_QUERIES = 100, 1_000
"""Queries that go through the steps together: so many a shard, but no more in all. They take some
tenths of a second, and an intent holds for two."""


class _Given(NamedTuple):
    """What the calls of a round have in common."""

    settings: bytes
    incarnations: tuple[bytes, ...]


def _first(requests: Sequence[Request]) -> list[Request]:
    """Return as many of the requests as a call's work allows, and one at least."""
    work = accumulate(WORK[type(request)] for request in requests)
    return [request for request, done in zip(requests, work, strict=True) if done <= CALL_WORK]


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe whose clusters cannot lie on many nodes.

    Raises:
        RecipeError: it learns words, or its fingerprints are the keys of bands.
    """
    reason = not_spread(recipe)
    if reason:
        key = "match.learn" if recipe.match.learn else "fingerprint.kind"
        remedy = "use another recipe, or give the events groups and shard by group"
        raise RecipeError(
            f"recipe {recipe.name}", key, f"cannot be sharded by fingerprint: it {reason}", remedy
        )


class SpreadClusters:
    """The clusters of a namespace, spread over its shards: finds and opens them.

    Tasks of one event loop may share it.

    Args:
        client: the service.
        runner: runs the scripts.
        packer: knows the key of the namespace's hashes.
        recipe: what counts as near.
        namespace: its name.
        layout: how the namespace is laid out.
        limits: how far a search goes.
        script: of the atomic steps.

    Attributes:
        places: which shard holds what.
        steps: packs requests.
        layout: as given.
        rounds: rounds of calls, so far.
        requests: requests that were answered.
    """

    def __init__(
        self,
        client: RedisClient,
        runner: ScriptRunner,
        packer: Packer,
        recipe: Recipe,
        *,
        namespace: str,
        layout: NamespaceLayout,
        limits: Limits,
        script: Script,
    ) -> None:
        self.places = Places(packer.key, layout.shards)
        self.steps = Steps(layout, self.places)
        self.layout = layout
        self.rounds = self.requests = 0
        self._client = client
        self._runner = runner
        self._packer = packer
        self._recipe = recipe
        self._max_verified = limits.max_verified
        self._namespace = namespace
        self._script = script
        self._matching = pack_matching(recipe, layout, limits, packer.entries)

    def identity(self, query: Query) -> int:
        """Return the id of the cluster that a query would open."""
        return self.places.identity(opened_id(self._namespace, query.group, query.position), query)

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Answered]:
        """Find or open a cluster for each query, in order.

        Raises:
            IndexFull: too many closed clusters wait for their final summary.
            IndexReset, IndexUnavailable, IndexRefused: see `ScriptRunner.run`.
        """
        most = min(QUERIES * self.layout.shards, MAX_QUERIES)
        answers: list[Answered] = []
        for at in range(0, len(queries), most):
            answers += await self._resolve(queries[at : at + most], now_us)
        return answers

    async def _resolve(self, queries: Sequence[Query], now_us: int) -> list[Answered]:
        self.places.key = self._packer.key  # another one, if the namespace was created again
        call = Call(
            queries,
            [self.identity(query) for query in queries],
            self.layout.table_layout,
            since_us=now_us,
            caller=secrets.randbits(32),
            aliases=self._recipe.match.jaccard > 0,
            max_names=self._recipe.match.aliases,
            max_verified=self._max_verified,
        )
        given = _Given(self._runner.settings(now_us), tuple(self._runner.incarnations))
        pause_s, longest_s = PAUSES_S
        while not call.done:
            if call.waits:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)
            else:
                pause_s = PAUSES_S[0]
            await self._round(call, given)
            if call.full:
                raise IndexFull(
                    f"{self._client.address}: namespace {self._namespace!r}: too many closed "
                    "clusters wait for their final summary: claim and confirm them"
                )
        return call.answers

    async def _round(self, call: Call, given: _Given) -> None:
        """Send each shard a call with what is to be asked there."""
        self.rounds += 1
        of_shard: dict[int, list[Request]] = {}
        for request in call.requests():
            of_shard.setdefault(self.places.of(request), []).append(request)
        await gather_all(
            self._ask(call, number, _first(requests), given)
            for number, requests in of_shard.items()
        )

    async def _ask(self, call: Call, number: int, requests: list[Request], given: _Given) -> None:
        steps = self.steps
        keys, packed = steps.pack(self._packer.shards[number], requests)
        attempts = 0

        def of_attempt() -> list[Argument]:
            nonlocal packed, attempts
            attempts += 1
            if attempts > 1:
                # The keys stay: a `Begin` under another ticket is of the same cluster.
                requests[:] = self._again(call, requests)
                _, packed = steps.pack(self._packer.shards[number], requests)
            return [given.settings, self._matching, *packed]

        answers = await self._run(number, keys, of_attempt, given)
        for request, answer in zip(requests, answers, strict=False):
            call.answer(request, steps.unpack(answer))
        self.requests += len(answers)

    async def _run(
        self,
        number: int,
        keys: Sequence[bytes],
        arguments: Arguments,
        given: _Given,
        script: Script | None = None,
    ) -> list[bytes]:
        shard = self._packer.shards[number]
        answers: list[bytes] = await self._runner.run(
            shard, script or self._script, keys, arguments, given.incarnations[number]
        )
        return answers

    async def send(self, requests: Sequence[Request]) -> None:
        """Send requests whose answers are of no use: they remove what leads nowhere."""
        given = _Given(self._runner.settings(0), tuple(self._runner.incarnations))
        of_shard: dict[int, list[Request]] = {}
        for request in requests:
            of_shard.setdefault(self.places.of(request), []).append(request)
        await gather_all(self._send_all(number, each, given) for number, each in of_shard.items())

    async def _send_all(self, number: int, requests: list[Request], given: _Given) -> None:
        while requests:
            keys, packed = self.steps.pack(self._packer.shards[number], _first(requests))
            arguments: list[Argument] = [given.settings, self._matching, *packed]
            answers = await self._run(number, keys, arguments, given, scripts.REMOVING_STEPS)
            requests = requests[len(answers) :]

    async def sweep(self, older_than_s: float = SWEEP_AFTER_US / US_PER_S) -> int:
        """Remove what callers have left that died before they had opened or joined a cluster.

        Args:
            older_than_s: attempts that began so long ago, so that no request of them is under way.

        Returns:
            How many attempts were removed, at most `SWEPT` a shard: there may be more.

        Raises:
            IndexReset, IndexUnavailable, IndexRefused: see `resolve`.
        """
        swept = 0
        tables = self.layout.table_layout
        for shard in self._packer.shards:
            names = await self._client.command(shard.meta, "HKEYS", shard.begun)
            if not names:
                continue
            names = random.sample(names, min(len(names), SWEPT))
            values = await self._client.command(shard.meta, "HMGET", shard.begun, *names)
            since_us = await self._client.time_us(shard.meta) - older_than_s * US_PER_S
            attempts = [
                self.steps.unpack_attempt(name, value)
                for name, value in zip(names, values, strict=True)
                if value is not None
            ]
            old = [(e, query) for e, query, begun_us in attempts if begun_us <= since_us]
            await self.send(
                [
                    Remove(key, entry, query.fingerprint)
                    for entry, query in old
                    for key in [exact_key(query), *table_keys(query, tables)]
                ]
            )
            await self.send([Withdraw(entry) for entry, _ in old])
            swept += len(old)
        return swept

    @staticmethod
    def _again(call: Call, requests: Sequence[Request]) -> list[Request]:
        """Say that answers were lost; return what to ask instead, in the same order."""
        for request in requests:
            call.lost(request)
        begun = {r.entry.ticket[:3]: r for r in call.requests() if isinstance(r, Begin)}
        return [begun[r.entry.ticket[:3]] if isinstance(r, Begin) else r for r in requests]
