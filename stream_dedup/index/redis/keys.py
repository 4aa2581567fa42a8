"""Every key name in Redis, and what kind of key a name is.

All keys of a shard share the hash tag ``{namespace:shard}``, so a script finds them on one node of
a Redis Cluster. Only the scripts name keys too, of what may be known only while a script runs:
clusters, and what leads to a cluster that merges (slices of exact hashes and of posting lists).
They append to the shard's prefix as `ShardKeys` does.
"""

from __future__ import annotations

import re
from binascii import hexlify
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_dedup.fingerprint import bands
from stream_dedup.index.redis import layouts
from stream_dedup.model import Partition
from stream_dedup.tables.entries import MAX_SLICES, Prefixes
from stream_dedup.tables.permutation import Layout

PREFIX = "sd"
"""The first part of every key; an ACL user needs no more than ``~sd:*``."""

_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,100}")


def check_namespace(namespace: str) -> str:
    """Check a namespace's name and return it.

    Raises:
        ValueError: it holds other characters than letters, digits and ``. _ -``, or is too long.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError(
            f"namespace {namespace!r} is not a name: give 1 to 100 letters, digits, '.', '_' or '-'"
        )
    return namespace


class NamespaceLayout(NamedTuple):
    """How a namespace is laid out; fixed when it is created.

    Attributes:
        format: `namespace.FORMAT` of the program that created it.
        width: bits of a fingerprint; `bands.BITS` where it is the keys of bands.
        k: the largest distance found with certainty; of keys of bands the number of those that may
            differ.
        blocks: m; the number of keys.
        slices: of each table.
        exact_slices: of the exact hashes.
        shards: how many.
    """

    format: int
    width: int
    k: int
    blocks: int
    slices: int
    exact_slices: int
    shards: int

    @property
    def is_bands(self) -> bool:
        """Whether fingerprints are the keys of bands."""
        return self.width == bands.BITS

    @property
    def posting_slices(self) -> int:
        """Slices of posting lists: there are some seven times as many lists as exact hashes."""
        return min(8 * self.exact_slices, MAX_SLICES)

    @property
    def exact_shift(self) -> int:
        """Bits of an exact hash behind the number of its slice."""
        return 65 - self.exact_slices.bit_length()

    @property
    def posting_shift(self) -> int:
        """Bits of the key of a posting list behind the number of its slice."""
        return 65 - self.posting_slices.bit_length()

    @property
    def name_work(self) -> int:
        """Commands that removing a name of a cluster takes, about."""
        return self.table_layout.tables + 4

    @property
    def spread_slices(self) -> int:
        """Slices of a shard of the spread index, in which all tables lie together."""
        return -(-(self.slices * self.table_layout.tables + self.exact_slices) // self.shards)

    @property
    def table_layout(self) -> Layout:
        """Blocks and tables; a key of a band is a block, so one block in common is near enough."""
        return Layout(self.width, self.k, self.blocks)

    @property
    def names_at(self) -> int:
        """Where the names of a cluster begin in its name list."""
        return layouts.BANDS_HEAD_BYTES if self.is_bands else layouts.NAMES_HEAD_BYTES

    @property
    def name_bytes(self) -> int:
        """The length of a name."""
        return layouts.NAME_OTHER_BYTES + (0 if self.is_bands else self.width // 8)


def source_name(source: str) -> bytes:
    """Encode a topic or path for a key or value."""
    return source.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class ShardKeys:
    """The keys of one shard.

    Attributes:
        prefix: what all keys of the shard begin with.
        meta: hash: the shard's layout, counters and stream time.
        expiry: sorted set: open cluster that expires by its age, before it is idle for too long →
            event time at which it does, at the earliest.
        recency: sorted set: open cluster → event time at which it was last seen, at the earliest.
        due: sorted set: cluster → stream time of its next summary; -inf: its final one.
        leases: sorted set: cluster with a leased summary → clock time at which the lease ends.
        gone: sorted set: cluster with a tombstone → number of the tombstone.
        garbage: list: entries of closed clusters, to be removed from slices and tables.
        inserted: list: the last calls that inserted into the tables; see `mirror`.
        heads: hash: partition → its latest event time, when it was last active, and its name.
        rules: hash: what people decided about patterns, and its version; of the first shard.
        patterns: hash: what is remembered of patterns, for events about them: id(8) → `Known`,
            packed; and a token. This and the next four are of the first shard.
        pattern_names: hash: a cluster, or a template with variant and group → id(8) of a pattern ‖
            what was counted of the cluster.
        pattern_seen: sorted set: pattern → event time at which it was last seen.
        pattern_due: sorted set: pattern → stream time at which it has vanished if it stays silent.
        pattern_events: sorted set: event that may not be sent yet → clock time until which whoever
            found it sends it.
        begun: hash: attempt of the spread index to open a cluster, as its entry → what is needed to
            find the other entries that it has left.
        held: hash: cluster that prepared commits hold open → `layouts.HOLD`; see ``_many.lua``.
        preparing: sorted set: partition with a prepared commit → the server's clock, in seconds.
        fixed: all of these but prefix, meta, rules, begun and those of patterns.
        prefixes: what the keys of clusters, slices of exact hashes and slices of tables begin
            with.
        postings: what the keys of slices of posting lists begin with.
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
    rules: bytes = field(init=False)
    patterns: bytes = field(init=False)
    pattern_names: bytes = field(init=False)
    pattern_seen: bytes = field(init=False)
    pattern_due: bytes = field(init=False)
    pattern_events: bytes = field(init=False)
    begun: bytes = field(init=False)
    held: bytes = field(init=False)
    preparing: bytes = field(init=False)
    fixed: tuple[bytes, ...] = field(init=False)
    prefixes: Prefixes = field(init=False)
    postings: bytes = field(init=False)

    def __post_init__(self) -> None:
        prefix = f"{PREFIX}:{{{self.namespace}:{self.number}}}:".encode()
        names = (
            "meta expiry recency due leases gone garbage inserted heads rules patterns "
            "pattern_names pattern_seen pattern_due pattern_events begun held preparing"
        )
        object.__setattr__(self, "prefix", prefix)
        for name in names.split():
            object.__setattr__(self, name, prefix + name.replace("_", "-").encode())
        fixed = (
            self.expiry, self.recency, self.due, self.leases, self.gone, self.garbage,
            self.inserted, self.heads, self.held, self.preparing,
        )  # fmt: skip
        object.__setattr__(self, "fixed", fixed)
        prefixes = Prefixes(prefix + b"c:", prefix + b"e:", prefix + b"t:")
        object.__setattr__(self, "prefixes", prefixes)
        object.__setattr__(self, "postings", prefix + b"r:")

    def cluster(self, identity: bytes) -> bytes:
        """String: the cluster with that id (8 bytes)."""
        return self.prefixes.owner + hexlify(identity)

    def values(self, identity: bytes) -> bytes:
        """Hash: samples of the cluster with that id, and events of it chosen by chance."""
        return b"%sv:%s" % (self.prefix, hexlify(identity))

    def exact(self, number: int) -> bytes:
        """Hash: a slice of exact hashes: group hash(4) ‖ exact hash(8) → id(8) ‖ distance(1)."""
        return b"%s%d" % (self.prefixes.exact, number)

    def postings_slice(self, number: int) -> bytes:
        """Hash: a slice of posting lists: group hash(4) ‖ key(8) → postings; see `layouts`."""
        return b"%s%d" % (self.postings, number)

    def table(self, table: int, number: int) -> bytes:
        """Sorted set, or string of keys of bands: a slice of a table; see `tables.entries`."""
        return b"%s%d:%d" % (self.prefixes.table, table, number)

    def spread(self, number: int) -> bytes:
        """Sorted set: a slice of all tables of the spread index; see `layouts.SPREAD_MEMBER`."""
        return b"%ss:%d" % (self.prefix, number)

    def intent(self, identity: bytes) -> bytes:
        """String: the ticket of an attempt to open the cluster with that id, for its lease."""
        return b"%si:%s" % (self.prefix, identity.hex().encode())

    def partition(self, partition: Partition) -> bytes:
        """Hash: the partition's fence, high water, committed offset, claim and incarnation."""
        return b"%sp:%s:%d" % (self.prefix, source_name(partition.source), partition.number)

    def prepared(self, partition: Partition) -> bytes:
        """Hash: a partition's commit that this shard has prepared; see ``_many.lua``."""
        return b"%sx:%s:%d" % (self.prefix, source_name(partition.source), partition.number)

    def journal(self, partition: Partition) -> bytes:
        """Sorted set: the decisions of batches by their last offset."""
        return b"%sj:%s:%d" % (self.prefix, source_name(partition.source), partition.number)


