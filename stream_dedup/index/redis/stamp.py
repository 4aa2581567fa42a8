"""How a namespace is laid out: decided when it is made, stamped on each shard, checked since."""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, RecipeMismatch
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.redis import scripts, wire
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.server import Server
from stream_dedup.tables.entries import MAX_SLICES
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import REDIS, choose

FORMAT = 1
"""Of what is stored. Raised when an older program could not read it."""

MAX_SHARDS = 256

SLICE_ENTRIES = 100
"""Entries a slice at the planned size, on average; between this and half. Redis keeps sets of up to
128 short entries in a fraction of the memory that larger ones take."""

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
    """How a namespace of so many clusters is best laid out."""
    each = -(-max_clusters // shards)
    width, k = recipe.fingerprint.width, recipe.match.k
    layout = Layout(width, k, blocks) if blocks else choose(width, k, each, REDIS).layout
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
) -> tuple[bytes, Stamp]:
    """Stamp a shard that is new; the incarnation and stamp it has."""
    shard = Shard(namespace, number)
    incarnation, digest, name, layout = await server.run(
        scripts.OPEN,
        [shard.meta],
        [
            secrets.token_hex(8),
            recipe.digest,
            recipe.name,
            json.dumps(planned._asdict()),
            ttl_ms(windows, summaries),
        ],
    )
    if digest.decode() != recipe.digest:
        raise RecipeMismatch(
            namespace, f"{name.decode()} ({digest.decode()})", f"{recipe.name} ({recipe.digest})"
        )
    stored = json.loads(layout)
    if stored["format"] != FORMAT:
        raise IndexRefused(
            f"namespace {namespace!r} is stored in format {stored['format']}, this program reads "
            f"{FORMAT}; use the program that made it, or another namespace"
        )
    return incarnation, Stamp(**stored)


def ttl_ms(windows: Windows, summaries: Summaries) -> int:
    """The backstop: longer than any cluster that still sees events needs its keys."""
    longest_us = 2 * (windows.max_age_us + summaries.retention_us)
    return min(max(longest_us, LEAST_TTL_US), wire.LATEST_US) // 1000
