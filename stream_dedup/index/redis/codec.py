"""What goes over the wire: how queries, deltas, decisions and clusters are packed.

The scripts unpack the same: ``lua/_shard.lua`` describes a cluster's fields. Numbers are doubles,
exact to 2^53; ids, hashes, fingerprints and sketches are bytes, big-endian, so that no script ever
makes a number of them.
"""

from __future__ import annotations

import sys
from array import array
from binascii import hexlify
from collections.abc import Iterable, Sequence
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

import msgspec

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.columnar import dictionary_encode
from stream_dedup.columnar.reference import NARROW
from stream_dedup.index.base import ClusterDelta, Resolution
from stream_dedup.index.redis.keys import source_name
from stream_dedup.model import Closing, Decision, Kind, Partition, Position, Summary

LATEST_US = 1 << 52
"""Event times and durations are clamped to this, some 142 years: sums of two stay exact."""

SETTINGS = Struct("<9d")
RULES = Struct("<9d")
BATCH = Struct("<8d")
TALLY = Struct("<3dHB")
BARE_TALLY = Struct("<3d8s16s")
RESOLUTION = Struct(">QddBB")
CLUSTER = Struct("<10d2H5B2IB")
SNAPSHOT = Struct("<5d3B")

CLOSINGS = {1: Closing.EXPIRED, 2: Closing.EVICTED, 3: Closing.ENDED}
GONE = 4
"""The closing of a tombstone."""

_GROUP_ERRORS = "surrogatepass"
_SWAPS = sys.byteorder == "little"
"""Whether the machine's numbers are not as hashes are written, but as journals are."""


def clamp_us(time_us: int) -> int:
    """An event time that a double holds exactly."""
    return max(-LATEST_US, min(time_us, LATEST_US))


def pack_id(identity: int) -> bytes:
    """A cluster's id as the server holds it."""
    return identity.to_bytes(8, "big")


def pack_group(group: str) -> bytes:
    """A group as the server holds it."""
    return group.encode("utf-8", _GROUP_ERRORS)


def pack_partition(partition: Partition) -> bytes:
    """``number:source``."""
    return b"%d:%s" % (partition.number, source_name(partition.source))


def pack_position(position: Position) -> bytes:
    """``partition:offset:source``."""
    return b"%d:%d:%s" % (position.partition, position.offset, source_name(position.source))


def unpack_position(packed: bytes) -> Position:
    """The inverse of `pack_position`."""
    partition, offset, source = packed.split(b":", 2)
    return Position(source.decode("utf-8", "surrogateescape"), int(partition), int(offset))


def pack_settings(
    now_us: int, windows: Windows, summaries: Summaries, ttl_ms: int, max_clusters: int
) -> bytes:
    """What every script is told of its caller's clock and settings."""
    return SETTINGS.pack(
        now_us,
        min(windows.idle_us, LATEST_US),
        min(windows.max_age_us, LATEST_US),
        windows.quiet_after_us,
        -1 if summaries.every_us is None else min(summaries.every_us, LATEST_US),
        min(summaries.retention_us, LATEST_US),
        summaries.lease_us,
        ttl_ms,
        max_clusters,
    )


def unpack_resolutions(packed: bytes) -> tuple[list[Resolution], list[int | None]]:
    """The answers of ``resolve.lua``, and the cluster for which each query was inserted, if any."""
    resolutions: list[Resolution] = []
    inserted: list[int | None] = []
    for cluster, opened_us, last_us, distance, flags in RESOLUTION.iter_unpack(packed):
        new, recorded = flags & 1 == 1, flags & 2 == 2
        resolutions.append(
            Resolution(cluster, distance, new, int(opened_us), int(last_us), recorded)
        )
        inserted.append(cluster if flags & 4 else None)
    return resolutions, inserted


def add_up(deltas: Sequence[ClusterDelta]) -> Sequence[ClusterDelta]:
    """One delta a cluster: a batch may have come to one by two ways."""
    if len({delta.cluster for delta in deltas}) == len(deltas):
        return deltas
    added: dict[int, ClusterDelta] = {}
    for delta in deltas:
        one = added.get(delta.cluster)
        if one is None:
            added[delta.cluster] = replace(delta, samples=list(delta.samples))
            continue
        one.count += delta.count
        one.first_us = min(one.first_us, delta.first_us)
        one.last_us = max(one.last_us, delta.last_us)
        if one.representative is None:
            one.representative = delta.representative
        one.samples += delta.samples
    return list(added.values())


def pack_bare(deltas: Iterable[ClusterDelta]) -> tuple[bytes, list[ClusterDelta]]:
    """Tallies without values as ``record.lua`` takes them, one after the other; and the others."""
    pack, earliest = BARE_TALLY.pack, -LATEST_US
    packed, others = [], []
    for delta in deltas:
        first_us, last_us = delta.first_us, delta.last_us
        if delta.representative is not None or delta.samples:
            others.append(delta)
            continue
        if not earliest <= first_us <= last_us <= LATEST_US:
            first_us, last_us = clamp_us(first_us), clamp_us(last_us)
        identity = pack_id(delta.cluster)
        packed.append(pack(delta.count, first_us, last_us, identity, hexlify(identity)))
    return b"".join(packed), others