def key_pattern(namespace: str) -> str:
    """The pattern of all keys of a namespace, for SCAN."""
    return f"{PREFIX}:{{{namespace}:*"


# ------------------------------------------------------------ kinds of keys


class KeyKind(NamedTuple):
    """A kind of key.

    Attributes:
        name: for people; ``unknown`` if the name is none of ours.
        type: as the command TYPE returns it.
        group: of `KEY_GROUPS`.
    """

    name: str
    type: str
    group: str


_UNKNOWN = KeyKind("unknown", "", "others")
_TABLES = KeyKind("tables", "zset", "tables")
_BAND_TABLES = KeyKind("tables", "string", "tables")
_EXACT = KeyKind("exact hashes", "hash", "exact hashes")
_POSTINGS = KeyKind("records", "hash", "records")  # the name that `index stats` prints
_CLUSTERS = KeyKind("clusters", "string", "clusters")
_VALUES = KeyKind("values", "hash", "values")
_PARTITIONS = KeyKind("partitions", "hash", "others")
_JOURNALS = KeyKind("journals", "zset", "others")
_PREPARED = KeyKind("prepared commits", "hash", "others")
_SPREAD = KeyKind("spread slices", "zset", "tables")
_INTENTS = KeyKind("intents", "string", "others")
_SINGLE = {
    b"meta": KeyKind("meta", "hash", "others"),
    b"expiry": KeyKind("expiry", "zset", "others"),
    b"recency": KeyKind("recency", "zset", "others"),
    b"due": KeyKind("due", "zset", "others"),
    b"leases": KeyKind("leases", "zset", "others"),
    b"gone": KeyKind("gone", "zset", "others"),
    b"garbage": KeyKind("garbage", "list", "others"),
    b"inserted": KeyKind("inserted", "list", "others"),
    b"heads": KeyKind("heads", "hash", "others"),
    b"rules": KeyKind("rules", "hash", "others"),
    b"begun": KeyKind("attempts", "hash", "others"),
    b"held": KeyKind("held clusters", "hash", "others"),
    b"preparing": KeyKind("partitions that commit", "zset", "others"),
    b"patterns": KeyKind("patterns", "hash", "others"),
    b"pattern-names": KeyKind("pattern names", "hash", "others"),
    b"pattern-seen": KeyKind("pattern times", "zset", "others"),
    b"pattern-due": KeyKind("pattern deadlines", "zset", "others"),
    b"pattern-events": KeyKind("pattern events", "zset", "others"),
}
_NUMBERED = re.compile(
    rb"t:([0-9]{1,9}):([0-9]{1,9})|e:([0-9]{1,9})|r:([0-9]{1,9})|c:([0-9a-f]{16})"
    rb"|s:([0-9]{1,9})|i:([0-9a-f]{16})|v:([0-9a-f]{16})"
)
_NAMED = re.compile(rb"([pjx]):.*:[0-9]{1,19}", re.DOTALL)

