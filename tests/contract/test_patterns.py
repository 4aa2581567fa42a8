"""What is remembered of patterns: in memory, in Redis, and in a Redis Cluster."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from stream_dedup.index.patterns import Changes, MemoryPatterns, Pattern, PatternStore, id_bytes
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.patterns import RedisPatterns
from tests.services.redis import RedisCluster, RedisServer

T = TypeVar("T")

MOST = 3
LEASE = 100
ONE = Changes(
    looked_us=50,
    names={b"a": id_bytes(1) + b"x", b"b": id_bytes(1)},
    patterns={1: Pattern(b"one", 40, 90)},
    unsent=[b"new one"],
    until_us=LEASE,
)


class Store:
    """A store under test; its calls are waited for."""

    def __init__(self, store: PatternStore, runner: asyncio.Runner) -> None:
        self.store = store
        self._runner = runner

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def read(self, *names: bytes, now_us: int = 0, due_us: int | None = None) -> Any:
        return self.run(self.store.read(names, now_us, due_us))

    def write(self, changes: Changes) -> None:
        """Read and write as one."""
        assert self.run(self.store.write(self.read().token, changes))


@pytest.fixture(params=["memory", "redis", "redis-cluster"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with asyncio.Runner() as runner:
        if request.param == "memory":
            yield Store(MemoryPatterns(MOST), runner)
            return
        name = request.param.replace("-", "_")
        service = request.getfixturevalue(name if "cluster" in name else f"{name}_server")
        client, namespace = RedisClient(service.url), uuid.uuid4().hex
        made = RedisPatterns(client, namespace, max_patterns=MOST, ttl_ms=3_600_000)
        yield Store(made, runner)
        runner.run(client.aclose())


def test_an_empty_store_knows_nothing(store: Store) -> None:
    found = store.read(b"a", due_us=1 << 50)
    assert (found.token, found.looked_us, found.names, found.patterns) == (b"", None, {}, {})
    assert not [*found.due, *found.oldest, *found.unsent]


def test_names_lead_to_what_was_written(store: Store) -> None:
    store.write(ONE)
    found = store.read(b"b", b"a", b"c")
    assert found.names == ONE.names
    assert found.patterns == {1: b"one"}
    assert found.looked_us == 50
    assert store.read(b"c").patterns == {}


def test_who_read_before_another_wrote_writes_nothing(store: Store) -> None:
    before = store.read().token
    store.write(ONE)
    late = Changes(names={b"a": None}, patterns={1: None})
    assert not store.run(store.store.write(before, late))
    assert store.read(b"a").patterns == {1: b"one"}


def test_what_is_deleted_is_gone(store: Store) -> None:
    store.write(ONE)
    store.write(Changes(names={b"a": None, b"b": None}, patterns={1: None}))
    found = store.read(b"a", b"b", due_us=1 << 50)
    assert (found.names, found.patterns, list(found.due)) == ({}, {}, [])
    assert found.looked_us == 50


def test_a_pattern_is_due_from_its_time_on(store: Store) -> None:
    store.write(ONE)
    assert list(store.read(due_us=89).due) == []
    found = store.read(due_us=90)
    assert (list(found.due), found.patterns) == ([1], {1: b"one"})
    store.write(Changes(patterns={1: Pattern(b"silent", 40, None)}))
    assert list(store.read(due_us=1 << 50).due) == []


def test_those_not_seen_for_longest_are_too_many(store: Store) -> None:
    seen = {number: Pattern(b"%d" % number, 1000 - number, None) for number in range(1, MOST + 3)}
    store.write(Changes(patterns=seen))
    found = store.read()
    assert sorted(found.oldest) == [MOST + 1, MOST + 2]
    assert found.patterns == {number: b"%d" % number for number in found.oldest}


def test_an_unsent_event_is_found_once_its_lease_ended(store: Store) -> None:
    store.write(ONE)
    assert list(store.read(now_us=LEASE - 1).unsent) == []
    assert list(store.read(now_us=LEASE).unsent) == [b"new one"]
    store.write(Changes(unsent=[b"new one"], until_us=2 * LEASE))
    assert list(store.read(now_us=LEASE).unsent) == []
    assert list(store.read(now_us=2 * LEASE).unsent) == [b"new one"]


def test_a_sent_event_is_gone(store: Store) -> None:
    store.write(ONE)
    for _ in range(2):
        store.run(store.store.sent([b"new one", b"never written"]))
    assert list(store.read(now_us=1 << 50).unsent) == []


def test_thousands_of_entries_are_written_at_once(store: Store) -> None:
    names = {b"%d" % number: id_bytes(number % 7000) for number in range(9000)}
    patterns = {number: Pattern(b"p", number, number) for number in range(7000)}
    store.write(Changes(names=names, patterns=patterns))
    assert store.read(*names).names == names
    assert len(store.read(*names).patterns) == 7000


# ---------------------------------------------------------------- Redis alone


def test_all_keys_expire_and_belong_to_the_namespace(redis_server: RedisServer) -> None:
    async def use() -> None:
        client = RedisClient(redis_server.url)
        namespace = uuid.uuid4().hex
        store = RedisPatterns(client, namespace, max_patterns=MOST, ttl_ms=3_600_000)
        assert await store.write(b"", ONE)
        keys = ShardKeys(namespace, 0)
        for key in (keys.patterns, keys.pattern_names, keys.pattern_seen, keys.pattern_due,
                    keys.pattern_events):  # fmt: skip
            assert 0 < await client.command(key, "PTTL", key) <= 3_600_000
        await client.aclose()

    asyncio.run(use())


def test_a_write_whose_answer_was_lost_counts_once(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        client = RedisClient(redis_server.url)
        store = RedisPatterns(client, uuid.uuid4().hex, max_patterns=MOST, ttl_ms=3_600_000)
        sent: list[Any] = []
        run = client.run

        async def repeated(*call: Any) -> Any:
            """The client repeats a call whose answer it did not get."""
            sent.append(await run(*call))
            return await run(*call)

        monkeypatch.setattr(client, "run", repeated)
        assert await store.write(b"", ONE)
        assert sent == [1]
        await client.aclose()

    asyncio.run(use())


def test_after_a_loss_an_earlier_read_is_of_no_use(redis_cluster: RedisCluster) -> None:
    async def use() -> None:
        client = RedisClient(redis_cluster.url)
        store = RedisPatterns(client, uuid.uuid4().hex, max_patterns=MOST, ttl_ms=3_600_000)
        assert await store.write(b"", ONE)
        before = await store.read([], 0)
        for node in redis_cluster.masters():
            node.command("FLUSHALL")
        assert not await store.write(before.token, ONE)
        assert await store.write(b"", ONE)
        assert not await store.write(before.token, ONE)
        await client.aclose()

    asyncio.run(use())
