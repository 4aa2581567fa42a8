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
rest goes. If a call fails, or is made again because its answer was lost, it may have been heard
once more than was answered: the mirror is begun anew. Each attempt has a name of its own, as what
two of them insert may differ.

What is closed stays in the mirror, and the script finds that its cluster is not open, or was opened
again by another event. When it holds twice as much as the tables do, it is *worn*: another is read,
from one of the tables, in its place.
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
"""Fingerprints in a shard's tables, above which it is not mirrored; some 600 bytes each."""

UNKNOWN = b"?"
"""Said of a query when the tables are to be searched."""

NAME_BYTES = 8
NOTHING_YET = bytes(NAME_BYTES)
"""Stands for the last call that inserted, where none has."""

PENDING = -1

MOST_NEAR = 100
"""Clusters told of with a query; where more are near, the tables are searched."""

NAMES_KEPT = 1_000
"""Names of calls by others that are remembered; the shard keeps fewer."""

SLICES_READ = 64
"""Slices read in a round trip, so that nobody waits long."""

SPARE = 1_000
"""Entries more than in the tables that a mirror may hold, however few are in the tables."""

_TURN_BYTES = 8
_STANDING = Struct("<Bdd8s")


class Mirror:
    """What the tables of one shard hold.

    Args:
        layout: of its own tables; any that finds everything within k bits.
        max_candidates: entries compared for a query; of one with more, nothing is said.
        most_near: clusters told of with a query, at most `MOST_NEAR`.

    Attributes:
        sound: whether it may be asked; once it is not, it never will be again.
        worn: whether much of what it holds is not in the tables any more.
    """

    def __init__(self, layout: Layout, max_candidates: int, most_near: int = MOST_NEAR) -> None:
        self.sound = False
        self.worn = False
        self._tables: Tables = make_tables(layout)
        self._entry = Struct(f">H{layout.width // 8}sQ")
        self._near = Struct(f">Q{layout.width // 8}s")
        self._width_bytes = layout.width // 8
        self._max_candidates = max_candidates
        self._most_near = min(most_near, MOST_NEAR)
        self._told: list[tuple[int, bytes]] = []  # by owner number: cluster or PENDING, fingerprint
        self._free: list[int] = []
        self._base = NOTHING_YET
        self._turn = 0.0
        self._own: dict[bytes, None] = {}  # calls on their way
        self._others: dict[bytes, None] = {}  # calls learnt of
        self._read = 0

    def __len__(self) -> int:
        return len(self._tables)

    def take(self, entries: Iterable[tuple[int, int, int]]) -> None:
        """Take some of what the tables hold: group, fingerprint and cluster of each."""
        for group, fingerprint, cluster in entries:
            self._insert(group, fingerprint, cluster)

    def begin(self, base: bytes, turn: float) -> None:
        """All was taken that was in the tables when a call had inserted last.

        Args:
            base: the call's name.
            turn: its number.
        """
        self._base, self._turn, self._read = base, turn, len(self._tables)
        self.sound = True

    def seen(self) -> bytes:
        """What it has seen, for the script: until nothing else is asked of it than for a call."""
        return b"".join((self._base, *self._own))

    def leaves(self, name: bytes) -> None:
        """A call is on its way."""
        self._own[name] = None

    def near(self, group: int, fingerprint: int) -> bytes:
        """What stands within k bits, packed for the script."""
        owners, _, _, truncated = self._tables.query(fingerprint, group, self._max_candidates)
        if truncated:
            return UNKNOWN
        if not owners:
            return b""
        found = {self._told[owner] for owner in owners}
        if len(found) > self._most_near or any(cluster == PENDING for cluster, _ in found):
            return UNKNOWN
        return b"".join(self._near.pack(*item) for item in found)

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
            self._told[owner] = (cluster, self._told[owner][1])

    def learn(self, name: bytes, answer: Sequence[bytes]) -> None:
        """What the script said of where the shard stands, and of what was not seen.

        Args:
            name: of the call that it answered.
            answer: see ``resolve.lua``; without what was decided.
        """
        self._own.pop(name, None)
        self._remember(name)
        known, turn, entries, last = _STANDING.unpack(answer[0])
        if not known:
            self.sound = False
            return
        for call in answer[1:]:
            its_name = call[:NAME_BYTES]
            # What another call has brought since this one left is here already.
            if its_name in self._others or its_name in self._own:
                continue
            self._remember(its_name)
            told = self._entry.iter_unpack(memoryview(call)[NAME_BYTES + _TURN_BYTES :])
            self.take((g, int.from_bytes(packed, "big"), cluster) for g, packed, cluster in told)
        if turn > self._turn:
            self._base, self._turn = last, turn
        self.worn = len(self._tables) > 2 * max(entries, self._read) + SPARE

    def forget(self, name: bytes) -> None:
        """A call has inserted nothing."""
        self._own.pop(name, None)

    def _remember(self, name: bytes) -> None:
        self._others[name] = None
        if len(self._others) > NAMES_KEPT:
            del self._others[next(iter(self._others))]

    def _insert(self, group: int, fingerprint: int, cluster: int) -> tuple[int, int]:
        told = (cluster, fingerprint.to_bytes(self._width_bytes, "big"))
        if self._free:
            owner = self._free.pop()
            self._told[owner] = told
        else:
            owner = len(self._told)
            self._told.append(told)
        return self._tables.insert(fingerprint, group, owner), owner


