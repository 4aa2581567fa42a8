"""What operators look at: a namespace as it is stored, read without its recipe.

Nothing here writes, but `delete`; a user who may only read (``+@read +@connection ~sd:*``, in a
Redis Cluster ``+cluster`` too) is enough. Workers go on meanwhile: what is read in two calls may
have changed between them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import redis.asyncio as driver
from redis import exceptions

from stream_dedup.errors import IndexRefused
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.index.redis import wire
from stream_dedup.index.redis.keys import PREFIX, Shard, check_namespace, everything
from stream_dedup.index.redis.server import Argument, Server
from stream_dedup.index.redis.store import FORMAT, MAX_SHARDS, Stamp
from stream_dedup.tables.entries import Entries, make_entries

PIPELINE = 500
"""Commands sent at once: others wait for a millisecond or two."""

SCAN_COUNT = 1_000

GARBAGE_PIECES = 1_000
"""Pieces read at once; each may hold some hundred names."""

_HASH_FACTOR = 0x9E3779B97F4A7C15
_ALL_64 = (1 << 64) - 1

Progress = Callable[[str, int], None]
"""Told what is being done, and how many keys were looked at."""

Command = Sequence[Argument]


class Reader(Server):
    """A server, with what only operators need of it."""

    async def many(self, key: bytes, commands: Sequence[Command]) -> list[Any]:
        """Answers of commands whose keys share `key`'s tag; None where a key is of another type."""
        answers: list[Any] = []
        for start in range(0, len(commands), PIPELINE):
            part = commands[start : start + PIPELINE]
            answers += cast(
                list[Any], await self._patiently("pipeline", lambda part=part: self._pipe(key, part))
            )
        return answers

    async def _pipe(self, key: bytes, commands: Sequence[Command]) -> list[Any]:
        client = cast(Any, self._client)  # its methods have no types
        target: dict[str, Any] = {}
        if isinstance(self._client, driver.RedisCluster):
            await self._client.initialize()
            target["target_nodes"] = self._client.get_node_from_key(cast(str, key))
        pipeline = client.pipeline()
        for command in commands:
            pipeline.execute_command(*command, **target)
        answers = await pipeline.execute(raise_on_error=False)
        return [_of_its_type(answer) for answer in answers]

    async def scan(self, key: bytes, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys of the node that holds `key`, as SCAN finds them: some perhaps twice."""
        cursor = 0
        while True:
            cursor, found = await self.command(
                key, "SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT
            )
            yield found
            if not int(cursor):
                return

    async def scan_all(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys of all nodes."""
        if not isinstance(self._client, driver.RedisCluster):
            async for found in self.scan(b"", pattern):
                yield found
            return
        client = self._client
        await self._patiently("cluster", client.initialize)
        for node in client.get_primaries():
            cursor: Any = 0
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)

                async def attempt(command: Command = command, node: Any = node) -> object:  # noqa: ANN401 -- the driver's
                    return await client.execute_command(*command, target_nodes=node)

                cursor, found = cast(Any, await self._patiently("scan", attempt))
                yield found
                if not int(cursor):
                    break

    async def setting(self, shard: Shard, name: str) -> str | None:
        """A setting of the server; None if we may not ask."""
        try:
            answer = await self.command(shard.meta, "CONFIG", "GET", name)
        except IndexRefused:
            return None
        pairs = answer if isinstance(answer, dict) else dict(zip(*[iter(answer)] * 2, strict=True))
        return next((value.decode() for value in pairs.values()), None)


