"""Every key name in Redis.

All keys of a shard share the hash tag ``{namespace:shard}``, so a script finds them on one node of
a Redis Cluster. Nothing else names keys, but the scripts, which know a cluster's id only while they
run: they put it behind the shard's prefix as `Shard.cluster` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from stream_dedup.model import Partition
from stream_dedup.tables.entries import Prefixes

PREFIX = "sd"
"""The first part of every key; an ACL user needs no more than ``~sd:*``."""

_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,100}")


def check_namespace(namespace: str) -> str:
    """The namespace as it was given.

    Raises:
        ValueError: it holds other characters than letters, digits and ``. _ -``, or is too long.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError(
            f"namespace {namespace!r} is no name: give 1 to 100 letters, digits, '.', '_' or '-'"
        )
    return namespace


def source_name(source: str) -> bytes:
    """A topic or path as bytes of a key or value."""
    return source.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Shard:
    """The keys of one shard.

    Attributes:
        meta: hash: how the shard is stamped, its counters, stream time.
        expiry: sorted set: open cluster → event time at which it expires, at the earliest.
        recency: sorted set: open cluster → event time at which it was last seen, at the earliest.
        due: sorted set: cluster → stream time of its next summary; -inf: its final one.
        leases: sorted set: cluster whose summary is on its way → when that is to be sent again.
        gone: sorted set: cluster of which a tombstone is left → order of burial.
        garbage: list: what is still to be taken out of slices and tables.
        inserted: list: what the last calls have put into the tables; see `mirror`.
        heads: hash: partition → its latest event time, when it was active last, and its name.
        fixed: all of these but meta.
        prefixes: what the keys of clusters, slices of exact hashes and tables begin with.
    """

    namespace: str
    number: int
    prefix: bytes = field(init=False)
    meta: bytes = field(init=False)
    expiry: bytes = field(init=False)
    recency: bytes = field(init=False)
    due: bytes = field(init=False)
    leases: bytes = field(init=False)
    gone: bytes = field(init=False)
    garbage: bytes = field(init=False)
    inserted: bytes = field(init=False)
    heads: bytes = field(init=False)
    fixed: tuple[bytes, ...] = field(init=False)
    prefixes: Prefixes = field(init=False)

    def __post_init__(self) -> None:
        prefix = f"{PREFIX}:{{{self.namespace}:{self.number}}}:".encode()
        names = {
            "prefix": b"",
            "meta": b"meta",
            "expiry": b"expiry",
            "recency": b"recency",
            "due": b"due",
            "leases": b"leases",
            "gone": b"gone",
            "garbage": b"garbage",
            "inserted": b"inserted",
            "heads": b"heads",
        }
        for name, key in names.items():
            object.__setattr__(self, name, prefix + key)
        fixed = (
            self.expiry, self.recency, self.due, self.leases, self.gone, self.garbage,
            self.inserted, self.heads,
        )  # fmt: skip
        object.__setattr__(self, "fixed", fixed)
        prefixes = Prefixes(prefix + b"c:", prefix + b"e:", prefix + b"t:")
        object.__setattr__(self, "prefixes", prefixes)

    def cluster(self, identity: bytes) -> bytes:
        """Hash: the cluster with that id (8 bytes)."""
        return b"%s%s" % (self.prefixes.owner, identity.hex().encode())

    def exact(self, number: int) -> bytes:
        """Hash: a slice of exact hashes: group hash(4) ‖ exact hash(8) → id(8) ‖ distance(1)."""
        return b"%s%d" % (self.prefixes.exact, number)

    def table(self, table: int, number: int) -> bytes:
        """Sorted set: a slice of a table; see `tables.entries`."""
        return b"%s%d:%d" % (self.prefixes.table, table, number)

    def partition(self, partition: Partition) -> bytes:
        """Hash: the partition's fence, high water, committed offset, claim and incarnation."""
        return b"%sp:%s:%d" % (self.prefix, source_name(partition.source), partition.number)

    def journal(self, partition: Partition) -> bytes:
        """Sorted set: the decisions of batches by their last offset."""
        return b"%sj:%s:%d" % (self.prefix, source_name(partition.source), partition.number)


def everything(namespace: str) -> str:
    """The pattern of all keys of a namespace, for SCAN."""
    return f"{PREFIX}:{{{namespace}:*"
