"""The one-off index in Redis: bounded work, nothing left behind, many workers at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from stream_dedup.clustering.learning import MAX_ENTRIES, MAX_MOVED
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Resolution
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.layouts import ENTRY, KEY_BYTES
from stream_dedup.index.redis.namespace import CALL_WORK
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Partition
from tests.contract.driver import HERE, START_US, THERE
from tests.contract.test_learned_words import LEARNS, PAST_S, asked
from tests.services.redis import RedisServer

MakeRedis = Callable[..., RedisServer]
META = ShardKeys(LEARNS.name, 0).meta
LONG = [f"w{n}x" for n in range(48)]


@asynccontextmanager
async def opened(redis: RedisServer, recipe: Recipe = LEARNS) -> AsyncIterator[RedisIndex]:
    client = RedisClient(redis.url)
    try:
        yield await RedisIndex.open(client, recipe, limits=Limits(max_clusters=20_000))
    finally:
        await client.aclose()


def commands(redis: RedisServer) -> int:
    """How many commands scripts and clients have called."""
    stats = redis.info("commandstats").values()
    return sum(int(each.split("calls=")[1].split(",")[0]) for each in stats)


def with_word(place: int, word: str) -> str:
    return " ".join([*LONG[:place], word, *LONG[place + 1 :]])


def keys_of(redis: RedisServer, kind: str) -> list[bytes]:
    found = redis.command("KEYS", f"sd:*:{kind}:*")
    assert isinstance(found, list)
    return [key for key in found if isinstance(key, bytes)]


async def count(index: RedisIndex, answers: list[Resolution], first: int, fence: int) -> None:
    opened_here = {answer.cluster for answer in answers if answer.new}
    deltas = {
        a.cluster: ClusterDelta(
            a.cluster, 1, START_US, START_US, b"x" if a.cluster in opened_here else None
        )
        for a in answers
    }
    last = first + len(answers) - 1
    commit = Commit(HERE, fence, first, last, last + 1, START_US, list(deltas.values()))
    assert await index.record(commit, START_US) == frozenset()


def test_an_event_that_learns_every_word_does_bounded_work(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def storm() -> int:
        async with opened(redis) as index:
            lines = [with_word(place, f"{v}{place}") for place in range(48) for v in "abcd"]
            for first in range(0, len(lines), 48):
                part = lines[first : first + 48]
                queries = [asked(first + n, line) for n, line in enumerate(part)]
                answers = await index.resolve(queries, START_US)
                assert all(answer.new for answer in answers)
            before = commands(redis)
            await index.resolve([asked(1_000, " ".join(LONG))], START_US)
            return commands(redis) - before

    # Reading its records and clusters, and moving records: two commands each.
    assert asyncio.run(storm()) < 49 * 4 + 48 * 4 + 4 * MAX_MOVED


def test_records_stay_small_whatever_is_noted(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def fill() -> None:
        async with opened(redis) as index:
            lines = [
                " ".join([*"abcdef"[:n], f"v{v}", *"abcdef"[n:]])
                for n in range(7)
                for v in range(200)
            ]
            for first in range(0, len(lines), 100):
                part = lines[first : first + 100]
                queries = [asked(first + n, line) for n, line in enumerate(part)]
                await index.resolve(queries, START_US)

    asyncio.run(fill())
    values = [value for key in keys_of(redis, "r") for value in redis.command("HVALS", key)]  # type: ignore[union-attr]
    assert max(map(len, values)) <= MAX_ENTRIES * ENTRY.struct.size  # type: ignore[arg-type]


def test_closed_and_merged_clusters_leave_no_records(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def close() -> None:
        async with opened(redis) as index:
            owned = await index.claim_partition(HERE, None, START_US)
            for first in range(0, 60, 6):
                names = [f"session {n % 3} closed for user u{n}" for n in range(first, first + 6)]
                queries = [asked(first + n, name) for n, name in enumerate(names)]
                answers = await index.resolve(queries, START_US)
                await count(index, answers, first, owned.fence)
            assert keys_of(redis, "r") != []
            await index.finish(START_US)

    asyncio.run(close())
    assert keys_of(redis, "r") + keys_of(redis, "e") + keys_of(redis, "t") == []


def test_purging_records_keeps_within_the_work_of_a_call(make_redis: MakeRedis) -> None:
    redis = make_redis()

    def scripts() -> int:
        return int(redis.info("commandstats")["cmdstat_evalsha"].split("calls=")[1].split(",")[0])

    async def close() -> tuple[int, int]:
        async with opened(redis) as index:
            for first in range(0, 200, 20):
                lines = [" ".join(f"{word}{n}" for word in LONG) for n in range(first, first + 20)]
                queries = [asked(first + n, line) for n, line in enumerate(lines)]
                await index.resolve(queries, START_US)
            called, run = commands(redis), scripts()
            await index.finish(START_US)
            return commands(redis) - called, scripts() - run

    called, run = asyncio.run(close())
    assert keys_of(redis, "r") == []
    assert 200 * 2 * len(LONG) < called < run * CALL_WORK


def test_asked_again_and_again_a_cluster_lists_no_key_twice(make_redis: MakeRedis) -> None:
    redis = make_redis()
    recipe = Recipe(match=Match(k=3, jaccard=0.8, aliases=2, learn=3))
    lines, others = ["a b c h", "a b c e", "a b c f"], ["a b c h", "a b c e", "a b e"]

    async def ask() -> None:
        async with opened(redis, recipe) as index:
            for _ in range(5):
                queries = [asked(n, line) for n, line in enumerate(lines)]
                queries.insert(1, asked(9, lines[0], variables="7"))
                await index.resolve(queries, START_US)
                queries = [asked(n, line, PAST_S, partition=THERE) for n, line in enumerate(others)]
                await index.resolve(queries, START_US)

    asyncio.run(ask())
    lists = [redis.command("HGET", key, "o") or b"" for key in keys_of(redis, "c")]
    for keys in lists:
        assert isinstance(keys, bytes)
        listed = [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
        assert len(listed) == len(set(listed))
    assert len(lists) > 1


def test_a_cluster_opened_in_another_group_leaves_no_records(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def reopen() -> int:
        async with opened(redis) as index:
            await index.resolve([asked(0, "session closed for user alice", group="a")], START_US)
            await index.resolve([asked(0, "something else entirely", group="b")], START_US)
            named = sum(redis.command("HLEN", key) for key in keys_of(redis, "r"))  # type: ignore[misc]
            await index.finish(START_US)
            return named

    assert asyncio.run(reopen()) == 4  # of the second text: its own key, and one for each word
    assert keys_of(redis, "r") + keys_of(redis, "e") + keys_of(redis, "t") == []


def test_the_mirror_holds_no_clusters_that_merged_at_once(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def merge() -> tuple[int, int]:
        async with opened(redis) as index:
            queries = [asked(n, f"session closed for user u{n}") for n in range(5)]
            await index.resolve(queries, START_US)
            return index.mirrored, (await index.size()).fingerprints

    assert asyncio.run(merge()) == (1, 1)


def test_what_is_purged_makes_no_later_event_dearer(make_redis: MakeRedis) -> None:
    redis = make_redis()
    merging = [asked(n, f"session closed for user u{n}") for n in range(5)]
    before, after = "opened before the purge", "and this one after it"

    async def cost(index: RedisIndex, offset: int, line: str) -> int:
        called = commands(redis)
        (answer,) = await index.resolve([asked(offset, line)], START_US)
        assert not answer.new
        return commands(redis) - called

    async def purge() -> tuple[object, int, int]:
        async with opened(redis) as index:
            owned = await index.claim_partition(HERE, None, START_US)
            answers = await index.resolve(merging, START_US)
            answers += await index.resolve([asked(5, before)], START_US)
            await count(index, answers, 0, owned.fence)  # purges what led to those that merged
            vanished = redis.command("HGET", META, "vanished")
            await count(index, await index.resolve([asked(6, after)], START_US), 6, owned.fence)
            await cost(index, 7, before)
            return vanished, await cost(index, 8, before), await cost(index, 8, after)

    vanished, before_cost, after_cost = asyncio.run(purge())
    assert vanished is None
    assert before_cost == after_cost


def test_workers_that_meet_all_values_at_once_agree(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def work(number: int) -> set[int]:
        async with opened(redis) as index:
            partition = Partition("topic", number)
            queries = [
                asked(n, f"session closed for user u{n * 7 + number}", partition=partition)
                for n in range(20)
            ]
            for query in queries:
                await index.resolve([query], START_US)
            return {(await index.resolve([query], START_US))[0].cluster for query in queries}

    async def race() -> list[set[int]]:
        return await asyncio.gather(*(work(number) for number in range(4)))

    found = asyncio.run(race())
    assert len(set().union(*found)) == 1