def _of_its_type(answer: object) -> object:
    if isinstance(answer, Exception):
        if str(answer).startswith(("WRONGTYPE", "no such key", "ERR no such key")):
            return None
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, as its first shard is stamped.

    Attributes:
        reader: where it is.
        name: its name.
        recipe: the name of the recipe it was made with.
        digest: that recipe's digest.
        stamp: how it is laid out.
        shards: its shards' keys.
        entries: how fingerprints are stored in it.
    """

    reader: Reader
    name: str
    recipe: str
    digest: str
    stamp: Stamp
    shards: list[Shard]
    entries: Entries

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
        stamp = read_stamp(name, meta[2])
        return cls(
            reader,
            name,
            (meta[1] or b"").decode("utf-8", "backslashreplace"),
            (meta[0] or b"").decode("utf-8", "backslashreplace"),
            stamp,
            [Shard(name, number) for number in range(stamp.shards)],
            make_entries(stamp.layout, stamp.slices),
        )

    def shard_of(self, identity: int) -> Shard:
        """The shard that holds a cluster."""
        return self.shards[(identity & 0xFF) % len(self.shards) if len(self.shards) > 1 else 0]

    def exact_slice(self, exact: int, group: int) -> int:
        """The slice of exact hashes that holds one; as `store.RedisIndex` has it."""
        shift = 64 - (self.stamp.exact_slices.bit_length() - 1)
        return (exact ^ group * _HASH_FACTOR & _ALL_64) >> shift


def read_stamp(name: str, layout: bytes) -> Stamp:
    """A stamp as it is stored.

    Raises:
        IndexRefused: it is damaged, or of another version.
    """
    try:
        stored = json.loads(layout)
        if stored["format"] == FORMAT:
            stamp = Stamp(**stored)
            make_entries(stamp.layout, stamp.slices)
            if not 1 <= stamp.shards <= MAX_SHARDS or stamp.exact_slices.bit_count() != 1:
                raise ValueError(stamp)
            return stamp
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise IndexRefused(
            f"namespace {name!r} has a damaged stamp; delete it "
            "(stream-dedup index delete-namespace) and have the workers make it anew"
        ) from error
    raise IndexRefused(
        f"namespace {name!r} is stored in format {stored['format']!r}, this program reads "
        f"{FORMAT}; use the program that made it"
    )


class Held(NamedTuple):
    """A cluster as it is stored.

    Attributes:
        identity: its id, 8 bytes.
        numbers: its counts and times.
        group_hash: what stands before the names; None unless it is open.
        names: what leads to it, while it is open.
    """

    identity: bytes
    numbers: wire.Cluster
    group_hash: bytes
    names: list[wire.Entry]

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
    try:
        unpacked = wire.unpack_cluster(numbers)
        if unpacked.closed:
            return Held(identity, unpacked, b"", [])
        if names is None or len(names) < 4 or (len(names) - 4) % (8 + width // 8 + 1):
            return None
        return Held(identity, unpacked, *wire.unpack_entries(names, width))
    except (ValueError, OverflowError, struct.error):
        return None


def group_number(group: bytes) -> int:
    """The hash of a group, as entries hold it."""
    return hash128(group)[0] & 0xFFFFFFFF


async def garbage(reader: Reader, shard: Shard) -> set[bytes]:
    """The ids of the clusters whose traces are still to be purged."""
    identities: set[bytes] = set()
    start = 0
    while True:
        pieces = await reader.command(
            shard.garbage, "LRANGE", shard.garbage, start, start + GARBAGE_PIECES - 1
        )
        identities.update(piece[:8] for piece in pieces)
        start += GARBAGE_PIECES
        if len(pieces) < GARBAGE_PIECES:
            return identities


async def names_and_memory(reader: Reader) -> list[tuple[str, dict[bytes, bytes]]]:
    """The namespaces of a service, each with the fields of its first shard's ``meta``."""
    found: dict[bytes, str] = {}
    pattern = f"{PREFIX}:{{*:0}}:meta"
    async for keys in reader.scan_all(pattern):
        for key in keys:
            name = key.removeprefix(f"{PREFIX}:{{".encode()).removesuffix(b":0}:meta")
            found[key] = name.decode("utf-8", "backslashreplace")
    return [
        (name, await reader.command(key, "HGETALL", key))
        for key, name in sorted(found.items(), key=lambda item: item[1])
    ]


def all_keys(reader: Reader, namespace: str) -> AsyncIterator[list[bytes]]:
    """All keys of a namespace, on whatever node."""
    return reader.scan_all(everything(check_namespace(namespace)))


def by_tag(keys: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Keys by their hash tag."""
    out: dict[bytes, list[bytes]] = {}
    for key in keys:
        out.setdefault(key.partition(b"}")[0], []).append(key)
    return out
