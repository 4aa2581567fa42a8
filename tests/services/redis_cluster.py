"""A real Redis cluster: masters, each with a replica."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import permutations

from tests.services.processes import Group, ServiceError, wait_until
from tests.services.redis_server import RedisServer

_SLOTS = 16_384
_NOT_JOINED = {"handshake", "noaddr", "fail?", "fail"}


class RedisCluster(Group):
    """Nodes that make a cluster inside a `with` block.

    Args:
        masters: How many masters.
        replicas: Whether each has a replica.
        durable: Whether each keeps every write on disk, so that a killed one loses nothing.

    Attributes:
        nodes: All nodes, living or not; the first ones began as masters.
    """

    def __init__(self, masters: int = 3, *, replicas: bool = True, durable: bool = False) -> None:
        super().__init__()
        self._durable = durable
        self._masters = masters
        self._count = 2 * masters if replicas else masters
        self.nodes: list[RedisServer] = []

    def _start(self, stack: ExitStack) -> None:
        extra = {"appendfsync": "always"} if self._durable else None
        self.nodes = [
            stack.enter_context(RedisServer(cluster=True, appendonly=self._durable, extra=extra))
            for _ in range(self._count)
        ]
        self._join()
        self.wait_ready()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def masters(self) -> list[RedisServer]:
        """The living nodes that are masters now."""
        return [node for node in self._living() if node.info("replication")["role"] == "master"]

    def replicas(self) -> list[RedisServer]:
        """The living nodes that follow another now."""
        return [node for node in self._living() if node.info("replication")["role"] == "slave"]

    def slot_of(self, key: bytes | str) -> int:
        """The slot that a key falls into."""
        slot = self._living()[0].command("CLUSTER", "KEYSLOT", key)
        assert isinstance(slot, int)
        return slot

    def master_of(self, slot: int) -> RedisServer:
        """The node that holds a slot, as a living node sees it."""
        for seen in _view(self._living()[0]):
            if slot in seen.slots:
                return self._node(seen.port)
        raise ServiceError(f"no node of the cluster holds slot {slot}; call wait_ready() first")

    def kill_master(self, of_slot: int) -> RedisServer:
        """Kill the node that holds a slot, and return it. `wait_ready` waits for its successor."""
        node = self.master_of(of_slot)
        node.kill()
        return node

    def revive(self) -> None:
        """Start the nodes that were killed, and return once each master has its replica again."""
        for node in self.nodes:
            node.start()
        self.wait_ready()
        wait_until(self._is_whole, what="each master of the cluster has its replica")

    def wait_ready(self) -> None:
        """Return once all living nodes say that all slots are held, by living nodes."""
        wait_until(self._is_ready, what="all nodes of the cluster report cluster_state:ok")

    def _living(self) -> list[RedisServer]:
        living = [node for node in self.nodes if node.running]
        if not living:
            raise ServiceError("no node of the cluster lives; call revive()")
        return living

    def _node(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)

    def _join(self) -> None:
        for epoch, node in enumerate(self.nodes, 1):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        masters, replicas = self.nodes[: self._masters], self.nodes[self._masters :]
        for index, node in enumerate(masters):
            first, end = (_SLOTS * bound // self._masters for bound in (index, index + 1))
            node.command("CLUSTER", "ADDSLOTS", *range(first, end))
        # Each meets each: gossip alone would take some seconds.
        for one, other in permutations(self.nodes, 2):
            one.command("CLUSTER", "MEET", "127.0.0.1", other.port)
        wait_until(self._is_acquainted, what="all nodes of the cluster know each other")
        for master, replica in zip(masters, replicas, strict=False):
            identity = master.command("CLUSTER", "MYID")
            assert isinstance(identity, bytes)
            replica.command("CLUSTER", "REPLICATE", identity)
        wait_until(self._is_whole, what="each master of the cluster has its replica")

    def _is_acquainted(self) -> bool:
        return all(
            sum(seen.flags.isdisjoint(_NOT_JOINED) for seen in _view(node)) == self._count
            for node in self.nodes
        )

    def _is_whole(self) -> bool:
        replicas = [node.info("replication") for node in self.replicas()]
        linked = [replica["master_link_status"] == "up" for replica in replicas]
        return sum(linked) == self._count - self._masters and self._is_acquainted()

    def _is_ready(self) -> bool:
        living = self._living()
        ports = {node.port for node in living}
        for node in living:
            state = node.command("CLUSTER", "INFO")
            assert isinstance(state, bytes)
            held = sum(len(seen.slots) for seen in _view(node) if seen.port in ports)
            if b"cluster_state:ok" not in state or held != _SLOTS:
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Seen:
    """A node as another one sees it."""

    port: int
    flags: frozenset[str]
    slots: frozenset[int]


def _view(node: RedisServer) -> list[_Seen]:
    """All nodes as one of them sees them."""
    reply = node.command("CLUSTER", "NODES")
    assert isinstance(reply, bytes)
    seen = []
    for line in reply.decode().splitlines():
        # Identity, 127.0.0.1:port@bus, flags, master, ping, pong, epoch, link, slots ...
        words = line.split()
        slots: set[int] = set()
        for word in words[8:]:
            first, _, last = word.partition("-")
            slots.update(range(int(first), int(last or first) + 1))
        port = int(words[1].partition("@")[0].rpartition(":")[2])
        seen.append(_Seen(port, frozenset(words[2].split(",")), frozenset(slots)))
    return seen
