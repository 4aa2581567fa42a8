"""A real Redis master and its replica, watched by three sentinels."""

from __future__ import annotations

from contextlib import ExitStack

from tests.services.processes import Group, ServiceError, wait_until
from tests.services.redis_server import RedisServer
from tests.services.resp import Reply

_SENTINELS = 3
_QUORUM = "2"
_SETTINGS = ("down-after-milliseconds", "1000", "failover-timeout", "2000")


class _Sentinel(RedisServer):
    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]


class RedisSentinel(Group):
    """A master, its replica and three sentinels inside a `with` block.

    Attributes:
        servers: The two that hold data, living or not; the first began as the master.
        sentinels: The three that watch them.
    """

    service = "tests"

    def __init__(self) -> None:
        super().__init__()
        self.servers: list[RedisServer] = []
        self.sentinels: list[RedisServer] = []

    def _start(self, stack: ExitStack) -> None:
        master = stack.enter_context(RedisServer())
        replica = stack.enter_context(RedisServer(replica_of=master))
        self.servers = [master, replica]
        # A sentinel asks for replicas when it meets a master, then only every ten seconds.
        wait_until(lambda: _follows(replica, master.port), what="the replica follows the master")
        self.sentinels = [stack.enter_context(_Sentinel()) for _ in range(_SENTINELS)]
        for sentinel in self.sentinels:
            where = (self.service, "127.0.0.1", master.port, _QUORUM)
            sentinel.command("SENTINEL", "MONITOR", *where)
            sentinel.command("SENTINEL", "SET", self.service, *_SETTINGS)
        self.wait_ready()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}"

    def master_port(self) -> int:
        """The master's port, as a living sentinel sees it."""
        return _master_port(self._living()[0])

    def master(self) -> RedisServer:
        """The master, as a living sentinel sees it."""
        port = self.master_port()
        return next(server for server in self.servers if server.port == port)

    def kill_master(self) -> int:
        """Kill the master, and return its port, for `wait_failover`."""
        master = self.master()
        master.kill()
        return master.port

    def wait_failover(self, old_port: int) -> None:
        """Return once all living sentinels name another master, and it acts as one."""
        wait_until(lambda: self._has_left(old_port), what="the sentinels promote the replica")

    def revive(self) -> None:
        """Start what was killed; return once the master has its replica and can fail over."""
        for sentinel in self.sentinels:
            sentinel.start()
        port = self.master_port()
        for server in self.servers:
            if not server.running:
                server.start()
                if server.port != port:
                    # A sentinel would do it too, after ten seconds.
                    server.command("REPLICAOF", "127.0.0.1", port)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Return once all sentinels see each other, the master and its replica."""
        wait_until(self._is_ready, what="the sentinels see each other, the master and its replica")

    def _living(self) -> list[RedisServer]:
        living = [sentinel for sentinel in self.sentinels if sentinel.running]
        if not living:
            raise ServiceError("no sentinel lives; call revive()")
        return living

    def _has_left(self, old_port: int) -> bool:
        if any(_master_port(sentinel) == old_port for sentinel in self._living()):
            return False
        return self.master().info("replication")["role"] == "master"

    def _is_ready(self) -> bool:
        port = self.master_port()
        replicas = [server for server in self.servers if server.port != port]
        return all(_follows(replica, port) for replica in replicas) and all(
            self._sees_all(sentinel, port) for sentinel in self.sentinels
        )

    def _sees_all(self, sentinel: RedisServer, port: int) -> bool:
        master = _pairs(sentinel.command("SENTINEL", "MASTER", self.service))
        replicas = sentinel.command("SENTINEL", "REPLICAS", self.service)
        others = sentinel.command("SENTINEL", "SENTINELS", self.service)
        assert isinstance(replicas, list)
        assert isinstance(others, list)
        return (
            (master["port"], master["flags"]) == (str(port), "master")
            and [_pairs(replica)["flags"] for replica in replicas] == ["slave"]
            and [_pairs(other)["flags"] for other in others] == ["sentinel"] * (_SENTINELS - 1)
        )


def _master_port(sentinel: RedisServer) -> int:
    reply = sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinel.service)
    assert isinstance(reply, list)
    assert isinstance(reply[1], bytes)
    return int(reply[1])


def _follows(replica: RedisServer, port: int) -> bool:
    state = replica.info("replication")
    followed = (state.get("master_port"), state.get("master_link_status"))
    return followed == (str(port), "up")


def _pairs(reply: Reply) -> dict[str, str]:
    """A flat list of names and values."""
    assert isinstance(reply, list)
    words = [word.decode() for word in reply if isinstance(word, bytes)]
    return dict(zip(words[::2], words[1::2], strict=True))