def pack_tally(delta: ClusterDelta, samples: int, max_bytes: int) -> list[bytes]:
    """A delta with values as ``record.lua`` takes it: numbers, id, representative, samples."""
    kept = [sample[:max_bytes] for sample in delta.samples[:samples]]
    representative = delta.representative
    settles = representative is not None
    first_us, last_us = clamp_us(delta.first_us), clamp_us(delta.last_us)
    numbers = TALLY.pack(delta.count, first_us, last_us, len(kept), settles)
    representative = representative[:max_bytes] if representative else b""
    return [numbers, pack_id(delta.cluster), representative, *kept]


class _Journal(NamedTuple):
    """A batch's decisions: those that differ, and which of them each offset has.

    Attributes:
        different: the decisions.
        offsets: of the events; the first alone where the others follow one by one.
        which: for each event the place of its decision: whole numbers of two bytes each, or of
            four where there are too many, little-endian.
    """

    different: list[tuple[str, int | None, int | None, bytes | None, str]]
    offsets: list[int]
    which: bytes


_encode_journal = msgspec.msgpack.Encoder().encode
_decode_journal = msgspec.msgpack.Decoder(_Journal).decode


def _width(different: int) -> str:
    """The type of a place among so many."""
    return "H" if different <= NARROW else "I"


def pack_journal(offsets: Sequence[int], decisions: Sequence[Decision]) -> bytes:
    """A batch's decisions; most events share one with others, so those that differ come first."""
    if not decisions:
        return b""
    values, places = dictionary_encode(decisions)
    different: list[tuple[str, int | None, int | None, bytes | None, str]] = [
        (
            kind,
            cluster,
            distance,
            None if fingerprint is None else fingerprint.to_bytes(16, "big").lstrip(b"\0"),
            reason,
        )
        for kind, cluster, distance, fingerprint, reason in values
    ]
    in_a_row = offsets[-1] - offsets[0] == len(offsets) - 1  # they ascend
    named = [offsets[0]] if in_a_row else list(offsets)
    return _encode_journal(_Journal(different, named, _little(places)))


def unpack_journal(packed: bytes) -> dict[int, Decision]:
    """The inverse of `pack_journal`."""
    journal = _decode_journal(packed)
    different = [
        Decision(
            Kind(kind),
            cluster,
            distance,
            None if fingerprint is None else int.from_bytes(fingerprint, "big"),
            reason,
        )
        for kind, cluster, distance, fingerprint, reason in journal.different
    ]
    places = array(_width(len(different)), journal.which)
    if not _SWAPS:
        places.byteswap()
    offsets: Sequence[int] = journal.offsets
    if len(offsets) < len(places):
        offsets = range(offsets[0], offsets[0] + len(places))
    return {offset: different[place] for offset, place in zip(offsets, places, strict=True)}


def _little(numbers: array[int]) -> bytes:
    if not _SWAPS:
        numbers.byteswap()
    return numbers.tobytes()


class Cluster(NamedTuple):
    """A cluster's numbers, as ``lua/_shard.lua`` names them; `events` is its COUNT."""

    opened_us: int
    last_us: int
    first_us: int
    latest_us: int
    events: int
    base: int
    told: int
    told_us: int
    revision: int
    until_us: int
    names: int
    searchable: int
    closed: int
    due: int
    samples: int
    on_its_way: int
    reopened: int
    renewed_s: int
    born: int
    recorded: int

    @property
    def closing(self) -> Closing | None:
        """Why it is closed; None while it is open, and of a tombstone."""
        return CLOSINGS.get(self.closed)

    @property
    def gone(self) -> bool:
        """Whether it is a tombstone."""
        return self.closed == GONE


def unpack_cluster(packed: bytes) -> Cluster:
    """The field ``n`` of a cluster."""
    return Cluster._make(map(int, CLUSTER.unpack(packed)))


def unpack_summary(answer: Sequence[bytes]) -> Summary:
    """A summary as ``claim.lua`` hands it out."""
    identity, snapshot, position, group, representative, *samples = answer
    revision, count, new_count, first_us, latest_us, closing, _, _ = SNAPSHOT.unpack(snapshot)
    return Summary(
        cluster=int.from_bytes(identity, "big"),
        revision=int(revision),
        closing=CLOSINGS.get(closing),
        count=int(count),
        new_count=int(new_count),
        first_time_us=int(first_us),
        last_time_us=int(latest_us),
        position=unpack_position(position),
        representative=representative,
        samples=tuple(samples),
        group=group.decode("utf-8", _GROUP_ERRORS),
    )


class Entry(NamedTuple):
    """What leads to a cluster: an exact hash, and a fingerprint if it stands in the tables."""

    raw: bytes
    exact: bytes
    fingerprint: int
    searchable: bool


def unpack_entries(packed: bytes, width: int) -> tuple[bytes, list[Entry]]:
    """The group's hash and the entries of a cluster's field ``a``."""
    size = 8 + width // 8 + 1
    group, rest = packed[:4], packed[4:]
    entries = []
    for start in range(0, len(rest), size):
        raw = rest[start : start + size]
        fingerprint = int.from_bytes(raw[8:-1], "big")
        entries.append(Entry(raw, raw[:8], fingerprint, raw[-1] == 1))
    return group, entries
