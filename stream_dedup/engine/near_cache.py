"""The near cache: clusters that the index decided lately, kept in process by exact hash.

In a log storm nearly every event is decided here, so a look-up is one dictionary access.

Two generations bound the cache. A look-up tries the recent one, then the older one, from which a
hit moves to the recent one. When the recent generation is full it becomes the older one, and the
entries of the former older one that were not used meanwhile are dropped. This is close to "least
recently used" and costs nothing on a hit.

An entry is valid only while its cluster is certainly live: see `NearCache.is_live` and
`NearCache.forget`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from stream_dedup.clustering.windows import Windows
from stream_dedup.columnar import dictionary_encode, encode_numbers, rows_of, take
from stream_dedup.index.base import Resolution
from stream_dedup.model import Decision

CLOSED_US = -(1 << 62)
"""Before every event time: `CachedCluster.live_until_us` of a forgotten cluster."""

Key = int | tuple[str, int]
"""An exact hash, with its group if it has one."""


class CachedCluster(msgspec.Struct, eq=False, gc=False):
    """What this process knows about a cluster.

    Attributes:
        cluster_id: its id.
        opened_us: event time at which it was opened.
        last_us: event time at which it was last seen.
        samples_wanted: how many more samples this process adds to it.
        live_until_us: it is certainly live until then, and longer if it was seen since.
        learned: what its pattern had learned when the index was asked last.
        template: the id of its template then; None if nobody asks for it.
    """

    cluster_id: int
    opened_us: int
    last_us: int
    samples_wanted: int
    live_until_us: int = CLOSED_US
    learned: int = 0
    template: int | None = None

    @property
    def forgotten(self) -> bool:
        """Whether the cache no longer vouches for it."""
        return self.live_until_us == CLOSED_US

    def seen(self, last_us: int) -> None:
        """Note that events joined it, the latest at `last_us`."""
        self.last_us = max(self.last_us, last_us)

    def take_sample(self) -> bool:
        """Return whether a sample is wanted; if so, one less is wanted from now on."""
        if not self.samples_wanted:
            return False
        self.samples_wanted -= 1
        return True


class CachedDecision(msgspec.Struct, eq=False, gc=False):
    """The cluster of an exact hash, and the decision for further events with that hash."""

    cluster: CachedCluster
    decision: Decision


class Lookup(NamedTuple):
    """The result of a look-up, dictionary-encoded (see `columnar`).

    Attributes:
        entries: the different entries found; None represents all keys not found.
        codes: for each key, where its entry is in `entries`.
    """

    entries: list[CachedDecision | None]
    codes: array[int]


class NearCache:
    """Maps exact hashes to clusters.

    Args:
        windows: when clusters are live.
        size: exact hashes kept in a generation; 0 keeps none.
        samples: samples that this process adds to a cluster.
    """

    def __init__(self, windows: Windows, size: int, samples: int) -> None:
        self._windows = windows
        self._size = size
        self._samples = samples
        self._recent: dict[Key, CachedDecision] = {}
        self._older: dict[Key, CachedDecision] = {}
        self._clusters: dict[int, CachedCluster] = {}

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def get(self, key: Key) -> CachedDecision | None:
        """Look up the key of one event."""
        entry = self._recent.get(key)
        return self._promote(key) if entry is None and self._older else entry

    def look_up(self, keys: Sequence[Key]) -> Lookup:
        """Look up the keys of many events."""
        if isinstance(keys, array):
            distinct, codes = encode_numbers(keys)
            column = take(list(map(self._recent.get, distinct)), codes)
        else:
            column = list(map(self._recent.get, keys))
        lookup = Lookup(*dictionary_encode(column))
        if not self._older or None not in lookup.entries:
            return lookup
        missing = rows_of(lookup.codes, [entry is None for entry in lookup.entries])
        older = [self._promote(keys[row]) for row in missing]
        if not any(older):
            return lookup
        for row, entry in zip(missing, older, strict=True):
            column[row] = entry
        return Lookup(*dictionary_encode(column))

    def _promote(self, key: Key) -> CachedDecision | None:
        """Move an entry of the older generation to the recent one."""
        entry = self._older.pop(key, None)
        if entry is None:
            return self._recent.get(key)  # there since an equal key before this one
        self._put(key, entry)
        return entry

    def join(
        self, entries: Sequence[CachedDecision | None], spans: Sequence[tuple[int, int, int]]
    ) -> list[bool]:
        """Let all events of an entry join its cluster at once, where that needs no closer look.

        A closer look is needed if the cluster may have closed between two of the events, or still
        wants samples; then all entries of that cluster are left.

        Args:
            entries: of a look-up.
            spans: of each its number of events, and their earliest and latest time.

        Returns:
            For each entry whether its events remain, because they did not join.
        """
        is_live = self.is_live
        singly = {
            cluster
            for entry, (_, _, last_us) in zip(entries, spans, strict=True)
            if entry
            and (
                (cluster := entry.cluster).samples_wanted
                or (last_us > cluster.live_until_us and not is_live(cluster, last_us))
            )
        }
        remaining = []
        for entry, (_, _, last_us) in zip(entries, spans, strict=True):
            if entry is None or (cluster := entry.cluster) in singly:
                remaining.append(True)
            else:
                remaining.append(False)
                if last_us > cluster.last_us:  # noqa: PLR1730 -- max() costs a call here
                    cluster.last_us = last_us
        return remaining

    def template(self, cluster_id: int, learned: int) -> int | None:
        """Return the id of a cluster's template, if it is known for what has been learned."""
        cluster = self._clusters.get(cluster_id)
        return cluster.template if cluster is not None and cluster.learned == learned else None

    def store(self, key: Key, resolution: Resolution, decision: Decision) -> CachedDecision:
        """Keep what the index answered, and return it.

        If the cluster has another template than before, or was opened again, what was kept for it
        is forgotten: it is of the former one.

        A cluster whose representative is not recorded yet is kept only by the process that opened
        it. Otherwise the representative, delivered again to another process, could be decided
        there as a duplicate of itself.
        """
        cluster_id, _, new, opened_us, last_us, recorded, _, learned = resolution
        cluster = self._clusters.get(cluster_id)
        if not (new or recorded):
            cluster = cluster or CachedCluster(cluster_id, opened_us, last_us, self._samples)
            until_us = self._windows.expires_us(opened_us, last_us)
            cluster.live_until_us = max(cluster.live_until_us, until_us)
            return CachedDecision(cluster, decision)
        if cluster is not None and (
            new or (cluster.template, cluster.opened_us) != (decision.template, opened_us)
        ):
            self.forget((cluster_id,))
            cluster = None
        if cluster is None:
            cluster = CachedCluster(cluster_id, opened_us, last_us, self._samples)
            self._clusters[cluster_id] = cluster
        cluster.learned, cluster.template = learned, decision.template
        cluster.opened_us = opened_us
        cluster.seen(last_us)
        cluster.live_until_us = self._windows.expires_us(opened_us, cluster.last_us)
        entry = CachedDecision(cluster, decision)
        self._put(key, entry)
        return entry

    def is_live(self, cluster: CachedCluster, time_us: int) -> bool:
        """Return whether a cluster certainly takes an event of that time."""
        if time_us <= cluster.live_until_us:
            return True
        if cluster.forgotten:
            return False
        # The cluster may have been seen since `live_until_us` was computed.
        until_us = self._windows.expires_us(cluster.opened_us, cluster.last_us)
        cluster.live_until_us = max(cluster.live_until_us, until_us)
        return time_us <= cluster.live_until_us

    def forget(self, cluster_ids: Iterable[int]) -> None:
        """Invalidate clusters, for example because they closed: the index is asked again."""
        for cluster_id in cluster_ids:
            cluster = self._clusters.pop(cluster_id, None)
            if cluster is not None:
                cluster.live_until_us = CLOSED_US

    def clear(self) -> None:
        """Forget everything: the index lost its data."""
        self.forget(list(self._clusters))
        self._recent.clear()
        self._older.clear()

    def _put(self, key: Key, entry: CachedDecision) -> None:
        if not self._size:
            self._clusters.clear()
            return
        if len(self._recent) >= self._size:
            self._older, self._recent = self._recent, {}
            kept = (*(other.cluster for other in self._older.values()), entry.cluster)
            # A forgotten cluster must not hide one that was opened again under the same id.
            self._clusters = {
                cluster.cluster_id: cluster for cluster in kept if not cluster.forgotten
            }
        self._recent[key] = entry
