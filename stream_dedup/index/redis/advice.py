"""What an operator should know of a server's settings before it holds an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis.server import Server

LEAST_VERSION = (7, 0)
"""Scripts that may run though the memory is full are new in Redis 7.0; Valkey has them too."""

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


async def advise(server: Server, key: bytes) -> list[str]:
    """What is amiss with the server that holds a key.

    Args:
        server: the service.
        key: any key of the shard.

    Returns:
        Sentences, each with a remedy; none if all is well.

    Raises:
        IndexRefused: it is too old.
    """
    try:
        info: Mapping[str, Any] = await server.command(key, "INFO")
    except IndexRefused:
        return ["the user may not run INFO: version and settings were not checked"]
    version = str(info["redis_version"])
    if tuple(map(int, version.split(".")[:2])) < LEAST_VERSION:
        raise IndexRefused(
            f"{server.address} is Redis {version}; 7.0 is the oldest that serves, for its scripts"
        )
    try:
        answer = await server.command(key, "CONFIG", "GET", *_SETTINGS)
        pairs = answer.items()
        settings = {name.decode(): value.decode() for name, value in pairs}
    except IndexRefused:  # managed services forbid it
        settings = {"maxmemory-policy": str(info["maxmemory_policy"])}
        settings["appendonly"] = "yes" if info["aof_enabled"] else "no"
        settings["save"] = "?"
    return judge(settings)


def judge_shards(shards: int, max_clusters: int) -> list[str]:
    """What to know of a namespace that is cut into shards.

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


def judge(settings: Mapping[str, str]) -> list[str]:
    """What is amiss with settings, as CONFIG GET tells them; what is not known is not judged.

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
            "nothing is kept on disk: after a restart of the server every cluster opens anew, and "
            "counts not yet told are lost; set appendonly to yes"
        )
    return amiss
