"""A node of the spread index, in memory: each method is one atomic step, as a script is.

A node holds slices of tables, the clusters whose ids end with its number, and *intents*: for a
cluster that an attempt wants to open, the ticket of that attempt, until a lease ends. An intent
whose lease has ended counts for nothing. So nothing has to be repaired where a caller dies: its
intent ends by itself, and its entries lead nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from stream_dedup.fingerprint.simhash import distance
from stream_dedup.index.base import Query
from stream_dedup.index.spread.protocol import (
    LEASE_US,
    MAX_NAMES,
    SWEEP_AFTER_US,
    Add,
    Answer,
    Begin,
    Entry,
    Found,
    Join,
    Judge,
    Key,
    Neighbour,
    Offer,
    Open,
    Remove,
    Request,
    Ticket,
    Withdraw,
    exact_key,
    table_keys,
)
from stream_dedup.tables.permutation import Layout


@dataclass(slots=True)
class Cluster:
    """A cluster that is open, or was: then its ticket never opens anything again.

    Attributes:
        ticket: under which it was opened.
        query: of its representative.
        last_us: when it was last seen.
        count: events recorded.
        names: names of events that lead to it, as far as they were counted.
        is_open: whether it takes events.
    """

    ticket: Ticket
    query: Query
    last_us: int
    count: int = 0
    names: int = 1
    is_open: bool = True


class Node:
    """One node.

    Args:
        layout: the tables.
        live: whether a cluster (when opened, when last seen) takes an event of a time.
        similar: the similarity of two sketches; `least` is wanted. None: not verified.
        least: see `similar`.
        max_names: so many names are counted, and one more.
    """

    def __init__(
        self,
        layout: Layout,
        live: Callable[[int, int, int], bool] = lambda _opened, _last, _time: True,
        similar: Callable[[bytes, bytes], float] | None = None,
        least: float = 0.0,
        max_names: int = MAX_NAMES,
    ) -> None:
        self.slices: defaultdict[Key, set[Neighbour]] = defaultdict(set)
        self.clusters: dict[int, Cluster] = {}
        self.intents: dict[int, tuple[Ticket, int]] = {}  # until when
        self.begun: dict[Entry, tuple[Query, int]] = {}  # since when
        self.steps = 0
        self._layout = layout
        self._live = live
        self._similar = similar
        self._least = least
        self._max_names = max_names

    def carry_out(self, request: Request, now_us: int) -> object:
        """Carry out a request, and return its answer.

        Args:
            request: the request.
            now_us: this node's own clock.
        """
        self.steps += 1
        match request:
            case Begin(entry, query):
                return self.begin(entry, query, now_us)
            case Offer(key, entry, fingerprint):
                return self.offer(key, entry, fingerprint)
            case Judge():
                return self.judge(request, now_us)
            case Open(entry, query):
                return self.open(entry, query, now_us)
            case Join(entry, query, is_named):
                return self.join(entry, query, is_named=is_named)
            case Add(key, entry, fingerprint):
                self.slices[key].add(Neighbour(entry, fingerprint))
            case Remove(key, entry, fingerprint):
                self.slices[key].discard(Neighbour(entry, fingerprint))
            case Withdraw(entry):
                self._forget(entry)
        return Answer.DONE

    def begin(self, entry: Entry, query: Query, now_us: int) -> Found | Answer | list[Neighbour]:
        """See `protocol.Begin`."""
        own = self.clusters.get(entry.identity)
        if own and self._takes(own, query) and own.query.fingerprint == query.fingerprint:
            return self._touch(Entry(entry.identity, own.ticket), own, query)
        others = self.slices[exact_key(query)]
        for other, _ in sorted(others):
            cluster = self._opened(other)  # only if it is on this node
            if cluster is not None and self._takes(cluster, query):
                return self._touch(other, cluster, query)
        ticket = self._intent(entry.identity, now_us)
        if ticket is not None and _precedes(ticket, entry.ticket):
            return Answer.WAIT  # the event's former owner is about to open it
        neighbours = [other for other in sorted(others) if other.entry != entry]
        self.intents[entry.identity] = entry.ticket, now_us + LEASE_US
        self.begun[entry] = query, now_us
        others.add(Neighbour(entry, query.fingerprint))
        return neighbours

    def offer(self, key: Key, entry: Entry, fingerprint: int) -> list[Neighbour]:
        """See `protocol.Offer`."""
        others = self.slices[key]
        others.add(Neighbour(entry, fingerprint))
        return [
            Neighbour(other, own)
            for other, own in sorted(others)
            if other != entry and distance(own, fingerprint) <= self._layout.k
        ]

    def judge(self, request: Judge, now_us: int) -> Found | Answer:
        """See `protocol.Judge`."""
        entry, asker, query, equal = request
        cluster = self._opened(entry)
        if cluster is None:
            if self._intent(entry.identity, now_us) == entry.ticket:
                if _precedes(entry.ticket, asker):
                    return Answer.WAIT
                del self.intents[entry.identity]
            return Answer.STALE
        found = self._found(entry, cluster, query)
        admitted = equal or self._admits(cluster, found)
        return found if admitted and self._takes(cluster, query) else Answer.ABSENT

    def open(self, entry: Entry, query: Query, now_us: int) -> Found | Answer:
        """See `protocol.Open`."""
        cluster = self._opened(entry)
        if cluster is None:
            if self._intent(entry.identity, now_us) != entry.ticket:
                return Answer.LOST
            self._forget(entry)
            cluster = Cluster(entry.ticket, query, query.last_us)
            self.clusters[entry.identity] = cluster
        return self._found(entry, cluster, query)

    def join(self, entry: Entry, query: Query, *, is_named: bool) -> Found | Answer:
        """See `protocol.Join`."""
        cluster = self._opened(entry)
        if cluster is None or not self._takes(cluster, query):
            return Answer.ABSENT
        found = self._touch(entry, cluster, query)
        if not is_named:
            cluster.names = min(cluster.names, self._max_names) + 1
        return found

    def close(self, identity: int) -> list[tuple[Key, Entry, int]]:
        """Close a cluster; return its own entries, which lead nowhere now."""
        cluster = self.clusters[identity]
        cluster.is_open = False
        return self._entries(Entry(identity, cluster.ticket), cluster.query)

    def litter(self, now_us: int) -> list[tuple[Key, Entry, int]]:
        """Return the entries of attempts that nobody drives; `Withdraw` then forgets these."""
        return [
            place
            for entry, (query, since_us) in self.begun.items()
            if now_us - since_us > SWEEP_AFTER_US
            for place in self._entries(entry, query)
        ]

    # ------------------------------------------------------------ parts

    def _entries(self, entry: Entry, query: Query) -> list[tuple[Key, Entry, int]]:
        keys = [exact_key(query), *table_keys(query, self._layout)]
        return [(key, entry, query.fingerprint) for key in keys]

    def _forget(self, entry: Entry) -> None:
        self.begun.pop(entry, None)
        if self.intents.get(entry.identity, (None, 0))[0] == entry.ticket:
            del self.intents[entry.identity]

    def _intent(self, identity: int, now_us: int) -> Ticket | None:
        """Return the ticket of an intent; one whose lease has ended never comes back."""
        ticket, until_us = self.intents.get(identity, (None, 0))
        if ticket is not None and now_us >= until_us:
            del self.intents[identity]
            return None
        return ticket

    def _opened(self, entry: Entry) -> Cluster | None:
        """Return the cluster that is open under the entry's ticket."""
        cluster = self.clusters.get(entry.identity)
        return cluster if cluster and cluster.is_open and cluster.ticket == entry.ticket else None

    def _takes(self, cluster: Cluster, query: Query) -> bool:
        opened_us = cluster.query.first_us
        return cluster.is_open and self._live(opened_us, cluster.last_us, query.first_us)

    def _found(self, entry: Entry, cluster: Cluster, query: Query) -> Found:
        bits = distance(cluster.query.fingerprint, query.fingerprint)
        similarity = self._similar(cluster.query.sketch, query.sketch) if self._similar else 0.0
        times = cluster.query.first_us, cluster.last_us
        return Found(entry, bits, similarity, *times, cluster.count > 0, cluster.names)

    def _admits(self, cluster: Cluster, found: Found) -> bool:
        if not cluster.query.near:
            return False  # it is found by equal events alone
        if self._similar is None:
            return found.distance <= self._layout.k
        return found.similarity >= self._least

    def _touch(self, entry: Entry, cluster: Cluster, query: Query) -> Found:
        cluster.last_us = max(cluster.last_us, query.last_us)
        return self._found(entry, cluster, query)


def _precedes(ticket: Ticket, other: Ticket) -> bool:
    """Return whether the other attempt has to yield to this one."""
    return ticket[:3] < other[:3]
