"""What kind of key a key is, told from its name."""

from __future__ import annotations

import re
from typing import NamedTuple

from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.layout import Stamp


class Kind(NamedTuple):
    """A kind of key.

    Attributes:
        name: for people; ``unknown`` for none.
        type: as TYPE tells it.
        group: under which its memory is shown.
    """

    name: str
    type: str
    group: str


_UNKNOWN = Kind("unknown", "", "others")
_TABLES = Kind("tables", "zset", "tables")
_EXACT = Kind("exact hashes", "hash", "exact hashes")
_CLUSTERS = Kind("clusters", "hash", "clusters")
_PARTITIONS = Kind("partitions", "hash", "others")
_JOURNALS = Kind("journals", "zset", "others")
_SINGLE = {
    b"meta": Kind("meta", "hash", "others"),
    b"expiry": Kind("expiry", "zset", "others"),
    b"recency": Kind("recency", "zset", "others"),
    b"due": Kind("due", "zset", "others"),
    b"leases": Kind("leases", "zset", "others"),
    b"gone": Kind("gone", "zset", "others"),
    b"garbage": Kind("garbage", "list", "others"),
    b"inserted": Kind("inserted", "list", "others"),
    b"heads": Kind("heads", "hash", "others"),
}
_NUMBERED = re.compile(rb"t:([0-9]{1,9}):([0-9]{1,9})|e:([0-9]{1,9})|c:([0-9a-f]{16})")
_NAMED = re.compile(rb"([pj]):.*:[0-9]{1,19}", re.DOTALL)

GROUPS = ("tables", "exact hashes", "clusters", "others")
"""Kinds whose memory is told apart."""


def kind_of(shard: Shard, key: bytes, stamp: Stamp) -> Kind:
    """The kind of a key of a shard."""
    name = key.removeprefix(shard.prefix)
    if name in _SINGLE:
        return _SINGLE[name]
    if match := _NUMBERED.fullmatch(name):
        table, number, exact, cluster = match.groups()
        if cluster is not None:
            return _CLUSTERS
        if exact is not None:
            return _EXACT if int(exact) < stamp.exact_slices else _UNKNOWN
        known = int(table) < stamp.layout.tables and int(number) < stamp.slices
        return _TABLES if known else _UNKNOWN
    if match := _NAMED.fullmatch(name):
        return _PARTITIONS if match[1] == b"p" else _JOURNALS
    return _UNKNOWN


def identity_of(key: bytes) -> bytes:
    """The id (8 bytes) in the key of a cluster."""
    return bytes.fromhex(key[-16:].decode())


def table_of(key: bytes) -> int:
    """The table in the key of one of its slices."""
    return int(key.rsplit(b":", 2)[1])


def partition_of(shard: Shard, key: bytes) -> tuple[bytes, int]:
    """The source and number in the key of a partition or journal."""
    source, _, number = key.removeprefix(shard.prefix)[2:].rpartition(b":")
    return source, int(number)
