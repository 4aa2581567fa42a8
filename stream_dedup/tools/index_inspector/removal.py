"""Deletes a namespace: all its keys, on whatever nodes.

What says that a shard exists, ``meta``, goes first: the next call of every worker learns that the
namespace is lost, and makes it anew. So workers are better stopped before; where some go on, what
they have made meanwhile is deleted again a few times, and then left to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from stream_dedup.index.redis.inspection import Progress, Reader, integer
from stream_dedup.index.redis.keys import Shard, check_namespace, everything

BATCH = 500
"""Keys unlinked at once."""

ROUNDS = 3


class _Found:
    """The keys of a namespace, by shard."""

    def __init__(self) -> None:
        self.by_tag: dict[bytes, list[bytes]] = {}

    def add(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self.by_tag.setdefault(key.partition(b"}")[0], []).append(key)


async def count(reader: Reader, namespace: str, progress: Progress) -> int:
    """How many keys a namespace has, about: SCAN may tell of some twice.

    Raises:
        IndexUnavailable: the server is away.
        ValueError: the name is none.
    """
    keys = 0
    async for found in reader.scan_all(everything(check_namespace(namespace))):
        keys += len(found)
        progress("counting", keys)
    return keys


async def last_seen_us(reader: Reader, namespace: str) -> int | None:
    """When workers last moved the namespace's first shard on, by their clock."""
    meta = Shard(check_namespace(namespace), 0).meta
    seen = await reader.command(meta, "HGET", meta, "seen")
    return None if seen is None else integer(seen)


async def delete(reader: Reader, namespace: str, progress: Progress) -> tuple[int, bool]:
    """Delete a namespace.

    Returns:
        How many keys went, and whether it is gone: not if workers go on making it anew.

    Raises:
        IndexUnavailable: the server is away; what is left can be deleted again.
        IndexRefused: the user may not.
        ValueError: the name is none.
    """
    pattern = everything(check_namespace(namespace))
    removed = 0
    for _ in range(ROUNDS):
        metas = _Found()
        async for keys in reader.scan_all(f"{pattern}}}:meta"):
            metas.add(keys)
        for keys in metas.by_tag.values():
            removed += await reader.command(keys[0], "UNLINK", *keys)
        left = 0
        async for found in reader.scan_all(pattern):
            keys_of = _Found()
            keys_of.add(found)
            for keys in keys_of.by_tag.values():
                for start in range(0, len(keys), BATCH):
                    removed += await reader.command(keys[0], "UNLINK", *keys[start : start + BATCH])
                    progress("deleted", removed)
        async for found in reader.scan_all(pattern):
            left += len(found)
        if not left:
            return removed, True
    return removed, False
