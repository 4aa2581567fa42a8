"""What an operator should know of a server before it holds an index: settings and permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys

LEAST_VERSION = (7, 0)
"""Scripts that may run although the memory is full are new in Redis 7.0; Valkey has them too."""

SLICE_LIMIT = 128
"""A slice planned for 32 to 64 entries rarely holds more; entries of up to 64 bytes."""

_SETTINGS = (
    "maxmemory-policy",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "appendonly",
    "save",
)

SCRIPT_COMMANDS = sorted(
    {name for script in scripts.ALL for name in re.findall(r"call\('([A-Z]+)'", script.text)}
)
"""The commands that the scripts call."""


async def advise(client: RedisClient, key: bytes) -> list[str]:
    """Check the settings of the server that holds a key.

    Returns:
        Sentences about what is wrong, each with a remedy.

    Raises:
        IndexRefused: the server is too old.
        IndexUnavailable: the server cannot be reached.
    """
    try:
        info: Mapping[str, Any] = await client.command(key, "INFO")
    except IndexRefused:
        return ["the user may not run INFO: version and settings were not checked"]
    version = str(info["redis_version"])
    if tuple(map(int, version.split(".")[:2])) < LEAST_VERSION:
        raise IndexRefused(
            f"{client.address} is Redis {version}; 7.0 is the oldest that serves, for its scripts"
        )
    try:
        answer = await client.command(key, "CONFIG", "GET", *_SETTINGS)
        settings = {name.decode(): value.decode() for name, value in answer.items()}
    except IndexRefused:  # managed services forbid it
        settings = {"maxmemory-policy": str(info["maxmemory_policy"])}
        settings["appendonly"] = "yes" if info["aof_enabled"] else "no"
        settings["save"] = "?"
    return judge(settings)


def judge(settings: Mapping[str, str]) -> list[str]:
    """Check settings, as CONFIG GET returns them; unknown ones are not checked.

    >>> judge({"maxmemory-policy": "noeviction", "appendonly": "yes"})
    []
    """
    amiss = []
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        amiss.append(
            f"maxmemory-policy is {policy}: under pressure the server throws away keys of the "
            "index, so near-duplicates are missed and counts are lost; set it to noeviction"
        )
    for kind, holds in (("zset", "tables"), ("hash", "exact hashes")):
        for what, least in (("entries", SLICE_LIMIT), ("value", 64)):
            name = f"{kind}-max-listpack-{what}"
            value = settings.get(name)
            if value is not None and int(value) < least:
                amiss.append(
                    f"{name} is {value}: slices of {holds} above it take five to ten times the "
                    f"memory; set it to {least} or more"
                )
    if settings.get("appendonly", "yes") == "no" and not settings.get("save", "?"):
        amiss.append(
            "nothing is kept on disk: after a restart of the server every cluster opens again, and "
            "counts not yet emitted are lost; set appendonly to yes"
        )
    return amiss


def judge_shards(shards: int, max_clusters: int) -> list[str]:
    """Check how shards share the cap on clusters.

    >>> judge_shards(1, 20_000)
    []
    """
    if shards == 1:
        return []
    share = -(-max_clusters // shards)
    sentence = (
        f"max_clusters is shared out evenly over {shards} shards: events without groups all fill "
        f"one, which holds {share:,} of {max_clusters:,} clusters; give them groups, or make the "
        "namespace with one shard"
    )
    return [sentence]


async def compare_settings(client: RedisClient, namespace: str, settings: str) -> list[str]:
    """Compare settings with those of the worker that opened the namespace last.

    Args:
        client: the service.
        namespace: its name.
        settings: what `namespace.describe_settings` returns.
    """
    meta = ShardKeys(namespace, 0).meta
    (stored,) = await client.command(meta, "HMGET", meta, "settings")
    return differences(namespace, stored, settings)


def differences(namespace: str, stored: bytes | None, settings: str) -> list[str]:
    """A sentence about settings that differ, if any do; unreadable ones are not compared."""
    ours = json.loads(settings)
    try:
        theirs = {**json.loads(stored or b"{}")}
    except (ValueError, TypeError):
        return []
    differing = ", ".join(
        f"{name} was {theirs[name]!r} and is {value!r}"
        for name, value in ours.items()
        if name in theirs and theirs[name] != value
    )
    if not differing:
        return []
    sentence = (
        f"namespace {namespace!r} was opened with other settings before: {differing}; each worker "
        "goes by its own, so give all that share it the same"
    )
    return [sentence]


async def refused_commands(client: RedisClient, key: bytes) -> list[str]:
    """Find the commands of the scripts that the user may not run on a key, without running them.

    Raises:
        IndexUnavailable: the server cannot be reached.
        IndexRefused: the user may not even run scripts with that key.
    """
    answer: list[bytes] = await client.run(scripts.PERMISSIONS, [key], SCRIPT_COMMANDS)
    return [name.decode() for name in answer]
