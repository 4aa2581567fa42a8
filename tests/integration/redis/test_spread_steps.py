"""A shard's atomic steps in Lua answer as a node in memory does, whatever is asked in any order."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.linkage import fastest_jaccard
from stream_dedup.clustering.windows import Windows
from stream_dedup.features.recipe import Fingerprint, Match, Recipe
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.redis import codec
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.spread import SpreadClusters, _Given
from stream_dedup.index.redis.spread_store import SpreadIndex
from stream_dedup.index.redis.steps import pack_ticket
from stream_dedup.index.spread.protocol import (
    LEASE_US,
    Add,
    Begin,
    Entry,
    Join,
    Judge,
    Offer,
    Open,
    Remove,
    Request,
    Ticket,
    Withdraw,
    exact_key,
    table_keys,
)
from stream_dedup.model import Position
from tests.contract.driver import S
from tests.integration.redis.helpers import STEADY, in_loop, keys_of
from tests.services.redis import RedisServer
from tests.services.resp import Argument
from tests.unit.index.spread.node import Node

SHARDS = 2
WINDOWS = Windows(idle_us=60 * S, max_age_us=100 * S)
PLAIN = Recipe(fingerprint=Fingerprint(width=32), match=Match(k=2))
VERIFIED = Recipe(fingerprint=Fingerprint(width=32), match=Match(k=2, jaccard=0.5, aliases=2))
START_US = 1_700_000_000 * S

TEXTS = (0, 0b1, 0b11, 0b111 << 20, 0b1111, 0xFFFF0000)


WORDS = ((1, 2, 3), (1, 2, 4), (1, 7, 8), tuple(range(64)))


@st.composite
def queries(draw: st.DrawFn) -> Query:
    text = draw(st.sampled_from(TEXTS))
    first_us = START_US + draw(st.sampled_from([0, 50, 70, 130])) * S
    last_us = first_us + draw(st.sampled_from([0, 20])) * S
    sketch = array("Q", draw(st.sampled_from(WORDS))).tobytes()
    position = Position("in", 0, draw(st.integers(0, 2)))
    near = draw(st.booleans())
    return Query("", text + 7, text, sketch, near, first_us, last_us, position)


tickets = st.sampled_from(
    [
        Ticket(1, 3_000_000_000, 0, 1),
        Ticket(1, 3_000_000_000, 0, 2),
        Ticket(1, 3_000_000_000, 1, 1),
        Ticket(1, 5, 1, 1),
        Ticket(2, 0, 0, 1),
        Ticket(1 << 33, 0, 0, 1),
    ]
)


@st.composite
def requests(draw: st.DrawFn, clusters: SpreadClusters, begun: list[Begin]) -> list[Request | None]:
    """A request, or those of an opening; None if all leases end.

    Args:
        draw: draws what they are.
        clusters: the index.
        begun: attempts that others may name; those that are drawn are added.
    """
    query = draw(queries())
    begin = Begin(Entry(clusters.identity(query), draw(tickets)), query)
    entry, former = draw(st.sampled_from([begin, *begun]))
    keys = [exact_key(former), *table_keys(former, clusters.layout.table_layout)]
    key, bits = draw(st.sampled_from(keys)), query.fingerprint
    asked: list[Request | None] = draw(
        st.sampled_from(
            [
                [begin],
                [begin, Open(begin.entry, query)],
                [Offer(key, entry, bits)],
                *[[Judge(entry, draw(tickets), query, draw(st.booleans()))]] * 2,
                [Open(entry, former)],
                [Join(entry, query, draw(st.booleans()))],
                [Add(key, entry, bits)],
                [Remove(key, entry, former.fingerprint)],
                [Withdraw(entry)],
                [None],
            ]
        )
    )
    begun += [request for request in asked if isinstance(request, Begin)]
    return asked


async def ask(clusters: SpreadClusters, number: int, asked: Sequence[Request]) -> list[object]:
    keys, packed = clusters.steps.pack(clusters._packer.shards[number], asked)
    runner = clusters._runner
    given = _Given(runner.settings(START_US), tuple(runner.incarnations))
    arguments = [given.settings, clusters._matching, *packed]
    answers = await clusters._run(number, keys, arguments, given)
    return [clusters.steps.unpack(answer) for answer in answers]


class Model:
    """The nodes in memory."""

    def __init__(self, recipe: Recipe, clusters: SpreadClusters) -> None:
        similar = fastest_jaccard() if recipe.match.jaccard else None
        tables, match = clusters.layout.table_layout, recipe.match
        self.nodes = [
            Node(tables, WINDOWS.live, similar, match.jaccard, match.aliases) for _ in range(SHARDS)
        ]
        self.now_us = 0

    def end_leases(self) -> None:
        self.now_us += LEASE_US

    def stored(self, clusters: SpreadClusters) -> tuple[set[bytes], set[bytes], set[bytes]]:
        """Members of slices, tickets of intents, and entries of attempts, as they are packed."""
        members, intents, begun = set(), set(), set()
        for node in self.nodes:
            for key, others in node.slices.items():
                hashed = clusters.places.hash_of(key).to_bytes(8, "big")
                for entry, bits in others:
                    members.add(hashed + packed(entry) + bits.to_bytes(4, "big"))
            live = ((i, t) for i, (t, until_us) in node.intents.items() if self.now_us < until_us)
            intents |= {packed(Entry(identity, ticket)) for identity, ticket in live}
            begun |= {packed(entry) for entry in node.begun}
        return members, intents, begun


def packed(entry: Entry) -> bytes:
    return codec.pack_id(entry.identity) + pack_ticket(entry.ticket)


def stored(server: RedisServer) -> tuple[set[bytes], set[bytes], set[bytes]]:
    members, intents, begun = set(), set(), set()
    for key in keys_of(server):
        left_ms = server.command("PTTL", key)
        assert isinstance(left_ms, int)
        assert left_ms > 0
        name = key.split(b"}:")[1]
        if name.startswith(b"s:"):
            members |= all_of(server, "ZRANGE", key, 0, -1)
        elif name.startswith(b"i:"):
            ticket = server.command("GET", key)
            assert isinstance(ticket, bytes)
            intents.add(bytes.fromhex(name[2:].decode()) + ticket)
        elif name == b"begun":
            begun |= all_of(server, "HKEYS", key)
    return members, intents, begun


def all_of(server: RedisServer, *command: Argument) -> set[bytes]:
    found = server.command(*command)
    assert isinstance(found, list)
    return {each for each in found if isinstance(each, bytes)}


@pytest.mark.parametrize("recipe", [PLAIN, VERIFIED], ids=["plain", "verified"])
@given(data=st.data())
@in_loop
async def test_lua_answers_as_a_node_in_memory(
    redis_server: RedisServer, recipe: Recipe, data: st.DataObject
) -> None:
    redis_server.command("FLUSHALL")
    client = RedisClient(redis_server.url, retry_policy=STEADY)
    try:
        index = await SpreadIndex.open(
            client, recipe, windows=WINDOWS, limits=Limits(max_clusters=300), shards=SHARDS
        )
        clusters = index.clusters
        model = Model(recipe, clusters)
        begun: list[Begin] = []
        for _ in range(data.draw(st.integers(3, 8))):
            asked: list[Request | None] = []
            for _ in range(data.draw(st.integers(4, 12))):
                asked += data.draw(requests(clusters, begun))
            for number in range(SHARDS):
                own = [r for r in asked if r is not None and clusters.places.of(r) == number]
                if not own:
                    continue
                expected = [model.nodes[number].carry_out(r, model.now_us) for r in own]
                assert await ask(clusters, number, own) == expected
            if None in asked:
                model.end_leases()
                for key in keys_of(redis_server, "*}:i:*"):
                    redis_server.command("DEL", key)
        assert stored(redis_server) == model.stored(clusters)
    finally:
        await client.aclose()


@in_loop
async def test_an_intent_ends_with_its_lease(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    client = RedisClient(redis_server.url, retry_policy=STEADY)
    try:
        clusters = (await SpreadIndex.open(client, PLAIN, shards=SHARDS)).clusters
        query = Query("", 1, 0, b"", True, START_US, START_US, Position("in", 0, 0))
        entry = Entry(clusters.identity(query), Ticket(1, 1, 0, 1))
        number = clusters.places.of(Begin(entry, query))
        await ask(clusters, number, [Begin(entry, query)])
        (key,) = keys_of(redis_server, "*}:i:*")
        left_ms = redis_server.command("PTTL", key)
        assert isinstance(left_ms, int)
        assert LEASE_US // 1000 - 1_000 < left_ms <= LEASE_US // 1000
    finally:
        await client.aclose()
