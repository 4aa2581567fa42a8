"""Where a query and what leads to a cluster stand in Redis: their keys, and their arguments."""

from __future__ import annotations

from collections.abc import Sequence

from stream_dedup.clustering.linkage import cluster_id
from stream_dedup.errors import ProtocolError
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.index.base import Query
from stream_dedup.index.redis import codec
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.layout import Stamp
from stream_dedup.index.redis.server import Argument
from stream_dedup.tables.entries import Entries, Row, make_entries

_HASH_FACTOR = 0x9E3779B97F4A7C15
_ALL_64 = (1 << 64) - 1

GROUPS_KEPT = 10_000
"""Groups whose hashes are remembered."""


def group_hash(namespace: str, group: bytes) -> tuple[int, int]:
    """A group's number, 32 bits, and the bits that choose its shard.

    Members of the tables hold the low 16 bits of the number: groups that share them are candidates
    of each other's, left only when their clusters are looked at. So the namespace goes into the
    hash: who may choose groups but does not know its name cannot prepare many that share them. Who
    knows the name can. It costs time and recall, which is counted as truncated, and leads to no
    wrong answer. Part of the stored format.
    """
    low, high = hash128(b"%s\0%s" % (namespace.encode(), group))
    return low & 0xFFFFFFFF, high


class Packer:
    """Packs what goes to the shards of a namespace.

    Attributes:
        shards: their keys.
        entries: how fingerprints become members of the tables.
    """

    def __init__(self, namespace: str, stamp: Stamp) -> None:
        self.shards = [Shard(namespace, number) for number in range(stamp.shards)]
        self.entries: Entries = make_entries(stamp.layout, stamp.slices)
        self._namespace = namespace
        self._exact_shift = 64 - (stamp.exact_slices.bit_length() - 1)
        self._groups: dict[str, tuple[int, bytes, bytes, int]] = {}

    def shard_of(self, identity: int) -> Shard:
        """The shard of a cluster: its id ends with the number, unless there is only one.

        Raises:
            ProtocolError: the id ends with no number of a shard: it is none of this namespace.
        """
        number = identity & 0xFF if len(self.shards) > 1 else 0
        if number >= len(self.shards):
            raise ProtocolError(
                f"cluster {identity:016x} is none of this namespace: its id ends with {number}, "
                f"and there are {len(self.shards)} shards"
            )
        return self.shards[number]

    def queries(
        self, shard: Shard, queries: Sequence[Query], near: Sequence[bytes]
    ) -> tuple[list[bytes], bytes]:
        """The keys of queries, and the queries as ``resolve.lua`` takes them.

        Args:
            shard: where they are asked.
            queries: the queries.
            near: of each, what the caller's mirror holds near it.
        """
        namespace, shards, number = self._namespace, len(self.shards), shard.number
        earliest, latest = -codec.LATEST_US, codec.LATEST_US
        rows: list[Row] = []
        for query, mirrored in zip(queries, near, strict=True):
            name, exact, fingerprint, sketch, searchable, first_us, last_us, position = query
            group, _, packed_group, _ = self.group(name)
            identity = cluster_id(namespace, position)
            if shards > 1:
                identity = identity & ~0xFF | number
            if not earliest <= first_us <= last_us <= latest:
                first_us, last_us = codec.clamp_us(first_us), codec.clamp_us(last_us)
            rows.append(
                (
                    first_us, last_us, identity, group, exact, self._exact_slice(exact, group),
                    fingerprint, searchable, sketch, packed_group, codec.pack_position(position),
                    mirrored,
                )
            )  # fmt: skip
        return self.entries.pack(rows, shard.prefixes)

    def _exact_slice(self, exact: int, group: int) -> int:
        return (exact ^ group * _HASH_FACTOR & _ALL_64) >> self._exact_shift

    def group(self, group: str) -> tuple[int, bytes, bytes, int]:
        """Its hash, the hash's bytes, its own bytes, its shard."""
        known = self._groups.get(group)
        if known is None:
            if len(self._groups) > GROUPS_KEPT:
                self._groups.clear()
            packed = codec.pack_group(group)
            number, high = group_hash(self._namespace, packed)
            known = (number, number.to_bytes(4, "big"), packed, high % len(self.shards))
            self._groups[group] = known
        return known

    def entry(
        self,
        shard: Shard,
        entry: codec.Entry,
        group: bytes,
        owner: int,
        keys: list[bytes],
        arguments: list[Argument],
    ) -> None:
        number = int.from_bytes(group, "big")
        keys.append(shard.exact(self._exact_slice(int.from_bytes(entry.exact, "big"), number)))
        members = b""
        if entry.searchable:
            slices, members = self.entries.arrange(
                entry.fingerprint, number, owner, shard.prefixes.table
            )
            keys.extend(slices)
        arguments += (entry.raw, group + entry.exact, members)
