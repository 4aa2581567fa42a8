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
import sys
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from struct import Struct

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexReset, RecipeError
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import Limits, Query, opened_id
from stream_dedup.index.redis import codec, layouts, scripts
from stream_dedup.index.redis.client import RedisClient, Refusal
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys, check_namespace
from stream_dedup.index.redis.namespace import (
    CALL_WORK,
    describe_settings,
    open_spread,
    plan_layout,
    ttl_ms,
)
from stream_dedup.index.redis.scripts import Argument, Script
from stream_dedup.index.redis.store import gather_all
from stream_dedup.index.spread.node import SWEEP_AFTER_US
from stream_dedup.index.spread.protocol import (
    Add,
    Answer,
    Begin,
    Call,
    Entry,
    Found,
    Join,
    Judge,
    Key,
    Neighbour,
    Offer,
    Open,
    Places,
    Remove,
    Request,
    Ticket,
    Withdraw,
    exact_key,
    table_keys,
)
from stream_dedup.model import Position
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

_ANSWERS = {
    layouts.ANSWER_WAIT: Answer.WAIT,
    layouts.ANSWER_ABSENT: Answer.ABSENT,
    layouts.ANSWER_STALE: Answer.STALE,
    layouts.ANSWER_LOST: Answer.LOST,
    layouts.ANSWER_DONE: Answer.DONE,
}
_LENGTH = Struct(">I")
_NO_TICKET = bytes(layouts.TICKET.struct.size)
_NO_HASH = bytes(layouts.SLICE_HASH_BYTES)


class Steps:
    """Packs the requests of calls to shards, and unpacks their answers.

    Args:
        namespace: its name.
        layout: how it is laid out.
        places: which shard holds what.
    """

    def __init__(self, namespace: str, layout: NamespaceLayout, places: Places) -> None:
        self.shards = [ShardKeys(namespace, number) for number in range(layout.shards)]
        self._places = places
        self._slices = layout.spread_slices
        self._bytes = layout.width // 8

    def pack(
        self, shard: ShardKeys, requests: Sequence[Request]
    ) -> tuple[list[bytes], list[Argument]]:
        """Pack requests for one shard: the keys and the last arguments of ``steps.lua``."""
        keys = [shard.meta, shard.begun]
        places: dict[Query, int] = {}
        packed: list[bytes] = []
        for request in requests:
            place, asker, hashed, fingerprint = 0, _NO_TICKET, _NO_HASH, b""
            if isinstance(request, Begin | Judge | Open | Join):
                place = places.setdefault(request.query, len(places))
            match request:
                case Begin(entry, query):
                    kind = layouts.STEP_BEGIN
                    hashed, slice_key = self._slice(shard, exact_key(query))
                    keys += (*_cluster(shard, entry), slice_key)
                case Judge(entry, asking, _, equal):
                    kind = layouts.STEP_JUDGE_EQUAL if equal else layouts.STEP_JUDGE
                    asker = pack_ticket(asking)
                    keys += _cluster(shard, entry)
                case Open(entry, _):
                    kind = layouts.STEP_OPEN
                    keys += _cluster(shard, entry)
                case Join(entry, _):
                    kind = layouts.STEP_JOIN
                    keys.append(_cluster(shard, entry)[0])
                case Withdraw(entry):
                    kind = layouts.STEP_WITHDRAW
                    keys.append(_cluster(shard, entry)[1])
                case Offer(key, entry, bits) | Add(key, entry, bits) | Remove(key, entry, bits):
                    kind = _KINDS[type(request)]
                    hashed, slice_key = self._slice(shard, key)
                    keys.append(slice_key)
                    fingerprint = bits.to_bytes(self._bytes, "big")
            identity, ticket = codec.pack_id(entry.identity), pack_ticket(entry.ticket)
            packed += (
                layouts.STEP.struct.pack(kind, place, identity, ticket, asker, hashed),
                bytes((len(fingerprint),)),
                fingerprint,
            )
        return keys, [b"".join(packed), *map(self._pack_query, places)]

    def _slice(self, shard: ShardKeys, key: Key) -> tuple[bytes, bytes]:
        hashed = self._places.hash_of(key)
        number = hashed // self._places.shards % self._slices
        return hashed.to_bytes(layouts.SLICE_HASH_BYTES, "big"), shard.spread(number)

    def _pack_query(self, query: Query) -> bytes:
        sketch = array("Q", query.sketch)
        if sys.byteorder == "little":
            sketch.byteswap()
        texts = (
            query.fingerprint.to_bytes(self._bytes, "big"),
            sketch.tobytes(),
            codec.pack_group(query.group),
            codec.pack_position(query.position),
        )
        first_us, last_us = codec.clamp_us(query.first_us), codec.clamp_us(query.last_us)
        head = layouts.ASKED.struct.pack(first_us, last_us, codec.pack_id(query.exact), query.near)
        return head + b"".join(_LENGTH.pack(len(text)) + text for text in texts)

    def unpack(self, answer: bytes) -> object:
        """Unpack an answer."""
        if answer[0] == layouts.ANSWER_FOUND:
            _, identity, ticket, bits, similarity, opened_us, last_us, recorded = (
                layouts.FOUND.struct.unpack(answer)
            )
            entry = unpack_entry(identity, ticket)
            times = int(opened_us), int(last_us)
            return Found(entry, bits, similarity, *times, bool(recorded))
        if answer[0] == layouts.ANSWER_BESIDE:
            head = layouts.SPREAD_ENTRY.struct
            each = head.size + self._bytes
            return [
                Neighbour(
                    unpack_entry(*head.unpack_from(answer, at)),
                    int.from_bytes(answer[at + head.size : at + each], "big"),
                )
                for at in range(1, len(answer), each)
            ]
        return _ANSWERS[answer[0]]

    def unpack_attempt(self, packed: bytes, value: bytes) -> tuple[Entry, Query, int]:
        """Unpack an attempt: its entry, what of the query says where it lies, and when it began."""
        head = layouts.BEGUN.struct
        since_s, exact, near = head.unpack_from(value)
        fingerprint, group = value[head.size :][: self._bytes], value[head.size + self._bytes :]
        query = Query(
            codec.unpack_group(group),
            int.from_bytes(exact, "big"),
            int.from_bytes(fingerprint, "big"),
            b"",
            bool(near),
            0,
            0,
            Position("", 0, 0),
        )
        return (
            unpack_entry(*layouts.SPREAD_ENTRY.struct.unpack(packed)),
            query,
            since_s * US_PER_S,
        )


def _first(requests: Sequence[Request]) -> list[Request]:
    """Return as many of the requests as a call's work allows, and one at least."""
    work = accumulate(WORK[type(request)] for request in requests)
    return [request for request, done in zip(requests, work, strict=True) if done <= CALL_WORK]


_KINDS: dict[type[Request], int] = {
    Offer: layouts.STEP_OFFER,
    Add: layouts.STEP_ADD,
    Remove: layouts.STEP_REMOVE,
}


def _cluster(shard: ShardKeys, entry: Entry) -> tuple[bytes, bytes]:
    identity = codec.pack_id(entry.identity)
    return shard.cluster(identity), shard.intent(identity)


def pack_ticket(ticket: Ticket) -> bytes:
    """Pack a ticket; tickets are ordered as their bytes are."""
    return layouts.TICKET.struct.pack(*ticket)


def unpack_entry(identity: bytes, ticket: bytes) -> Entry:
    """Unpack an entry."""
    number = int.from_bytes(identity, "big")
    return Entry(number, Ticket(*layouts.TICKET.struct.unpack(ticket)))


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
