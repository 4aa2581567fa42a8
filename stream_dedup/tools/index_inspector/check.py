"""Checks whether the keys of a namespace are consistent, and prints what is not.

Theory of operation
-------------------
Every key of a shard is read and compared with the other keys (see `probes`). Workers go on
meanwhile: what was read in two calls need not be consistent. So everything that looks wrong is a
*suspect*: it is checked again after a pause, and once more, and reported only if it was wrong each
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from stream_dedup.cli.common import console
from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis.keys import ShardKeys, identity_of, kind_of
from stream_dedup.tools.index_inspector.output import print_rows, write_json
from stream_dedup.tools.index_inspector.probes import Probes, Suspect, cut
from stream_dedup.tools.index_inspector.reader import (
    Namespace,
    Progress,
    integer,
    unpack_numbers,
)

LOOKS = 3
PAUSE_S = 0.2

SUSPECTS = 2_000
"""Looked at again together."""

PAGE = 1_000
"""Members asked for at once."""

KEYS = 100
"""Slices asked at once."""

COUNTERS = ("fingerprints", "waiting")

_CHANGES = (*COUNTERS, "evicted", "expired", "buried")

EXAMPLES = 10
"""Kept of each kind of finding."""

KINDS = {
    "stamp": (
        "the shards of the namespace are not stamped alike",
        "a shard was lost, or created again by workers with other settings",
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
        "nothing removes them when the namespace is no longer used",
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
        "open clusters that are not in recency",
        "they are not closed in time, and their final counts come late or never",
        "set maxmemory-policy to noeviction; delete the namespace if they stay",
    ),
    "unscheduled": (
        "clusters with new events whose summary is neither due nor leased",
        "their counts are not emitted",
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
        "set maxmemory-policy to noeviction; delete the namespace to start counting again",
    ),
}
"""Kind of finding → what it is, what it means, the remedy."""


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes:
        counts: findings by kind.
        examples: some of each.
        notes: what was not checked, and why.
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


# ------------------------------------------------------------ the check

Probe = Callable[[Sequence[Any]], Awaitable[list[Suspect]]]
"""Looks at subjects, and names those that look wrong."""


async def check(namespace: Namespace, limit: int, progress: Progress) -> Report:
    """Look at a namespace, at so many keys of each shard (0: all).

    Raises:
        IndexUnavailable: the server is away.
        IndexRefused: the user may not read what is needed, or the namespace is sharded by
            fingerprint.
    """
    if namespace.spread:
        raise IndexRefused(
            f"namespace {namespace.name!r} is sharded by fingerprint: entries lie on other shards "
            "than their clusters, and this command does not compare them"
        )
    report = Report()
    await _check_layouts(namespace, report)
    for shard in namespace.shards:
        await _Check(namespace, shard, report, progress).run(limit)
    return report


async def _check_layouts(namespace: Namespace, report: Report) -> None:
    stored = []
    for shard in namespace.shards:
        names = ("digest", "recipe", "layout", "key")
        stored.append(await namespace.reader.command(shard.meta, "HMGET", shard.meta, *names))
        if stored[-1] != stored[0]:
            text = f"shard {shard.number} is stamped otherwise than shard 0, or not at all"
            report.add(Suspect("stamp", None, text))


class _Check:
    """The check of one shard."""

    def __init__(
        self, namespace: Namespace, shard: ShardKeys, report: Report, progress: Progress
    ) -> None:
        self._namespace = namespace
        self._reader = namespace.reader
        self._shard = shard
        self._report = report
        self._progress = progress
        self._probes = Probes(namespace, shard)
        self._waiting: dict[str, tuple[Probe, list[Any]]] = {}

    async def run(self, limit: int) -> None:
        """Look at the shard's keys."""
        looked = 0
        async for found in self._reader.scan(self._shard.meta, f"{self._shard.prefix.decode()}*"):
            keys = found[: limit - looked] if limit else found
            await self._keys(keys)
            looked += len(keys)
            self._progress(f"shard {self._shard.number}: looking", looked)
            if limit and looked >= limit:
                break
        for name in list(self._waiting):
            await self._look_again(name)
        if limit and looked >= limit:
            self._report.notes.append(
                f"shard {self._shard.number}: {looked:,} keys were looked at, then --limit was "
                "reached; counters were not compared"
            )
        else:
            await self._count()

    # ------------------------------------------------------------ suspects

    async def _look(self, name: str, probe: Probe, subjects: Sequence[Any]) -> None:
        suspects = await probe(subjects)
        _, waiting = self._waiting.setdefault(name, (probe, []))
        waiting.extend(dict.fromkeys(suspect.subject for suspect in suspects))
        if len(waiting) >= SUSPECTS:
            await self._look_again(name)

    async def _look_again(self, name: str) -> None:
        probe, subjects = self._waiting.pop(name)
        suspects: list[Suspect] = []
        for _ in range(LOOKS - 1):
            if not subjects:
                return
            await asyncio.sleep(PAUSE_S)
            self._probes.forget()
            suspects = await probe(subjects)
            subjects = list(dict.fromkeys(suspect.subject for suspect in suspects))
        for suspect in suspects:
            self._report.add(suspect)

    # ------------------------------------------------------------ keys

    async def _keys(self, keys: list[bytes]) -> None:
        by_kind: dict[str, list[bytes]] = {}
        for key in dict.fromkeys(keys):
            kind = kind_of(self._shard, key, self._namespace.layout)
            by_kind.setdefault(kind.name, []).append(key)
        for name, of_kind in by_kind.items():
            looked_at = self._report.looked_at
            looked_at[name] = looked_at.get(name, 0) + len(of_kind)
        await self._look("keys", self._probes.keys, keys)
        identities = list(map(identity_of, by_kind.get("clusters", ())))
        await self._look("clusters", self._probes.clusters, identities)
        tables = by_kind.get("tables", ())
        if self._namespace.layout.is_bands:
            await self._strings(tables)
        else:
            await self._members("ZSCAN", tables, self._probes.entries)
        await self._members("HSCAN", by_kind.get("exact hashes", ()), self._probes.exact)

    async def _strings(self, keys: Sequence[bytes]) -> None:
        """Look at all that slices of keys of bands hold."""
        size = self._namespace.entries.member_bytes
        for start in range(0, len(keys), KEYS):
            part = keys[start : start + KEYS]
            slices = await self._reader.many(self._shard.meta, [("GET", key) for key in part])
            subjects = [
                (key, member)
                for key, members in zip(part, slices, strict=True)
                for member in cut(members or b"", size)
            ]
            for at in range(0, len(subjects), PAGE):
                await self._look("GET", self._probes.entries, subjects[at : at + PAGE])

    async def _members(self, command: str, keys: Sequence[bytes], probe: Probe) -> None:
        """Look at all that slices hold."""
        todo: list[tuple[bytes, Any]] = [(key, 0) for key in keys]
        while todo:
            part, todo = todo[:KEYS], todo[KEYS:]
            commands = [(command, key, cursor, "COUNT", PAGE) for key, cursor in part]
            answers = await self._reader.many(self._shard.meta, commands)
            subjects: list[tuple[bytes, bytes]] = []
            for (key, _), answer in zip(part, answers, strict=True):
                if answer is None:
                    continue  # of another type, which is reported already
                cursor, members = answer
                if int(cursor):
                    todo.append((key, cursor))
                names = members if isinstance(members, dict) else [m for m, *_ in members]
                subjects += [(key, name) for name in names]
            for start in range(0, len(subjects), PAGE):
                await self._look(command, probe, subjects[start : start + PAGE])

    # ------------------------------------------------------------ counters

    async def _count(self) -> None:
        """Compare the counters, while nobody changes them."""
        wrong: dict[str, int] | None = None
        for look in range(LOOKS):
            if look:
                await asyncio.sleep(PAUSE_S)
            before = await self._meta()
            counted = zip(COUNTERS, await self._counted(), strict=True)
            if before != await self._meta():
                continue
            wrong = {name: count for name, count in counted if integer(before[name]) != count}
            if not wrong:
                return
        if wrong is None:
            self._report.notes.append(
                f"shard {self._shard.number}: workers changed it meanwhile; counters were not "
                "compared"
            )
            return
        for name, count in wrong.items():
            stored = integer(before[name])
            text = f"shard {self._shard.number}: {name} is {stored:,}, not {count:,}"
            self._report.add(Suspect("counter", name, text))

    async def _meta(self) -> dict[str, bytes | None]:
        meta = self._shard.meta
        values = await self._reader.command(meta, "HMGET", meta, *_CHANGES)
        return dict(zip(_CHANGES, values, strict=True))

    async def _counted(self) -> tuple[int, int]:
        """Searchable fingerprints, and closed clusters waiting."""
        fingerprints = waiting = looked = 0
        known: set[bytes] = set()
        pattern = f"{self._shard.prefix.decode()}c:*"
        async for keys in self._reader.scan(self._shard.meta, pattern):
            new = [key for key in dict.fromkeys(keys) if key not in known]
            known.update(new)
            answers = await self._reader.many(self._shard.meta, [("GET", key) for key in new])
            for answer in answers:
                numbers = unpack_numbers(answer)
                if numbers is not None and numbers.open:
                    fingerprints += numbers.searchable
                elif numbers is not None and not numbers.gone:
                    waiting += 1
            looked += len(new)
            self._progress(f"shard {self._shard.number}: counting", looked)
        return fingerprints, waiting


