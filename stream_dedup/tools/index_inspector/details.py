"""Single clusters: the largest of a namespace, and everything about one."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

from stream_dedup.errors import ProtocolError
from stream_dedup.index.redis import codec as wire
from stream_dedup.index.redis.inspection import Held, Namespace, Progress, hold, hold_numbers
from stream_dedup.index.redis.keys import Shard
from stream_dedup.tools.index_inspector.probes import missing_entries

SORTS: dict[str, Callable[[wire.Cluster], int]] = {
    "count": lambda numbers: numbers.events,
    "last": lambda numbers: numbers.last_us,
    "opened": lambda numbers: numbers.opened_us,
}


class Brief(NamedTuple):
    """A cluster in a list.

    Attributes:
        identity: its id, 8 bytes.
        numbers: its counts and times.
        group: its group, as it is stored.
        position: where its representative stood, as it is stored.
        representative: its first event's value; None if it is not known.
    """

    identity: bytes
    numbers: wire.Cluster
    group: bytes
    position: bytes
    representative: bytes | None


async def largest(
    namespace: Namespace, sort: str, limit: int, group: bytes | None, progress: Progress
) -> list[Brief]:
    """The first open clusters in an order, so many, the largest value first."""
    value_of = SORTS[sort]
    best: list[tuple[int, bytes]] = []  # a heap: the least of the best comes first
    held: set[bytes] = set()
    looked = 0
    for shard in namespace.shards:
        async for identities in _open(namespace, shard):
            answers = await namespace.reader.many(
                shard.meta, [("HMGET", shard.cluster(i), "n", "g") for i in identities]
            )
            for identity, answer in zip(identities, answers, strict=True):
                numbers = hold_numbers(answer[0]) if answer else None
                if numbers is None or numbers.closed or identity in held:
                    continue
                if group is not None and answer[1] != group:
                    continue
                held.add(identity)
                heapq.heappush(best, (value_of(numbers), identity))
                if len(best) > limit:
                    held.discard(heapq.heappop(best)[1])
            looked += len(identities)
            progress("clusters", looked)
    return await _briefs(namespace, [identity for _, identity in sorted(best, reverse=True)])


async def _open(namespace: Namespace, shard: Shard) -> Any:  # noqa: ANN401 -- an iterator
    cursor: Any = 0
    while True:
        cursor, members = await namespace.reader.command(
            shard.meta, "ZSCAN", shard.recency, cursor, "COUNT", 1_000
        )
        yield [member for member, *_ in members if len(member) == 8]
        if not int(cursor):
            return


async def _briefs(namespace: Namespace, identities: list[bytes]) -> list[Brief]:
    """Those that are still open, in order."""
    places: dict[Shard, list[bytes]] = {}
    for identity in identities:
        shard = namespace.packer.shard_of(int.from_bytes(identity, "big"))
        places.setdefault(shard, []).append(identity)
    found: dict[bytes, Brief] = {}
    for shard, of_shard in places.items():
        commands = [("HMGET", shard.cluster(i), "n", "g", "p", "r") for i in of_shard]
        answers = await namespace.reader.many(shard.meta, commands)
        for identity, answer in zip(of_shard, answers, strict=True):
            numbers = hold_numbers(answer[0]) if answer else None
            if numbers is not None and not numbers.closed:  # else it closed meanwhile
                found[identity] = Brief(
                    identity, numbers, answer[1] or b"", answer[2] or b"", answer[3]
                )
    return [found[identity] for identity in identities if identity in found]


class Name(NamedTuple):
    """What leads to a cluster.

    Attributes:
        exact: the exact hash.
        fingerprint: the fingerprint.
        distance: in bits, from the representative's.
        searchable: whether it stands in the tables.
        missing: the tables in which it should stand, and does not.
        slices: the slice of each table.
        leads_to: the cluster to which the exact hash leads; None for none.
    """

    exact: bytes
    fingerprint: int
    distance: int
    searchable: bool
    missing: set[int]
    slices: list[int]
    leads_to: bytes | None


class Details(NamedTuple):
    """Everything about a cluster.

    Attributes:
        held: its numbers, and names while it is open.
        fields: all its fields, as they are stored.
        names: what leads to it, with what was found there.
        scores: the sorted sets in which it stands, with its score.
        ttl_ms: until its key would be gone.
        shard: where it lives.
    """

    held: Held
    fields: dict[bytes, bytes]
    names: list[Name]
    scores: dict[str, float]
    ttl_ms: int
    shard: int

    @property
    def samples(self) -> list[bytes]:
        """The samples that are kept of it."""
        count = self.held.numbers.samples
        return [self.fields[b"%d" % n] for n in range(1, count + 1) if b"%d" % n in self.fields]

    @property
    def snapshot(self) -> tuple[int, int, int] | None:
        """The summary on its way: revision, count, new count; None without."""
        packed = self.fields.get(b"z", b"")
        if len(packed) < wire.SNAPSHOT.size:  # the group follows
            return None
        revision, count, new_count, *_ = wire.SNAPSHOT.unpack_from(packed)
        return int(revision), int(count), int(new_count)


async def details(namespace: Namespace, identity: int) -> Details | None:
    """Everything about a cluster; None if there is none.

    Raises:
        ValueError: it is damaged.
    """
    packed = wire.pack_id(identity)
    try:
        shard = namespace.packer.shard_of(identity)
    except ProtocolError:
        return None  # an id of no shard
    key = shard.cluster(packed)
    sets = {name: getattr(shard, name) for name in ("expiry", "recency", "due", "leases", "gone")}
    commands = [("HGETALL", key), ("PTTL", key)]
    fields, ttl_ms, *scores = await namespace.reader.many(
        key, [*commands, *(("ZSCORE", each, packed) for each in sets.values())]
    )
    if not fields:
        return None
    held = hold(packed, fields.get(b"n", b""), fields.get(b"a"), namespace.stamp.width)
    if held is None:
        raise ValueError("its fields do not fit together")
    names = await _names(namespace, shard, held) if held.open else []
    standing = {
        name: float(score) for name, score in zip(sets, scores, strict=True) if score is not None
    }
    return Details(held, fields, names, standing, ttl_ms, shard.number)


async def _names(namespace: Namespace, shard: Shard, held: Held) -> list[Name]:
    group = int.from_bytes(held.group_hash, "big")
    missing = await missing_entries(namespace, shard, held)
    answers = await namespace.reader.many(
        shard.meta,
        [
            (
                "HGET",
                namespace.exact_key(shard, held.group_hash, name.exact),
                held.group_hash + name.exact,
            )
            for name in held.names
        ],
    )
    first = held.names[0].fingerprint
    out = []
    for name, absent, answer in zip(held.names, missing, answers, strict=True):
        keys, _ = namespace.entries.arrange(name.fingerprint, group, 0, b"")
        out.append(
            Name(
                name.exact,
                name.fingerprint,
                (name.fingerprint ^ first).bit_count(),
                name.searchable,
                absent,
                [int(key.rpartition(b":")[2]) for key in keys],
                answer[:8] if answer else None,
            )
        )
    return out
