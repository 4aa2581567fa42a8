"""The mirror: a copy of the fingerprints in a shard's tables, so that Redis need not search them.

Theory of operation
-------------------
Searching its tables is most of what a new event costs Redis. So each process keeps a mirror: every
fingerprint that the tables hold, and perhaps some that they held before. With a query it sends the
entries that it finds near; the script reads only those clusters.

The mirror has to hold *all* that the tables hold, or events would be missed. So every call that
inserts has a random name, the shard stores the last calls with what they inserted, and a caller
names the call up to which it knows them all. The script compares the query with what the caller has
not seen, and returns that too. If the script cannot find out what the caller has not seen, or if
that is much, it searches the tables. So a mirror that is wrong about the state of the shard costs
time and nothing else, also after the server came back with older data.

What this process inserts itself enters the mirror before the call is sent (*pending*), because
later queries must find it. Its cluster is not known yet, so a query that is near it says so, and
the script looks up what was inserted with that fingerprint: by the same call, or by one that was on
its way. If it does not find the latter, it searches the tables; so it does if several were on their
way with that fingerprint, as it may find one and not the other. The answer assigns its cluster to
each inserted entry; the others are removed. If a call fails, or is repeated because its answer was
lost, it may have run once more than it was answered: the mirror is then read again. Each attempt
has a name of its own, as two attempts may insert different entries.

Where similarity is verified, the mirror also knows sketches: those of the clusters that this
process has opened, and those of others once they were near an event (*wanted*; they are read before
the next call). It leaves out clusters that do not admit the event: in a crowd of similar events
that is nearly all, and reading and comparing them is what costs a script most.

Entries of closed clusters stay in the mirror; the script finds that their cluster is not open, or
was opened again by another event. When the mirror holds twice as much as the tables do, it is
*worn*: it is replaced by another, read from one of the tables.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from struct import Struct

from stream_dedup.clustering.linkage import Linkage, fastest_admitting
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.client import Command, RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.layouts import CALL_NAME_BYTES, SKETCH_HASH_BYTES
from stream_dedup.tables.entries import Entries, parts
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.store import Tables, make_tables

MIRROR_SIZE = 100_000
"""Fingerprints in a shard's tables, above which it is not mirrored; some 600 bytes each and eight a
word, and 1,100 where they are keys of bands."""

UNKNOWN = b"?"
"""Sent with a query when the tables are to be searched."""

NOTHING_YET = bytes(CALL_NAME_BYTES)
"""The name of the last call that inserted, where none has."""

PENDING_HERE, PENDING = range(2)
"""Sent as the cluster of an entry that is not known yet: of the same call, of another one."""

MOST_NEAR = 100
"""Entries sent with a query; where more are near, the tables are searched."""

NAMES_KEPT = 1_000
"""Names of other callers' calls that are remembered; the shard keeps fewer."""

SLICES_READ = 64
"""Slices read in a round trip, so that other clients do not wait long."""

MOST_WANTED = 256
"""Clusters whose sketches are read before a call, in one round trip."""

SPARE = 1_000
"""Tolerance, in fingerprints. A mirror is made again if it holds more than twice the entries of the
tables and so many more. A shard is mirrored up to the limit and so many more, because a commit
evicts clusters only after others were opened."""


_admitting = fastest_admitting()


