"""What does not pass by itself is refused at once, with the remedy and without secrets."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable

import pytest

from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, RecipeMismatch
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.store import RedisIndex
from tests.contract.driver import PLAIN
from tests.integration.redis.helpers import NAMESPACE, Worker, in_loop, opened, stream
from tests.services.redis import RedisCluster, RedisServer

MakeRedis = Callable[..., RedisServer]

SECRET = "hunter2"  # noqa: S105 -- of a server that lives as long as its test
META = ShardKeys(NAMESPACE, 0).meta


async def refused(url: str, *, shards: int = 1) -> IndexRefused:
    """The refusal to open an index, which was not tried again."""
    server = RedisClient(url)
    try:
        with pytest.raises(IndexRefused) as caught:
            await RedisIndex.open(server, PLAIN, namespace=NAMESPACE, shards=shards)
        assert server.counts["retries"] == 0
        assert not server.retrying
        shown = "".join(traceback.format_exception(caught.value))
        for text in (shown, repr(caught.value), repr(server), str(server.address)):
            assert SECRET not in text
        return caught.value
    finally:
        await server.aclose()


@pytest.mark.parametrize("credentials", ["", f":{SECRET}@", f"somebody:{SECRET}@"])
@in_loop
async def test_wrong_credentials_are_refused_at_once(
    make_redis: MakeRedis, credentials: str
) -> None:
    server = make_redis(extra={"requirepass": "another"})
    error = await refused(f"redis://{credentials}127.0.0.1:{server.port}/0")
    said = "invalid username" if credentials else "the server asks for a password, and none was"
    assert str(error).startswith(f"redis://127.0.0.1:{server.port}: {said}")
    assert "; check user and password" in str(error)
    assert ".;" not in str(error)
    assert error.__cause__ is not None


@in_loop
async def test_a_missing_permission_is_refused_at_once(make_redis: MakeRedis) -> None:
    server = make_redis(acl=f"app on >{SECRET} ~sd:* +client|setname +exists +hmget")
    error = await refused(server.url_as("app", SECRET))
    assert "permissions" in str(error)
    assert "evalsha" in str(error)


@in_loop
async def test_a_plain_server_is_refused_as_a_cluster(make_redis: MakeRedis) -> None:
    server = make_redis()
    error = await refused(f"redis+cluster://127.0.0.1:{server.port}")
    assert "cluster support disabled" in str(error)


@in_loop
async def test_wrong_credentials_are_refused_by_a_cluster_at_once(
    redis_cluster: RedisCluster,
) -> None:
    hosts = redis_cluster.url.partition("://")[2]
    error = await refused(f"redis+cluster://somebody:{SECRET}@{hosts}")
    assert "check user and password" in str(error)


@in_loop
async def test_a_permission_missing_inside_a_script_is_refused_at_once(
    make_redis: MakeRedis,
) -> None:
    server = make_redis(acl=f"app on >{SECRET} ~sd:* +@all -hset")
    error = await refused(server.url_as("app", SECRET))
    assert "permissions that" in str(error)


@in_loop
async def test_a_password_that_was_changed_meanwhile_is_refused_at_once(
    make_redis: MakeRedis,
) -> None:
    server = make_redis(acl=f"app on >{SECRET} ~sd:* +@all")
    async with opened(server.url_as("app", SECRET)) as index:
        worker = Worker(index)
        await worker.own()
        server.command("ACL", "SETUSER", "app", "resetpass", ">another")
        server.command("CLIENT", "KILL", "USER", "app")
        # The cut connection may be tried again; the refusal that follows may not.
        with pytest.raises(IndexRefused, match="check user and password"):
            await worker.process(stream(1, of=1))
        assert index.client.counts["retries"] <= 1


@pytest.mark.parametrize("stored", [0, 99])
@in_loop
async def test_another_format_is_refused(make_redis: MakeRedis, stored: int) -> None:
    server = make_redis()
    async with opened(server.url):
        pass
    layout = server.command("HGET", META, "layout")
    assert isinstance(layout, bytes)
    changed = json.loads(layout) | {"format": stored}
    server.command("HSET", META, "layout", json.dumps(changed))
    error = await refused(server.url)
    assert f"in format {stored}" in str(error)
    assert "another namespace" in str(error)


@in_loop
async def test_a_format_with_other_fields_is_refused(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url):
        pass
    server.command("HSET", META, "layout", json.dumps({"format": 99, "new": 1}))
    assert "in format 99" in str(await refused(server.url))


@pytest.mark.parametrize("layout", ["{", "{}", '{"format": 7}', '{"format": 7, "more": 2}'])
@in_loop
async def test_a_damaged_layout_is_refused_naming_its_key(
    make_redis: MakeRedis, layout: str
) -> None:
    server = make_redis()
    async with opened(server.url):
        pass
    server.command("HSET", META, "layout", layout)
    assert f"damaged layout in {META.decode()}" in str(await refused(server.url))
    server.command("HDEL", META, "layout")
    assert f"damaged layout in {META.decode()}" in str(await refused(server.url))


@in_loop
async def test_who_is_refused_keeps_nothing_alive_and_notes_nothing(make_redis: MakeRedis) -> None:
    server = make_redis()
    async with opened(server.url):
        pass
    noted = server.command("HGET", META, "settings")
    server.command("PEXPIRE", META, 60_000)
    with pytest.raises(RecipeMismatch):
        async with opened(server.url, Recipe(match=Match(k=4)), windows=Windows()):
            pytest.fail("it was opened")
    left_ms = server.command("PTTL", META)
    assert isinstance(left_ms, int)
    assert 0 < left_ms <= 60_000
    assert server.command("HGET", META, "settings") == noted


@in_loop
async def test_another_recipe_is_refused_naming_both(make_redis: MakeRedis) -> None:
    server = make_redis()
    theirs = Recipe(name="theirs", match=Match(k=4))
    async with opened(server.url, theirs):
        pass
    with pytest.raises(RecipeMismatch) as caught:
        async with opened(server.url):
            pytest.fail("it was opened")
    assert f"theirs ({theirs.digest})" in str(caught.value)
    assert f"{PLAIN.name} ({PLAIN.digest})" in str(caught.value)


@pytest.mark.parametrize(("made", "asked"), [(1, 3), (3, 1)])
@in_loop
async def test_another_number_of_shards_is_refused(
    make_redis: MakeRedis, made: int, asked: int
) -> None:
    server = make_redis()
    async with opened(server.url, shards=made):
        pass
    assert f"{made} shard(s), not {asked}" in str(await refused(server.url, shards=asked))


@in_loop
async def test_a_database_that_is_not_there_is_refused(
    make_redis: MakeRedis,
) -> None:
    server = make_redis(extra={"databases": "1"})
    error = await refused(f"redis://127.0.0.1:{server.port}/5")
    assert "DB index" in str(error)


def test_an_address_shows_no_secrets() -> None:
    address = RedisClient(f"redis://me:{SECRET}@127.0.0.1/0").address
    assert str(address) == "redis://127.0.0.1:6379"
    assert SECRET not in repr(address)
