"""Single reads of parts of a shard: find what is inconsistent, as far as one read can show.

The entries of a closed cluster may wait in the list of garbage to be purged. So the order of
reading matters: first the cluster, then the garbage, last the entry. A purge removes the entry
before the piece of garbage: an entry that still exists, and was in no piece, was forgotten.

The list of garbage may be long. A first look uses the list as it was read last, and suspects too
much then; after `Probes.forget` the next look reads it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stream_dedup.features.patterns import readable
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.redis.client import Command
from stream_dedup.index.redis.codec import group_hash
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys, kind_of, table_of
from stream_dedup.index.redis.layouts import EXACT_FIELD_BYTES, GROUP_BYTES, ID_BYTES
from stream_dedup.tools.index_inspector.reader import (
    Namespace,
    StoredCluster,
    garbage,
    unpack_stored,
)

Place = tuple[bytes, bytes]
"""A slice's key, and the member or field in it."""


class Suspect(NamedTuple):
    """Something that looks wrong.

    Attributes:
        kind: of `KINDS`.
        subject: what is checked again.
        text: what is wrong, with the key.
    """

    kind: str
    subject: Any
    text: str


class Probes:
    """The looks at one shard."""

    def __init__(self, namespace: Namespace, shard: ShardKeys) -> None:
        self._namespace = namespace
        self._reader = namespace.reader
        self._shard = shard
        self._layout = namespace.layout
        self._entries = namespace.entries
        self._garbage: set[bytes] | None = None

    def forget(self) -> None:
        """Have the next look read the list of garbage again."""
        self._garbage = None

    async def _many(self, commands: Sequence[Command]) -> list[Any]:
        return await self._reader.many(self._shard.meta, commands)

    async def keys(self, keys: Sequence[bytes]) -> list[Suspect]:
        """Keys of no kind, of another type, without a time to live."""
        answers = await self._many([c for key in keys for c in (("TYPE", key), ("PTTL", key))])
        suspects = []
        for key, type_, ttl_ms in zip(keys, answers[::2], answers[1::2], strict=True):
            if type_ == b"none":
                continue  # gone meanwhile
            kind = kind_of(self._shard, key, self._layout)
            if kind.name == "unknown":
                suspects.append(Suspect("key", key, shown_key(key)))
            elif type_.decode() != kind.type:
                text = f"{shown_key(key)}: {type_.decode()}, not {kind.type}"
                suspects.append(Suspect("type", key, text))
            if ttl_ms == -1:
                suspects.append(Suspect("ttl", key, shown_key(key)))
        return suspects

    # ------------------------------------------------------------ clusters

    async def clusters(self, identities: Sequence[bytes]) -> list[Suspect]:
        """Clusters that are damaged, or not where they are looked for."""
        answers = await self._many([("GET", self._shard.cluster(each)) for each in identities])
        suspects: list[Suspect] = []
        open_: list[StoredCluster] = []
        closed: list[tuple[StoredCluster, bool]] = []
        for identity, answer in zip(identities, answers, strict=True):
            if answer is None:
                continue  # gone meanwhile, or of another type
            held = unpack_stored(identity, answer, self._layout)
            reason = "its numbers or names"
            if held is not None:
                reason = _damage(self._namespace.packer.key, held, self._layout)
            if held is None or reason:
                text = f"{self._shown(identity)}: {reason} do not fit"
                suspects.append(Suspect("cluster", identity, text))
                continue
            if held.open:
                open_.append(held)
            closed.append((held, held.texts.snapshot != b""))
        suspects += await self._queued(closed)
        suspects += await self._found(open_)
        return suspects

    async def _queued(self, clusters: Sequence[tuple[StoredCluster, bool]]) -> list[Suspect]:
        """Clusters that are not in the sorted sets that they belong to."""
        shard = self._shard
        sets = (shard.recency, shard.due, shard.leases, shard.gone)
        commands = [("ZSCORE", key, held.identity) for held, _ in clusters for key in sets]
        scores = await self._many(commands)
        suspects = []
        for place, (held, on_its_way) in enumerate(clusters):
            at = scores[place * len(sets) : (place + 1) * len(sets)]
            recency, due, leased, gone = (score is not None for score in at)
            numbers = held.numbers
            waits = (not held.open and not numbers.gone) or numbers.due or numbers.leased
            where = self._shown(held.identity)
            if held.open and not recency:
                suspects.append(Suspect("queue", held.identity, f"{where}: not in recency"))
            if (waits and not (due or leased)) or (on_its_way and not leased):
                text = f"{where}: {held.state}, not in {'leases' if on_its_way else 'due'}"
                suspects.append(Suspect("unscheduled", held.identity, text))
            if numbers.gone and not gone:
                suspects.append(Suspect("unburied", held.identity, where))
        return suspects

    async def _found(self, clusters: Sequence[StoredCluster]) -> list[Suspect]:
        """Open clusters to which entries or names are missing."""
        suspects: list[Suspect] = []
        names: list[tuple[StoredCluster, bytes]] = []
        commands: list[Command] = []
        for held in clusters:
            for name in held.names:
                key = self._namespace.packer.exact_key(self._shard, held.group_hash, name.exact)
                names.append((held, name.exact))
                commands.append(("HGET", key, held.group_hash + name.exact))
        led = [(answer or b"")[:ID_BYTES] for answer in await self._many(commands)]
        others = {
            owner for (held, _), owner in zip(names, led, strict=True) if owner != held.identity
        }
        states = await self._hold(others)
        for (held, exact), owner in zip(names, led, strict=True):
            other = states.get(owner)
            if owner != held.identity and not (other and other.open):
                where = f"leads to {owner.hex()}" if owner else "leads nowhere"
                text = f"{self._shown(held.identity)}: its exact hash {exact.hex()} {where}"
                suspects.append(Suspect("unnamed", held.identity, text))
        for held in clusters:
            missing = await missing_entries(self._namespace, self._shard, held)
            if any(missing):
                text = f"{self._shown(held.identity)}: not in table(s) " + ", ".join(
                    str(table) for table in sorted(set().union(*missing))
                )
                suspects.append(Suspect("unsearchable", held.identity, text))
        return suspects

    async def _hold(self, identities: set[bytes]) -> dict[bytes, StoredCluster | None]:
        """Clusters that exist, as they are; None for damaged ones."""
        asked = [identity for identity in identities if len(identity) == ID_BYTES]
        answers = await self._many([("GET", self._shard.cluster(each)) for each in asked])
        return {
            identity: unpack_stored(identity, answer, self._layout)
            for identity, answer in zip(asked, answers, strict=True)
            if answer is not None
        }

    # ------------------------------------------------------------ entries

    async def entries(self, places: Sequence[Place]) -> list[Suspect]:
        """Find table entries of no open cluster, and entries in the wrong slice."""
        size = self._entries.member_bytes
        states = await self._hold({member[-ID_BYTES:] for _, member in places})
        places_of = {identity: self._members(held) for identity, held in states.items() if held}
        suspects, orphans = [], []
        for place in places:
            key, member = place
            text = self._entry_text(place, member[-ID_BYTES:])
            if len(member) != size:
                suspects.append(Suspect("misplaced", place, f"{text}: {len(member)} bytes"))
                continue
            table, prefix = table_of(key), self._shard.prefixes.table
            right = of_owner = places_of.get(member[-ID_BYTES:], {}).get((table, member))
            if right is None and not self._layout.is_bands:  # a mark does not say it
                right = self._entries.slice_key(member, table, prefix)
            if right not in {None, key}:
                suspects.append(Suspect("misplaced", place, text))
            elif of_owner is None:
                orphans.append(Suspect("entry", place, text))
        return suspects + await self._orphaned(orphans)

    def _members(self, held: StoredCluster) -> dict[tuple[int, bytes], bytes]:
        """What the tables may hold of a cluster: (table, member), and the slices' keys."""
        group, owner = int.from_bytes(held.group_hash, "big"), int.from_bytes(held.identity, "big")
        size = self._entries.member_bytes
        prefix = self._shard.prefixes.table
        found: dict[tuple[int, bytes], bytes] = {}
        for name in held.names:
            if name.searchable and name.fingerprint is not None:
                keys, members = self._entries.arrange(name.fingerprint, group, owner, prefix)
                found.update(zip(enumerate(cut(members, size)), keys, strict=True))
        return found

    async def exact(self, places: Sequence[Place]) -> list[Suspect]:
        """Find exact hashes of no open cluster, and exact hashes in the wrong slice."""
        values = await self._many([("HGET", key, field) for key, field in places])
        states = await self._hold({value[:ID_BYTES] for value in values if value})
        named = {
            identity: {held.group_hash + name.exact for name in held.names}
            for identity, held in states.items()
            if held
        }
        suspects, orphans = [], []
        for place, value in zip(places, values, strict=True):
            if value is None:
                continue  # gone meanwhile
            key, field = place
            owner = value[:ID_BYTES]
            text = self._entry_text(place, owner)
            right = self._namespace.packer.exact_key(
                self._shard, field[:GROUP_BYTES], field[GROUP_BYTES:]
            )
            if len(field) != EXACT_FIELD_BYTES or key != right:
                suspects.append(Suspect("misplaced", place, text))
            elif field not in named.get(owner, ()):
                orphans.append(Suspect("exact", place, text))
        return suspects + await self._orphaned(orphans, exact=True)

    async def _orphaned(self, suspects: list[Suspect], *, exact: bool = False) -> list[Suspect]:
        """Those that are in no piece of garbage, and still there."""
        if not suspects:
            return []
        if self._garbage is None:
            self._garbage = await garbage(self._reader, self._shard)
        pieces = self._garbage
        places = [suspect.subject for suspect in suspects]
        if exact:
            values = await self._many([("HGET", *place) for place in places])
            owners = [value and value[:ID_BYTES] for value in values]
        else:
            there = await entries_exist(self._namespace, self._shard, places)
            owners = [
                member[-ID_BYTES:] if exists else None
                for (_, member), exists in zip(places, there, strict=True)
            ]
        return [
            suspect
            for suspect, owner in zip(suspects, owners, strict=True)
            if owner is not None and owner not in pieces
        ]

    # ------------------------------------------------------------ words

    def _shown(self, identity: bytes) -> str:
        return f"{identity.hex()} (shard {self._shard.number})"

    def _entry_text(self, place: Place, owner: bytes) -> str:
        return f"{shown_key(place[0])}: {place[1].hex()[:64]} → {owner.hex()}"