class Mirror:
    """A copy of the entries in the tables of one shard.

    Args:
        layout: of its own tables; any that finds everything within k bits.
        max_candidates: entries compared with a query; where there are more, the tables are
            searched.
        most_near: entries sent with a query, at most `MOST_NEAR`.
        linkage: decides whether a cluster admits an event; without it all that are near may.

    Attributes:
        sound: whether it may be used; once it may not, it never will be again.
        worn: whether much of what it holds is no longer in the tables.
    """

    def __init__(
        self,
        layout: Layout,
        max_candidates: int,
        most_near: int = MOST_NEAR,
        linkage: Linkage | None = None,
    ) -> None:
        self.sound = False
        self.worn = False
        self._tables = self.make_tables(layout)
        self._entry = Struct(f">H{layout.width // 8}sQ")
        self._near = Struct(f">Q{layout.width // 8}s")
        self._width_bytes = layout.width // 8
        self._max_candidates = max_candidates
        self._most_near = min(most_near, MOST_NEAR)
        self._linkage = linkage
        self._owners: list[tuple[int, bytes]] = []  # cluster, fingerprint
        self._sketches: list[bytes] = []  # of the owners; empty where it is not known
        self._wanted: dict[int, None] = {}  # owners whose sketch is not known and was of use
        self._gone: set[int] = set()  # owners that were wanted, and whose clusters were gone
        self._pending: dict[int, int] = {}  # owners whose cluster is not known yet → their call
        self._free: list[int] = []
        self._base = NOTHING_YET
        self._number = 0.0
        self._own: dict[bytes, None] = {}  # calls not answered yet
        self._others: dict[bytes, None] = {}  # calls whose entries are here
        self._read = 0
        self._calls = 0

    def __len__(self) -> int:
        return len(self._tables)

    @staticmethod
    def make_tables(layout: Layout) -> Tables:
        """Make tables of its own."""
        return make_tables(layout)

    def take(self, entries: Iterable[tuple[int, int, int]]) -> None:
        """Add entries of the tables: group, fingerprint and cluster of each."""
        for group, fingerprint, cluster in entries:
            self._insert(group, fingerprint, cluster)

    def begin(self, base: bytes, number: float) -> None:
        """Begin to serve: all entries that the tables held after a call were taken.

        Args:
            base: the call's name.
            number: its number.
        """
        self._base, self._number, self._read = base, number, len(self._tables)
        self.sound = True

    def seen(self) -> bytes:
        """Name the calls that it has seen, for the script."""
        return b"".join((self._base, *self._own))

    def count_call(self) -> int:
        """Return the number of the next call."""
        self._calls += 1
        return self._calls

    def note_sent(self, name: bytes) -> None:
        """Note a call that is sent."""
        self._own[name] = None

    def near(self, group: int, fingerprint: int, sketch: bytes = b"", call: int = 0) -> bytes:
        """Find the entries within k bits, packed for the script.

        Args:
            group: the low bits of the group's hash.
            fingerprint: of the event.
            sketch: of the event.
            call: the number of the call that asks.
        """
        owners, _, _, truncated = self._tables.query(fingerprint, group, self._max_candidates)
        if truncated:
            return UNKNOWN
        if not owners:
            return b""
        pending = {owner: self._pending[owner] for owner in self._pending.keys() & owners}
        if pending:
            owners = [owner for owner in owners if owner not in pending]
        if self._linkage:
            owners = _admitting(sketch, owners, self._sketches, self._linkage.least)
            unknown = (o for o in owners if not self._sketches[o] and o not in self._gone)
            self._wanted.update(dict.fromkeys(islice(unknown, MOST_WANTED)))
        found = {self._owners[owner] for owner in owners}
        of_others: dict[bytes, int] = {}  # call by fingerprint
        for owner, its_call in pending.items():
            its_fingerprint = self._owners[owner][1]
            if its_call == call:
                found.add((PENDING_HERE, its_fingerprint))
            elif of_others.setdefault(its_fingerprint, its_call) == its_call:
                found.add((PENDING, its_fingerprint))
            else:  # of two calls the script may find only one
                return UNKNOWN
        if len(found) > self._most_near:
            return UNKNOWN
        return b"".join(self._near.pack(*item) for item in found)

    def take_wanted(self) -> list[tuple[int, int]]:
        """Return owners whose sketches are to be read, and their clusters; each once."""
        taken = list(islice(self._wanted, MOST_WANTED))
        for owner in taken:
            del self._wanted[owner]
        wanted = ((owner, self._owners[owner][0]) for owner in taken if owner not in self._pending)
        return [each for each in wanted if not self._sketches[each[0]]]

    def note_sketch(self, owner: int, cluster: int, sketch: bytes) -> None:
        """Note the sketch of the cluster of an owner, unless that is another one meanwhile.

        It is empty if the cluster is gone: then it is not wanted again.
        """
        if self._owners[owner][0] == cluster and owner not in self._pending:
            self._sketches[owner] = sketch
            if not sketch:
                self._gone.add(owner)

    def expect(
        self, group: int, fingerprint: int, sketch: bytes = b"", call: int = 0
    ) -> tuple[int, int]:
        """Add a fingerprint that a call is about to insert; return its entry and owner number."""
        entry, owner = self._insert(group, fingerprint, PENDING, sketch)
        self._pending[owner] = call
        return entry, owner

    def assign(self, held: tuple[int, int], cluster: int | None, *, opened: bool = False) -> None:
        """Assign the cluster to an expected entry; remove the entry if it was not inserted.

        Args:
            held: as `expect` returned it.
            cluster: the cluster; None if it was not inserted.
            opened: whether the event has opened it: then its sketch is the cluster's.
        """
        entry, owner = held
        del self._pending[owner]
        if cluster is None:
            self._tables.delete(entry)
            self._free.append(owner)
        else:
            self._owners[owner] = (cluster, self._owners[owner][1])
        if cluster is None or not opened:
            self._sketches[owner] = b""

    def learn(self, name: bytes, answer: Sequence[bytes]) -> None:
        """Learn the state of the shard, and the entries that were not seen, from an answer.

        Args:
            name: of the call.
            answer: see ``resolve.lua``; without the resolutions.
        """
        self._own.pop(name, None)
        self._remember(name)
        known, number, entries, last = layouts.MIRROR_STATE.struct.unpack(answer[0])
        if not known:
            self.sound = False
            return
        for call in answer[1:]:
            its_name = call[:CALL_NAME_BYTES]
            # The answer to another call may have brought these entries meanwhile.
            if its_name in self._others or its_name in self._own:
                continue
            self._remember(its_name)
            entries_of_call = self._entry.iter_unpack(
                memoryview(call)[layouts.INSERTING_CALL.struct.size :]
            )
            self.take((g, int.from_bytes(f, "big"), cluster) for g, f, cluster in entries_of_call)
        if number > self._number:
            self._base, self._number = last, number
        self.worn = len(self._tables) > 2 * max(entries, self._read) + SPARE

    def note_refused(self, name: bytes) -> None:
        """Note that a call has inserted nothing."""
        self._own.pop(name, None)

    def _remember(self, name: bytes) -> None:
        self._others[name] = None
        if len(self._others) > NAMES_KEPT:
            del self._others[next(iter(self._others))]

    def _insert(
        self, group: int, fingerprint: int, cluster: int, sketch: bytes = b""
    ) -> tuple[int, int]:
        entry = (cluster, fingerprint.to_bytes(self._width_bytes, "big"))
        if self._free:
            owner = self._free.pop()
            self._owners[owner], self._sketches[owner] = entry, sketch
        else:
            owner = len(self._owners)
            self._owners.append(entry)
            self._sketches.append(sketch)
        return self._tables.insert(fingerprint, group, owner), owner


