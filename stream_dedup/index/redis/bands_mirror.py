"""The mirror where fingerprints are the keys of bands; see `mirror` for the theory of operation.

Of those who share a key with an event most are strangers, and reading a cluster costs Redis more
than searching a table. So this mirror compares sketches too, and sends only clusters that may admit
the event: those whose sketch does, and those whose sketch it does not know, as another process has
opened them since this one read the shard. It compares all, so `max_verified` leaves out none. What
it has found it sends along with the sketch, so that the script need not compare the two again where
the cluster still has that one.

An entry that is about to be inserted has the tables searched only for events that its sketch may
admit: other events have nothing to do with its cluster.

A key that is full gets no more members, and only the tables know whether it is. So the mirror names
the keys that have as many entries here, and the script counts them if it opens a cluster. Where a
key has very many, some may be missing here, and the tables are searched.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable
from struct import Struct

from stream_dedup.clustering.linkage import Linkage
from stream_dedup.fingerprint.bands import BANDS, BITS, CROWD, KEY_BYTES
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.mirror import UNKNOWN, Mirror, searched
from stream_dedup.tables import sketches
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.store import Bands, BandTables, make_band_tables

LARGEST_CROWD = 64 * CROWD
"""Entries of a key that are kept; where there are as many, some may be missing."""

MOST_SENT = 4 * CROWD
"""Clusters sent with an event; where there are more, the tables are searched."""

CLUSTERS_READ = 64
"""Clusters read in a round trip, so that other clients do not wait long."""

_pack_sketch, _unpack_sketch = sketches.fastest_pack(), sketches.fastest_unpack()
_MIRRORED = Struct(f">Q{BITS // 8}sdH")

_EACH_KEY = Struct(f"{KEY_BYTES}s" * BANDS)

Held = tuple[int, int, int, bytes]
"""Group, fingerprint, cluster and sketch (empty if it is not known) of an entry."""


class BandsMirror(Mirror):
    """A copy of what the tables of a shard hold, and of the sketches as far as they are known.

    Entries that are about to be inserted are kept apart, as they may have to be removed: a full key
    may have left out others meanwhile.

    Args:
        linkage: decides whether a cluster may admit an event.
    """

    _tables: BandTables
    _linkage: Linkage

    def __init__(self, linkage: Linkage) -> None:
        super().__init__(
            Layout(BITS, BANDS - 1, BANDS), max_candidates=BANDS * CROWD, linkage=linkage
        )
        self._expected: dict[int, tuple[int, int, bytes]] = {}
        self._expected_by_key: dict[bytes, set[int]] = {}
        self._expected_number = 0

    @staticmethod
    def make_tables(layout: Layout) -> BandTables:
        return make_band_tables(Bands(layout.blocks, KEY_BYTES, LARGEST_CROWD))

    def take_clusters(self, held: Iterable[Held]) -> None:
        """Add clusters with their sketches."""
        for group, fingerprint, cluster, sketch in held:
            self._insert(group, fingerprint, cluster, sketch)

    def near(self, group: int, fingerprint: int, sketch: bytes = b"", call: int = 0) -> bytes:
        del call
        expected = [self._expected_by_key.get(key, ()) for key in _keys(group, fingerprint)]
        if any(self._may_admit(self._expected[one][2], sketch) for one in set().union(*expected)):
            return UNKNOWN
        owners, shared = self._tables.similar(
            fingerprint, group, sketch, self._sketches, self._linkage.least
        )
        if max(shared) >= LARGEST_CROWD or len(owners) > MOST_SENT:
            return UNKNOWN
        full = 0
        for number, pending in zip(shared, expected, strict=True):
            full = 2 * full + (number + len(pending) >= CROWD)
        if not owners and not full:
            return b""
        found = {self._owners[owner]: self._sketches[owner] for owner in owners}
        crowds = layouts.IN_TABLES.struct.pack(full)
        return crowds + b"".join(self._mirrored(*each, sketch) for each in found.items())

    def _mirrored(self, entry: tuple[int, bytes], theirs: bytes, sketch: bytes) -> bytes:
        similarity = self._linkage.jaccard(theirs, sketch) if theirs else 0
        packed = _pack_sketch(theirs)
        head = _MIRRORED.pack(*entry, similarity, len(packed))
        return head + packed

    def expect(
        self, group: int, fingerprint: int, sketch: bytes = b"", call: int = 0
    ) -> tuple[int, int]:
        del call
        self._expected_number += 1
        self._expected[self._expected_number] = (group, fingerprint, sketch)
        for key in _keys(group, fingerprint):
            self._expected_by_key.setdefault(key, set()).add(self._expected_number)
        return self._expected_number, 0

    def assign(self, held: tuple[int, int], cluster: int | None, *, opened: bool = False) -> None:
        del opened  # no other query's keys are inserted
        group, fingerprint, sketch = self._expected.pop(held[0])
        for key in _keys(group, fingerprint):
            self._expected_by_key[key].remove(held[0])
            if not self._expected_by_key[key]:
                del self._expected_by_key[key]
        if cluster is not None:
            self._insert(group, fingerprint, cluster, sketch)

    def _may_admit(self, theirs: bytes, sketch: bytes) -> bool:
        linkage = self._linkage
        return linkage.admits(theirs, sketch, linkage.jaccard(theirs, sketch), 0)


def _keys(group: int, fingerprint: int) -> list[bytes]:
    """The keys of a fingerprint, each with its band and the group."""
    start = group.to_bytes(2, "big")
    keys = _EACH_KEY.unpack(fingerprint.to_bytes(BITS // 8, "big"))
    return [b"%c%b%b" % (band, start, key) for band, key in enumerate(keys)]


async def read_clusters(
    client: RedisClient, shard: ShardKeys, mirror: BandsMirror, layout: NamespaceLayout
) -> AsyncIterator[None]:
    """Have a mirror take the open clusters of a shard that its tables hold."""
    async for found in client.open_clusters(shard, CLUSTERS_READ):
        for start in range(0, len(found), CLUSTERS_READ):
            identities = found[start : start + CLUSTERS_READ]
            commands = [searched(shard, each) for each in identities]
            answers = await client.many(shard.meta, commands)
            mirror.take_clusters(
                held
                for identity, stored in zip(identities, answers, strict=True)
                if stored  # else it is gone meanwhile
                for held in _held(identity, stored, layout)
            )
            yield


def _held(identity: bytes, stored: bytes, layout: NamespaceLayout) -> list[Held]:
    """What leads to a cluster: nothing if it is closed, has too few words, or is damaged."""
    try:
        if not codec.unpack_cluster(stored).open:
            return []
        sketch, names = codec.unpack_searched(stored)
        group, (first, *_) = codec.unpack_names(names, layout)
        whole = _unpack_sketch(sketch)
    except (ValueError, OverflowError, struct.error):
        return []  # else nobody could read the others; `index check` names it
    if not first.searchable or first.fingerprint is None:
        return []
    low = int.from_bytes(group[-layouts.LOW_GROUP_BYTES :], "big")
    return [(low, first.fingerprint, int.from_bytes(identity, "big"), whole)]
