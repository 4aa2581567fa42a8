"""The copy of a namespace, over a real Redis: it adds up, costs little, and survives an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache

import pytest

from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.redis.client import RetryPolicy
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import PatternRule, RuleKind, Undoing
from stream_dedup.tools.index_inspector.reader import Reader
from stream_dedup.ui import redis
from stream_dedup.ui.redis import RedisSource
from stream_dedup.ui.rules import SourceRules
from tests.integration.redis.helpers import in_loop, keys_of, until
from tests.integration.ui.writing import writing
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Toxiproxy

WORDS = "alpha bravo carbon delta echo foxtrot golf hotel india juliet kilo lima".split()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "TURN_S", 0.05)
    monkeypatch.setattr(redis, "CLUSTERS_PER_S", 10_000)


def lines(kinds: int) -> list[bytes]:
    """So many lines, each of a kind of its own."""
    return [
        f"{WORDS[n % 12]} {WORDS[n // 12 % 12]} {WORDS[n // 144 % 12]} "
        f"{'x' * (n // 1728 + 2)}{WORDS[n % 7]}q happened to {WORDS[n % 5]}".encode()
        for n in range(kinds)
    ]


@asynccontextmanager
async def shown(url: str, name: str) -> AsyncIterator[RedisSource]:
    """A copy that somebody looks at."""
    policy = RetryPolicy(within_s=0.3, first_delay_s=0.01, max_delay_s=0.05, timeout_s=5)
    make = cache(lambda: Reader(url, retry_policy=policy))
    source = RedisSource(make, name, lambda _: load_recipe("logs"), 3_600 * US_PER_S, SystemClock())
    source.wanted()
    task = asyncio.create_task(source.run())
    try:
        yield source
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await make().aclose()


def adds_up(source: RedisSource, events: int) -> Callable[[], bool]:
    """Whether all events are in the copy, in each of its numbers."""

    def same() -> bool:
        entries = list(source.entries.values())
        if sum(entry.count for entry in entries) != events or source.status().events != events:
            return False
        for entry in entries:
            values = entry.counts.values(source.axis)
            assert sum(values) + entry.counts.before <= entry.count
            assert entry.counts.total == entry.count
        return True

    return same


@pytest.mark.parametrize("shards", [1, 3])
def test_a_copy_has_the_counts_of_the_namespace(redis_server: RedisServer, shards: int) -> None:
    @in_loop
    async def check() -> None:
        url, name = redis_server.url, f"ui-{shards}"
        async with writing(url, name, shards=shards) as writer, shown(url, name) as source:
            size = 0
            for turn in range(5):
                kinds = lines(300 + 100 * turn)
                await writer.write(kinds, group=f'{{"pod":"{turn % 2}"}}')
                size += sum(map(len, kinds))
                source.wanted()
            await until(adds_up(source, writer.written))
            assert sum(entry.bytes for entry in source.entries.values()) == size
            assert {entry.group for entry in source.entries.values()} == {"pod=0", "pod=1"}
            assert source.status().problem == ""

    check()


@in_loop
async def test_differences_lie_between_their_readings(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with writing(url, "ui-times") as writer, shown(url, "ui-times") as source:
        await writer.write([b"one kind of line"] * 10)
        await until(adds_up(source, 10))
        await writer.write([b"one kind of line"] * 30)
        await until(adds_up(source, 40))
        (entry,) = source.entries.values()
        values = entry.counts.values(source.axis)
        assert sum(values[-2:]) == 40
        assert entry.counts.before == 0


@in_loop
async def test_merged_and_closed_clusters_are_told(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with writing(url, "ui-merge") as writer, shown(url, "ui-merge") as source:
        people = "ann bob cid dan eve fay gus hal ida jon".split()
        await writer.write([b"session of ann was opened by the door"])
        await until(adds_up(source, 1))
        for each in people[1:]:
            await writer.write([f"session of {each} was opened by the door".encode()])
            source.wanted()
        await until(adds_up(source, 10))
        is_open = {entry.identity for entry in source.entries.values() if entry.open}
        await until(lambda: sum(entry.open for entry in source.entries.values()) == 1)
        (root,) = (entry for entry in source.entries.values() if entry.open)
        assert root.identity in is_open
        await until(lambda: root.pattern == "session of <*> was opened by the door")
        found = await source.details(root.identity)
        assert found is not None
        assert found.summary.merged
        assert {entry.merged_into for entry in source.entries.values()} <= {None, root.identity}


@in_loop
async def test_clusters_that_leave_only_a_tombstone_keep_their_names(
    redis_server: RedisServer,
) -> None:
    url, name, now_us = redis_server.url, "ui-tombstones", SystemClock().now_us()
    unread = Summaries(every_us=None, final=False)
    making = writing(url, name, idle_s=60, summaries=unread)
    async with making as writer, shown(url, name) as source:
        line, other = b"session of nobody was opened", b"the disk is full of something else"
        await writer.write([line] * 3, time_us=now_us - 600 * US_PER_S, group="pod")
        await until(adds_up(source, 3))
        (entry,) = source.entries.values()
        await writer.write([other], time_us=now_us)
        source.wanted()
        await until(lambda: not entry.open)
        for written in (4, 5, 6):  # a turn of the copy each: it reads again what has changed
            await until(adds_up(source, written))
            await writer.write([other], time_us=now_us)
            source.wanted()
        assert (entry.pattern, entry.group, entry.count) == (line.decode(), "pod", 3)
        found = await source.details(entry.identity)
        assert found is not None
        assert (found.state, found.summary.pattern) == ("gone", line.decode())
        assert found.summary.template is None
        assert source.commands(found.summary, "session") == []


@in_loop
async def test_events_of_clusters_closed_unread_are_added(redis_server: RedisServer) -> None:
    url, name = redis_server.url, "ui-unread"
    async with writing(url, name, clusters=20) as writer:
        await writer.write(lines(100) + lines(20))
        async with shown(url, name) as source:

            def whole() -> bool:
                status = source.status()
                return status.events + status.unread == writer.written

            await until(whole)
            read = source.status().events
            assert source.status().unread > 0
            assert sum(entry.count for entry in source.entries.values()) == read
            await writer.write(lines(200))
            source.wanted()
            await until(whole)
            assert source.status().events > read


@in_loop
async def test_a_page_of_a_pattern_has_what_is_stored(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with writing(url, "ui-page") as writer, shown(url, "ui-page") as source:
        made = await writer.write([f"disk sd{n} is {n}% full".encode() for n in range(10, 30)])
        identity = made[0].cluster
        assert identity is not None
        await until(adds_up(source, 20))
        found = await source.details(identity)
        assert found is not None
        assert (found.summary.count, found.summary.pattern) == (20, "disk <*> is <number> full")
        assert found.summary.variables is not None
        assert found.summary.variables.slots[0].distinct == 20
        assert (found.state, found.summary.position.offset, len(found.names)) == ("open", 0, 1)
        assert await source.firsts([identity, 1]) == [b"disk sd10 is 10% full", None]
        first, like = source.commands(found.summary, "disk.*is")
        assert "-t 'app logs; rm -rf' -p 0 -o 0 -c 1" in first
        assert "grep -aE -e 'disk.*is'" in like


@in_loop
async def test_an_outage_is_told_and_passes_by_itself(
    redis_server: RedisServer, toxiproxy: Toxiproxy
) -> None:
    with toxiproxy.proxy(redis_server.port) as link:
        url = f"redis://127.0.0.1:{link.port}"
        async with writing(redis_server.url, "ui-away") as writer, shown(url, "ui-away") as source:
            await writer.write(lines(50))
            await until(adds_up(source, 50))
            link.disable()
            await until(lambda: url in source.status().problem)
            assert len(source.entries) == 50
            await writer.write(lines(60))
            link.enable()
            await until(adds_up(source, 110))
            await until(lambda: source.status().problem == "")


@in_loop
async def test_a_namespace_that_comes_later_is_found(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with shown(url, "ui-later") as source:
        await until(lambda: "there is no namespace" in source.status().problem)
        assert source.status().since_us is None
        async with writing(url, "ui-later") as writer:
            await writer.write(lines(5))
            await until(adds_up(source, 5))


@pytest.mark.parametrize("lost", ["*", "1"])
def test_what_is_created_again_is_read_from_the_start(redis_server: RedisServer, lost: str) -> None:
    @in_loop
    async def check() -> None:
        url, name = redis_server.url, f"ui-again-{ord(lost)}"
        async with shown(url, name) as source:
            async with writing(url, name, shards=2) as writer:
                for group in "abcdefghij":  # some on each shard
                    await writer.write(lines(10) * 2, group=group)
                await until(adds_up(source, 200))
            redis_server.command("UNLINK", *keys_of(redis_server, f"sd:{{{name}:{lost}}}:*"))
            if lost == "*":
                await until(lambda: "there is no namespace" in source.status().problem)
                assert len(source.entries) == 100  # as it was
            else:
                await until(lambda: 0 < len(source.entries) < 100)
            async with writing(url, name, shards=2) as writer:
                writer.written = 200
                for group in "klmnopqrst":
                    await writer.write(lines(10), group=group)
                counted = [
                    redis_server.command("HGET", f"sd:{{{name}:{shard}}}:meta", "events")
                    for shard in range(2)
                ]
                events = sum(int(each) for each in counted if isinstance(each, bytes))
                assert events == 100 if lost == "*" else 100 < events < 300
                await until(adds_up(source, events))
                await until(lambda: source.status().unread == 0)
            await until(lambda: source.status().problem == "")

    check()


@in_loop
async def test_rules_that_others_change_are_taken_up(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with writing(url, "ui-rules") as writer, shown(url, "ui-rules") as source:
        await writer.write([b"cache emptied by hand"] * 3 + [b"user bob logged in"])
        await until(adds_up(source, 4))
        (cache,) = (each for each in source.entries.values() if "cache" in each.pattern)
        rule = PatternRule(RuleKind.NAME, (cache.pattern,), value="emptied cache")
        others = SourceRules(source.rules.place)
        await others.change(lambda book: book.add(rule))
        await until(lambda: cache.mark is not None)
        assert cache.mark is not None
        assert (cache.mark.name, cache.mark.rules) == ("emptied cache", (rule.id,))
        assert [each.mark for each in source.entries.values() if each is not cache] == [None]
        found = await source.details(cache.identity)
        assert found is not None
        assert found.summary.name == "emptied cache"
        await others.change(lambda book: book.undo(rule.id, Undoing("ann", 1)))
        await until(lambda: cache.mark is None)


@in_loop
async def test_of_two_who_decide_at_once_neither_is_lost(redis_server: RedisServer) -> None:
    async with shown(redis_server.url, "ui-two") as source:
        both = [SourceRules(source.rules.place), SourceRules(source.rules.place)]
        rules = [PatternRule(RuleKind.MUTE, (f"word{n} <*>",)) for n in range(10)]
        await asyncio.gather(*(both[n % 2].change(adding(each)) for n, each in enumerate(rules)))
        await both[0].refresh()
        assert {rule.id for rule in both[0].book.acting()} == {rule.id for rule in rules}


def adding(rule: PatternRule) -> Callable[[RuleBook], RuleBook]:
    return lambda book: book.add(rule)


def calls(server: RedisServer) -> int:
    return sum(
        int(each.split("calls=")[1].split(",")[0])
        for name, each in server.info("commandstats").items()
        if name.removeprefix("cmdstat_") in {"get", "getrange", "hget", "zscan", "zrange"}
    )


@in_loop
async def test_nothing_is_read_while_nobody_looks(
    make_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_redis()
    monkeypatch.setattr(redis, "UNWATCHED_S", 0.2)
    async with writing(server.url, "ui-idle") as writer, shown(server.url, "ui-idle") as source:
        await writer.write(lines(50))
        await until(lambda: not source._watched.is_set(), 60)
        before = calls(server)
        await asyncio.sleep(0.5)
        assert calls(server) == before
        source.wanted()
        await until(lambda: calls(server) > before)
        await until(adds_up(source, 50))
