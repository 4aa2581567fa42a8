"""The mirror: what the tables of a shard hold, kept in process, so that Redis need not search them.

Theory of operation
-------------------
Searching its tables is most of what a new event costs Redis. So each process keeps a mirror: every
fingerprint that the tables hold, and perhaps some that they held. It sends with a query what it
finds near; the script looks at those clusters alone.

The mirror has to hold *all* that the tables hold, or recall were lost. So every call that inserts
has a random name, the shard keeps the last calls with what they inserted, and a caller says up to
which it knows them all. The script holds the query against what the caller has not seen, and hands
that back; if it cannot tell what the caller has not seen, or if that is much, it searches the
tables. So a mirror that is wrong about where the shard stands costs time and nothing else: also
after the server came back with older data.

What this process inserts itself stands in the mirror before the call leaves (*pending*), as the
queries after it must find it. Where a query meets something pending, the tables are searched: whose
it will be is not known yet. Once the answer is here, what was inserted gets its cluster, and the
rest goes. If a call fails it may have been heard or not: the mirror is begun anew.

What is closed stays in the mirror, and the script finds that its cluster is not open. When it holds
twice as much as the tables do, it is *worn*: another is read, from one of the tables, in its place.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct

from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.server import Server
from stream_dedup.tables.entries import Entries, parts
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.store import Tables, make_tables

MIRROR_SIZE = 100_000
"""Fingerprints in a shard's tables, above which it is not mirrored; some 600 bytes each at most."""

UNKNOWN = b"?"
"""Said of a query when the tables are to be searched."""

NAME_BYTES = 8
NOTHING_YET = bytes(NAME_BYTES)
"""Stands for the last call that inserted, where none has."""

PENDING = -1

MOST_NEAR = 200
"""Entries told of with a query; where more are near, the tables are searched."""

SLICES_READ = 128
"""Slices read in a round trip, so that nobody waits long."""

SPARE = 1_000
"""Entries more than in the tables that a mirror may hold, however few are in the tables."""

_CANDIDATE = Struct(">QB")
_TURN = Struct("<d")
_STANDING = Struct("<Bdd8s")


class Mirror:
    """What the tables of one shard hold.

    Args:
        layout: of its own tables; any that finds everything within k bits.
        max_candidates: entries compared for a query; of one with more, nothing is said.

    Attributes:
        sound: whether it may be asked; once it is not, it never will be again.
        worn: whether much of what it holds is not in the tables any more.
    """

    def __init__(self, layout: Layout, max_candidates: int) -> None:
        self.sound = False
        self.worn = False
        self._tables: Tables = make_tables(layout)
        self._clusters: list[int] = []  # by owner number: the cluster, or PENDING
        self._free: list[int] = []
        self._max_candidates = max_candidates
        self._entry = Struct(f">H{layout.width // 8}sQ")
        self._base = NOTHING_YET
        self._turn = 0.0
        self._own: dict[bytes, None] = {}  # calls on their way

    def __len__(self) -> int:
        return len(self._tables)

    def begin(self, base: bytes, turn: float, entries: Iterable[tuple[int, int, int]]) -> None:
        """Take what the tables hold.

        Args:
            base: name of the last call that inserted before they were read.
            turn: its number.
            entries: group, fingerprint and cluster of each.
        """
        self._base, self._turn = base, turn
        for group, fingerprint, cluster in entries:
            self._insert(group, fingerprint, cluster)
        self.sound = True

    def leave(self, name: bytes) -> bytes:
        """A call is to leave; what the mirror has seen, for the script.

        Nothing else may be asked of the mirror, but for this call, before it has left.
        """
        seen = b"".join((self._base, *self._own))
        self._own[name] = None
        return seen

    def near(self, group: int, fingerprint: int) -> bytes:
        """What stands within k bits, packed for the script."""
        found = self._tables.query(fingerprint, group, self._max_candidates)
        if found.truncated:
            return UNKNOWN
        if not found.owners:
            return b""
        nearest: dict[int, int] = {}
        for owner, distance in zip(found.owners, found.distances, strict=True):
            cluster = self._clusters[owner]
            nearest[cluster] = min(distance, nearest.get(cluster, distance))
        if PENDING in nearest or len(nearest) > MOST_NEAR:
            return UNKNOWN
        return b"".join(_CANDIDATE.pack(*item) for item in nearest.items())

    def expect(self, group: int, fingerprint: int) -> tuple[int, int]:
        """Hold a fingerprint that is about to be inserted; its entry and owner number."""
        return self._insert(group, fingerprint, PENDING)

    def settle(self, held: tuple[int, int], cluster: int | None) -> None:
        """What was expected was inserted for a cluster, or not at all."""
        entry, owner = held
        if cluster is None:
            self._tables.delete(entry)
            self._free.append(owner)
        else:
            self._clusters[owner] = cluster

    def learn(self, name: bytes, answer: Sequence[bytes]) -> None:
        """What the script said of where the shard stands, and of what was not seen.

        Args:
            name: of the call that it answered.
            answer: see ``resolve.lua``; without what was decided.
        """
        self._own.pop(name, None)
        known, turn, entries, last = _STANDING.unpack(answer[0])
        if not known:
            self.sound = False
            return
        for call in answer[1:]:
            # What another call has brought since this one left is here already.
            if (
                _TURN.unpack_from(call, NAME_BYTES)[0] <= self._turn
                or call[:NAME_BYTES] in self._own
            ):
                continue
            start = NAME_BYTES + _TURN.size
            for group, fingerprint, cluster in self._entry.iter_unpack(memoryview(call)[start:]):
                self._insert(group, int.from_bytes(fingerprint, "big"), cluster)
        if turn > self._turn:
            self._base, self._turn = last, turn
        self.worn = len(self._tables) > 2 * entries + SPARE

    def _insert(self, group: int, fingerprint: int, cluster: int) -> tuple[int, int]:
        if self._free:
            owner = self._free.pop()
            self._clusters[owner] = cluster
        else:
            owner = len(self._clusters)
            self._clusters.append(cluster)
        return self._tables.insert(fingerprint, group, owner), owner


