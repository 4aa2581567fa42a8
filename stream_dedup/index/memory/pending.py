"""Summaries that are due or final, until they are confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.index.memory.cluster import Cluster
from stream_dedup.index.memory.queues import LazyHeap
from stream_dedup.model import Summary


class PendingSummaries:
    """The summaries of clusters that wait to be claimed, and those that are claimed.

    Args:
        summaries: how often summaries are due.
        clusters: all clusters by their ids, which their owner changes.
    """

    def __init__(self, summaries: Summaries, clusters: Mapping[int, Cluster]) -> None:
        self._summaries = summaries
        self._clusters = clusters
        self._due = LazyHeap(self._due_us, clusters)
        self._finals: dict[int, None] = {}
        self._leases: dict[int, int] = {}  # claimed cluster → when its lease ends (clock)

    def queue(self, cluster: Cluster) -> None:
        """Queue the next summary of an open cluster, if there is news."""
        # The first event is sent by itself: as a rule, there is news from the second on.
        shown = 0 if self._summaries.of_single else 1
        if cluster.count > max(shown, cluster.reported):
            due_us = self._summaries.due_us(cluster.reported_us)
            if due_us is not None:
                cluster.due = True
                self._due.push(due_us, cluster.identity)

    def add_final(self, identity: int) -> None:
        """Let the final summary of a closed cluster wait."""
        self._finals[identity] = None

    def remove_final(self, identity: int) -> None:
        """Let no final summary of a cluster wait, as it is open again, or gone."""
        self._finals.pop(identity, None)

    def claim(self, limit: int, now_us: int, stream_us: int | None) -> list[Summary]:
        """Lease summaries that wait: those whose lease has ended, final ones, then due ones."""
        leases, until_us = self._leases, now_us + self._summaries.lease_us
        taken = [i for i, until in leases.items() if until <= now_us][:limit]
        for identity in list(islice(self._finals, limit + len(leases))):
            if len(taken) >= limit:
                break
            del self._finals[identity]
            if identity not in leases:
                leases[identity] = until_us
                taken.append(identity)
        if stream_us is not None and len(taken) < limit:
            for identity in self._due.pop_until(stream_us, len(self._due)):
                cluster = self._clusters[identity]
                if not cluster.is_open:
                    cluster.due = False  # its final summary waits
                elif identity not in leases:
                    leases[identity] = until_us
                    taken.append(identity)
                    if len(taken) == limit:
                        break
        leases.update((identity, until_us) for identity in taken)
        return [_claimed(self._clusters[identity]) for identity in taken]

    def confirm(self, identity: int, revision: int, stream_us: int | None) -> Cluster | None:
        """Note that a claimed summary was sent.

        Returns:
            The cluster, if that was its final summary, and nothing was counted since.
        """
        cluster = self._clusters.get(identity)
        sent = None if cluster is None else cluster.snapshot
        if cluster is None or sent is None or sent.revision != revision:
            return None
        del self._leases[identity]
        cluster.snapshot = None
        cluster.reported = sent.count
        cluster.reported_us = max(cluster.reported_us, stream_us or 0)
        cluster.due = False
        cluster.merged = cluster.merged[len(sent.merged) :]
        if cluster.is_open:
            self.queue(cluster)
        elif sent.final and sent.count == cluster.count:
            return cluster
        else:  # closed, or opened and closed again, while this summary was claimed
            self.add_final(identity)
        return None

    def _due_us(self, identity: int) -> int | None:
        cluster = self._clusters.get(identity)
        if cluster is None or not cluster.due:
            return None
        return self._summaries.due_us(cluster.reported_us)


def _claimed(cluster: Cluster) -> Summary:
    """Return the summary of a cluster that is claimed now, or was claimed before."""
    cluster.may_be_sent = cluster.snapshot is not None
    if cluster.snapshot is None:
        cluster.revision += 1
        since_us = cluster.latest_us if cluster.since_us is None else cluster.since_us
        summary = cluster.summary(cluster.revision)
        cluster.snapshot, cluster.since_us = replace(summary, since_us=since_us), None
    return cluster.snapshot
