"""Keys of bands in Redis: the inspector reads them, and crowds cost no more than others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from stream_dedup.fingerprint.bands import BANDS, BITS, CROWD, KEY_BYTES
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Query, Resolution
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis import codec, resolver
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Position
from stream_dedup.tables.entries import mixed
from stream_dedup.tables.sketches import features, reference_jaccard, threshold
from stream_dedup.tools.index_inspector import check as checking
from stream_dedup.tools.index_inspector.check import check
from stream_dedup.tools.index_inspector.clusters import details, print_details
from stream_dedup.tools.index_inspector.reader import Namespace, Reader
from stream_dedup.tools.index_inspector.stats import measure, print_stats
from tests.contract.driver import BANDED, HERE, START_US, WIDE, sketch_of
from tests.integration.redis.helpers import NAMESPACE, in_loop, opened
from tests.services.redis import RedisServer

ALL_EQUAL = (1 << BITS) - 1
MEMBER_BYTES = 11
RNG = random.Random(17)


def silent(_what: str, _keys: int) -> None: ...


def asked(offset: int, fingerprint: int, words: Sequence[int]) -> Query:
    position = Position(HERE.source, HERE.number, offset)
    return Query("", offset, fingerprint, sketch_of(words), True, START_US, START_US, position)


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
        assert "16 keys of bands, of 32 bits: 16 tables of" in capsys.readouterr().out
        shard = ShardKeys(NAMESPACE, 0)
        redis_server.command("DEL", shard.cluster(answers[-1].cluster.to_bytes(8, "big")))
        redis_server.command("APPEND", slices(redis_server)[0], bytes(MEMBER_BYTES))
        damaged = await check(namespace, 0, silent)
        assert damaged.counts["entry"] + damaged.counts.get("misplaced", 0) == BANDS + 1
    finally:
        await reader.aclose()


@pytest.mark.parametrize("damaged", [b"x", b"packed sketch"])
@in_loop
async def test_a_damaged_cluster_keeps_nobody_from_reading_the_others(
    redis_server: RedisServer, damaged: bytes
) -> None:
    redis_server.command("FLUSHALL")
    apart = [asked(n, RNG.getrandbits(BITS), range(100 * n, 100 * n + 60)) for n in range(3)]
    async with opened(redis_server.url, BANDED, windows=WIDE) as index:
        first, second, _ = await process(index, apart)
    key = ShardKeys(NAMESPACE, 0).cluster(second.cluster.to_bytes(8, "big"))
    stored = redis_server.command("GET", key)
    assert isinstance(stored, bytes)
    if damaged != b"x":
        sketch, _ = codec.unpack_searched(stored)
        damaged = stored.replace(sketch, sketch[:1] + bytes(len(sketch) - 1))
    redis_server.command("SET", key, damaged)
    again = apart[0]._replace(exact=100, position=Position(HERE.source, 0, 400))
    async with opened(redis_server.url, BANDED, windows=WIDE, mirror_size=1000) as index:
        (answer,) = await index.resolve([again], START_US)
        assert (answer.cluster, answer.new) == (first.cluster, False)
    async with AsyncExitStack() as stack:
        reader = Reader(redis_server.url)
        stack.push_async_callback(reader.aclose)
        report = await check(await Namespace.find(reader, NAMESPACE), 0, silent)
        assert report.counts["cluster"] == 1


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
        held = [redis_server.command("STRLEN", key) for key in slices(redis_server)]
        assert held == [CROWD * MEMBER_BYTES] * BANDS


@pytest.mark.parametrize("mirror_size", [0, 1000])
@in_loop
async def test_scripts_compare_packed_sketches_as_the_reference(
    redis_server: RedisServer, mirror_size: int
) -> None:
    redis_server.command("FLUSHALL")
    rng, jaccard = random.Random(13), BANDED.match.jaccard
    asking, expected = list[Query](), list[bool]()
    async with opened(redis_server.url, BANDED, windows=WIDE, mirror_size=mirror_size) as index:
        for number in range(200):
            size = rng.choice((2, 9, 30, 100, 140, 300, 2000))
            words = [rng.getrandbits(40) for _ in range(size)]
            if number % 2:  # hashes in the upper half alone
                words = [word for word in words if word * 0x9E37_79B1 >> 31 & 1] or [1]
            size = len(words)
            other = rng.sample(words, int(size * rng.uniform(0.3, 1)))
            other += [rng.getrandbits(40) for _ in range(int(size * rng.uniform(0, 0.7)))]
            first = asked(number, rng.getrandbits(BITS), words)
            await index.resolve([first], START_US)
            second = asked(1000 + number, first.fingerprint, other or words)
            least = threshold(jaccard, min(features(first.sketch), features(second.sketch)))
            asking.append(second)
            expected.append(reference_jaccard(first.sketch, second.sketch) < least)
        answers = [(await index.resolve([query], START_US))[0].new for query in asking]
    assert answers == expected
    assert 20 < sum(expected) < 180


@in_loop
async def test_slices_take_little_more_memory_than_their_members(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    rng, limits = random.Random(11), Limits(max_clusters=100)
    queries = [asked(n, rng.getrandbits(BITS), range(200 * n, 200 * n + 130)) for n in range(100)]
    async with opened(redis_server.url, BANDED, windows=WIDE, limits=limits) as index:
        for start in range(0, 100, 10):
            await index.resolve(queries[start : start + 10], START_US)
        held = slices(redis_server)
        assert [redis_server.command("STRLEN", key) for key in held] == [100 * MEMBER_BYTES] * BANDS
        for key in held:
            used, left_ms = (
                redis_server.command("MEMORY", "USAGE", key),
                redis_server.command("PTTL", key),
            )
            assert isinstance(used, int)
            assert isinstance(left_ms, int)
            assert used < 1.25 * 100 * MEMBER_BYTES + 80  # of the key itself
            assert left_ms > 0


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
            second = first >> 8 * KEY_BYTES * 15 << 8 * KEY_BYTES * 15 | rng.getrandbits(480)
            words = range(100 * n, 100 * n + 60)
            pairs.append((asked(2 * n, first, words), asked(2 * n + 1, second, words)))
        left, right = await asyncio.gather(
            one.resolve([pair[0] for pair in pairs], START_US),
            other.resolve([pair[1] for pair in pairs], START_US),
        )
        assert [answer.cluster for answer in left] == [answer.cluster for answer in right]
        assert all(a.new != b.new for a, b in zip(left, right, strict=True))


@in_loop
async def test_a_cluster_takes_the_memory_that_its_page_says(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    rng, count = random.Random(13), 4_000
    limits = Limits(max_clusters=count)
    async with opened(redis_server.url, BANDED, windows=WIDE, limits=limits) as index:
        before = redis_server.info("memory")["used_memory"]
        for start in range(0, count, 100):
            some = [
                asked(n, rng.getrandbits(BITS), rng.sample(range(1 << 32), 80))
                for n in range(start, start + 100)
            ]
            await index.resolve(some, START_US)
        used = int(redis_server.info("memory")["used_memory"]) - int(before)
        assert (await index.size()).clusters == count
        assert used / count < 1_450
        # What expires by idle time is found by when it was last seen, in one queue.
        assert redis_server.command("ZCARD", ShardKeys(NAMESPACE, 0).expiry) == 0


@in_loop
async def test_a_cluster_that_tables_hold_twice_is_found(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    async with opened(redis_server.url, BANDED, windows=WIDE, mirror_size=0) as index:
        (first,) = await index.resolve([asked(0, ALL_EQUAL, range(60))], START_US)
        for key in slices(redis_server):
            member = redis_server.command("GET", key)
            assert isinstance(member, bytes)
            redis_server.command("APPEND", key, member)
        (second,) = await index.resolve([asked(1, ALL_EQUAL, range(60))], START_US)
        assert (second.cluster, second.distance, second.new) == (first.cluster, 0, False)


def same_mark(key: int) -> int:
    """Another key whose mark is the same, in a table of one slice; see `entries.mixed`."""
    one, other, ones = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, (1 << 32) - 1
    x = mixed(key, 32, 0) ^ 1 << 28
    x = x * pow(other, -1, 1 << 32) & ones
    x ^= x >> 16
    return x * pow(one, -1, 1 << 32) & ones


@in_loop
async def test_texts_whose_keys_have_equal_marks_do_not_meet(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    rng, limits = random.Random(9), Limits(max_clusters=10)
    async with opened(
        redis_server.url, BANDED, windows=WIDE, limits=limits, mirror_size=0
    ) as index:
        assert index.layout.slices == 1
        group = index._packer.group("").number & 0xFFFF
        spread = (group * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 32
        keys = [rng.getrandbits(32) for _ in range(BANDS)]
        others = [same_mark(key ^ spread) ^ spread for key in keys]
        first, second = (int.from_bytes(b"".join(k.to_bytes(4, "big") for k in each), "big")
                         for each in (keys, others))  # fmt: skip
        entries = index._packer.entries
        _, members = entries.arrange(first, group, 0, b"")
        assert (keys != others, members) == (True, entries.arrange(second, group, 0, b"")[1])
        answers = await index.resolve(
            [asked(0, first, range(60)), asked(1, second, range(60))], START_US
        )
        assert [answer.new for answer in answers] == [True, True]


def _with_key(text: int, band: int) -> int:
    """Keys that no other text has, but for one band."""
    keys = [7 if place == band else text * 100 + place + 1_000 for place in range(BANDS)]
    return sum(key << 8 * KEY_BYTES * (BANDS - 1 - place) for place, key in enumerate(keys))


def relatives(rng: random.Random, count: int) -> list[Query]:
    """Queries of texts that share keys, features, both or neither; some come again."""
    found: list[Query] = []
    words_of: list[list[int]] = []
    for n in range(count):
        parent = rng.choice(found) if found and rng.random() < 0.7 else None
        fingerprint, words = rng.getrandbits(BITS), [*range(100 * n, 100 * n + 60)]
        if parent is not None:
            for band in rng.sample(range(BANDS), rng.randint(0, 3)):
                shift = 8 * KEY_BYTES * band
                mask = ((1 << 8 * KEY_BYTES) - 1) << shift
                fingerprint = fingerprint & ~mask | parent.fingerprint & mask
            if rng.random() < 0.6:
                theirs = sorted(words_of[parent.position.offset])
                words = [*theirs[rng.randint(0, 40) :], *words[:20]]
        words_of.append(words)
        found.append(asked(n, fingerprint, words))
    return found


@in_loop
async def test_mirrors_decide_as_the_index_in_memory(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.command("FLUSHALL")
    monkeypatch.setattr(resolver, "LEAST_PAUSE_S", 0.0)
    monkeypatch.setattr(resolver, "READ_PAUSE_FACTOR", 0)
    rng = random.Random(11)
    queries = relatives(rng, 900)
    memory = MemoryIndex(BANDED, namespace=NAMESPACE, windows=WIDE)
    async with AsyncExitStack() as stack:
        indexes = [
            await stack.enter_async_context(
                opened(redis_server.url, BANDED, windows=WIDE, mirror_size=size)
            )
            for size in (10_000, 10_000, 0, 10_000)
        ]
        # The last one begins to read when the others have opened clusters already.
        for start in range(0, len(queries), 30):
            index = indexes[rng.randrange(3 if start < 450 else 4)]
            some = queries[start : start + 30]
            expected = await memory.resolve(some, START_US)
            assert await index.resolve(some, START_US) == expected
        assert min(index.mirrored for index in (*indexes[:2], indexes[3])) > 100
        assert indexes[2].mirrored == 0


@in_loop
async def test_a_mirror_spares_redis_search_and_strangers(redis_server: RedisServer) -> None:
    redis_server.command("FLUSHALL")
    # Each has one key of a later text's, and the others of its own.
    strangers = [asked(n, _with_key(n, n), range(100 * n, 100 * n + 60)) for n in range(8)]
    async with opened(redis_server.url, BANDED, windows=WIDE) as index:
        await index.resolve(strangers, START_US)

        def reads() -> int:
            stats = redis_server.info("commandstats").get("cmdstat_get", "calls=0,")
            return int(stats.split("calls=")[1].split(",")[0])

        before = reads()
        late = [
            asked(100 + n, _with_key(100 + n, n), range(10**5 + 100 * n, 10**5 + 100 * n + 60))
            for n in range(3)
        ]
        for query in late:
            (answer,) = await index.resolve([query], START_US)
            assert answer.new
        assert reads() == before  # no cluster is read