async def missing_entries(
    namespace: Namespace, shard: ShardKeys, held: StoredCluster
) -> list[set[int]]:
    """Find, for each name of an open cluster, the tables from which it is missing."""
    group, owner = int.from_bytes(held.group_hash, "big"), int.from_bytes(held.identity, "big")
    size = namespace.entries.member_bytes
    places: list[Place] = []
    searched = [name.fingerprint if name.searchable else None for name in held.names]
    for fingerprint in searched:
        if fingerprint is None:
            continue
        keys, members = namespace.entries.arrange(fingerprint, group, owner, shard.prefixes.table)
        of_tables = cut(members, size)
        places += [(keys[table], of_tables[table]) for table in held.tables]
    there = iter(await entries_exist(namespace, shard, places))
    return [
        set() if fingerprint is None else {t for t in held.tables if not next(there)}
        for fingerprint in searched
    ]


async def entries_exist(
    namespace: Namespace, shard: ShardKeys, places: Sequence[Place]
) -> list[bool]:
    """Find whether slices of tables hold members."""
    if not namespace.layout.is_bands:
        scores = await namespace.reader.many(shard.meta, [("ZSCORE", *place) for place in places])
        return [score is not None for score in scores]
    keys = list(dict.fromkeys(key for key, _ in places))
    slices = await namespace.reader.many(shard.meta, [("GET", key) for key in keys])
    size = namespace.entries.member_bytes
    held = {key: set(cut(members or b"", size)) for key, members in zip(keys, slices, strict=True)}
    return [member in held[key] for key, member in places]


def cut(members: bytes, size: int) -> list[bytes]:
    """Cut members that are stored one after the other; the last one may be shorter."""
    return [members[at : at + size] for at in range(0, len(members), size)]


def _damage(key: HashKey, held: StoredCluster, layout: NamespaceLayout) -> str:
    """Which parts of a cluster do not fit together."""
    numbers, texts = held.numbers, held.texts
    if numbers.gone:
        return ""
    if (texts.fingerprint == b"") != layout.is_bands or not texts.position:
        return "its fingerprint or position"
    if numbers.leased != (texts.snapshot != b""):
        return "its snapshot and what it says of it"
    if not held.open:
        return ""
    if group_hash(key, texts.group)[0] != int.from_bytes(held.group_hash, "big"):
        return "its group and its names"
    searchable = sum(name.searchable for name in held.names)
    if (len(held.names), searchable) != (numbers.names, numbers.searchable):
        return "its names and their number"
    fingerprint = int.from_bytes(texts.fingerprint, "big")
    if not layout.is_bands and held.names[0].fingerprint != fingerprint:
        return "its fingerprint and its first name"
    return ""


def shown_key(key: bytes) -> str:
    """A key, printable."""
    return readable(key, 120)
