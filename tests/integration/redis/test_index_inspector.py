"""The inspector reads in few round trips, and no more than it was asked for."""

from __future__ import annotations

import pytest

from stream_dedup.index.base import Limits
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.tools.index_inspector import check as checking
from stream_dedup.tools.index_inspector.check import check
from stream_dedup.tools.index_inspector.clusters import details, largest
from stream_dedup.tools.index_inspector.namespaces import find_all
from stream_dedup.tools.index_inspector.reader import GARBAGE_PIECES, Namespace, Reader
from tests.integration.redis.helpers import NAMESPACE, Event, Worker, families, in_loop, opened
from tests.services.redis import RedisServer


def silent(_what: str, _keys: int) -> None: ...


async def fill(url: str, clusters: int, shards: int = 1) -> set[bytes]:
    """Open clusters; their ids."""
    async with opened(url, shards=shards, limits=Limits(10_000)) as index:
        worker = Worker(index)
        await worker.own()
        events = [Event(n, text, 0, f"{n % 7}") for n, text in enumerate(families(clusters))]
        return {answer.cluster.to_bytes(8, "big") for answer in await worker.process(events)}


def calls(server: RedisServer, command: str) -> int:
    stats = server.info("commandstats").get(f"cmdstat_{command}", "calls=0,")
    return int(stats.split("calls=")[1].split(",")[0])


@in_loop
async def test_the_largest_clusters_take_few_round_trips(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    made = await fill(redis_server.url, 300, shards=2)
    reader = Reader(redis_server.url)
    try:
        namespace = await Namespace.find(reader, NAMESPACE)
        before = reader.counts.copy()
        found = await largest(namespace, "count", 200, None, silent)
        assert len({brief.identity for brief in found}) == 200
        assert {brief.identity for brief in found} <= made
        assert all(brief.representative for brief in found)
        assert (reader.counts - before).total() <= 10
    finally:
        await reader.aclose()


@in_loop
async def test_an_id_of_no_shard_finds_no_cluster(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    await fill(redis_server.url, 3, shards=2)
    reader = Reader(redis_server.url)
    try:
        namespace = await Namespace.find(reader, NAMESPACE)
        assert await details(namespace, 0xFF) is None
    finally:
        await reader.aclose()


@in_loop
async def test_a_check_reads_the_garbage_once_a_look(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.command("FLUSHALL")
    made = sorted(await fill(redis_server.url, 200))
    shard = ShardKeys(NAMESPACE, 0)
    for identity in made[:100]:  # their entries belong to no cluster
        redis_server.command("DEL", shard.cluster(identity))
    for _ in range(3 * GARBAGE_PIECES // 100):
        redis_server.command("RPUSH", shard.garbage, *(b"%08d" % n for n in range(100)))
    monkeypatch.setattr(checking, "PAGE", 10)
    monkeypatch.setattr(checking, "KEYS", 1)
    monkeypatch.setattr(checking, "PAUSE_S", 0)
    reader = Reader(redis_server.url)
    try:
        namespace = await Namespace.find(reader, NAMESPACE)
        before = calls(redis_server, "lrange")
        report = await check(namespace, 0, silent)
        assert {"entry", "exact", "counter"} <= set(report.counts)
        assert report.counts["entry"] == 100 * namespace.layout.table_layout.tables
        # Four calls a reading; each kind of suspect is looked at twice more.
        assert calls(redis_server, "lrange") - before <= 4 * 5
    finally:
        await reader.aclose()


@in_loop
async def test_a_search_for_namespaces_ends_at_its_limit(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    await fill(redis_server.url, 3)
    script = "for i = 1, 20000 do redis.call('SET', 'other:' .. i, i) end"
    redis_server.command("EVAL", script, 0)
    reader = Reader(redis_server.url)
    try:
        found, whole = await find_all(reader)
        assert ([name for name, _ in found], whole) == ([NAMESPACE], True)
        before = calls(redis_server, "scan")
        _, whole = await find_all(reader, 3_000)
        assert not whole
        assert calls(redis_server, "scan") - before <= 4
    finally:
        await reader.aclose()
        redis_server.command("FLUSHALL")
