"""Packs what goes to the scripts, and unpacks what they return; `layouts` describes the bytes.

`Packer` also finds the keys at which a query, or the name of a cluster, is stored.
"""

from __future__ import annotations

import struct
import sys
from array import array
from binascii import hexlify
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.columnar import dictionary_encode
from stream_dedup.columnar.reference import NARROW
from stream_dedup.errors import ProtocolError
from stream_dedup.fingerprint.siphash import HashKey, fastest_siphash
from stream_dedup.index.base import ClusterDelta, Query, Resolution
from stream_dedup.index.groups import VARIANT_MARK, opened_id
from stream_dedup.index.redis import layouts, one_off
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys, source_name
from stream_dedup.model import Closing, Decision, FoundBy, Kind, Partition, Position, Summary
from stream_dedup.native import native_or
from stream_dedup.rules.keeping import KeptCounts
from stream_dedup.tables.entries import Entries, Row, make_entries

LATEST_US = 1 << 52
"""Event times and durations are clamped to this, some 142 years: sums of two stay exact."""

CLOSINGS = {
    layouts.EXPIRED: Closing.EXPIRED,
    layouts.EVICTED: Closing.EVICTED,
    layouts.ENDED: Closing.ENDED,
    layouts.MERGED: Closing.MERGED,
}
_FOUND_BY = tuple(FoundBy)
"""By their numbers in a resolution."""

_TEXT_LENGTHS = [struct.Struct(f"<{code}") for code in layouts.CLUSTER_TEXTS.values()]
_RARE_LENGTHS = [struct.Struct(f"<{code}") for code in layouts.RARE_TEXTS.values()]
_ID = struct.Struct(">Q")
_GROUP_ERRORS = "surrogatepass"
_IS_LITTLE_ENDIAN = sys.byteorder == "little"


def clamp_us(time_us: int) -> int:
    """Clamp an event time to what a double holds exactly."""
    return max(-LATEST_US, min(time_us, LATEST_US))


def pack_id(identity: int) -> bytes:
    """Pack a cluster's id as it is stored."""
    return identity.to_bytes(8, "big")


def unpack_ids(packed: bytes) -> list[int | None]:
    """Unpack clusters' ids, one after the other; zeros are none."""
    return [identity or None for (identity,) in _ID.iter_unpack(packed)]


def pack_group(group: str) -> bytes:
    """Encode a group as it is stored."""
    return group.encode("utf-8", _GROUP_ERRORS)


def unpack_group(packed: bytes) -> str:
    """Decode what `pack_group` encodes."""
    return packed.decode("utf-8", _GROUP_ERRORS)


def plain_group(packed: bytes) -> bytes:
    """Return a stored group without what was joined to it; see `index.groups`."""
    return packed.partition(VARIANT_MARK.encode())[0]


def pack_partition(partition: Partition) -> bytes:
    """Pack a partition: ``number:source``."""
    return b"%d:%s" % (partition.number, source_name(partition.source))


def unpack_partition(packed: bytes) -> Partition:
    """Unpack what `pack_partition` packs."""
    number, source = packed.split(b":", 1)
    return Partition(source.decode("utf-8", "surrogateescape"), int(number))


def pack_position(position: Position) -> bytes:
    """Pack a position: ``partition:offset:source``."""
    return b"%d:%d:%s" % (position.partition, position.offset, source_name(position.source))


def unpack_position(packed: bytes) -> Position:
    """Unpack what `pack_position` packs."""
    partition, offset, source = packed.split(b":", 2)
    return Position(source.decode("utf-8", "surrogateescape"), int(partition), int(offset))


def pack_settings(
    now_us: int, windows: Windows, summaries: Summaries, ttl_ms: int, max_clusters: int
) -> bytes:
    """Pack the caller's clock and settings (`layouts.SETTINGS`)."""
    return layouts.SETTINGS.struct.pack(
        now_us,
        min(windows.idle_us, LATEST_US),
        min(windows.max_age_us, LATEST_US),
        min(windows.max_future_us, LATEST_US),
        windows.quiet_after_us,
        -1 if summaries.every_us is None else min(summaries.every_us, LATEST_US),
        summaries.final,
        min(summaries.retention_us, LATEST_US),
        summaries.lease_us,
        ttl_ms,
        max_clusters,
        0 if summaries.of_single else 1,
    )