class Call:
    """A call of ``resolve``, from the packing of its queries to its answer.

    Args:
        mirror: finds what is near its queries; None where the tables are to be searched.

    Attributes:
        seen: names of the calls that the mirror has seen.
    """

    def __init__(self, mirror: Mirror | None) -> None:
        self.seen = b"" if mirror is None else mirror.seen()
        self._number = 0 if mirror is None else mirror.count_call()
        self._mirror = mirror
        self._names: list[bytes] = []
        self._held: list[tuple[int, int] | None] = []

    def attempt(self) -> bytes:
        """Begin an attempt; return its name."""
        self._names.append(secrets.token_bytes(CALL_NAME_BYTES))
        if self._mirror is not None:
            self._mirror.note_sent(self._names[-1])
        if len(self._names) > 1:  # both may run, and a script may find only one of them
            self.failed()
        return self._names[-1]

    def look(self, group: int, fingerprint: int, sketch: bytes = b"") -> bytes:
        """Find what is near the next query, packed for the script."""
        mirror = self._mirror
        if mirror is None:
            return UNKNOWN
        near = mirror.near(group, fingerprint, sketch, self._number)
        self._held.append(mirror.expect(group, fingerprint, sketch, self._number))
        return near

    def skip(self) -> None:
        """Note that the next query is not matched by its fingerprint."""
        self._held.append(None)

    def answered(
        self, inserted: Iterable[tuple[int, bool] | None], answer: Sequence[bytes]
    ) -> None:
        """Take over the answer.

        Args:
            inserted: for each query the cluster for which its fingerprint was inserted, and whether
                the query opened it, or None; fewer than there were queries where the script has
                left some.
            answer: see `Mirror.learn`.
        """
        if self._mirror is None:
            return
        if len(self._names) > 1:
            return
        answers = iter(inserted)
        for held in self._held:
            cluster, opened = next(answers, None) or (None, False)
            if held is not None:
                self._mirror.assign(held, cluster, opened=opened)
        self._mirror.learn(self._names[0], answer)

    def refused(self) -> None:
        """Note that the script has refused the call: it inserted nothing."""
        if self._mirror is None:
            return
        if len(self._names) > 1:
            return
        for held in filter(None, self._held):
            self._mirror.assign(held, None)
        self._mirror.note_refused(self._names[0])

    def failed(self) -> None:
        """Note that the call failed: it may have run or not."""
        if self._mirror is not None:
            self._mirror.sound = False


