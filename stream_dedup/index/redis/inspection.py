"""What operators look at: a namespace as it is stored, read without its recipe.

Nothing here writes; a user who may only read (``+@read +@connection ~sd:*``, in a
Redis Cluster ``+cluster`` too) is enough. Workers go on meanwhile: what is read in two calls may
have changed between them.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import redis.asyncio as driver

from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis import codec
from stream_dedup.index.redis.keys import PREFIX, Shard, check_namespace
from stream_dedup.index.redis.layout import Stamp, read_stamp
from stream_dedup.index.redis.packing import Packer
from stream_dedup.index.redis.server import Command, Server
from stream_dedup.tables.entries import Entries

SCAN_COUNT = 1_000

GARBAGE_PIECES = 1_000
"""Pieces read at once; each may hold some hundred names."""

Progress = Callable[[str, int], None]
"""Told what is being done, and how many keys were looked at."""


class Reader(Server):
    """A server, with what only operators need of it."""

    async def scan(self, key: bytes, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys of the node that holds `key`, as SCAN finds them: some perhaps twice."""
        cursor = 0
        while True:
            answer = await self.command(key, "SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
            cursor = _cursor(answer[0])
            yield answer[1]
            if not cursor:
                return

    async def scan_all(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys of all nodes."""
        if not isinstance(self._client, driver.RedisCluster):
            async for found in self.scan(b"", pattern):
                yield found
            return
        client = self._client
        await self._with_retries("cluster", client.initialize)
        for node in client.get_primaries():
            cursor = 0
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)

                async def attempt(command: Command = command, node: Any = node) -> object:  # noqa: ANN401 -- the driver's
                    return await client.execute_command(*command, target_nodes=node)

                answer = cast(Any, await self._with_retries("scan", attempt))
                cursor = _cursor(answer[0])
                yield answer[1]
                if not cursor:
                    break


def _cursor(cursor: Any) -> int:  # noqa: ANN401 -- the driver's
    """Where SCAN goes on; in a Redis Cluster the driver tells it by node."""
    return int(next(iter(cursor.values())) if isinstance(cursor, dict) else cursor)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, as its first shard is stamped.

    Attributes:
        reader: where it is.
        name: its name.
        recipe: the name of the recipe it was made with.
        digest: that recipe's digest.
        stamp: how it is laid out.
        packer: where in it things stand.
    """

    reader: Reader
    name: str
    recipe: str
    digest: str
    stamp: Stamp
    packer: Packer

    @classmethod
    async def find(cls, reader: Reader, name: str) -> Namespace:
        """Find a namespace.

        Raises:
            IndexRefused: there is none, or it cannot be read by this program.
            ValueError: the name is none.
        """
        first = Shard(check_namespace(name), 0)
        meta = await reader.command(first.meta, "HMGET", first.meta, "digest", "recipe", "layout")
        if meta[2] is None:
            raise IndexRefused(
                f"{reader.address}: there is no namespace {name!r}; stream-dedup index stats "
                "without --namespace lists those that are"
            )
        stamp = read_stamp(name, first.meta, meta[2])
        return cls(
            reader,
            name,
            (meta[1] or b"").decode("utf-8", "backslashreplace"),
            (meta[0] or b"").decode("utf-8", "backslashreplace"),
            stamp,
            Packer(name, stamp),
        )

    @property
    def shards(self) -> list[Shard]:
        """Its shards' keys."""
        return self.packer.shards

    @property
    def entries(self) -> Entries:
        """How fingerprints are stored in it."""
        return self.packer.entries

    def exact_key(self, shard: Shard, group: bytes, exact: bytes) -> bytes:
        """The slice in which an exact hash of a group (its hash, 4 bytes) stands."""
        keys: list[bytes] = []
        entry = codec.Entry(b"", exact, 0, searchable=False)
        self.packer.entry(shard, entry, group, 0, keys, [])
        return keys[0]


class Held(NamedTuple):
    """A cluster as it is stored.

    Attributes:
        identity: its id, 8 bytes.
        numbers: its counts and times.
        group_hash: what stands before the names; None unless it is open.
        names: what leads to it, while it is open.
    """

    identity: bytes
    numbers: codec.Cluster
    group_hash: bytes
    names: list[codec.Entry]

    @property
    def open(self) -> bool:
        """Whether it takes events."""
        return self.numbers.closed == 0

    @property
    def state(self) -> str:
        """In a word."""
        if self.numbers.gone:
            return "gone"
        return f"closed ({self.numbers.closing})" if self.numbers.closing else "open"


def hold(identity: bytes, numbers: bytes, names: bytes | None, width: int) -> Held | None:
    """A cluster out of its fields ``n`` and ``a``; None if they are damaged."""
    unpacked = hold_numbers(numbers)
    if unpacked is None or unpacked.closed:
        return unpacked and Held(identity, unpacked, b"", [])
    if names is None or len(names) <= 4 or (len(names) - 4) % (8 + width // 8 + 1):
        return None
    return Held(identity, unpacked, *codec.unpack_entries(names, width))


def hold_numbers(numbers: bytes | None) -> codec.Cluster | None:
    """A cluster's field ``n``; None if it is gone or damaged."""
    try:
        return None if numbers is None else codec.unpack_cluster(numbers)
    except (ValueError, OverflowError, struct.error):
        return None


def integer(value: bytes | None) -> int:
    """A counter; 0 for none, or what is no number."""
    try:
        return int(value or 0)
    except ValueError:
        return 0


async def garbage(reader: Reader, shard: Shard) -> set[bytes]:
    """The ids of the clusters whose traces are still to be purged."""
    identities: set[bytes] = set()
    start = 0
    while True:
        command = ("LRANGE", shard.garbage, start, start + GARBAGE_PIECES - 1)
        pieces = (await reader.many(shard.garbage, [command]))[0] or []
        identities.update(piece[:8] for piece in pieces)
        start += GARBAGE_PIECES
        if len(pieces) < GARBAGE_PIECES:
            return identities


async def namespaces(
    reader: Reader, limit: int = 0
) -> tuple[list[tuple[str, dict[bytes, bytes]]], bool]:
    """The namespaces of a service, each with the fields of its first shard's ``meta``.

    Args:
        reader: the service.
        limit: keys of any kind scanned, about; 0 for all.

    Returns:
        Names and fields, sorted; and whether all keys were scanned.
    """
    found: dict[bytes, str] = {}
    scanned, whole = 0, True
    pattern = f"{PREFIX}:{{*:0}}:meta"
    async for keys in reader.scan_all(pattern):
        if limit and scanned >= limit:
            whole = False
            break
        scanned += SCAN_COUNT
        for key in keys:
            name = key.removeprefix(f"{PREFIX}:{{".encode()).removesuffix(b":0}:meta")
            found[key] = name.decode("utf-8", "backslashreplace")
    return [
        (name, await reader.command(key, "HGETALL", key))
        for key, name in sorted(found.items(), key=lambda item: item[1])
    ], whole
