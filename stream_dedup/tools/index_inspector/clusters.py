"""Reads and prints single clusters: the largest of a namespace, and everything about one."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from stream_dedup.cli.common import console, shown
from stream_dedup.errors import ProtocolError
from stream_dedup.features.fields import decoded
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.prepare import Preparer
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.tools.index_inspector.output import (
    Row,
    brief_time,
    print_rows,
    print_table,
    text_of,
    when,
    write_json,
)
from stream_dedup.tools.index_inspector.probes import missing_entries
from stream_dedup.tools.index_inspector.reader import (
    SCAN_COUNT,
    Namespace,
    Progress,
    StoredCluster,
    numbers_of,
    unpack_numbers,
    unpack_stored,
    unpack_texts,
)

SORTS: dict[str, Callable[[codec.Cluster], int]] = {
    "count": lambda numbers: numbers.events,
    "last": lambda numbers: numbers.last_us,
    "opened": lambda numbers: numbers.opened_us,
}


class Brief(NamedTuple):
    """A cluster in a list.

    Attributes:
        identity: its id, 8 bytes.
        numbers: its counts and times.
        group: its group.
        position: of its representative, as it is stored.
        representative: its first event's value; None if it is not known.
    """

    identity: bytes
    numbers: codec.Cluster
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
        async for identities in namespace.reader.open_clusters(shard, SCAN_COUNT):
            answers = await namespace.reader.many(
                shard.meta,
                [
                    numbers_of(shard, each) if group is None else ("GET", shard.cluster(each))
                    for each in identities
                ],
            )
            for identity, answer in zip(identities, answers, strict=True):
                numbers = unpack_numbers(answer)
                if numbers is None or not numbers.open or identity in held:
                    continue
                if group is not None:
                    texts = unpack_texts(answer)
                    if texts is None or codec.plain_group(texts.group) != group:
                        continue
                held.add(identity)
                heapq.heappush(best, (value_of(numbers), identity))
                if len(best) > limit:
                    held.discard(heapq.heappop(best)[1])
            looked += len(identities)
            progress("clusters", looked)
    return await _briefs(namespace, [identity for _, identity in sorted(best, reverse=True)])


async def _briefs(namespace: Namespace, identities: list[bytes]) -> list[Brief]:
    """Those that are still open, in order."""
    places: dict[ShardKeys, list[bytes]] = {}
    for identity in identities:
        shard = namespace.packer.shard_of(int.from_bytes(identity, "big"))
        places.setdefault(shard, []).append(identity)
    found: dict[bytes, Brief] = {}
    for shard, of_shard in places.items():
        commands = [("GET", shard.cluster(i)) for i in of_shard]
        answers = await namespace.reader.many(shard.meta, commands)
        for identity, answer in zip(of_shard, answers, strict=True):
            numbers, texts = unpack_numbers(answer), unpack_texts(answer)
            if numbers is not None and texts is not None and numbers.open:  # else it closed
                of_group = codec.plain_group(texts.group)
                first = texts.representative if numbers.events else None
                found[identity] = Brief(identity, numbers, of_group, texts.position, first)
    return [found[identity] for identity in identities if identity in found]


class Name(NamedTuple):
    """What leads to a cluster.

    Attributes:
        exact: the exact hash.
        fingerprint: the fingerprint; None where it is the keys of bands, which are secret.
        distance: from the representative's.
        searchable: whether it is in the tables.
        missing: the tables from which it is missing.
        slices: the slice of each table.
        leads_to: the cluster to which the exact hash leads; None for none.
    """

    exact: bytes
    fingerprint: int | None
    distance: int
    searchable: bool
    missing: set[int]
    slices: list[int]
    leads_to: bytes | None


class Details(NamedTuple):
    """Everything about a cluster.

    Attributes:
        held: its numbers and texts, and names while it is open.
        values: its samples and events chosen by chance, by their fields.
        names: what leads to it, with what was found there.
        scores: the sorted sets that hold it, with its score.
        ttl_ms: until its key would be gone.
        shard: where it lives.
    """

    held: StoredCluster
    values: dict[bytes, bytes]
    names: list[Name]
    scores: dict[str, float]
    ttl_ms: int
    shard: int

    @property
    def samples(self) -> list[bytes]:
        """The samples that are kept of it."""
        count = self.held.numbers.samples
        return [self.values[b"%d" % n] for n in range(1, count + 1) if b"%d" % n in self.values]

    @property
    def snapshot(self) -> tuple[int, int, int] | None:
        """The leased summary: revision, count, new count; None without."""
        packed = self.held.texts.snapshot
        if len(packed) < layouts.SNAPSHOT.struct.size:  # the group follows
            return None
        revision, count, new_count, *_ = layouts.SNAPSHOT.struct.unpack_from(packed)
        return int(revision), int(count), int(new_count)


async def details(namespace: Namespace, identity: int) -> Details | None:
    """Everything about a cluster; None if there is none.

    Raises:
        ValueError: it is damaged.
    """
    packed = codec.pack_id(identity)
    try:
        shard = namespace.packer.shard_of(identity)
    except ProtocolError:
        return None  # an id of no shard
    key = shard.cluster(packed)
    sets = {name: getattr(shard, name) for name in ("expiry", "recency", "due", "leases", "gone")}
    commands = [("GET", key), ("HGETALL", shard.values(packed)), ("PTTL", key)]
    stored, values, ttl_ms, *scores = await namespace.reader.many(
        key, [*commands, *(("ZSCORE", each, packed) for each in sets.values())]
    )
    if stored is None:
        return None
    held = unpack_stored(packed, stored, namespace.layout, spread=namespace.spread)
    if held is None:
        raise ValueError("what is stored of it does not fit together")
    names = await _names(namespace, shard, held) if held.names else []
    found = {
        name: float(score) for name, score in zip(sets, scores, strict=True) if score is not None
    }
    return Details(held, values or {}, names, found, ttl_ms, shard.number)


async def _names(namespace: Namespace, shard: ShardKeys, held: StoredCluster) -> list[Name]:
    group = int.from_bytes(held.group_hash, "big")
    missing = await missing_entries(namespace, shard, held)
    answers = await namespace.reader.many(
        shard.meta,
        [
            (
                "HGET",
                namespace.packer.exact_key(shard, held.group_hash, name.exact),
                held.group_hash + name.exact,
            )
            for name in held.names
        ],
    )
    is_bands, first = namespace.layout.is_bands, held.names[0].fingerprint or 0
    out = []
    for name, absent, answer in zip(held.names, missing, answers, strict=True):
        fingerprint, keys = name.fingerprint, list[bytes]()
        if fingerprint is not None:
            keys, _ = namespace.entries.arrange(fingerprint, group, 0, b"")
        if is_bands:
            distance = answer[layouts.ID_BYTES] if answer else 0
        else:
            distance = ((fingerprint or 0) ^ first).bit_count()
        out.append(
            Name(
                name.exact,
                None if is_bands else fingerprint,
                distance,
                name.searchable,
                absent,
                [int(key.rpartition(b":")[2]) for key in keys],
                answer[:8] if answer else None,
            )
        )
    return out


# ------------------------------------------------------------ printing

MAX_TEXT = 1_000
"""Characters shown of a representative or sample."""


def namer(recipe: Recipe | None) -> Callable[[bytes], str]:
    """What makes a pattern of a representative; its text where the recipe is not known."""
    if recipe is None:
        return lambda value: shown(value, 300)
    patterns, takes_fields = Patterns(recipe), Preparer(recipe).takes_fields

    def pattern(value: bytes) -> str:
        # Of what was cut short, or is not JSON, the text is the pattern.
        return patterns.pattern(value, decoded(value) if takes_fields else None)

    return pattern


def print_clusters(found: Sequence[Brief], recipe: Recipe | None, form: str) -> None:
    """A list of clusters."""
    name = namer(recipe)
    if form == "json":
        write_json({"clusters": [_brief(brief, name, patterns=bool(recipe)) for brief in found]})
        return
    groups = any(brief.group for brief in found)
    print_table(
        "",
        ("cluster", "#count", "first", "last", "#rev.", *(["group"] if groups else []),
         "pattern" if recipe else "representative"),
        (
            (
                brief.identity.hex(),
                f"{brief.numbers.events:,}",
                brief_time(brief.numbers.first_us),
                brief_time(brief.numbers.latest_us),
                str(brief.numbers.revision),
                *([shown(brief.group, 30)] if groups else []),
                "" if brief.representative is None else name(brief.representative),
            )
            for brief in found
        ),
    )  # fmt: skip


def _brief(brief: Brief, name: Callable[[bytes], str], *, patterns: bool) -> dict[str, Any]:
    value = brief.representative
    numbers = brief.numbers
    return {
        "cluster": brief.identity.hex(),
        "count": numbers.events,
        "opened": when(numbers.opened_us),
        "first": when(numbers.first_us),
        "last": when(numbers.latest_us),
        "revision": numbers.revision,
        "group": text_of(brief.group),
        "position": text_of(brief.position),
        "representative": None if value is None else text_of(value),
        "pattern": name(value) if value is not None and patterns else None,
    }


def print_details(namespace: Namespace, found: Details, recipe: Recipe | None, form: str) -> None:
    """Everything about a cluster."""
    name = namer(recipe)
    numbers, texts = found.held.numbers, found.held.texts
    value = texts.representative if numbers.events else None
    position = text_of(texts.position).split(":", 2)
    snapshot = found.snapshot
    facts: dict[str, Any] = {
        "cluster": found.held.identity.hex(),
        "namespace": namespace.name,
        "shard": found.shard,
        "state": found.held.state,
        "count": numbers.events,
        "first": when(numbers.first_us),
        "last": when(numbers.latest_us),
        "opened": when(numbers.opened_us),
        "window_last": when(numbers.last_us),
        "revision": numbers.revision,
        "emitted": numbers.emitted,
        "emitted_at": when(numbers.emitted_us),
        "on_its_way": None
        if snapshot is None
        else dict(zip(("revision", "count", "new_count"), snapshot, strict=True)),
        "queues": {
            key: score if key == "gone" else _score(score) for key, score in found.scores.items()
        },
        "remembered_until": when(texts.until_us) if texts.until_us else None,
        "ttl_s": found.ttl_ms // 1000 if found.ttl_ms >= 0 else None,
        "group": text_of(codec.plain_group(texts.group)),
        "position": dict(zip(("partition", "offset", "source"), position, strict=False)),
        "fingerprint": texts.fingerprint.hex(),
        "pattern": name(value) if value is not None and recipe else None,
        "representative": None if value is None else text_of(value),
        "samples": list(map(text_of, found.samples)),
        "names": [_name(each, found.held.identity, namespace) for each in found.names],
    }
    if form == "json":
        write_json(facts)
        return
    print_rows(_readable(facts))
    if found.names:
        console().print()
        tables = len(found.held.tables)
        print_table(
            "names: the first is the representative's, the others are aliases",
            ("exact hash", "leads to", "fingerprint", "#distance", "in tables"),
            (
                (
                    each.exact.hex(),
                    _leads_to(each, found.held.identity),
                    _hex(each.fingerprint, namespace),
                    str(each.distance),
                    _in_tables(each, tables),
                )
                for each in found.names
            ),
        )
        console().print()
        first = found.names[0]
        if first.searchable:
            places = " ".join(f"{table}:{first.slices[table]}" for table in found.held.tables)
            print_rows([("slices of the representative (table:slice)", places)])


def _readable(facts: dict[str, Any]) -> Iterable[Row]:
    for name, value in facts.items():
        label = "ttl (s)" if name == "ttl_s" else name.replace("_", " ")
        if name == "names" or value is None or value in ("", {}, []):
            continue
        if isinstance(value, dict):
            parts = (f"{key.replace('_', ' ')} {each}" for key, each in value.items())
            yield label, shown(", ".join(parts).encode("utf-8", "replace"), MAX_TEXT)
        elif isinstance(value, list):
            yield from (
                (label[:-1], shown(each.encode("utf-8", "replace"), MAX_TEXT)) for each in value
            )
        else:
            yield label, shown(str(value).encode("utf-8", "replace"), MAX_TEXT)


def _score(score: float) -> str:
    return "at once" if score == float("-inf") else when(score)


def _hex(fingerprint: int | None, namespace: Namespace) -> str:
    if fingerprint is None:
        return ""
    return f"{fingerprint:0{namespace.layout.width // 4}x}"


def _leads_to(name: Name, identity: bytes) -> str:
    if name.leads_to is None:
        return "nothing"
    return "here" if name.leads_to == identity else name.leads_to.hex()


def _in_tables(name: Name, tables: int) -> str:
    if not name.searchable:
        return "not searched"
    if not name.missing:
        return f"all {tables}"
    return f"{tables - len(name.missing)} of {tables}; not in {sorted(name.missing)}"


def _name(name: Name, identity: bytes, namespace: Namespace) -> dict[str, Any]:
    return {
        "exact": name.exact.hex(),
        "leads_to": None if name.leads_to is None else name.leads_to.hex(),
        "leads_here": name.leads_to == identity,
        "fingerprint": _hex(name.fingerprint, namespace),
        "distance": name.distance,
        "searchable": name.searchable,
        "slices": name.slices if name.searchable else [],
        "missing_in": sorted(name.missing),
    }
