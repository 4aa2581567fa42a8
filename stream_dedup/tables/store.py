"""The tables in memory: insert, delete, and find every fingerprint within k bits.

Native, or in plain Python; both keep each table as buckets of equal prefixes. A stored fingerprint
is an *entry* with a *group* (only equal groups are compared) and an *owner* (its cluster), both
small integers that the caller assigns.

Tables of bands find equal keys instead: a fingerprint is cut into keys, and near is what shares one
of them in the same place. A key's members are limited (the *crowd*): what does not fit is not found
by this key.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, zip_longest
from typing import NamedTuple, Protocol

from stream_dedup.native import native_or
from stream_dedup.tables import sketches as sketching
from stream_dedup.tables.permutation import Layout


class Found(NamedTuple):
    """The result of a query.

    Attributes:
        owners: owner of each entry within k bits; an owner may occur several times.
        distances: distance of each of these entries from the query.
        candidates: number of entries compared.
        truncated: whether the limit on candidates ended the search early.
    """

    owners: list[int]
    distances: list[int]
    candidates: int
    truncated: bool


class Similar(NamedTuple):
    """Who shares a key with an event and is alike.

    Attributes:
        owners: of entries that share a key, those whose sketch is alike or not known; an owner of
            several entries may be there several times.
        shared: how many entries have each of the keys, alike or not.
    """

    owners: list[int]
    shared: list[int]


class Tables(Protocol):
    """Stored fingerprints, found by distance. Threads that share it need a lock.

    Attributes:
        crowded: inserts that left out more than half of the keys because they lead to crowds; of
            bands alone.
    """

    crowded: int

    def __init__(self, layout: Layout) -> None: ...

    def __len__(self) -> int:
        """Return the number of entries."""

    def insert(self, fingerprint: int, group: int, owner: int) -> int:
        """Store a fingerprint in every table; return the entry's number, for `delete`."""

    def delete(self, entry: int) -> None:
        """Remove an entry from every table.

        Raises:
            KeyError: there is no such entry.
        """

    def fingerprint(self, entry: int) -> int:
        """Return the fingerprint of an entry.

        Raises:
            KeyError: there is no such entry.
        """

    def query(self, fingerprint: int, group: int, max_candidates: int) -> Found:
        """Find all entries of `group` within k bits, comparing at most `max_candidates`.

        If there are more, the newest of each table are compared.
        """

    def nbytes(self) -> int:
        """Return the memory used, in bytes; the reference estimates it."""


class BandTables(Tables, Protocol):
    """Tables of bands, which compare sketches too."""

    def similar(
        self, fingerprint: int, group: int, sketch: bytes, sketches: list[bytes], jaccard: float
    ) -> Similar:
        """Find the entries that share a key and whose sketches are alike.

        Args:
            fingerprint: of the event.
            group: only its entries are compared.
            sketch: of the event.
            sketches: of each owner; empty if it is not known, and then it counts as alike.
            jaccard: the recipe's threshold; with few features it is higher (`sketches.threshold`).
        """


