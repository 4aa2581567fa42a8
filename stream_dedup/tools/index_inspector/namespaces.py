"""Lists the namespaces of a service, and deletes one: all its keys, on whatever nodes.

Deleting begins with ``meta``, which says that a shard exists: the next call of every worker learns
that the namespace is lost, and creates it again. So workers should be stopped before. Where some go
on, the keys that they have created meanwhile are deleted a few times more, and then left to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from rich.text import Text

from stream_dedup.cli.common import console, shown
from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis.keys import PREFIX, ShardKeys, check_namespace, key_pattern
from stream_dedup.tools.index_inspector.output import print_table, size, text_of, write_json
from stream_dedup.tools.index_inspector.reader import (
    SCAN_COUNT,
    Namespace,
    Progress,
    Reader,
    integer,
)
from stream_dedup.tools.index_inspector.stats import measure

LISTING_KEYS = 100_000
"""Keys read of each shard where namespaces are only listed."""

BATCH = 500
"""Keys unlinked at once."""

ROUNDS = 3


# ------------------------------------------------------------ listing


async def find_all(
    reader: Reader, limit: int = 0
) -> tuple[list[tuple[str, dict[bytes, bytes]]], bool]:
    """Find the namespaces of a service, each with the recipe of its first shard's ``meta``.

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
        (name, await _described(reader, key))
        for key, name in sorted(found.items(), key=lambda item: item[1])
    ], whole


async def _described(reader: Reader, meta: bytes) -> dict[bytes, bytes]:
    names = b"recipe", b"digest"
    values = await reader.command(meta, "HMGET", meta, *names)
    return {name: value or b"" for name, value in zip(names, values, strict=True)}


async def describe(reader: Reader, name: str, meta: dict[bytes, bytes]) -> dict[str, Any]:
    """Describe a namespace for the list: its clusters, and about how much memory it takes."""
    row: dict[str, Any] = {
        "namespace": name,
        "recipe": text_of(meta.get(b"recipe", b"")),
        "digest": text_of(meta.get(b"digest", b"")),
        "shards": 0,
        "clusters": 0,
        "bytes": 0,
    }
    try:
        namespace = await Namespace.find(reader, name)
    except (IndexRefused, ValueError) as error:
        return row | {"problem": str(error)}
    shards = await measure(namespace, LISTING_KEYS, lambda _what, _keys: None)
    row["shards"] = len(shards)
    row["clusters"] = sum(shard.open for shard in shards)
    row["bytes"] = sum(m.bytes_all for shard in shards for m in shard.measured.values())
    row["bytes_at_least"] = not all(shard.whole for shard in shards)
    return row


def print_namespaces(rows: list[dict[str, Any]], whole: bool, address: str, form: str) -> None:
    """Print the list of namespaces; whole, or as far as the limit allowed."""
    if form == "json":
        write_json({"server": address, "whole": whole, "namespaces": rows})
        return
    if not whole:
        click.echo("stream-dedup: --limit was reached; there may be more namespaces", err=True)
    if not rows:
        console().print(Text(f"{address} holds no namespace{'' if whole else ' so far'}"))
        return
    print_table(
        "",
        ("namespace", "recipe", "digest", "#shards", "#clusters", "#memory", ""),
        (
            (
                shown(row["namespace"].encode()),
                shown(row["recipe"].encode()),
                shown(row["digest"].encode()),
                f"{row['shards']:,}",
                f"{row['clusters']:,}",
                ("> " if row.get("bytes_at_least") else "~ ") + size(row["bytes"]),
                row.get("problem", ""),
            )
            for row in rows
        ),
    )


# ------------------------------------------------------------ deleting


def _by_shard(keys: Iterable[bytes]) -> list[list[bytes]]:
    """Keys of a namespace, by shard."""
    by_tag: dict[bytes, list[bytes]] = {}
    for key in keys:
        by_tag.setdefault(key.partition(b"}")[0], []).append(key)
    return list(by_tag.values())


async def count(reader: Reader, namespace: str, progress: Progress) -> int:
    """Count the keys of a namespace, about: SCAN may return some twice.

    Raises:
        IndexUnavailable: the server cannot be reached.
        ValueError: the name is invalid.
    """
    keys = 0
    async for found in reader.scan_all(key_pattern(check_namespace(namespace))):
        keys += len(found)
        progress("counting", keys)
    return keys


async def last_seen_us(reader: Reader, namespace: str) -> int | None:
    """When a worker last moved the first shard's stream time on, by its clock."""
    meta = ShardKeys(check_namespace(namespace), 0).meta
    seen = await reader.command(meta, "HGET", meta, "seen")
    return None if seen is None else integer(seen)


async def delete(reader: Reader, namespace: str, progress: Progress) -> tuple[int, bool]:
    """Delete a namespace.

    Returns:
        How many keys were deleted, and whether all were: not if workers go on creating it again.

    Raises:
        IndexUnavailable: the server cannot be reached; what is left can be deleted again.
        IndexRefused: the user may not.
        ValueError: the name is invalid.
    """
    pattern = key_pattern(check_namespace(namespace))
    removed = 0
    for _ in range(ROUNDS):
        metas = [key async for keys in reader.scan_all(f"{pattern}}}:meta") for key in keys]
        for keys in _by_shard(metas):
            removed += await reader.command(keys[0], "UNLINK", *keys)
        left = 0
        async for found in reader.scan_all(pattern):
            for keys in _by_shard(found):
                for start in range(0, len(keys), BATCH):
                    removed += await reader.command(keys[0], "UNLINK", *keys[start : start + BATCH])
                    progress("deleted", removed)
        async for found in reader.scan_all(pattern):
            left += len(found)
        if not left:
            return removed, True
    return removed, False


def print_deleted(namespace: str, keys: int, form: str, *, dry_run: bool) -> None:
    """Print how many keys were deleted, or would be."""
    if form == "json":
        write_json({"namespace": namespace, "keys": keys, "deleted": not dry_run})
        return
    if dry_run and keys:
        console().print(Text(f"{namespace}: {keys:,} keys would go"))
    else:
        console().print(Text(f"{namespace}: {keys:,} keys deleted" if keys else
                             f"{namespace}: has no keys; nothing to delete"))  # fmt: skip
