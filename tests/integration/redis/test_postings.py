"""The one-off index in Redis: bounded work, nothing left behind, many workers at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock

import pytest

from stream_dedup.clustering.learning import MAX_MOVED, MAX_POSTING_LISTS, MAX_POSTINGS
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Resolution
from stream_dedup.index.redis import codec
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.layouts import KEY_BYTES, POSTING
from stream_dedup.index.redis.maintenance import Maintenance
from stream_dedup.index.redis.namespace import CALL_WORK
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import FoundBy, Partition
from tests.contract.driver import HERE, START_US, THERE, S
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


async def merged_by(
    redis: RedisServer, index: RedisIndex, lines: list[str], line: str
) -> tuple[int, int]:
    """How many clusters of some lines another line merges, and the commands that it takes."""
    for first in range(0, len(lines), 48):
        part = enumerate(lines[first : first + 48], first)
        queries = [asked(offset, each, variables=f"{offset}") for offset, each in part]
        assert all(
            answer.found_by is not FoundBy.EXACT
            for answer in await index.resolve(queries, START_US)
        )
    clusters, called = (await index.size()).clusters, commands(redis)
    (answer,) = await index.resolve([asked(10_000, line)], START_US)
    called = commands(redis) - called
    return clusters + answer.new - (await index.size()).clusters, called


def test_an_event_that_learns_every_word_does_bounded_work(make_redis: MakeRedis) -> None:
    redis = make_redis()
    lines = [with_word(place, f"{value}{place}") for place in range(48) for value in "abcd"]

    async def storm() -> tuple[int, int]:
        async with opened(redis) as index:
            return await merged_by(redis, index, lines, " ".join(LONG))

    merged, called = asyncio.run(storm())
    # The first slot's four clusters are left as one; with those of the second they would have more
    # posting lists than one event moves.
    assert merged == 3
    assert called < 49 + MAX_MOVED + 128


def posting_keys(redis: RedisServer) -> list[bytes]:
    """The keys of the posting lists that name each cluster."""
    stored = [redis.command("GET", key) for key in keys_of(redis, "c")]
    return [codec.unpack_texts(each).posting_keys for each in stored if isinstance(each, bytes)]


def test_clusters_with_many_postings_merge_with_bounded_work(make_redis: MakeRedis) -> None:
    redis = make_redis()
    lines = []
    for value in "abcd":
        words = [value, *LONG[1:41]]
        lines += [" ".join([*words[:at], f"{value}{at}", *words[at:]]) for at in (20, 25, 30)]
        lines.insert(-3, " ".join(words))  # with the others it has nearly half of what one may have

    async def merge() -> tuple[int, int, list[int]]:
        async with opened(redis) as index:
            merged, called = await merged_by(redis, index, lines, " ".join(LONG[:41]))
            return merged, called, [len(each) // KEY_BYTES for each in posting_keys(redis)]

    merged, called, lists = asyncio.run(merge())
    assert (merged, lists) == (3, [42 + 3 * 43 + 63])
    assert called < 42 + 128  # lists of a slice are read at once


def test_an_event_whose_lists_are_all_full_does_bounded_work(make_redis: MakeRedis) -> None:
    redis = make_redis()
    lines = [
        " ".join([*others[:at], f"{value}{place}x{at}", *others[at:]])
        for place in range(48)
        for others in [[*LONG[:place], *LONG[place + 1 :]]]
        for at in range(48)
        if at != place and at < MAX_POSTINGS // 4 + 1
        for value in "abcd"
    ]

    async def fill() -> tuple[int, int]:
        async with opened(redis) as index:
            return await merged_by(redis, index, lines, " ".join(LONG))

    merged, called = asyncio.run(fill())
    assert merged == 0
    assert called < 3 * 49 + 20
    values = [value for key in keys_of(redis, "r") for value in redis.command("HVALS", key)]  # type: ignore[union-attr]
    sizes = [len(value) // POSTING.struct.size for value in values]  # type: ignore[arg-type]
    assert (max(sizes), sizes.count(MAX_POSTINGS)) == (MAX_POSTINGS, 48)


def test_many_combinations_of_long_lines_are_bounded_work(make_redis: MakeRedis) -> None:
    redis = make_redis()
    learned = [
        with_word(place, f"{value}{place}") for place in range(1, 23) for value in "abcde"
    ]  # each place adds a combination: all words up to it

    async def learn() -> int:
        async with opened(redis) as index:
            for offset, line in enumerate(learned):
                await index.resolve([asked(offset, line)], START_US)
            called = commands(redis)
            line = with_word(40, "new").replace("w1x", "another")
            (answer,) = await index.resolve([asked(10_000, line)], START_US)
            assert answer.new
            return commands(redis) - called

    assert asyncio.run(learn()) < 2 * 49
    sizes = [len(keys) // KEY_BYTES for keys in posting_keys(redis)]
    assert sorted(sizes)[1] > 49  # what opens a cluster is noted beside what varies, too
    assert max(sizes) <= MAX_POSTING_LISTS


def scripts(redis: RedisServer) -> int:
    """How many calls of scripts there were."""
    return int(str(redis.info("commandstats")["cmdstat_evalsha"]).split("calls=")[1].split(",")[0])


def test_a_flood_beside_what_varies_is_spread_over_calls(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def calls_of(start: int, first: str) -> int:
        async with opened(redis) as index:
            lines = [
                f"{first} " + " ".join(f"w{n}x{word}" for word in range(19)) for n in range(40)
            ]
            before = scripts(redis)
            queries = [asked(start + n, line) for n, line in enumerate(lines)]
            assert all(answer.new for answer in await index.resolve(queries, START_US))
            return scripts(redis) - before

    async def flood() -> tuple[int, int]:
        without = await calls_of(0, "other")
        async with opened(redis) as index:
            for place in (3, 7, 11):
                for value in "abcde":
                    words = ["user", *LONG[1:20]]
                    words[place] = value
                    await index.resolve(
                        [asked(1000 + 10 * place + ord(value), " ".join(words))], START_US
                    )
        return without, await calls_of(5000, "user")

    without, beside = asyncio.run(flood())
    assert beside > without + 1


def test_closed_and_merged_clusters_leave_no_postings(make_redis: MakeRedis) -> None:
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


def lists_naming(redis: RedisServer, cluster: int) -> int:
    """How many posting lists name a cluster."""
    named, size = 0, POSTING.struct.size
    for key in keys_of(redis, "r"):
        for value in redis.command("HVALS", key):  # type: ignore[union-attr]
            assert isinstance(value, bytes)
            ids = [value[at + size - 8 : at + size] for at in range(0, len(value), size)]
            named += cluster.to_bytes(8, "big") in ids
    return named


def test_a_closed_cluster_leaves_the_lists_that_others_share(make_redis: MakeRedis) -> None:
    redis = make_redis()

    async def close() -> tuple[int, int]:
        async with opened(redis) as index:
            owned = await index.claim_partition(HERE, None, START_US)
            (alice,) = await index.resolve([asked(0, "session closed for user alice")], START_US)
            await count(index, [alice], 0, owned.fence)
            (bob,) = await index.resolve(
                [asked(1, "session closed for user bob", PAST_S)], START_US
            )
            assert bob.new
            assert (lists_naming(redis, alice.cluster), lists_naming(redis, bob.cluster)) == (
                6,
                6,
            )
            later_us = bob.last_us
            deltas = [ClusterDelta(bob.cluster, 1, later_us, later_us, b"x")]
            await index.record(Commit(HERE, owned.fence, 1, 1, 2, later_us, deltas), later_us)
            await index.expire(later_us)
            return alice.cluster, bob.cluster

    alice, bob = asyncio.run(close())
    assert (lists_naming(redis, alice), lists_naming(redis, bob)) == (0, 6)


def test_a_late_purge_leaves_postings_of_a_cluster_opened_again(
    make_redis: MakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis, line = make_redis(), "session closed for user alice"
    purge, held = Maintenance._purge, []

    async def hold(self: Maintenance, shard: ShardKeys, pieces: Sequence[bytes]) -> None:
        held.append((self, shard, list(pieces)))

    async def reopen() -> tuple[int, int]:
        async with opened(redis) as index:
            (first,) = await index.resolve([asked(0, line)], START_US)
            monkeypatch.setattr(Maintenance, "_purge", hold)
            await index.finish(START_US)
            monkeypatch.undo()
            (again,) = await index.resolve([asked(0, line)], START_US)
            assert again.new
            assert again.cluster == first.cluster
            for late in held:
                await purge(*late)
            return first.cluster, sum(len(pieces) for _, _, pieces in held)

    cluster, pieces = asyncio.run(reopen())
    assert pieces > 0
    assert lists_naming(redis, cluster) == 6


def test_values_of_clusters_not_purged_yet_take_no_room(
    make_redis: MakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, names = (
        Recipe(match=Match(k=3, jaccard=0.9, learn=3)),
        ["alice", "bob", "carol", "dave"],
    )
    lines = [f"session closed for user {name}" for name in names]

    async def learned() -> tuple[Resolution, Resolution]:
        async with opened(make_redis(), recipe) as index:
            owned = await index.claim_partition(HERE, None, START_US)
            await index.resolve([asked(0, lines[0])], START_US)
            (bob,) = await index.resolve([asked(1, lines[1], 1800)], START_US)
            monkeypatch.setattr(Maintenance, "_purge", AsyncMock())
            later_us = START_US + 3601 * S  # alice's window has passed
            deltas = [ClusterDelta(bob.cluster, 1, bob.last_us, bob.last_us, b"x")]
            await index.record(Commit(HERE, owned.fence, 1, 1, 2, later_us, deltas), later_us)
            await index.expire(later_us)
            monkeypatch.undo()
            await index.resolve([asked(2, lines[2], PAST_S)], START_US)  # past bob's window
            (dave,) = await index.resolve([asked(3, lines[3], 1801)], START_US)
            return bob, dave

    bob, dave = asyncio.run(learned())
    assert (dave.cluster, dave.found_by) == (bob.cluster, FoundBy.LEARNED)


def test_purging_postings_keeps_within_the_work_of_a_call(make_redis: MakeRedis) -> None:
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
    lists = 200 * len(LONG)
    assert called < lists  # those of a slice at once
    assert lists < run * CALL_WORK


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
    lists = posting_keys(redis)
    for keys in lists:
        listed = [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
        assert len(listed) == len(set(listed))
    assert len(lists) > 1


def test_a_cluster_opened_in_another_group_leaves_no_postings(make_redis: MakeRedis) -> None:
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
