"""Whether what a namespace holds fits together.

Theory of operation
-------------------
Every key of a shard is looked at once, and what it says is held against the other keys. Workers
go on meanwhile: what was read in two calls need not fit. So what looks wrong is a *suspect*,
looked at again after a pause, and once more; only what is wrong each time is told.

What leads to a closed cluster may wait in the list of garbage to be purged. The order of reading
matters: first the cluster, then the garbage, last the entry. Purging takes the entry out before
the garbage's piece, so an entry that is still there was never purged in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stream_dedup.index.redis import inspection
from stream_dedup.index.redis.inspection import Command, Held, Namespace, Progress
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.kinds import kind_of
from stream_dedup.tables.entries import OWNER_BYTES, parts

LOOKS = 3
PAUSE_S = 0.2

SUSPECTS = 2_000
"""Looked at again together."""

EXAMPLES = 10
"""Kept of each kind of finding."""

PAGE = 1_000
"""Members asked for at once."""

KINDS = {
    "stamp": (
        "the shards of the namespace are not stamped alike",
        "a shard was lost, or made anew by workers with other settings",
        "stop the workers, delete the namespace and start them again",
    ),
    "key": (
        "keys of no known kind",
        "something else writes under this namespace's prefix, or another version did",
        "find out who writes them; delete them by hand if nobody needs them",
    ),
    "type": (
        "keys of another type than their name says",
        "something else has written them; the scripts fail on them",
        "delete the namespace, and keep others from writing under sd:",
    ),
    "ttl": (
        "keys without a time to live",
        "nothing removes them when the namespace is used no more",
        "if they stay so while workers run, delete the namespace when you no longer need it",
    ),
    "cluster": (
        "damaged clusters",
        "their fields do not fit together; something else has written them",
        "delete these keys; events like theirs open a new cluster",
    ),
    "unsearchable": (
        "open clusters that are missing in tables",
        "events near to them may open a second cluster; the server has lost or evicted keys",
        "set maxmemory-policy to noeviction; it heals as clusters close",
    ),
    "unnamed": (
        "open clusters whose exact hashes lead to no open cluster",
        "events equal to theirs are searched by fingerprint, or open a second cluster",
        "set maxmemory-policy to noeviction; it heals as clusters close",
    ),
    "queue": (
        "open clusters that are not in expiry or recency",
        "they are not closed in time, and their final counts come late or never",
        "set maxmemory-policy to noeviction; delete the namespace if they stay",
    ),
    "untold": (
        "clusters with news that are neither due nor on their way",
        "their counts are not told",
        "set maxmemory-policy to noeviction; delete the namespace if they stay",
    ),
    "unburied": (
        "tombstones that are not in gone",
        "they take memory until their time to live is over; nothing else is wrong with them",
        "none is needed",
    ),
    "entry": (
        "table entries that lead to no open cluster, and are not in the garbage",
        "they take memory and candidates; a worker's purge was lost",
        "none at once; if they grow, delete the namespace",
    ),
    "misplaced": (
        "entries in the wrong slice",
        "they are found by no look-up; the layout was changed or something else wrote them",
        "delete the namespace",
    ),
    "exact": (
        "exact hashes that lead to no open cluster, and are not in the garbage",
        "they take memory; a worker's purge was lost",
        "none at once; if they grow, delete the namespace",
    ),
    "counter": (
        "counters that differ from what is counted",
        "the metrics of this namespace are off; keys were lost or evicted",
        "set maxmemory-policy to noeviction; delete the namespace to count anew",
    ),
}
"""Kind of finding → what it is, what it means, the remedy."""


class Suspect(NamedTuple):
    """Something that looks wrong.

    Attributes:
        kind: of `KINDS`.
        subject: what is looked at again.
        text: what is wrong, with the key.
    """

    kind: str
    subject: Any
    text: str


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes:
        counts: findings by kind.
        examples: some of each.
        notes: what was not looked at, and why.
        looked_at: keys, by kind.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)

    def add(self, suspect: Suspect) -> None:
        """Note a finding."""
        self.counts[suspect.kind] = self.counts.get(suspect.kind, 0) + 1
        kept = self.examples.setdefault(suspect.kind, [])
        if len(kept) < EXAMPLES:
            kept.append(suspect.text)


Probe = Callable[[Sequence[Any]], Awaitable[list[Suspect]]]
"""Looks at subjects, and names those that look wrong."""


async def check(namespace: Namespace, limit: int, progress: Progress) -> Report:
    """Look at a namespace, at so many keys of each shard (0: all).

    Raises:
        IndexUnavailable: the server is away.
        IndexRefused: the user may not read what is needed.
    """
    report = Report()
    await _check_stamps(namespace, report)
    for shard in namespace.shards:
        await _Check(namespace, shard, report).run(limit, progress)
    return report


async def _check_stamps(namespace: Namespace, report: Report) -> None:
    stamps = []
    for shard in namespace.shards:
        names = ("digest", "recipe", "layout")
        stamps.append(await namespace.reader.command(shard.meta, "HMGET", shard.meta, *names))
        if stamps[-1] != stamps[0]:
            text = f"shard {shard.number} is stamped otherwise than shard 0, or not at all"
            report.add(Suspect("stamp", None, text))


class _Check:
    """The check of one shard."""

    def __init__(self, namespace: Namespace, shard: Shard, report: Report) -> None:
        self._namespace = namespace
        self._reader = namespace.reader
        self._shard = shard
        self._report = report
        self._width = namespace.stamp.width
        self._waiting: dict[Probe, list[Any]] = {}
        self._counted = {"fingerprints": 0, "waiting": 0}

    async def run(self, limit: int, progress: Progress) -> None:
        looked = 0
        before = await self._counters()
        whole = True
        async for found in self._reader.scan(self._shard.meta, f"{self._shard.prefix.decode()}*"):
            keys = found[: limit - looked] if limit else found
            await self._keys(keys)
            looked += len(keys)
            progress(f"shard {self._shard.number}", looked)
            if limit and looked >= limit:
                whole = False
                break
        for probe in list(self._waiting):
            await self._look_again(probe)
        if not whole:
            self._report.notes.append(
                f"shard {self._shard.number}: {looked:,} keys were looked at, then --limit was "
                "reached; counters were not compared"
            )
        elif before != await self._counters() or any(
            before[name] != count for name, count in self._counted.items()
        ):
            await self._recount()

    # ------------------------------------------------------------ suspects

    async def _look(self, probe: Probe, subjects: Sequence[Any]) -> None:
        suspects = await probe(subjects)
        waiting = self._waiting.setdefault(probe, [])
        waiting.extend(dict.fromkeys(suspect.subject for suspect in suspects))
        if len(waiting) >= SUSPECTS:
            await self._look_again(probe)

    async def _look_again(self, probe: Probe) -> None:
        subjects = self._waiting.pop(probe)
        suspects: list[Suspect] = []
        for _ in range(LOOKS - 1):
            if not subjects:
                return
            await asyncio.sleep(PAUSE_S)
            suspects = await probe(subjects)
            subjects = list(dict.fromkeys(suspect.subject for suspect in suspects))
        for suspect in suspects:
            self._report.add(suspect)

    # ------------------------------------------------------------ keys

    async def _keys(self, keys: list[bytes]) -> None:
        by_kind: dict[str, list[bytes]] = {}
        for key in dict.fromkeys(keys):
            by_kind.setdefault(self._kind(key), []).append(key)
        for kind, of_kind in by_kind.items():
            looked_at = self._report.looked_at
            looked_at[kind] = looked_at.get(kind, 0) + len(of_kind)
        await self._look(self._probe_keys, keys)
        clusters = by_kind.get("cluster", [])
        await self._look(self._probe_clusters, [bytes.fromhex(key[-16:].decode()) for key in clusters])
        for kind, command, probe in (
            ("table", "ZSCAN", self._probe_entries),
            ("exact", "HSCAN", self._probe_exact),
        ):
            await self._members(by_kind.get(kind, []), command, probe)

    def _kind(self, key: bytes) -> str:
        return kind_of(self._shard, key, self._namespace.stamp)[0]

    async def _members(self, keys: list[bytes], command: str, probe: Probe) -> None:
        """Look at all that slices hold."""
        todo: list[tuple[bytes, Any]] = [(key, 0) for key in keys]
        while todo:
            part, todo = todo[:100], todo[100:]
            commands = [(command, key, cursor, "COUNT", PAGE) for key, cursor in part]
            answers = await self._reader.many(self._shard.meta, commands)
            subjects: list[tuple[bytes, bytes]] = []
            for (key, _), answer in zip(part, answers, strict=True):
                if answer is None:
                    continue  # of another type, which is told of already
                cursor, members = answer
                if int(cursor):
                    todo.append((key, cursor))
                names = members if isinstance(members, dict) else [m for m, *_ in members]
                subjects += [(key, name) for name in names]
            for start in range(0, len(subjects), 10 * PAGE):
                await self._look(probe, subjects[start : start + 10 * PAGE])

    async def _probe_keys(self, keys: Sequence[bytes]) -> list[Suspect]:
        commands: list[Command] = [c for key in keys for c in (("TYPE", key), ("PTTL", key))]
        answers = await self._reader.many(self._shard.meta, commands)
        suspects = []
        for key, type_, ttl_ms in zip(keys, answers[::2], answers[1::2], strict=True):
            if type_ in (b"none", "none"):
                continue  # gone meanwhile
            name, expected = kind_of(self._shard, key, self._namespace.stamp)
            stored = type_.decode() if isinstance(type_, bytes) else str(type_)
            shown = inspection.shown_key(key)
            if name == "unknown":
                suspects.append(Suspect("key", key, shown))
            elif stored != expected:
                suspects.append(Suspect("type", key, f"{shown}: {stored}, not {expected}"))
            if ttl_ms == -1:
                suspects.append(Suspect("ttl", key, shown))
        return suspects

    # ------------------------------------------------------------ clusters

    async def _hold(self, identities: Sequence[bytes]) -> dict[bytes, Held | None]:
        """Clusters that exist; None for those that are damaged."""
        commands: list[Command] = [
            ("HMGET", self._shard.cluster(identity), "n", "a") for identity in identities
        ]
        answers = await self._reader.many(self._shard.meta, commands)
        out: dict[bytes, Held | None] = {}
        for identity, answer in zip(identities, answers, strict=True):
            if answer is not None and answer[0] is not None:
                held = inspection.hold(identity, answer[0], answer[1], self._width)
                out[identity] = held
                if held and held.open:
                    self._seen(held)
        return out