KEY_GROUPS = ("tables", "exact hashes", "records", "clusters", "values", "others")
"""Groups of kinds whose memory is shown apart."""


def kind_of(shard: ShardKeys, key: bytes, layout: NamespaceLayout) -> KeyKind:
    """The kind of a key of a shard."""
    name = key.removeprefix(shard.prefix)
    if name in _SINGLE:
        return _SINGLE[name]
    if match := _NUMBERED.fullmatch(name):
        table, number, exact, postings, cluster, spread, intent, values = match.groups()
        if cluster is not None:
            return _CLUSTERS
        if intent is not None:
            return _INTENTS
        if values is not None:
            return _VALUES
        if spread is not None:
            return _SPREAD if int(spread) < layout.spread_slices else _UNKNOWN
        if exact is not None:
            return _EXACT if int(exact) < layout.exact_slices else _UNKNOWN
        if postings is not None:
            return _POSTINGS if int(postings) < layout.posting_slices else _UNKNOWN
        known = int(table) < layout.table_layout.tables and int(number) < layout.slices
        if not known:
            return _UNKNOWN
        return _BAND_TABLES if layout.is_bands else _TABLES
    if match := _NAMED.fullmatch(name):
        return {b"p": _PARTITIONS, b"j": _JOURNALS, b"x": _PREPARED}[match[1]]
    return _UNKNOWN


def identity_of(key: bytes) -> bytes:
    """The id (8 bytes) in the key of a cluster."""
    return bytes.fromhex(key[-16:].decode())


def table_of(key: bytes) -> int:
    """The table in the key of one of its slices."""
    return int(key.rsplit(b":", 2)[1])


def partition_of(shard: ShardKeys, key: bytes) -> tuple[bytes, int]:
    """The source and number in the key of a partition or journal."""
    source, _, number = key.removeprefix(shard.prefix)[2:].rpartition(b":")
    return source, int(number)
