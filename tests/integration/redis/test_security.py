"""Who may do what: certificates, and users with no more rights than they need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dedup.errors import IndexRefused, IndexUnavailable
from stream_dedup.index.redis.connection import Tls
from stream_dedup.index.redis.keys import ShardKeys
from tests.integration.redis import scenario
from tests.integration.redis.helpers import BRIEF, NAMESPACE, in_loop, opened
from tests.services.certificates import Certificates, make_certificates
from tests.services.redis import RedisCluster, RedisReplyError, RedisServer
from tests.services.resp import call

MakeRedis = Callable[..., RedisServer]

COMMANDS = (
    "client|setname del evalsha exists get getrange hdel hget hincrby hkeys hlen hmget hset hvals"
    " lrange lrem ltrim mget pexpire rpush script|load set setrange time unlink zadd zcard zcount"
    " zmscore zpopmin zrange zrem zremrangebyscore zscore"
).split()

ACL_RULES = "~sd:* resetchannels -@all " + " ".join(f"+{command}" for command in COMMANDS)
"""All that a worker needs."""

OPERATOR_COMMANDS = (
    "client|setname config|get hgetall info memory|usage pttl scan ttl type unlink zrange"
).split()

ACL_OPERATOR_RULES = (
    ACL_RULES
    + " "
    + " ".join(f"+{command}" for command in OPERATOR_COMMANDS if command not in COMMANDS)
)
"""All that somebody needs who looks at namespaces and deletes them."""

CLUSTER_COMMANDS = "cluster|slots command".split()
"""What the users of a Redis Cluster need besides."""


def user(rules: str, name: str = "app") -> str:
    return f"{name} on >secret {rules}"


async def use_as(server: RedisServer, name: str = "app") -> None:
    """Use every method as a user, of a server that knows no script yet."""
    server.command("FLUSHALL")
    server.command("SCRIPT", "FLUSH")
    async with opened(
        server.url_as(name, "secret"),
        windows=scenario.WINDOWS,
        summaries=scenario.SUMMARIES,
        limits=scenario.LIMITS,
    ) as index:
        try:
            await scenario.use_everything(index)
        finally:  # what goes on beside the call that was refused holds a connection
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)


@in_loop
async def test_the_rules_suffice(make_redis: MakeRedis) -> None:
    await use_as(make_redis(acl=f"default off\n{user(ACL_RULES)}"))


@in_loop
async def test_no_rule_can_be_left_out(make_redis: MakeRedis) -> None:
    server = make_redis(acl=f"default off\n{user(ACL_RULES)}")
    spare = []
    for command in COMMANDS:
        server.command("ACL", "SETUSER", "app", f"-{command}")
        try:
            await use_as(server)
        except IndexRefused:
            pass  # it is needed
        else:
            spare.append(command)
        server.command("ACL", "SETUSER", "app", f"+{command}")
    assert spare == []


def may(server: RedisServer, name: str, *command: str | bytes) -> bool:
    """Whether a user may run a command."""
    try:
        call(server.port, [("AUTH", name, "secret"), command])
    except RedisReplyError as error:
        if "NOPERM" in str(error):
            return False
        raise
    return True


def test_a_worker_sees_no_other_keys_and_no_settings(make_redis: MakeRedis) -> None:
    server = make_redis(acl=f"default off\n{user(ACL_RULES)}\n{user(ACL_OPERATOR_RULES, 'boss')}")
    server.command("HSET", "other", "field", "value")
    meta = ShardKeys(NAMESPACE, 0).meta
    for name in ("app", "boss"):
        assert may(server, name, "HGET", meta, "digest")
        assert not may(server, name, "HGET", "other", "field")
        assert not may(server, name, "ZADD", "sdother", "1", "a")
        for forbidden in ("FLUSHALL", "KEYS *", "CONFIG SET save x", "ACL LIST", "SHUTDOWN"):
            assert not may(server, name, *forbidden.split())
    assert not may(server, "app", "SCAN", "0")


@in_loop
async def test_an_operator_may_look_and_delete(make_redis: MakeRedis) -> None:
    server = make_redis(acl=f"default off\n{user(ACL_OPERATOR_RULES)}")
    await use_as(server)
    meta = ShardKeys(NAMESPACE, 0).meta
    for command in ("MEMORY USAGE", "TYPE", "TTL", "PTTL", "HGETALL", "UNLINK"):
        assert may(server, "app", *command.split(), meta), command
    for command in ("SCAN 0", "CONFIG GET maxmemory", "INFO", "ZRANGE sd:none 0 -1"):
        assert may(server, "app", *command.split()), command


@pytest.mark.parametrize("left_out", [None, *CLUSTER_COMMANDS])
@in_loop
async def test_the_rules_suffice_for_a_cluster(
    redis_cluster: RedisCluster, left_out: str | None
) -> None:
    rules = [*ACL_RULES.split(), *(f"+{c}" for c in CLUSTER_COMMANDS if c != left_out)]
    hosts = redis_cluster.url.partition("://")[2]
    for node in redis_cluster.nodes:
        node.command("ACL", "SETUSER", "app", "on", ">secret", *rules)
    for node in redis_cluster.masters():
        node.command("FLUSHALL")
        node.command("SCRIPT", "FLUSH")
    try:
        async with opened(
            f"redis+cluster://app:secret@{hosts}",
            windows=scenario.WINDOWS,
            summaries=scenario.SUMMARIES,
            limits=scenario.LIMITS,
            shards=3,
        ) as index:
            assert left_out is None
            await scenario.use_everything(index, groups=30)
    except IndexRefused:
        assert left_out is not None
    finally:
        for node in redis_cluster.nodes:
            node.command("ACL", "DELUSER", "app")


# ---------------------------------------------------------------- TLS


def trusts(certificates: Certificates, *, shows: Certificates | None = None) -> Tls:
    return Tls(
        ca_file=str(certificates.ca_file),
        cert_file=str(shows.cert_file) if shows else None,
        key_file=str(shows.key_file) if shows else None,
    )


async def reach(server: RedisServer, tls: Tls) -> None:
    async with opened(server.url, tls=tls) as index:
        assert (await index.size()).clusters == 0


@in_loop
async def test_a_server_is_trusted_by_its_authority(make_redis: MakeRedis) -> None:
    server = make_redis(tls=True)
    assert server.url.startswith("rediss://")
    await reach(server, trusts(server.certificates))


@in_loop
async def test_a_server_of_another_authority_is_not_trusted(
    make_redis: MakeRedis, tmp_path: Path
) -> None:
    server = make_redis(tls=True)
    for tls in (trusts(make_certificates(tmp_path / "other")), Tls()):
        with pytest.raises(IndexRefused, match="check the certificates"):
            await reach(server, tls)


@in_loop
async def test_the_name_on_a_certificate_is_checked(make_redis: MakeRedis) -> None:
    server = make_redis(tls=True, extra={"bind": "127.0.0.1 127.0.0.2"})
    url = f"rediss://127.0.0.2:{server.port}/0"
    tls = trusts(server.certificates)
    with pytest.raises(IndexRefused, match="check the certificates"):
        async with opened(url, tls=tls):
            pytest.fail("it was opened")
    unchecked = Tls(ca_file=tls.ca_file, check_hostname=False)
    async with opened(url, tls=unchecked) as index:
        assert (await index.size()).clusters == 0


@in_loop
async def test_a_server_may_ask_for_a_certificate(make_redis: MakeRedis, tmp_path: Path) -> None:
    server = make_redis(tls=True, extra={"tls-auth-clients": "yes"})
    ours = server.certificates
    await reach(server, trusts(ours, shows=ours))
    for shown in (None, make_certificates(tmp_path / "other")):
        with pytest.raises(IndexRefused, match="check the certificates"):
            await reach(server, trusts(ours, shows=shown))


@in_loop
async def test_a_plain_client_is_not_served_by_a_secure_server(make_redis: MakeRedis) -> None:
    server = make_redis(tls=True)
    with pytest.raises(IndexUnavailable):
        async with opened(server.url.replace("rediss", "redis"), retry_policy=BRIEF):
            pytest.fail("it was opened")