async def read_mirror(
    client: RedisClient, shard: ShardKeys, mirror: Mirror, most: int, steps: AsyncIterator[None]
) -> bool:
    """Fill a mirror with what the tables of a shard hold, and begin it.

    Entries that are inserted while it reads may be among them; the script returns them again later.

    Args:
        client: the service.
        shard: the shard.
        mirror: an empty one.
        most: fingerprints of a shard above which, and `SPARE`, it is not mirrored.
        steps: reads the shard in steps, and has the mirror take what it reads.

    Returns:
        Whether it was begun; it is not if there are too many entries.

    Raises:
        IndexUnavailable: the server cannot be reached.
    """
    last, number, count = await client.command(
        shard.meta, "HMGET", shard.meta, "inserted", "turn", "fingerprints"
    )
    most += SPARE
    if int(count or 0) > most:
        return False
    # Where no call has inserted, the tables hold at most entries of data that was lost.
    if last is not None or int(count or 0):
        async for _ in steps:
            if len(mirror) > 2 * most:  # with entries of closed clusters that are not purged yet
                return False
    mirror.begin(last or NOTHING_YET, float(number or 0))
    return True


def searched(shard: ShardKeys, identity: bytes) -> Command:
    """The command that reads what is searched of a cluster; see `codec.unpack_searched`."""
    return "GETRANGE", shard.cluster(identity), 0, layouts.SEARCHED_BYTES - 1


async def read_wanted(client: RedisClient, shard: ShardKeys, mirror: Mirror) -> None:
    """Read sketches that a mirror wants, of clusters that others have opened.

    Raises:
        IndexUnavailable: the server cannot be reached.
    """
    wanted = mirror.take_wanted()
    if not wanted:
        return
    commands = [searched(shard, each.to_bytes(8, "big")) for _, each in wanted]
    answers = await client.many(shard.meta, commands)
    for (owner, cluster), stored in zip(wanted, answers, strict=True):
        sketch, _ = codec.unpack_searched(stored) if stored else (b"", b"")
        whole = sketch if sketch and not len(sketch) % SKETCH_HASH_BYTES else b""
        mirror.note_sketch(owner, cluster, codec.big_endian(whole))


async def read_tables(
    client: RedisClient, shard: ShardKeys, mirror: Mirror, entries: Entries, slices: int
) -> AsyncIterator[None]:
    """Have a mirror take what the first table holds, as each table holds all.

    Args:
        client: the service.
        shard: the shard.
        mirror: the mirror.
        entries: how fingerprints are stored.
        slices: of each table.
    """
    keys = (shard.table(0, n) for n in range(slices))
    while chunk := list(islice(keys, SLICES_READ)):
        commands = [("ZRANGE", key, 0, -1) for key in chunk]
        for members in await client.many(shard.meta, commands):
            mirror.take(
                (group, entries.fingerprint(member, 0), cluster)
                for member in members or ()
                if len(member) == entries.member_bytes  # else another program has added it
                for group, cluster in [parts(member)]
            )
        yield
