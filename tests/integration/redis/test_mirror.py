"""Processes with mirrors find what Redis would: whoever inserts, whatever is lost, in any order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import combinations

import pytest

from stream_dedup.errors import IndexReset
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import Limits, Resolution
from stream_dedup.index.redis import resolver
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.mirror import SPARE
from stream_dedup.index.redis.store import RedisIndex
from tests.contract.driver import PLAIN, START_US, VERIFIED, S, Text, query
from tests.integration.redis.helpers import (
    NAMESPACE,
    Event,
    Worker,
    families,
    in_loop,
    opened,
    twin,
    until,
)
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Toxiproxy

MakeRedis = Callable[..., RedisServer]

GROUPS = ("", "a", "b")


@pytest.fixture(autouse=True)
def read_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrors that are of no use are read again without a pause, so that they are used."""
    monkeypatch.setattr(resolver, "LEAST_PAUSE_S", 0.0)
    monkeypatch.setattr(resolver, "READ_PAUSE_FACTOR", 0)


@asynccontextmanager
async def several(
    url: str, sizes: Sequence[int], recipe: Recipe = PLAIN, limits: Limits | None = None
) -> AsyncIterator[list[RedisIndex]]:
    """Indexes over one namespace, as so many processes have them, with mirrors of some sizes."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                opened(url, recipe, mirror_size=size, limits=limits or Limits(max_clusters=1000))
            )
            for size in sizes
        ]


@pytest.fixture
def empty(redis_server: RedisServer) -> RedisServer:
    """A server without keys."""
    redis_server.command("FLUSHALL")
    return redis_server


def searches(server: RedisServer) -> int:
    """Slices of tables that were searched so far."""
    return commands(server, "zrange")


def commands(server: RedisServer, name: str) -> int:
    """How often a command has run."""
    stats = server.info("commandstats").get(f"cmdstat_{name}")
    return int(stats.split(",")[0].removeprefix("calls=")) if stats else 0


def kin(rng: random.Random, of: Sequence[Text], bits: int) -> Text:
    """A text some bits away from one of some, with most of its words."""
    text = rng.choice(of)
    mask = 0
    for _ in range(rng.randrange(bits + 1)):
        mask |= 1 << rng.randrange(64)
    words = (*text.words[: -len(text.words) // 10], *(rng.getrandbits(63) for _ in range(2)))
    return Text(rng.getrandbits(64), text.fingerprint ^ mask, words)


def decisions_of(answers: Sequence[Resolution]) -> list[tuple[int, int, bool]]:
    return [(answer.cluster, answer.distance, answer.new) for answer in answers]


@pytest.mark.parametrize("recipe", [PLAIN, VERIFIED], ids=["plain", "verified"])
@pytest.mark.parametrize("seed", range(3))
def test_processes_with_mirrors_decide_as_processes_without(
    recipe: Recipe, seed: int, redis_server: RedisServer
) -> None:
    async def decided(sizes: Sequence[int]) -> list[tuple[int, int, bool]]:
        rng = random.Random(seed)
        of = families(60, seed)
        redis_server.command("FLUSHALL")
        found: list[tuple[int, int, bool]] = []
        async with several(redis_server.url, sizes, recipe) as indexes:
            workers = [Worker(index) for index in indexes]
            for worker in workers:
                await worker.own()
            offset = 0
            for _ in range(120):
                worker = rng.choice(workers)
                events = [
                    Event(offset + n, kin(rng, of, 8), (offset + n) * 20, rng.choice(GROUPS))
                    for n in range(rng.randrange(1, 20))
                ]
                offset += len(events)
                worker.now_us = START_US + offset * 20 * S
                await worker.own()
                found += decisions_of(await worker.process(events))
            size = await indexes[0].size()
            assert size.expired > 0
            return [*found, (size.clusters, size.fingerprints, size.truncated > 0)]

    plain = asyncio.run(decided([0, 0, 0]))
    before = searches(redis_server)
    assert asyncio.run(decided([10_000, 10_000, 10_000])) == plain
    mirrored = searches(redis_server) - before
    assert asyncio.run(decided([10_000, 0, 10_000])) == plain
    # Without a mirror each search is one a table; with one, few are left.
    assert mirrored < before / 2


@pytest.mark.parametrize("seed", range(3))
def test_clusters_that_change_their_text_are_found_as_without_mirrors(
    seed: int, redis_server: RedisServer
) -> None:
    async def decided(sizes: Sequence[int]) -> list[tuple[int, int, bool]]:
        rng = random.Random(seed)
        texts = []
        for number, text in enumerate(families(8, seed)):
            base = 0xFFFF << 16 * (number // 2)  # two families are near each other
            a, b = (tuple(rng.getrandbits(63) for _ in range(5)) for _ in range(2))
            # The last two are not like each other.
            for words in (text.words, a + text.words[5:], text.words[:-5] + b):
                texts += [
                    Text(rng.getrandbits(64), base ^ bits, words) for bits in (0, 1, 0b111_0000)
                ]
        redis_server.command("FLUSHALL")
        found: list[tuple[int, int, bool]] = []
        async with several(redis_server.url, sizes, VERIFIED) as indexes:
            for step in range(400):
                asked = [
                    query(position, rng.choice(texts), step * 300, near=rng.random() < 0.9)
                    for position in rng.sample(range(12), rng.randrange(1, 6))
                ]
                index = rng.choice(indexes)
                found += decisions_of(await index.resolve(asked, START_US + step * 300 * S))
                if step % 4 == 3:  # entries of former texts stay in the tables until then
                    await index.expire(START_US + step * 300 * S)
            assert (await indexes[0].size()).truncated == 0
        return found

    plain = asyncio.run(decided([0, 0, 0]))
    assert asyncio.run(decided([10_000, 10_000, 10_000])) == plain
    assert asyncio.run(decided([10_000, 0, 10_000])) == plain


@in_loop
async def test_no_two_near_clusters_are_opened_by_calls_at_once(empty: RedisServer) -> None:
    rng = random.Random(5)
    of = families(40)
    opened_by: dict[int, tuple[str, int]] = {}
    async with several(empty.url, [10_000, 10_000]) as indexes:

        async def resolve_some(number: int) -> None:
            index = indexes[number % 2]
            for turn in range(15):
                asked = [
                    query(number * 10_000 + turn * 100 + n, kin(rng, of, 4), group=rng.choice("ab"))
                    for n in range(rng.randrange(1, 30))
                ]
                answers = await index.resolve(asked, START_US)
                for text, answer in zip(asked, answers, strict=True):
                    if answer.new:
                        opened_by[answer.cluster] = (text.group, text.fingerprint)

        await asyncio.gather(*map(resolve_some, range(8)))
        assert (await indexes[0].size()).clusters == len(opened_by)
    for (group, one), (other_group, other) in combinations(opened_by.values(), 2):
        assert group != other_group or (one ^ other).bit_count() > PLAIN.match.k


@in_loop
async def test_what_others_insert_is_found_without_a_search(empty: RedisServer) -> None:
    texts = families(50)
    async with several(empty.url, [10_000, 10_000]) as (one, other):
        for index in (one, other):  # both have read their mirrors
            await index.resolve([query(0, families(1, seed=9)[0])], START_US)
        before = searches(empty)
        clusters = [
            answer.cluster
            for answer in await one.resolve([query(n, t) for n, t in enumerate(texts)], START_US)
        ]
        near = [query(100 + n, kin(random.Random(n), [t], 2)) for n, t in enumerate(texts)]
        assert [a.cluster for a in await one.resolve(near, START_US)] == clusters
        assert searches(empty) == before
        # The other has not seen them: the script holds its queries against them, and then searches.
        again = [query(200 + n, kin(random.Random(n + 99), [t], 2)) for n, t in enumerate(texts)]
        assert [a.cluster for a in await other.resolve(again, START_US)] == clusters
        before = searches(empty)
        again = [query(300 + n, kin(random.Random(n + 199), [t], 2)) for n, t in enumerate(texts)]
        assert [a.cluster for a in await other.resolve(again, START_US)] == clusters
        assert searches(empty) == before


@in_loop
async def test_what_calls_at_once_insert_is_found_without_a_search(empty: RedisServer) -> None:
    rng, texts = random.Random(1), families(20)
    async with several(empty.url, [10_000], VERIFIED) as (index,):
        await index.resolve([query(0, families(1, seed=9)[0])], START_US)  # it has read its mirror
        before = searches(empty)
        # The second call has to connect, so the first one comes before it.
        first = [query(100 + n, text) for n, text in enumerate(texts)]
        second = [query(200 + n, twin(text, rng)) for n, text in enumerate([*texts, *texts])]
        answers = await asyncio.gather(*(index.resolve(q, START_US) for q in (first, second)))
        clusters = [answer.cluster for answer in answers[0]]
        assert [answer.new for answer in answers[0]] == [True] * 20
        assert clusters * 2 == [answer.cluster for answer in answers[1]]
        assert before == searches(empty)


def crowd(number: int, seed: int) -> list[Text]:
    """Texts that are all near each other, and of which no two are alike."""
    rng = random.Random(seed)
    return [
        Text(rng.getrandbits(64), 1 << rng.randrange(64), text.words)
        for text in families(number, seed)
    ]


@in_loop
async def test_a_crowd_that_others_have_opened_is_read_once(empty: RedisServer) -> None:
    async with several(empty.url, [10_000, 10_000], VERIFIED) as (one, other):
        texts, rng = crowd(20, seed=1), random.Random(3)
        await other.resolve([query(0, families(1, seed=9)[0])], START_US)  # it reads its mirror
        opened = await one.resolve([query(n, text) for n, text in enumerate(texts)], START_US)
        read = []
        for turn in range(1, 6):
            before = commands(empty, "get")
            (text,) = crowd(1, turn + 5)
            (answer,) = await other.resolve([query(100 * turn, text)], START_US)
            assert answer.new
            read.append(commands(empty, "get") - before)
        # All are compared by the script, then when they are near for the first time in the mirror.
        assert min(read[:2]) >= 20
        assert max(read[2:]) < 5
        again = [query(900 + n, twin(text, rng)) for n, text in enumerate(texts)]
        answers = await other.resolve(again, START_US)
        assert [a.cluster for a in answers] == [a.cluster for a in opened]


@in_loop
async def test_a_crowd_that_has_closed_is_looked_for_once(empty: RedisServer) -> None:
    async with several(empty.url, [10_000, 10_000], VERIFIED) as (one, other):
        worker, texts = Worker(one), crowd(22, seed=1)
        await worker.own()
        await other.resolve([query(50, families(1, seed=9)[0])], START_US)  # it reads its mirror
        await one.resolve([query(n, text) for n, text in enumerate(texts[:20])], START_US)
        await other.resolve([query(51, texts[20])], START_US)  # it learns of them
        worker.now_us = START_US + 10**6 * S
        await worker.process([Event(90, families(1, seed=8)[0], 10**6)])  # closes them
        read = []
        for turn in range(4):
            before = commands(empty, "getrange")
            (text,) = crowd(1, turn + 5)
            await other.resolve([query(100 + turn, text, 10**6)], worker.now_us)
            read.append(commands(empty, "getrange") - before)
        assert max(read[:2]) >= 20 > max(read[2:])


@pytest.mark.parametrize("calls", [1, 2])
@in_loop
async def test_an_alias_of_the_same_time_leads_to_its_cluster(
    empty: RedisServer, calls: int
) -> None:
    # The last is near the alias alone, and so similar to the cluster alone.
    texts = [
        Text(1, 0, tuple(range(20))),
        Text(2, 0b111111, tuple(range(18))),
        Text(3, 0b111111111, tuple(range(2, 20))),
    ]
    first, alias, last = (query(n, text) for n, text in enumerate(texts))
    recipe = Recipe(match=Match(k=6, jaccard=0.85))
    async with several(empty.url, [10_000], recipe) as (index,):
        (opened,) = await index.resolve([first], START_US)
        sent = [[alias, last]] if calls == 1 else [[alias], [last]]
        answers = await asyncio.gather(*(index.resolve(some, START_US) for some in sent))
        assert [opened.cluster] * 2 == [answer.cluster for some in answers for answer in some]


@in_loop
async def test_equal_entries_of_two_calls_are_both_found(
    empty: RedisServer, toxiproxy: Toxiproxy
) -> None:
    rng, (early, late, *others) = random.Random(4), families(40)
    late = late._replace(fingerprint=early.fingerprint)
    async with AsyncExitStack() as stack:
        link = stack.enter_context(toxiproxy.proxy(empty.port))
        one = await stack.enter_async_context(opened(f"redis://127.0.0.1:{link.port}/0", VERIFIED))
        other = await stack.enter_async_context(opened(empty.url, VERIFIED))
        for n in range(2):  # it reads its mirror, and makes connections
            some = [query(10 * n + m, others.pop()) for m in range(5)]
            await asyncio.gather(*(one.resolve([each], START_US) for each in some))
        await asyncio.to_thread(lambda: link.add_toxic("latency", latency=2_000))

        async def sent(number: int, text: Text) -> asyncio.Task[list[Resolution]]:
            ran = commands(empty, "evalsha")
            call = asyncio.create_task(one.resolve([query(number, text)], START_US))
            await until(lambda: commands(empty, "evalsha") > ran)
            return call

        first = await sent(100, early)
        for n in range(20):  # so many calls between the two
            await other.resolve([query(200 + n, others.pop())], START_US)
        calls = [first, await sent(101, late), await sent(102, twin(early, rng))]
        assert not any(call.done() for call in calls)
        (one_early,), (one_late,), (one_twin,) = await asyncio.gather(*calls)
        assert (one_late.new, one_twin.cluster) == (True, one_early.cluster)


@in_loop
async def test_a_mirror_far_behind_searches_in_redis_and_reads_again(empty: RedisServer) -> None:
    texts = families(300)
    async with several(empty.url, [10_000, 10_000]) as (one, other):
        await other.resolve([query(0, families(1, seed=9)[0])], START_US)
        for n, text in enumerate(texts):  # more calls than the shard keeps
            await one.resolve([query(1 + n, text)], START_US)
        shard = ShardKeys(NAMESPACE, 0)
        assert empty.command("LLEN", shard.inserted) == 256
        near = [query(1000 + n, kin(random.Random(n), [t], 2)) for n, t in enumerate(texts)]
        answers = await other.resolve(near, START_US)
        assert not any(answer.new for answer in answers)
        assert other.mirrored == (await other.size()).fingerprints


@in_loop
async def test_a_server_that_came_back_with_older_data_is_searched(make_redis: MakeRedis) -> None:
    server = make_redis()
    before, lost, after = families(20, 1), families(20, 2), families(20, 3)
    async with several(server.url, [10_000, 10_000]) as (one, other):
        await one.resolve([query(n, t) for n, t in enumerate(before)], START_US)
        server.command("SAVE")
        await one.resolve([query(100 + n, t) for n, t in enumerate(lost)], START_US)
        server.kill()
        server.start()
        # As many calls as were lost: their numbers alone would not show the loss.
        await other.resolve([query(200 + n, t) for n, t in enumerate(after)], START_US)
        rng = random.Random(7)
        for start, texts, new in ((300, before, False), (400, lost, True), (500, after, False)):
            near = [query(start + n, kin(rng, [t], 1)) for n, t in enumerate(texts)]
            assert {answer.new for answer in await one.resolve(near, START_US)} == {new}


@pytest.mark.parametrize("gone", ["inserted", "meta"])
@in_loop
async def test_keys_that_are_lost_cost_no_recall(gone: str, empty: RedisServer) -> None:
    texts = families(20)
    async with several(empty.url, [10_000, 10_000]) as (one, other):
        workers = [Worker(one), Worker(other)]
        for n, worker in enumerate(workers):
            await worker.own()
            await worker.process([Event(n, families(1, seed=9 + n)[0])])
        await workers[1].own()
        answers = await workers[1].process([Event(10 + n, t) for n, t in enumerate(texts)])
        empty.command("DEL", getattr(ShardKeys(NAMESPACE, 0), gone))
        if gone == "meta":
            for index in (one, other):
                with pytest.raises(IndexReset):
                    await index.resolve([query(99, texts[0])], START_US)
            answers = await other.resolve(
                [query(200 + n, t) for n, t in enumerate(texts)], START_US
            )
        near = [query(300 + n, kin(random.Random(n), [t], 1)) for n, t in enumerate(texts)]
        found = await one.resolve(near, START_US)
        assert [a.cluster for a in answers] == [a.cluster for a in found]


@in_loop
async def test_a_shard_that_is_too_large_is_searched(empty: RedisServer) -> None:
    texts = families(SPARE + 30)
    async with several(empty.url, [10_000, 20]) as (one, other):
        await one.resolve([query(n, t) for n, t in enumerate(texts)], START_US)
        near = [query(5_000 + n, kin(random.Random(n), [t], 1)) for n, t in enumerate(texts[:30])]
        assert not any(answer.new for answer in await other.resolve(near, START_US))
        assert (one.mirrored, other.mirrored) == (SPARE + 30, 0)


@in_loop
async def test_what_led_to_another_cluster_of_the_same_id_leads_nowhere(empty: RedisServer) -> None:
    first, other = families(2)
    async with several(empty.url, [10_000], VERIFIED) as (index,):
        worker = Worker(index)
        await worker.own()
        await worker.process([Event(0, families(1, seed=9)[0])])
        (opened_first,) = await index.resolve([query(5, first)], START_US)  # nobody records it
        worker.now_us = START_US + 10**6 * S
        await worker.own()
        await worker.process([Event(1, families(1, seed=8)[0], 10**6)])  # closes, and forgets it
        (opened_again,) = await index.resolve([query(5, other, 10**6)], START_US)
        assert (opened_again.cluster, opened_again.new) == (opened_first.cluster, True)
        # Near the fingerprint that had this id before; the words of the one that has it now.
        asked = Text(77, first.fingerprint ^ 1, other.words)
        (answer,) = await index.resolve([query(6, asked, 10**6)], START_US)
        assert answer.new


@in_loop
async def test_closed_clusters_in_a_mirror_take_no_live_ones_place(empty: RedisServer) -> None:
    text = families(1)[0]
    limits = Limits(max_clusters=1000, max_verified=8)
    async with several(empty.url, [10_000], limits=limits) as (index,):
        worker = Worker(index)
        await worker.own()
        clusters = []
        for n in range(60):
            at_s = n * 2 * 3600
            worker.now_us = START_US + at_s * S
            (answer,) = await worker.process([Event(n, text._replace(exact=1000 + n), at_s)])
            clusters.append(answer.cluster)
        assert len(set(clusters)) == 60
        (answer,) = await index.resolve([query(99, text, at_s + 1)], worker.now_us)
        assert clusters[-1] == answer.cluster
        assert (await index.size()).truncated == 0


@in_loop
async def test_a_mirror_does_not_start_empty_if_only_call_names_are_lost(
    empty: RedisServer,
) -> None:
    rng = random.Random(70)
    texts = families(8, seed=70)
    asked = [query(offset, text) for offset, text in enumerate(texts)]
    again = [query(100 + offset, twin(text, rng)) for offset, text in enumerate(texts)]
    async with several(empty.url, (1000,)) as (one,):
        clusters = [answer.cluster for answer in await one.resolve(asked, START_US)]
    empty.command("HDEL", ShardKeys(NAMESPACE, 0).meta, "inserted", "turn")
    async with several(empty.url, (1000,)) as (other,):
        assert [answer.cluster for answer in await other.resolve(again, START_US)] == clusters
