"""What goes over the wire: how queries, tallies, decisions and clusters are packed.

The scripts unpack the same: ``lua/_shard.lua`` describes a cluster's fields. Numbers are doubles,
exact to 2^53; ids, hashes, fingerprints and sketches are bytes, big-endian, so that no script ever
makes a number of them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.index.base import Resolution, Tally
from stream_dedup.index.redis.keys import source_name
from stream_dedup.model import Closing, Decision, Kind, Position, Summary

LATEST_US = 1 << 52
"""Event times and durations are clamped to this, some 142 years: sums of two stay exact."""

SETTINGS = Struct("<9d")
RULES = Struct("<9d")
TIMES = Struct("<2d")
BATCH = Struct("<8d")
TALLY = Struct("<3dHB")
RESOLUTION = Struct("<8sddBB")
CLUSTER = Struct("<10d2H5B2IB")
SNAPSHOT = Struct("<5d3B")

CLOSINGS = {1: Closing.EXPIRED, 2: Closing.EVICTED, 3: Closing.ENDED}
GONE = 4
"""The closing of a tombstone."""

_GROUP_ERRORS = "surrogatepass"
_SWAPS = sys.byteorder == "little"


def clamp_us(time_us: int) -> int:
    """An event time that a double holds exactly."""
    return max(-LATEST_US, min(time_us, LATEST_US))


def pack_id(identity: int) -> bytes:
    """A cluster's id as the server holds it."""
    return identity.to_bytes(8, "big")


def pack_group(group: str) -> bytes:
    """A group as the server holds it."""
    return group.encode("utf-8", _GROUP_ERRORS)


def swap_sketch(sketch: bytes) -> bytes:
    """A sketch with its hashes turned from the machine's byte order to big-endian, or back."""
    if not _SWAPS:
        return sketch
    hashes = array("Q", sketch)
    hashes.byteswap()
    return hashes.tobytes()


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


def unpack_resolutions(packed: bytes) -> Iterator[Resolution]:
    """The answers of ``resolve.lua``."""
    for identity, opened_us, last_us, distance, flags in RESOLUTION.iter_unpack(packed):
        yield Resolution(
            int.from_bytes(identity, "big"),
            distance,
            bool(flags & 1),
            int(opened_us),
            int(last_us),
            bool(flags & 2),
        )


def pack_tally(tally: Tally, samples: int, max_bytes: int) -> list[bytes]:
    """A tally as ``record.lua`` takes it: numbers, id, representative, samples."""
    first_us, last_us = tally.first_us, tally.last_us
    if not -LATEST_US <= first_us <= last_us <= LATEST_US:
        first_us, last_us = clamp_us(first_us), clamp_us(last_us)
    kept = tally.samples
    if kept:
        kept = [sample[:max_bytes] for sample in kept[:samples]]
    representative = tally.representative
    settles = representative is not None
    numbers = TALLY.pack(tally.count, first_us, last_us, len(kept), settles)
    representative = representative[:max_bytes] if representative else b""
    return [numbers, tally.cluster.to_bytes(8, "big"), representative, *kept]


class _Journal(NamedTuple):
    """A batch's decisions: those that differ, and for each offset which it is."""

    different: list[tuple[str, int | None, int | None, bytes | None, str]]
    offsets: list[int]
    which: list[int]


_encode_journal = msgspec.msgpack.Encoder().encode
_decode_journal = msgspec.msgpack.Decoder(_Journal).decode


def pack_journal(decisions: Mapping[int, Decision]) -> bytes:
    """A batch's decisions; most events share one with others, so those that differ come first."""
    if not decisions:
        return b""
    ids = list(map(id, decisions.values()))
    by_id = dict(zip(ids, decisions.values(), strict=True))
    different: list[tuple[str, int | None, int | None, bytes | None, str]] = []
    for kind, cluster, distance, fingerprint, reason in by_id.values():
        packed = None if fingerprint is None else fingerprint.to_bytes(16, "big").lstrip(b"\0")
        different.append((kind.value, cluster, distance, packed, reason))
    places = {number: place for place, number in enumerate(by_id)}
    which = list(map(places.__getitem__, ids))
    return _encode_journal(_Journal(different, list(decisions), which))


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
    return {
        offset: different[place]
        for offset, place in zip(journal.offsets, journal.which, strict=True)
    }


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
    settled: int

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
