"""The services that other tests lean on start, answer, break and come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.processes import REPOSITORY, PortReservation, ServiceError, wait_until
from tests.services.redis import (
    RedisCluster,
    RedisReplyError,
    RedisSentinel,
    RedisServer,
    find_redis,
)
from tests.services.redis_server import BINARY_VARIABLE
from tests.services.resp import call
from tests.services.toxiproxy import Toxiproxy

MakeRedis = Callable[..., RedisServer]

DIES_WITH_ITS_PARENT = """
import os, signal
from tests.services.redis import RedisServer
with RedisServer() as server:
    print(server.pid, server.directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_answers_and_counts_its_processor_time(redis_server: RedisServer) -> None:
    assert redis_server.command("SET", "services:a", b"\x00\xff\r\n") == b"OK"
    assert redis_server.command("GET", "services:a") == b"\x00\xff\r\n"
    assert redis_server.command("MGET", "services:a", "services:b") == [b"\x00\xff\r\n", None]
    assert redis_server.info("server")["tcp_port"] == str(redis_server.port)
    assert redis_server.info("server")["process_id"] == str(redis_server.pid)
    used_us = redis_server.cpu_us()
    redis_server.command("EVAL", "for i = 1, 1000000 do end return 1", 0)
    assert redis_server.cpu_us() > used_us
    with pytest.raises(RedisReplyError, match="unknown command"):
        redis_server.command("NO-SUCH-COMMAND")


def test_an_append_only_file_survives_a_crash(make_redis: MakeRedis) -> None:
    server = make_redis(appendonly=True, extra={"appendfsync": "always"})
    port, directory = server.port, server.directory
    server.command("SET", "a", 1)
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        server.command("PING")
    server.start()
    assert (port, directory) == (server.port, server.directory)
    assert server.command("GET", "a") == b"1"


@pytest.mark.parametrize("appendonly", [True, False])
def test_a_restart_keeps_data_or_loses_it(make_redis: MakeRedis, appendonly: bool) -> None:
    server = make_redis(appendonly=appendonly)
    port, first_pid = server.port, server.pid
    server.command("SET", "a", 1)
    server.restart(keep_data=True)
    assert server.command("GET", "a") == b"1"
    server.restart(keep_data=False)
    assert server.command("GET", "a") is None
    assert port == server.port
    assert first_pid != server.pid


def test_a_paused_server_accepts_connections_and_does_not_answer(make_redis: MakeRedis) -> None:
    server = make_redis()
    server.pause()
    with pytest.raises(TimeoutError):
        call(server.port, [("PING",)], timeout_s=0.1)
    server.resume()
    assert server.command("PING") == b"PONG"
    server.pause()
    server.stop()
    assert not server.running


def test_directives_reach_the_server(make_redis: MakeRedis) -> None:
    server = make_redis(
        save="60 1000", extra={"maxmemory": "8mb", "zset-max-listpack-entries": "0"}
    )
    assert server.command("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"8388608"]
    assert server.command("CONFIG", "GET", "save") == [b"save", b"60 1000"]
    server.command("ZADD", "z", 1, "a")
    assert server.command("OBJECT", "ENCODING", "z") == b"skiplist"


def test_a_password_locks_clients_out_and_lets_tests_in(make_redis: MakeRedis) -> None:
    server = make_redis(extra={"requirepass": "secret"})
    assert server.command("PING") == b"PONG"
    with pytest.raises(RedisReplyError, match="NOAUTH"):
        call(server.port, [("PING",)])


def test_a_server_that_cannot_start_shows_its_log(make_redis: MakeRedis) -> None:
    with pytest.raises(ServiceError, match=r"(?s)process ended.*no-such-directive"):
        make_redis(extra={"no-such-directive": "1"})


def test_a_replica_follows_its_master(make_redis: MakeRedis) -> None:
    master = make_redis()
    replica = make_redis(replica_of=master)
    master.command("SET", "a", 1)
    wait_until(lambda: replica.command("GET", "a") == b"1", what="the replica has the key")


def test_a_tls_server_proves_who_it_is_and_speaks_nothing_else(make_redis: MakeRedis) -> None:
    server = make_redis(tls=True)
    assert server.url.startswith("rediss://127.0.0.1:")
    assert server.ca_file.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert server.command("PING") == b"PONG"
    with pytest.raises(ConnectionError):
        call(server.port, [("PING",)])
    server.command("CONFIG", "SET", "tls-auth-clients", "yes")
    assert server.command("PING") == b"PONG"


def test_users_may_do_what_their_line_says(make_redis: MakeRedis) -> None:
    server = make_redis(acl="default off\napp on >secret ~app:* +@all")
    login = ("AUTH", "app", "secret")
    assert call(server.port, [login, ("SET", "app:a", 1)]) == [b"OK", b"OK"]
    with pytest.raises(RedisReplyError, match="NOPERM"):
        call(server.port, [login, ("SET", "other", 1)])
    with pytest.raises(RedisReplyError, match="NOAUTH"):
        call(server.port, [("GET", "app:a")])
    assert server.command("GET", "app:a") == b"1"
    assert server.url_as("app", "secret") == f"redis://app:secret@127.0.0.1:{server.port}/0"


def test_a_cluster_fails_over_and_is_made_whole(redis_cluster: RedisCluster) -> None:
    assert redis_cluster.url.startswith("redis+cluster://127.0.0.1:")
    assert (len(redis_cluster.masters()), len(redis_cluster.replicas())) == (3, 3)
    slot = redis_cluster.slot_of("services:a")
    holder = redis_cluster.master_of(slot)
    assert holder.command("SET", "services:a", 1) == b"OK"
    assert holder.command("WAIT", 1, 5_000) == 1
    other = next(node for node in redis_cluster.masters() if node is not holder)
    with pytest.raises(RedisReplyError, match=f"MOVED {slot} 127.0.0.1:{holder.port}"):
        other.command("GET", "services:a")
    assert redis_cluster.kill_master(slot) is holder
    redis_cluster.wait_ready()
    assert redis_cluster.master_of(slot).command("GET", "services:a") == b"1"
    redis_cluster.revive()
    assert (len(redis_cluster.masters()), len(redis_cluster.replicas())) == (3, 3)


def test_sentinels_promote_the_replica_of_a_dead_master(redis_sentinel: RedisSentinel) -> None:
    assert redis_sentinel.url.endswith(f"/{redis_sentinel.service}")
    master = redis_sentinel.master()
    assert master.command("SET", "services:a", 1) == b"OK"
    assert master.command("WAIT", 1, 5_000) == 1
    old_port = redis_sentinel.kill_master()
    redis_sentinel.wait_failover(old_port)
    assert redis_sentinel.master_port() != old_port
    assert redis_sentinel.master().command("GET", "services:a") == b"1"
    redis_sentinel.revive()
    # On a slow machine the sentinels may have failed over again: the replica is not fixed.
    port = redis_sentinel.master_port()
    (replica,) = (server for server in redis_sentinel.servers if server.port != port)
    assert replica.info("replication")["master_port"] == str(port)


def test_a_proxy_breaks_and_restores_a_link(
    toxiproxy: Toxiproxy, redis_server: RedisServer
) -> None:
    with toxiproxy.proxy(redis_server.port) as link:
        assert call(link.port, [("PING",)]) == [b"PONG"]
        link.disable()
        with pytest.raises(ConnectionRefusedError):
            call(link.port, [("PING",)])
        link.enable()
        assert call(link.port, [("PING",)]) == [b"PONG"]
    with pytest.raises(ConnectionRefusedError):
        call(link.port, [("PING",)])


def test_a_proxy_delays_drops_and_resets(toxiproxy: Toxiproxy, redis_server: RedisServer) -> None:
    with toxiproxy.proxy(redis_server.port) as link:
        link.add_toxic("latency", "downstream", latency=100)
        start = time.monotonic()
        call(link.port, [("PING",)])
        assert time.monotonic() - start >= 0.1
        link.remove_toxics()
        link.add_toxic("timeout", "upstream", timeout=0)
        with pytest.raises(TimeoutError):
            call(link.port, [("PING",)], timeout_s=0.1)
        link.remove_toxics()
        link.add_toxic("limit_data", "downstream", bytes=3)
        with pytest.raises(ConnectionError):
            call(link.port, [("PING",)])
        link.remove_toxics()
        link.add_toxic("reset_peer", "downstream", timeout=0)
        with pytest.raises(ConnectionResetError):
            call(link.port, [("PING",)])
        link.remove_toxics()
        assert call(link.port, [("PING",)]) == [b"PONG"]


def test_a_wrong_toxic_is_refused(toxiproxy: Toxiproxy, redis_server: RedisServer) -> None:
    with (
        toxiproxy.proxy(redis_server.port) as link,
        pytest.raises(ServiceError, match="invalid toxic type"),
    ):
        link.add_toxic("no-such-toxic")  # type: ignore[arg-type]


def test_nothing_outlives_a_killed_test_run() -> None:
    command = [sys.executable, "-c", DIES_WITH_ITS_PARENT]
    killed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pid, directory = killed.stdout.split()
    wait_until(lambda: not _is_alive(int(pid)), what="the server ends", seconds=5)
    wait_until(lambda: not Path(directory).parent.exists(), what="its files go", seconds=5)


def _is_alive(pid: int) -> bool:
    try:
        # A process that nobody waits for is a zombie, which is dead too.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_reserved_port_is_nobody_elses() -> None:
    first, second = PortReservation(), PortReservation()
    assert first.port != second.port
    first.release()
    second.release()


def test_the_environment_names_the_binary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_redis: MakeRedis
) -> None:
    named = tmp_path / "redis-server"
    named.symlink_to(find_redis())
    find_redis.cache_clear()
    monkeypatch.setenv(BINARY_VARIABLE, str(named))
    try:
        assert find_redis() == named
        assert make_redis().command("PING") == b"PONG"
    finally:
        find_redis.cache_clear()
    monkeypatch.setenv(BINARY_VARIABLE, os.devnull)
    with pytest.raises(pytest.fail.Exception, match="correct or unset it"):
        find_redis()