# ------------------------------------------------------------ printing


def print_report(namespace: Namespace, report: Report, form: str) -> None:
    """What a check found."""
    if form == "json":
        problems = [
            {
                "kind": kind,
                "count": count,
                "what": KINDS[kind][0],
                "meaning": KINDS[kind][1],
                "remedy": KINDS[kind][2],
                "examples": report.examples[kind],
            }
            for kind, count in report.counts.items()
        ]
        write_json(
            {
                "namespace": namespace.name,
                "looked_at": report.looked_at,
                "problems": problems,
                "notes": report.notes,
            }
        )
        return
    out = console()
    for kind, count in report.counts.items():
        what, meaning, remedy = KINDS[kind]
        out.print(Text(f"{count:,} × {what}", style="bold"), soft_wrap=True)
        print_rows([("  means", meaning), ("  remedy", remedy)])
        for example in report.examples[kind]:
            out.print(Text(f"    {example}"), soft_wrap=True)
        if count > len(report.examples[kind]):
            out.print(Text(f"    … and {count - len(report.examples[kind]):,} more"))
        out.print()
    looked_at = ", ".join(f"{n:,} {name}" for name, n in sorted(report.looked_at.items()) if n > 1)
    verdict = f"{sum(report.counts.values()):,} finding(s)" if report.counts else "all is well"
    for note in report.notes:
        out.print(Text(note), soft_wrap=True)
    shards = f"{len(namespace.shards)} shard(s)"
    out.print(Text(f"{namespace.name}: {verdict}; looked at {shards}, {looked_at}"), soft_wrap=True)
