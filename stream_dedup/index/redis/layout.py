"""How a namespace is laid out: decided when it is made, stamped on each shard, checked since."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from typing import NamedTuple

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, RecipeMismatch
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits, check_width
from stream_dedup.index.redis import codec, scripts
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.server import Server
from stream_dedup.tables.entries import MAX_SLICES, make_entries
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import REDIS, choose

FORMAT = 2
"""Of what is stored. Raised when an older program could not read it, or not keep it up."""

MAX_SHARDS = 256

SLICE_ENTRIES = 64
"""Entries a slice at the planned size, on average; between this and half. Redis keeps sets of up to
128 short entries in a fraction of the memory that larger ones take, and one that was ever larger
stays so: around 64 that is eight standard deviations away, around 100 it is three, and over the
years every slice would get there."""

LEAST_TTL_US = 7 * 24 * 3600 * US_PER_S


class Stamp(NamedTuple):
    """How a namespace is laid out; fixed when it is made.

    Attributes:
        format: `FORMAT` of who made it.
        width: bits of a fingerprint.
        k: the largest distance found with certainty.
        blocks: m.
        slices: of each table.
        exact_slices: of the exact hashes.
        shards: how many.
    """

    format: int
    width: int
    k: int
    blocks: int
    slices: int
    exact_slices: int
    shards: int

    @property
    def layout(self) -> Layout:
        """Blocks and tables."""
        return Layout(self.width, self.k, self.blocks)


def plan_stamp(recipe: Recipe, max_clusters: int, shards: int, blocks: int | None = None) -> Stamp:
    """How a namespace of so many clusters is best laid out.

    Tables are planned for it half full, as most are most of the time, slices for all there may be.

    Raises:
        RecipeError: no index holds fingerprints of the recipe's width.
    """
    check_width(recipe)
    each = -(-max_clusters // shards)
    width, k = recipe.fingerprint.width, recipe.match.k
    half = -(-each // 2)
    layout = Layout(width, k, blocks) if blocks else choose(width, k, half, REDIS).layout
    slices = 1 << max(0, (each - 1) // SLICE_ENTRIES).bit_length()
    slices = min(slices, MAX_SLICES)
    return Stamp(FORMAT, width, k, layout.blocks, slices, slices, shards)


async def stamp_shard(
    server: Server,
    namespace: str,
    number: int,
    recipe: Recipe,
    planned: Stamp,
    windows: Windows,
    summaries: Summaries,
    settings: str = "",
) -> tuple[bytes, Stamp]:
    """Stamp a shard that is new; the incarnation and stamp it has.

    Args:
        server: where it lives.
        namespace: its name.
        number: the shard's.
        recipe: what it is made with.
        planned: how it is laid out if it is new.
        windows: the caller's; they say how long its keys live.
        summaries: these too.
        settings: what `describe` makes of the caller's; noted on the shard for others to compare.

    Raises:
        RecipeMismatch: it was made with another recipe.
        IndexRefused: it was made by another version, or the stamp is damaged.
    """
    shard = Shard(namespace, number)
    incarnation, digest, name, layout = await server.run(
        scripts.OPEN,
        [shard.meta, *shard.fixed],
        [
            secrets.token_hex(8),
            recipe.digest,
            recipe.name,
            json.dumps(planned._asdict()),
            ttl_ms(windows, summaries),
            settings,
        ],
    )
    if digest is None or name is None:
        raise _damaged(namespace, shard.meta)
    if digest.decode() != recipe.digest:
        raise RecipeMismatch(
            namespace, f"{name.decode()} ({digest.decode()})", f"{recipe.name} ({recipe.digest})"
        )
    return incarnation, read_stamp(namespace, shard.meta, layout)


def read_stamp(namespace: str, key: bytes, layout: bytes | None) -> Stamp:
    """A stamp as it is stored in the field ``layout`` of a key.

    Raises:
        IndexRefused: it is damaged, or of another version; the key is named.
    """
    version: object = None
    stamp: Stamp | None = None
    try:
        stored = json.loads(layout or b"")
        version = stored["format"]
        sound = True
        if version == FORMAT:
            stamp = Stamp(**stored)
            sound = 1 <= stamp.shards <= MAX_SHARDS and stamp.exact_slices.bit_count() == 1
            make_entries(stamp.layout, stamp.slices)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        sound = False
    if not sound:
        raise _damaged(namespace, key)
    if stamp is None:
        raise IndexRefused(
            f"namespace {namespace!r} is stored in format {version!r}, this program reads "
            f"{FORMAT}; use the program that made it, or another namespace"
        )
    return stamp


def _damaged(namespace: str, key: bytes) -> IndexRefused:
    return IndexRefused(
        f"namespace {namespace!r} has a damaged stamp in {key.decode()}; delete it "
        "(stream-dedup index delete-namespace) and have the workers make it anew"
    )


def describe(windows: Windows, summaries: Summaries, limits: Limits) -> str:
    """The settings that workers of a namespace should share, as they are noted on it (JSON)."""
    parts = {
        "windows": asdict(windows),
        "summaries": asdict(summaries),
        "limits": asdict(limits),
    }
    return json.dumps(
        {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
    )


async def compare_settings(server: Server, namespace: str, settings: str) -> list[str]:
    """What differs from the settings of the worker that opened a namespace last, as advice."""
    meta = Shard(namespace, 0).meta
    (noted,) = await server.command(meta, "HMGET", meta, "settings")
    return differences(namespace, noted, settings)


def differences(namespace: str, noted: bytes | None, settings: str) -> list[str]:
    """A sentence about what differs, if anything does; what cannot be read is not compared."""
    ours = json.loads(settings)
    try:
        theirs = {**json.loads(noted or b"{}")}
    except (ValueError, TypeError):
        return []
    differing = ", ".join(
        f"{name} was {theirs[name]!r} and is {value!r}"
        for name, value in ours.items()
        if name in theirs and theirs[name] != value
    )
    if not differing:
        return []
    sentence = (
        f"namespace {namespace!r} was opened with other settings before: {differing}; each worker "
        "goes by its own, so give all that share it the same"
    )
    return [sentence]


def ttl_ms(windows: Windows, summaries: Summaries) -> int:
    """The backstop: longer than any cluster that still sees events needs its keys."""
    longest_us = 2 * (windows.max_age_us + summaries.retention_us)
    return min(max(longest_us, LEAST_TTL_US), codec.LATEST_US) // 1000
