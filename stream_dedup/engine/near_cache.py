"""The near cache: what the index decided once for an exact hash, kept in process.

In a storm of equal lines nearly every event ends here, so a look-up is one dictionary access.

Two generations bound it: look-ups go to the recent one, then to the older one, from which a find
moves up. When the recent one is full it becomes the older, and what was in the older and not
asked for since is forgotten. That is nearly "least recently used", with no work on a hit.

What is cached holds only as long as the cluster is live for certain: `live` tells, and `forget`
ends it when the index reports the cluster closed.
"""

from __future__ import annotations

from stream_dedup.clustering.windows import Windows
from stream_dedup.index.base import Resolution
from stream_dedup.model import Decision

DEAD_US = -(1 << 62)
"""Before every event time."""

Key = int | tuple[str, int]
"""An exact hash, with its group if it has one."""


class Known:
    """A cluster as far as this process knows it.

    Attributes:
        cluster: its id.
        opened_us: event time at which it was opened.
        last_us: event time at which it was last seen; whoever sees it later raises it.
        live_until_us: it is live until then for certain, and longer where it was seen since.
        samples: how many more samples this process adds to it.
    """

    __slots__ = ("cluster", "last_us", "live_until_us", "opened_us", "samples")

    def __init__(self, cluster: int, opened_us: int, last_us: int, samples: int) -> None:
        self.cluster = cluster
        self.opened_us = opened_us
        self.last_us = last_us
        self.live_until_us = DEAD_US
        self.samples = samples


class Near:
    """An exact hash's cluster, and the decision for its further events."""

    __slots__ = ("decision", "known")

    def __init__(self, known: Known, decision: Decision) -> None:
        self.known = known
        self.decision = decision


class NearCache:
    """Maps exact hashes to clusters.

    Args:
        windows: when clusters are live.
        size: exact hashes kept, at the least; up to twice as many are. 0 keeps none.
        samples: samples that this process adds to a cluster.
    """

    def __init__(self, windows: Windows, size: int, samples: int) -> None:
        self._windows = windows
        self._size = size
        self._samples = samples
        self.recent: dict[Key, Near] = {}
        self.older: dict[Key, Near] = {}
        self._clusters: dict[int, Known] = {}

    def __len__(self) -> int:
        return len(self.recent) + len(self.older)

    def find(self, key: Key) -> Near | None:
        """A look-up in both generations; what the older one holds moves up."""
        near = self.recent.get(key)
        if near is None and self.older:
            near = self.older.pop(key, None)
            if near is not None:
                self._put(key, near)
        return near

    def learn(self, key: Key, answer: Resolution, decision: Decision) -> Near:
        """Keep what the index answered, unless it may be another's to be told first.

        Of a cluster whose representative is not recorded nothing is kept, but by who opened it: the
        representative may come again, to somebody else, and is to be found new.
        """
        cluster, _, new, opened_us, last_us, recorded = answer
        known = self._clusters.get(cluster)
        if not (new or recorded):
            known = known or Known(cluster, opened_us, last_us, self._samples)
            known.live_until_us = max(
                known.live_until_us, self._windows.expires_us(opened_us, last_us)
            )
            return Near(known, decision)
        if known is None:
            known = self._clusters[cluster] = Known(cluster, opened_us, last_us, self._samples)
        known.opened_us = opened_us
        known.last_us = max(known.last_us, last_us)
        known.live_until_us = self._windows.expires_us(opened_us, known.last_us)
        near = Near(known, decision)
        self._put(key, near)
        return near

    def live(self, known: Known, time_us: int) -> bool:
        """Whether a cluster takes an event of that time, for certain."""
        if time_us <= known.live_until_us:
            return True
        if known.live_until_us == DEAD_US:
            return False
        # It may have been seen since that was worked out.
        until_us = self._windows.expires_us(known.opened_us, known.last_us)
        known.live_until_us = max(known.live_until_us, until_us)
        return time_us <= known.live_until_us

    def forget(self, cluster: int) -> None:
        """The cluster is closed: its exact hashes are to be asked for again."""
        known = self._clusters.pop(cluster, None)
        if known is not None:
            known.live_until_us = DEAD_US

    def clear(self) -> None:
        """The index has lost its clusters: forget them all."""
        for cluster in list(self._clusters):
            self.forget(cluster)
        self.recent.clear()
        self.older.clear()

    def _put(self, key: Key, near: Near) -> None:
        if not self._size:
            self._clusters.clear()
            return
        if len(self.recent) >= self._size:
            self.older = self.recent
            self.recent = {}
            kept = (*(other.known for other in self.older.values()), near.known)
            # What is dead must not stand in for a cluster that was opened again.
            self._clusters = {
                known.cluster: known for known in kept if known.live_until_us != DEAD_US
            }
        self.recent[key] = near