class ReferenceTables:
    """Tables as dictionaries of buckets; see `Tables` for the methods."""

    crowded = 0

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._buckets: dict[tuple[int, int, int], dict[int, None]] = {}
        self._entries: dict[int, tuple[int, int, int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, fingerprint: int, group: int, owner: int) -> int:
        entry = self._next
        self._next += 1
        self._entries[entry] = (fingerprint, group, owner)
        for bucket in self._buckets_of(fingerprint, group):
            self._buckets.setdefault(bucket, {})[entry] = None
        return entry

    def delete(self, entry: int) -> None:
        fingerprint, group, _ = self._entries.pop(entry)
        for bucket in self._buckets_of(fingerprint, group):
            del self._buckets[bucket][entry]
            if not self._buckets[bucket]:
                del self._buckets[bucket]

    def fingerprint(self, entry: int) -> int:
        return self._entries[entry][0]

    def query(self, fingerprint: int, group: int, max_candidates: int) -> Found:
        near: dict[int, int] = {}
        buckets = (self._buckets.get(b, {}) for b in self._buckets_of(fingerprint, group))
        steps = zip_longest(*map(reversed, buckets))
        found = (entry for step in steps for entry in step if entry is not None)
        candidates = 0
        for entry in islice(found, max_candidates):
            candidates += 1
            distance = (self._entries[entry][0] ^ fingerprint).bit_count()
            if distance <= self._layout.k:
                near[entry] = distance
        truncated = next(found, None) is not None
        owners = [self._entries[entry][2] for entry in near]
        return Found(owners, list(near.values()), candidates, truncated)

    def nbytes(self) -> int:
        return 250 * len(self._entries) * self._layout.tables

    def _buckets_of(self, fingerprint: int, group: int) -> Iterable[tuple[int, int, int]]:
        masks = self._layout.masks
        return ((table, group, fingerprint & mask) for table, mask in enumerate(masks))


class Bands(NamedTuple):
    """What fingerprints of bands are made of.

    Attributes:
        keys: of a fingerprint; the first is the highest.
        key_bytes: their size.
        crowd: entries that a key leads to, at most.
    """

    keys: int
    key_bytes: int
    crowd: int


class ReferenceBandTables:
    """Tables of bands as dictionaries; see `Tables` for the methods.

    A distance is the number of keys under which an owner was not found. An entry whose owner has
    another one with an equal key does not count for this key, and each owner is found once. All
    that a key leads to is found, whatever `max_candidates` says: that is bounded.
    """

    def __init__(self, bands: Bands) -> None:
        self.crowded = 0
        self._bands = bands
        self._owners: dict[tuple[int, int, bytes], dict[int, int]] = {}  # → entry of each owner
        self._entries: dict[int, tuple[int, int, int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, fingerprint: int, group: int, owner: int) -> int:
        entry = self._next
        self._next += 1
        self._entries[entry] = (fingerprint, group, owner)
        left_out = 0
        for key in self._keys_of(fingerprint, group):
            owners = self._owners.setdefault(key, {})
            if len(owners) < self._bands.crowd:
                owners.setdefault(owner, entry)
            left_out += owner not in owners
        self.crowded += left_out > self._bands.keys / 2
        return entry

    def delete(self, entry: int) -> None:
        fingerprint, group, owner = self._entries.pop(entry)
        for key in self._keys_of(fingerprint, group):
            owners = self._owners.get(key, {})
            if owners.get(owner) == entry:
                del owners[owner]
            if not owners:
                self._owners.pop(key, None)

    def fingerprint(self, entry: int) -> int:
        return self._entries[entry][0]

    def query(self, fingerprint: int, group: int, max_candidates: int) -> Found:
        del max_candidates
        found: dict[int, int] = {}
        candidates = 0
        for key in self._keys_of(fingerprint, group):
            for owner in self._owners.get(key, ()):
                candidates += 1
                found[owner] = found.get(owner, self._bands.keys) - 1
        return Found(list(found), list(found.values()), candidates, truncated=False)

    def similar(
        self, fingerprint: int, group: int, sketch: bytes, sketches: list[bytes], jaccard: float
    ) -> Similar:
        owners: dict[int, None] = {}
        shared = []
        for key in self._keys_of(fingerprint, group):
            members = self._owners.get(key, {})
            shared.append(len(members))
            owners |= dict.fromkeys(members)
        few = sketching.features(sketch)
        alike = [
            owner
            for owner in owners
            for theirs in (sketches[owner],)
            if not theirs
            or sketching.reference_jaccard(sketch, theirs)
            >= sketching.threshold(jaccard, min(few, sketching.features(theirs)))
        ]
        return Similar(alike, shared)

    def nbytes(self) -> int:
        return 250 * len(self._entries) * self._bands.keys

    def _keys_of(self, fingerprint: int, group: int) -> Iterable[tuple[int, int, bytes]]:
        count, size, _ = self._bands
        data = fingerprint.to_bytes(count * size, "big")
        return ((band, group, data[band * size : (band + 1) * size]) for band in range(count))


def make_band_tables(bands: Bands) -> BandTables:
    """Make the native tables of bands, or the reference where they are not used."""
    return native_or("tables._native", "NativeBandTables", ReferenceBandTables)(bands)


def make_tables(layout: Layout) -> Tables:
    """Make the native tables, or the reference where they are not used."""
    return native_or("tables._native", "NativeTables", ReferenceTables)(layout)