def unpack_resolutions(
    packed: bytes,
) -> tuple[list[Resolution], list[tuple[int, bool] | None]]:
    """Unpack the resolutions of ``resolve.lua``.

    Returns:
        The resolutions, and for each the cluster for which the query's fingerprint was inserted and
        whether the query opened it (an alias that is inserted is at some distance), or None.
    """
    resolutions: list[Resolution] = []
    inserted: list[tuple[int, bool] | None] = []
    unpacked = layouts.RESOLUTION.struct.iter_unpack(packed)
    for cluster, opened_us, last_us, distance, flags, learned in unpacked:
        new, recorded = bool(flags & layouts.NEW), bool(flags & layouts.RECORDED_BEFORE)
        found_by, times = _FOUND_BY[flags // layouts.FOUND_BY], (int(opened_us), int(last_us))
        resolutions.append(
            Resolution(cluster, distance, new, *times, recorded, found_by, int(learned))
        )
        opened = new and not distance
        inserted.append((cluster, opened) if flags & layouts.INSERTED else None)
    return resolutions, inserted


def pack_bare(deltas: Iterable[ClusterDelta]) -> tuple[bytes, list[ClusterDelta]]:
    """Pack deltas without values, one after the other; return the other deltas too."""
    pack, earliest = layouts.BARE_DELTA.struct.pack, -LATEST_US
    packed, others = [], []
    for delta in deltas:
        first_us, last_us = delta.first_us, delta.last_us
        if delta.representative is not None or delta.samples or delta.sampled:
            others.append(delta)
            continue
        if not earliest <= first_us <= last_us <= LATEST_US:
            first_us, last_us = clamp_us(first_us), clamp_us(last_us)
        identity = pack_id(delta.cluster)
        packed.append(pack(delta.count, first_us, last_us, delta.size, identity, hexlify(identity)))
    return b"".join(packed), others


def pack_delta(delta: ClusterDelta, samples: int, max_bytes: int) -> list[bytes]:
    """Pack a delta with values: `layouts.DELTA`, id, representative, samples, events by chance.

    Args:
        delta: the delta.
        samples: how many are kept, at most.
        max_bytes: of each value.
    """
    kept = [sample[:max_bytes] for sample in delta.samples[:samples]] if delta.samples else ()
    representative, first_us, last_us = delta.representative, delta.first_us, delta.last_us
    if not -LATEST_US <= first_us <= last_us <= LATEST_US:
        first_us, last_us = clamp_us(first_us), clamp_us(last_us)
    numbers = layouts.DELTA.struct.pack(
        delta.count,
        first_us,
        last_us,
        delta.size,
        len(kept),
        len(delta.sampled),
        representative is not None,
    )
    sampled = [pack_id(priority) + value for priority, value in delta.sampled]
    representative = representative[:max_bytes] if representative else b""
    return [numbers, pack_id(delta.cluster), representative, *kept, *sampled]


def reference_pack_deltas(
    deltas: Iterable[ClusterDelta], samples: int, max_bytes: int, owner: bytes
) -> tuple[bytes, list[bytes], list[bytes]]:
    """Pack the deltas of a commit.

    Args:
        deltas: one for each cluster.
        samples: as for `pack_delta`.
        max_bytes: likewise.
        owner: what the keys of clusters begin with.

    Returns:
        Those without values, packed; of the others the keys of their clusters, and what
        `pack_delta` makes of them.
    """
    bare, others = pack_bare(deltas)
    keys = [owner + hexlify(pack_id(delta.cluster)) for delta in others]
    arguments = [part for delta in others for part in pack_delta(delta, samples, max_bytes)]
    return bare, keys, arguments


class _Decided(msgspec.Struct, array_like=True, frozen=True):
    """A decision as an array: the fingerprint as bytes; the last three may be missing."""

    kind: str
    cluster: int | None
    distance: int | None
    fingerprint: bytes | None
    reason: str
    template: int | None = None
    varied: int = 0
    withheld: str = ""


class _Journal(NamedTuple):
    """A batch's decisions, dictionary-encoded.

    Attributes:
        different: the distinct decisions.
        offsets: of the events; the first alone where the others follow one by one.
        which: for each event the index of its decision: two bytes each, or four where there are
            too many, little-endian.
    """

    different: list[_Decided]
    offsets: list[int]
    which: bytes


_encode_journal = msgspec.msgpack.Encoder().encode
_decode_journal = msgspec.msgpack.Decoder(_Journal).decode
_decode_kept = msgspec.msgpack.Decoder(dict[str, dict[int, int]]).decode


def _width(different: int) -> str:
    """The array type of an index into so many."""
    return "H" if different <= NARROW else "I"


def pack_journal(offsets: Sequence[int], decisions: Sequence[Decision]) -> bytes:
    """Pack the decisions of offsets, which ascend; distinct ones are stored once."""
    if not decisions:
        return b""
    values, places = dictionary_encode(decisions)
    in_a_row = offsets[-1] - offsets[0] == len(offsets) - 1
    named = [offsets[0]] if in_a_row else list(offsets)
    different = msgspec.Raw(_pack_decisions(values))
    return _encode_journal((different, named, _little(places)))


def reference_pack_decisions(decisions: Sequence[Decision]) -> bytes:
    """Pack decisions one after the other, as `_Decided` describes them."""
    different: list[tuple[object, ...]] = []
    for kind, cluster, distance, fingerprint, reason, template, varied, withheld in decisions:
        number = None
        if fingerprint is not None:
            number = fingerprint.to_bytes(fingerprint.bit_length() + 7 >> 3, "big")
        decided = kind, cluster, distance, number, reason
        if withheld:
            different.append((*decided, template, varied, withheld))
        elif varied:
            different.append((*decided, template, varied))
        else:
            different.append(decided if template is None else (*decided, template))
    return _encode_journal(different)


def unpack_journal(packed: bytes) -> dict[int, Decision]:
    """Unpack what `pack_journal` packs: decisions by offset."""
    journal = _decode_journal(packed)
    different = [
        Decision(
            Kind(each.kind),
            each.cluster,
            each.distance,
            None if each.fingerprint is None else int.from_bytes(each.fingerprint, "big"),
            each.reason,
            each.template,
            each.varied,
            each.withheld,
        )
        for each in journal.different
    ]
    places = array(_width(len(different)), journal.which)
    if not _IS_LITTLE_ENDIAN:
        places.byteswap()
    offsets: Sequence[int] = journal.offsets
    if len(offsets) < len(places):
        offsets = range(offsets[0], offsets[0] + len(places))
    return {offset: different[place] for offset, place in zip(offsets, places, strict=True)}


def pack_kept(kept: KeptCounts | None) -> bytes:
    """Pack what left by rules that limit patterns; empty for what stays as it was."""
    return b"" if kept is None else msgspec.msgpack.encode(kept)


def unpack_kept(packed: bytes) -> KeptCounts:
    """Unpack what `pack_kept` packs; nothing of what was never packed."""
    return _decode_kept(packed) if packed else {}


def _little(numbers: array[int]) -> bytes:
    if not _IS_LITTLE_ENDIAN:
        numbers.byteswap()
    return numbers.tobytes()


def big_endian(sketch: bytes) -> bytes:
    """Return a sketch as it is stored, from one as `Query` has it; or the other way round."""
    hashes = array("Q", sketch)
    if _IS_LITTLE_ENDIAN:
        hashes.byteswap()
    return hashes.tobytes()


class ClusterTexts(NamedTuple):
    """A cluster's texts; `layouts.CLUSTER_TEXTS` describes them, `layouts.RARE` the last six."""

    fingerprint: bytes
    sketch: bytes
    name_list: bytes
    group: bytes
    position: bytes
    posting_keys: bytes
    representative: bytes
    until_us: int
    learned: int
    into: bytes
    merged: bytes
    snapshot: bytes
    chosen: bytes


class Cluster(NamedTuple):
    """A cluster's numbers; `layouts.CLUSTER` describes them."""

    opened_us: int
    last_us: int
    first_us: int
    latest_us: int
    events: int
    emitted: int
    emitted_us: int
    bytes: int
    since_us: int
    revision: int
    names: int
    searchable: int
    sampled: int
    samples: int
    state: int
    provisional: int
    before: int
    due: int
    leased: int
    learned_words: int
    renewed_s: int
    born: int

    @property
    def closing(self) -> Closing | None:
        """Why it is closed; None while it is open, and of a tombstone."""
        return CLOSINGS.get(self.state)

    @property
    def gone(self) -> bool:
        """Whether it is a tombstone."""
        return self.state == layouts.GONE

    @property
    def open(self) -> bool:
        """Whether it takes events."""
        return self.state == layouts.OPEN


def unpack_cluster(packed: bytes) -> Cluster:
    """Unpack the numbers of a cluster, which it begins with.

    Raises:
        struct.error: it is cut off.
    """
    return Cluster._make(layouts.CLUSTER.integers(packed))


def unpack_texts(packed: bytes) -> ClusterTexts:
    """Unpack the texts of a cluster, which follow its numbers.

    Raises:
        struct.error: it is cut off, or too long.
    """
    (*texts, rare), end = _unpack_texts(packed, layouts.CLUSTER.struct.size, _TEXT_LENGTHS)
    until_us, learned, rare_texts, rare_end = 0, 0, [b""] * len(_RARE_LENGTHS), len(rare)
    if rare:
        until_us, learned = layouts.RARE.integers(rare)
        rare_texts, rare_end = _unpack_texts(rare, layouts.RARE.struct.size, _RARE_LENGTHS)
    if end != len(packed) or rare_end != len(rare):
        raise struct.error(f"{len(packed)} bytes are not a cluster")
    return ClusterTexts._make((*texts, until_us, learned, *rare_texts))


def unpack_searched(packed: bytes) -> tuple[bytes, bytes]:
    """Unpack the sketch and the name list of a cluster.

    Of it `layouts.SEARCHED_BYTES` were read: the list may end anywhere behind the first name.
    """
    size = layouts.CLUSTER.struct.size
    (_, sketch, name_list), _ = _unpack_texts(packed, size, _TEXT_LENGTHS[:3])
    return sketch, name_list


def _unpack_texts(
    packed: bytes, at: int, lengths: Iterable[struct.Struct]
) -> tuple[list[bytes], int]:
    """Unpack texts from a place on; also where the next begins."""
    texts = list[bytes]()
    for length in lengths:
        (size,) = length.unpack_from(packed, at)
        at += length.size + size
        texts.append(packed[at - size : at])
    return texts, at


def unpack_summary(answer: Sequence[bytes], most_sampled: int) -> Summary:
    """Unpack a summary that ``claim.lua`` returns.

    Args:
        answer: the script's.
        most_sampled: events chosen by chance, of those that are stored.
    """
    identity, snapshot, rest, position, representative, *values = answer
    revision, count, new_count, first_us, latest_us, *others = layouts.SNAPSHOT.struct.unpack(
        snapshot
    )
    state, samples, learned, merged, into, since_us = others
    group_at = merged * layouts.MERGED_CLUSTER.struct.size
    return Summary(
        cluster=int.from_bytes(identity, "big"),
        revision=int(revision),
        closing=CLOSINGS.get(state),
        count=int(count),
        new_count=int(new_count),
        first_time_us=int(first_us),
        last_time_us=int(latest_us),
        position=unpack_position(position),
        representative=representative,
        samples=tuple(values[:samples]),
        group=unpack_group(plain_group(rest[group_at:])),
        merged_into=int.from_bytes(into, "big") if state == layouts.MERGED else None,
        merged=tuple(
            (int.from_bytes(cluster, "big"), int(events))
            for cluster, events in layouts.MERGED_CLUSTER.struct.iter_unpack(rest[:group_at])
        ),
        learned=int(learned),
        sampled=tuple(sorted(map(_unpack_sampled, values[samples:]))[:most_sampled]),
        since_us=int(since_us),
    )


def _unpack_sampled(packed: bytes) -> tuple[int, bytes]:
    size = layouts.PRIORITY_BYTES
    return int.from_bytes(packed[:size], "big"), packed[size:]


class Name(NamedTuple):
    """By which a cluster is found: an exact hash, and a fingerprint.

    Attributes:
        raw: the name as it is stored.
        exact: the exact hash, 8 bytes.
        fingerprint: the fingerprint; None of an alias where fingerprints are the keys of bands.
        searchable: whether the fingerprint is in the tables.
    """

    raw: bytes
    exact: bytes
    fingerprint: int | None
    searchable: bool


class Piece(NamedTuple):
    """What is to be purged of a closed cluster.

    Attributes:
        identity: its id, 8 bytes.
        posting_keys: the keys of the posting lists that named it, one after the other.
        names: its names, as `unpack_names` takes them.
    """

    identity: bytes
    posting_keys: bytes
    names: bytes


def unpack_piece(packed: bytes) -> Piece:
    """Unpack a piece of garbage."""
    size = layouts.PIECE.struct.size
    _, count = layouts.PIECE.struct.unpack_from(packed)
    end = size + count * layouts.KEY_BYTES
    return Piece(packed[: layouts.ID_BYTES], packed[size:end], packed[end:])


def unpack_names(packed: bytes, layout: NamespaceLayout) -> tuple[bytes, list[Name]]:
    """Unpack the name list of a cluster: its group's hash, and its names."""
    size, head = layout.name_bytes, layout.names_at
    group, of_all = packed[: layouts.NAMES_HEAD_BYTES], packed[layouts.NAMES_HEAD_BYTES : head]
    names = []
    for start in range(head, len(packed), size):
        raw = packed[start : start + size]
        exact, own = raw[: layouts.EXACT_BYTES], raw[layouts.EXACT_BYTES : -layouts.FLAG_BYTES]
        if of_all and start == head:
            own = of_all[: layout.width // 8]
        fingerprint = int.from_bytes(own, "big") if own else None
        names.append(Name(raw, exact, fingerprint, raw[-1] == 1))
    return group, names


def tables_of(packed: bytes, layout: NamespaceLayout) -> list[int]:
    """Return which tables hold the representative of the cluster with this name list."""
    tables = range(layout.table_layout.tables)
    if not layout.is_bands:
        return [*tables]
    size = layouts.IN_TABLES.struct.size
    (bits,) = layouts.IN_TABLES.struct.unpack(packed[layout.names_at - size : layout.names_at])
    return [table for table in tables if bits >> len(tables) - 1 - table & 1]


# ------------------------------------------------------------ keys of queries and names


_pack_decisions = native_or("index.redis._commits", "pack_decisions", reference_pack_decisions)
pack_deltas = native_or("index.redis._commits", "pack_deltas", reference_pack_deltas)
_siphash = fastest_siphash()
_pack_patterns = one_off.fastest_pack_patterns()

GROUPS_KEPT = 10_000
"""Groups whose hashes are remembered."""


def group_hash(key: HashKey, group: bytes) -> tuple[int, int]:
    """Hash a group under the namespace's key: its number, 32 bits, and the bits of its shard.

    All variants of a group are in one shard.

    Members of the tables hold the low 16 bits of the number: groups that share these bits are each
    other's candidates, rejected only when their clusters are read. Without the key nobody can
    prepare groups that share a number, or these bits of it.
    """
    value = high = _siphash(key, group)
    alone = plain_group(group)
    if alone != group:
        high = _siphash(key, alone)
    return value & 0xFFFFFFFF, high >> 32


class PackedGroup(NamedTuple):
    """A group as scripts take it.

    Attributes:
        number: its hash under the namespace's key, 32 bits.
        packed: the group itself, encoded.
        shard: the number of the shard in which its clusters are.
    """

    number: int
    packed: bytes
    shard: int


class Packer:
    """Packs queries and names for the shards of a namespace.

    Attributes:
        key: of the namespace's hashes.
        shards: their keys.
        entries: converts fingerprints to members of the tables.
        group: looks up a group.
    """

    def __init__(self, namespace: str, layout: NamespaceLayout, key: HashKey) -> None:
        self.key = key
        self.shards = [ShardKeys(namespace, number) for number in range(layout.shards)]
        self.entries: Entries = make_entries(layout.table_layout, layout.slices)
        self._namespace = namespace
        self._exact_shift, self._posting_shift = layout.exact_shift, layout.posting_shift
        self.group = lru_cache(GROUPS_KEPT)(self._group)

    def use_key(self, key: HashKey) -> None:
        """Use another key from now on: the namespace was created again with it."""
        self.key = key
        self.group.cache_clear()

    def shard_of(self, identity: int) -> ShardKeys:
        """Find the shard of a cluster: its id ends with the number, unless there is only one.

        Raises:
            ProtocolError: no shard has that number: the id is not of this namespace.
        """
        number = identity & 0xFF if len(self.shards) > 1 else 0
        if number >= len(self.shards):
            raise ProtocolError(
                f"cluster {identity:016x} is none of this namespace: its id ends with {number}, "
                f"and there are {len(self.shards)} shards"
            )
        return self.shards[number]

    def queries(
        self, shard: ShardKeys, queries: Sequence[Query], near: Sequence[bytes]
    ) -> tuple[list[bytes], bytes, bytes]:
        """Pack queries for ``resolve.lua``: their keys, the argument, and that of their patterns.

        Args:
            shard: where the queries are resolved.
            queries: the queries.
            near: for each, what the caller's mirror holds near it.
        """
        number = shard.number
        earliest, latest = -LATEST_US, LATEST_US
        rows: list[Row] = []
        patterns: list[one_off.Row] = []
        for query, mirrored in zip(queries, near, strict=True):
            name, exact, fingerprint, sketch, searchable, first_us, last_us, position, own = query
            group, packed_group, _ = self.group(name)
            identity = self._opened(name, position, number)
            if not earliest <= first_us <= last_us <= latest:
                first_us, last_us = clamp_us(first_us), clamp_us(last_us)
            rows.append(
                (
                    first_us, last_us, identity, group, exact, self._exact_slice(exact, group),
                    fingerprint, searchable, sketch if searchable else b"", packed_group,
                    pack_position(position), mirrored,
                )
            )  # fmt: skip
            patterns.append((own, group, identity))
        keys, packed = self.entries.pack(rows, shard.prefixes)
        return keys, packed, _pack_patterns(patterns, self._posting_shift)

    def opened_id(self, query: Query) -> int:
        """Return the id of the cluster that a query would open."""
        return self._opened(query.group, query.position, self.group(query.group).shard)

    def _opened(self, group: str, position: Position, number: int) -> int:
        identity = opened_id(self._namespace, group, position)
        return identity & ~0xFF | number if len(self.shards) > 1 else identity

    def _exact_slice(self, exact: int, group: int) -> int:
        return (exact ^ one_off.spread_of(group)) >> self._exact_shift

    def _group(self, group: str) -> PackedGroup:
        packed = pack_group(group)
        number, high = group_hash(self.key, packed)
        return PackedGroup(number, packed, high % len(self.shards))

    def exact_key(self, shard: ShardKeys, group: bytes, exact: bytes) -> bytes:
        """The slice that holds an exact hash of a group.

        Args:
            shard: of the group.
            group: the group's hash, 4 bytes.
            exact: the exact hash, 8 bytes.
        """
        number = int.from_bytes(group, "big")
        return shard.exact(self._exact_slice(int.from_bytes(exact, "big"), number))
