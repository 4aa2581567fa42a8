"""Which events are kept as a random sample of their cluster, so that summaries can count values.

Problem: a sample that is to say how often a value occurs has to be random, though many workers
share a cluster, events are delivered again, and a batch may be decided twice.

Idea: an event's *priority* is a hash of its position. A cluster keeps the events of least priority,
`Summaries.values` of them (bottom-k sampling). Whoever offers an event twice, or in another order,
changes nothing; and the sample of two clusters that merge is the least of both samples. Only events
below a bound are offered, one in `Summaries.values_every`, so the others cost one hash.

The process remembers the priorities that it has offered for a cluster, and offers no event that
they exclude. If it has forgotten them, it offers such an event, and the index rejects it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.columnar import rows_by_chance
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.index.base import ClusterDelta
from stream_dedup.model import Decision, Partition

MAX_OFFERED_BYTES = 1 << 19
"""Of a commit: as much as some two fifths of what it may hold besides (`index.base.MAX_DELTAS`)."""

MAX_CLUSTERS = 50_000
"""Clusters whose priorities are remembered; some 40 bytes for each event of their samples."""


class Sampler:
    """Chooses the events of commits that are offered to their clusters' samples.

    Args:
        summaries: how many are kept, and of how many.
    """

    def __init__(self, summaries: Summaries) -> None:
        self._summaries = summaries
        self._below = 2**64 // summaries.values_every
        self._offered: dict[int, list[int]] = {}
        self._seeds: dict[Partition, int] = {}

    def add(
        self,
        deltas: Sequence[ClusterDelta],
        partition: Partition,
        offsets: Sequence[int],
        decisions: Sequence[Decision],
        values: Sequence[bytes],
    ) -> None:
        """Add the events to offer to the deltas of a commit.

        Args:
            deltas: one for each cluster.
            partition: where the events come from.
            offsets: their offsets.
            decisions: what was decided for them.
            values: their values.
        """
        found = rows_by_chance(offsets, self._seed(partition), self._below)
        if not found:
            return
        offered, size = self._offered, self._summaries.values
        if len(offered) > MAX_CLUSTERS:
            offered.clear()
        delta_of = {delta.cluster: delta for delta in deltas}
        for delta in deltas:
            if delta.representative is not None:
                offered.pop(delta.cluster, None)
        chosen: dict[int, list[tuple[int, bytes]]] = {}
        most, kept, total = self._summaries.max_kept_value, self._summaries.kept_value, 0
        for row, priority in found:
            cluster = decisions[row].cluster
            if cluster is None or cluster not in delta_of:
                continue
            priorities = offered.get(cluster)
            if priorities is None:
                offered[cluster] = [priority]
            elif len(priorities) < size or priority <= priorities[-1]:
                place = bisect_left(priorities, priority)
                if place == len(priorities) or priorities[place] != priority:
                    priorities.insert(place, priority)
                    del priorities[size:]
            else:
                continue
            value = values[row]
            if len(value) > most or b"\n" in value:
                value = kept(value)
            total += len(value)
            event = priority, value
            if cluster in chosen:
                chosen[cluster].append(event)
            else:
                chosen[cluster] = [event]
        for cluster, events in chosen.items():
            if len(events) > 1:
                events.sort()
                del events[size:]
            delta_of[cluster].sampled = events
        if total > MAX_OFFERED_BYTES:
            _limit([delta_of[cluster] for cluster in chosen])
            for cluster, events in chosen.items():
                left_out = {priority for priority, _ in events[len(delta_of[cluster].sampled) :]}
                if left_out:
                    offered[cluster] = [each for each in offered[cluster] if each not in left_out]

    def clear(self) -> None:
        """Forget everything: the index lost its data."""
        self._offered.clear()

    def _seed(self, partition: Partition) -> int:
        seed = self._seeds.get(partition)
        if seed is None:
            name = f"{partition.number}:{partition.source}".encode("utf-8", "surrogatepass")
            seed = self._seeds[partition] = hash128(name, 0)[0]
        return seed


def _limit(deltas: Sequence[ClusterDelta]) -> None:
    """Leave out the events of greatest priority, of all clusters alike: they are too large."""
    room, last = MAX_OFFERED_BYTES, 0
    for priority, value in sorted(event for delta in deltas for event in delta.sampled):
        room -= len(value)
        if room < 0:
            break
        last = priority
    for delta in deltas:
        delta.sampled = [event for event in delta.sampled if event[0] <= last]
