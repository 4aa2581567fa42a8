"""Keys of bands in Redis: the inspector reads them, and crowds cost no more than others."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Sequence

import pytest

from stream_dedup.fingerprint.bands import BANDS, BITS, CROWD, KEY_BYTES
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Query, Resolution
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Position
from stream_dedup.tools.index_inspector import check as checking
from stream_dedup.tools.index_inspector.check import check
from stream_dedup.tools.index_inspector.clusters import details, print_details
from stream_dedup.tools.index_inspector.reader import Namespace, Reader
from stream_dedup.tools.index_inspector.stats import measure, print_stats
from tests.contract.driver import BANDED, HERE, START_US, WIDE
from tests.integration.redis.helpers import NAMESPACE, in_loop, opened
from tests.services.redis import RedisServer

ALL_EQUAL = (1 << BITS) - 1


def silent(_what: str, _keys: int) -> None: ...


def asked(offset: int, fingerprint: int, words: Sequence[int]) -> Query:
    sketch = array("I", sorted(words)[:128]).tobytes()
    position = Position(HERE.source, HERE.number, offset)
    return Query("", offset, fingerprint, sketch, True, START_US, START_US, position)


def crowd(count: int) -> list[Query]:
    """All keys equal, and no feature in common."""
    return [asked(n, ALL_EQUAL, range(200 * n, 200 * n + 130)) for n in range(count)]


def slices(server: RedisServer) -> list[bytes]:
    """The slices of tables."""
    found = server.command("KEYS", f"{ShardKeys(NAMESPACE, 0).prefix.decode()}t:*")
    assert isinstance(found, list)
    return [key for key in found if isinstance(key, bytes)]


async def process(index: RedisIndex, queries: Sequence[Query]) -> list[Resolution]:
    """Resolve, and record what was opened."""
    answers = await index.resolve(queries, START_US)
    deltas = [ClusterDelta(a.cluster, 1, START_US, START_US, b"first") for a in answers if a.new]
    owned = await index.claim_partition(HERE, None, START_US)
    first, last = queries[0].position.offset, queries[-1].position.offset
    await index.record(Commit(HERE, owned.fence, first, last, last + 1, START_US, deltas), START_US)
    return answers


@in_loop
async def test_the_inspector_finds_a_crowd_sound_and_shows_it(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    redis_server.command("FLUSHALL")
    monkeypatch.setattr(checking, "PAUSE_S", 0)
    rng = random.Random(3)
    async with opened(redis_server.url, BANDED, windows=WIDE) as index:
        others = [
            asked(100 + n, rng.getrandbits(BITS), range(10**6 + 100 * n, 10**6 + 100 * n + 60))
            for n in range(50)
        ]
        answers = await process(index, [*crowd(CROWD + 4), *others])
        assert all(answer.new for answer in answers)
        joined = others[0]._replace(exact=77, position=Position(HERE.source, 0, 400))
        await index.resolve([joined], START_US)
    reader = Reader(redis_server.url)
    try:
        namespace = await Namespace.find(reader, NAMESPACE)
        report = await check(namespace, 0, silent)
        assert report.counts == {}
        for answer in (answers[0], answers[CROWD], answers[CROWD + 4]):
            found = await details(namespace, answer.cluster)
            assert found is not None
            in_tables = 0 if answer is answers[CROWD] else BANDS
            assert (len(found.held.tables), found.names[0].missing) == (in_tables, set())
            print_details(namespace, found, None, "text")
        shown = capsys.readouterr().out
        assert f"{others[0].fingerprint:x}" not in shown  # keys are secret
        print_stats(namespace, await measure(namespace, 0, silent), [], "text")
        assert "16 keys of bands, of 48 bits: 16 tables of" in capsys.readouterr().out
        shard = ShardKeys(NAMESPACE, 0)
        redis_server.command("DEL", shard.cluster(answers[-1].cluster.to_bytes(8, "big")))
        redis_server.command("ZADD", slices(redis_server)[0], 0, bytes(16))
        damaged = await check(namespace, 0, silent)
        assert damaged.counts["entry"] + damaged.counts.get("misplaced", 0) == BANDS + 1
    finally:
        await reader.aclose()


@in_loop
async def test_a_crowd_costs_a_bounded_number_of_commands(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    limits = Limits(max_clusters=100_000)
    async with opened(redis_server.url, BANDED, windows=WIDE, limits=limits) as index:
        await index.resolve(crowd(60), START_US)

        def commands() -> int:
            return int(redis_server.info("stats")["total_commands_processed"])

        before = commands()
        last = [query._replace(exact=10**6 + n) for n, query in enumerate(crowd(160)[60:])]
        answers = await index.resolve(last, START_US)
        assert all(answer.new for answer in answers)
        assert (commands() - before) / len(last) < 80
        size = await index.size()
        assert (size.clusters, size.truncated) == (160, 160 - CROWD)
        held = [redis_server.command("ZCARD", key) for key in slices(redis_server)]
        assert held == [CROWD] * BANDS


@in_loop
async def test_workers_never_both_open_texts_that_share_a_key(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    rng = random.Random(5)
    async with (
        opened(redis_server.url, BANDED, windows=WIDE) as one,
        opened(redis_server.url, BANDED, windows=WIDE) as other,
    ):
        pairs = []
        for n in range(200):
            first = rng.getrandbits(BITS)
            second = first >> 8 * KEY_BYTES * 15 << 8 * KEY_BYTES * 15 | rng.getrandbits(720)
            words = range(100 * n, 100 * n + 60)
            pairs.append((asked(2 * n, first, words), asked(2 * n + 1, second, words)))
        left, right = await asyncio.gather(
            one.resolve([pair[0] for pair in pairs], START_US),
            other.resolve([pair[1] for pair in pairs], START_US),
        )
        assert [answer.cluster for answer in left] == [answer.cluster for answer in right]
        assert all(a.new != b.new for a, b in zip(left, right, strict=True))