class Call:
    """A call of the script, from the packing of its queries to its answer.

    Args:
        mirror: knows what is near its queries; None where the tables are to be searched.

    Attributes:
        seen: what the mirror has seen before.
    """

    def __init__(self, mirror: Mirror | None) -> None:
        self.seen = b"" if mirror is None else mirror.seen()
        self._mirror = mirror
        self._names: list[bytes] = []
        self._held: list[tuple[int, int] | None] = []

    def attempt(self) -> bytes:
        """It leaves, for the first time or again; the name of this attempt."""
        self._names.append(secrets.token_bytes(NAME_BYTES))
        if self._mirror is not None:
            self._mirror.leaves(self._names[-1])
        return self._names[-1]

    def look(self, group: int, fingerprint: int) -> bytes:
        """What stands near the next query, packed for the script."""
        mirror = self._mirror
        if mirror is None:
            return UNKNOWN
        near = mirror.near(group, fingerprint)
        self._held.append(mirror.expect(group, fingerprint))
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
        if len(self._names) > 1:  # an earlier attempt may have been heard
            self.failed()
            return
        clusters = iter(inserted)
        for held in self._held:
            cluster = next(clusters, None)
            if held is not None:
                self._mirror.settle(held, cluster)
        self._mirror.learn(self._names[0], answer)

    def refused(self) -> None:
        """The script did nothing; if it was called once."""
        if self._mirror is None:
            return
        if len(self._names) > 1:
            self.failed()
            return
        for held in filter(None, self._held):
            self._mirror.settle(held, None)
        self._mirror.forget(self._names[0])

    def failed(self) -> None:
        """Nobody knows whether it was heard."""
        if self._mirror is not None:
            self._mirror.sound = False


async def read(
    mirror: Mirror, server: Server, shard: Shard, entries: Entries, slices: int, most: int
) -> bool:
    """Begin a mirror with what the tables of a shard hold.

    What is inserted while they are read may be among it, and is told of by the script later.

    Args:
        mirror: an empty one.
        server: the service.
        shard: the shard.
        entries: how fingerprints are stored.
        slices: of each table.
        most: fingerprints of a shard above which it is not mirrored.

    Returns:
        Whether it was begun: not if there are more entries than `most`.

    Raises:
        IndexUnavailable: the server is away.
    """
    last, turn, count = await server.command(
        shard.meta, "HMGET", shard.meta, "inserted", "turn", "fingerprints"
    )
    if int(count or 0) > most:
        return False
    # Where nobody has inserted, the tables lead at most to clusters of data that was lost.
    untouched = last is None and not int(count or 0)
    keys = (shard.table(0, number) for number in range(0 if untouched else slices))
    while chunk := list(islice(keys, SLICES_READ)):
        commands = [("ZRANGE", key, 0, -1) for key in chunk]
        for members in await server.many(shard.meta, commands):
            mirror.take(
                (group, entries.fingerprint(member, 0), cluster)
                for member in members or ()
                if len(member) == entries.member_bytes  # else somebody else has put it there
                for group, cluster in [parts(member)]
            )
        if len(mirror) > 2 * most:  # closed clusters' that are not purged yet count as well
            return False
    mirror.begin(last or NOTHING_YET, float(turn or 0))
    return True