class Call:
    """A call of the script on its way.

    Args:
        mirror: knows what is near its queries; None where the tables are to be searched.

    Attributes:
        name: its random name.
        seen: what the mirror has seen.
    """

    def __init__(self, mirror: Mirror | None) -> None:
        self.name = secrets.token_bytes(NAME_BYTES)
        self.seen = b"" if mirror is None else mirror.leave(self.name)
        self._mirror = mirror
        self._held: list[tuple[int, int] | None] = []

    def look(self, group: int, fingerprint: int) -> bytes:
        """What stands near the next query, packed for the script."""
        if self._mirror is None:
            return UNKNOWN
        near = self._mirror.near(group, fingerprint)
        self._held.append(self._mirror.expect(group, fingerprint))
        return near

    def skip(self) -> None:
        """The next query is not to be searched for."""
        self._held.append(None)

    def answered(self, inserted: Iterable[int | None], answer: Sequence[bytes]) -> None:
        """The answer is here.

        Args:
            inserted: the cluster for which a query was inserted, None for none; fewer than there
                were queries where the script has left some.
            answer: what it said beside.
        """
        if self._mirror is None:
            return
        clusters = iter(inserted)
        for held in self._held:
            cluster = next(clusters, None)
            if held is not None:
                self._mirror.settle(held, cluster)
        self._mirror.learn(self.name, answer)

    def failed(self) -> None:
        """Nobody knows whether it was heard."""
        if self._mirror is not None:
            self._mirror.sound = False


async def read(
    server: Server, shard: Shard, entries: Entries, slices: int, most: int
) -> tuple[bytes, float, list[tuple[int, int, int]]] | None:
    """What to begin a mirror with: the last call that inserted, its number, and what stands.

    What is inserted while it is read may be among it, and is told of by the script later.

    Returns:
        None if there are more entries than `most`.

    Raises:
        IndexUnavailable: the server is away.
    """
    last, turn, count = await server.command(
        shard.meta, "HMGET", shard.meta, "inserted", "turn", "fingerprints"
    )
    if int(count or 0) > most:
        return None
    found: list[tuple[int, int, int]] = []
    keys = (shard.table(0, number) for number in range(slices))
    while chunk := list(islice(keys, SLICES_READ)):
        commands = [("ZRANGE", key, 0, -1) for key in chunk]
        for members in await server.many(shard.meta, commands):
            for member in members or ():
                group, cluster = parts(member)
                found.append((group, entries.fingerprint(member, 0), cluster))
        if len(found) > 2 * most:  # closed clusters' that are not purged yet count as well
            return None
    return last or NOTHING_YET, float(turn or 0), found
