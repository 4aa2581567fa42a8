"""Reads a namespace as it is stored, without its recipe.

Nothing here writes; a user who may only read (``+@read +@connection ~sd:*``, in a
Redis Cluster ``+cluster`` too) is enough. Workers go on meanwhile: what is read in two calls may
have changed between them.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.client import Command, RedisClient
from stream_dedup.index.redis.codec import Packer
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys, check_namespace
from stream_dedup.index.redis.namespace import SPREAD_DIGEST, SPREAD_NAME, read_key, read_layout
from stream_dedup.tables import sketches
from stream_dedup.tables.entries import Entries

SCAN_COUNT = 1_000

_unpack_sketch = sketches.fastest_unpack()

GARBAGE_PIECES = 1_000
"""Pieces read at once; each may hold some hundred names."""

Progress = Callable[[str, int], None]
"""Called with what is being done, and how many keys were read."""


class Reader(RedisClient):
    """A client that can also scan keys."""

    def scan(self, key: bytes, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys of the node that holds `key`, as SCAN finds them: some perhaps twice."""
        return _scan(partial(self.command, key), pattern)

    async def scan_all(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Keys of all nodes."""
        for node in await self.primaries():
            async for keys in _scan(partial(self.command_at, node), pattern):
                yield keys


async def _scan(run: Callable[..., Awaitable[Any]], pattern: str) -> AsyncIterator[list[bytes]]:
    cursor = 0
    while True:
        answer = await run("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
        cursor = _cursor(answer[0])
        yield answer[1]
        if not cursor:
            return


def _cursor(cursor: Any) -> int:  # noqa: ANN401 -- the driver's
    """Where SCAN goes on; in a Redis Cluster the driver returns it by node."""
    return int(next(iter(cursor.values())) if isinstance(cursor, dict) else cursor)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, as its first shard describes it.

    Attributes:
        reader: the service.
        name: its name.
        recipe: the name of the recipe it was created with.
        digest: that recipe's digest.
        spread: whether it is sharded by fingerprint, so that entries lie on other shards than
            their clusters.
        layout: how it is laid out.
        packer: finds keys in it.
    """

    reader: Reader
    name: str
    recipe: str
    digest: str
    spread: bool
    layout: NamespaceLayout
    packer: Packer

    @classmethod
    async def find(cls, reader: Reader, name: str) -> Namespace:
        """Find a namespace.

        Raises:
            IndexRefused: there is none, or it cannot be read by this program.
            ValueError: the name is invalid.
        """
        first = ShardKeys(check_namespace(name), 0)
        names = "digest", "recipe", "layout", "key"
        meta = await reader.command(first.meta, "HMGET", first.meta, *names)
        if meta[2] is None:
            raise IndexRefused(
                f"{reader.address}: there is no namespace {name!r}; stream-dedup index stats "
                "without --namespace lists those that are"
            )
        layout = read_layout(name, first.meta, meta[2])
        digest, recipe = ((each or b"").decode("utf-8", "backslashreplace") for each in meta[:2])
        return cls(
            reader,
            name,
            recipe.removesuffix(SPREAD_NAME),
            digest.removesuffix(SPREAD_DIGEST),
            digest.endswith(SPREAD_DIGEST),
            layout,
            Packer(name, layout, read_key(name, first.meta, meta[3])),
        )

    @property
    def shards(self) -> list[ShardKeys]:
        """Its shards' keys."""
        return self.packer.shards

    @property
    def entries(self) -> Entries:
        """How fingerprints are stored in it."""
        return self.packer.entries


class StoredCluster(NamedTuple):
    """A cluster as it is stored.

    Attributes:
        identity: its id, 8 bytes.
        numbers: its counts and times.
        texts: what else is stored of it, but for samples.
        group_hash: its group's hash, while it is open.
        names: by which it is found, while it is open; none if it is sharded by fingerprint.
        tables: those that hold its searchable names, while it is open.
    """

    identity: bytes
    numbers: codec.Cluster
    texts: codec.ClusterTexts
    group_hash: bytes
    names: list[codec.Name]
    tables: list[int]

    @property
    def open(self) -> bool:
        """Whether it takes events."""
        return self.numbers.open

    @property
    def state(self) -> str:
        """The state, for people."""
        if self.numbers.gone:
            return "gone"
        return f"closed ({self.numbers.closing})" if self.numbers.closing else "open"


def unpack_stored(
    identity: bytes, stored: bytes | None, layout: NamespaceLayout, *, spread: bool = False
) -> StoredCluster | None:
    """Unpack a cluster; None if it is damaged.

    Args:
        identity: its id.
        stored: what is stored of it.
        layout: of its namespace.
        spread: whether that is sharded by fingerprint: its names are left out.
    """
    numbers, texts = unpack_numbers(stored), unpack_texts(stored)
    if numbers is None or texts is None:
        return None
    if spread or not numbers.open:
        return StoredCluster(identity, numbers, texts, b"", [], [])
    head, each, names = layout.names_at, layout.name_bytes, texts.name_list
    if len(names) <= head or (len(names) - head) % each:
        return None
    if layout.is_bands:
        try:
            _unpack_sketch(texts.sketch)
        except ValueError:
            return None
    tables = codec.tables_of(names, layout)
    return StoredCluster(identity, numbers, texts, *codec.unpack_names(names, layout), tables)


def unpack_numbers(stored: bytes | None) -> codec.Cluster | None:
    """Unpack a cluster's numbers; None if it is missing or damaged."""
    try:
        return codec.unpack_cluster(stored) if stored else None
    except (ValueError, OverflowError, struct.error):
        return None


def unpack_texts(stored: bytes | None) -> codec.ClusterTexts | None:
    """Unpack a cluster's texts, likewise."""
    try:
        return codec.unpack_texts(stored) if stored else None
    except struct.error:
        return None


def numbers_of(shard: ShardKeys, identity: bytes) -> Command:
    """The command that reads a cluster's numbers alone."""
    return "GETRANGE", shard.cluster(identity), 0, layouts.CLUSTER.struct.size - 1


def integer(value: bytes | None) -> int:
    """Decode a counter; 0 for none, or what is not a number."""
    try:
        return int(value or 0)
    except ValueError:
        return 0


async def garbage(reader: Reader, shard: ShardKeys) -> set[bytes]:
    """The ids of the clusters whose entries are still to be purged."""
    identities: set[bytes] = set()
    start = 0
    while True:
        command = ("LRANGE", shard.garbage, start, start + GARBAGE_PIECES - 1)
        pieces = (await reader.many(shard.garbage, [command]))[0] or []
        identities.update(piece[: layouts.ID_BYTES] for piece in pieces)
        start += GARBAGE_PIECES
        if len(pieces) < GARBAGE_PIECES:
            return identities
