"""One namespace: its layout, fixed when it is created, and how its shards are opened.

Every shard stores the namespace's layout and the recipe's digest in its ``meta`` key, and both are
checked whenever it is opened. It also stores a random *incarnation*, which every script compares
with what its caller knows: a shard that lost its data gets a new one, so the loss is noticed.
"""

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
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.tables.entries import MAX_SLICES, make_entries
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import REDIS, choose

FORMAT = 3
"""Version of what is stored. Raised when an older program could not read or maintain it."""

MAX_SHARDS = 256

CALL_WORK = 1_000
"""Commands of a script call, about: three milliseconds."""

SLICE_ENTRIES = 64
"""The most entries a slice at the planned size, on average; at least half as many. Redis keeps sets
of up to 128 short entries in a fraction of the memory that larger ones take, and one that was ever
larger never goes back. Around 64 that is eight standard deviations away; around 100 it would be
three, and over the years every slice would get there."""

LEAST_TTL_US = 7 * 24 * 3600 * US_PER_S


class NamespaceLayout(NamedTuple):
    """How a namespace is laid out; fixed when it is created.

    Attributes:
        format: `FORMAT` of the program that created it.
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
    def table_layout(self) -> Layout:
        """Blocks and tables."""
        return Layout(self.width, self.k, self.blocks)


def plan_layout(
    recipe: Recipe, max_clusters: int, shards: int, blocks: int | None = None
) -> NamespaceLayout:
    """Plan the layout of a namespace for so many clusters.

    Tables are planned for a namespace half full, as most are most of the time; slices for all the
    clusters there may be.

    Raises:
        RecipeError: no index holds fingerprints of the recipe's width.
    """
    check_width(recipe)
    each = -(-max_clusters // shards)
    width, k = recipe.fingerprint.width, recipe.match.k
    half = -(-each // 2)
    tables = Layout(width, k, blocks) if blocks else choose(width, k, half, REDIS).layout
    slices = 1 << max(0, (each - 1) // SLICE_ENTRIES).bit_length()
    slices = min(slices, MAX_SLICES)
    return NamespaceLayout(FORMAT, width, k, tables.blocks, slices, slices, shards)


def read_layout(namespace: str, key: bytes, stored: bytes | None) -> NamespaceLayout:
    """Decode a layout, as it is stored in the field ``layout`` of a key.

    Raises:
        IndexRefused: it is damaged, or of another version; the key is named.
    """
    version: object = None
    layout: NamespaceLayout | None = None
    try:
        fields = json.loads(stored or b"")
        version = fields["format"]
        sound = True
        if version == FORMAT:
            layout = NamespaceLayout(**fields)
            sound = 1 <= layout.shards <= MAX_SHARDS and layout.exact_slices.bit_count() == 1
            make_entries(layout.table_layout, layout.slices)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        sound = False
    if not sound:
        raise _damaged(namespace, key)
    if layout is None:
        raise IndexRefused(
            f"namespace {namespace!r} is stored in format {version!r}, this program reads "
            f"{FORMAT}; use the program that made it, or another namespace"
        )
    return layout


def _damaged(namespace: str, key: bytes) -> IndexRefused:
    return IndexRefused(
        f"namespace {namespace!r} has a damaged layout in {key.decode()}; delete it "
        "(stream-dedup index delete-namespace) and have the workers create it again"
    )


async def open_shard(
    client: RedisClient,
    namespace: str,
    number: int,
    recipe: Recipe,
    planned: NamespaceLayout,
    windows: Windows,
    summaries: Summaries,
    settings: str = "",
) -> tuple[bytes, NamespaceLayout]:
    """Create a shard, or open one that exists.

    Args:
        client: the service.
        namespace: its name.
        number: the shard's.
        recipe: the recipe it is created with.
        planned: its layout if it is new.
        windows: the caller's; they decide how long its keys live.
        summaries: these too.
        settings: what `describe_settings` returns for the caller's; stored for others to compare.

    Returns:
        The incarnation and layout that are stored.

    Raises:
        RecipeMismatch: it was created with another recipe.
        IndexRefused: it was created by another version, or the layout is damaged.
    """
    shard = ShardKeys(namespace, number)
    incarnation, digest, name, layout = await client.run(
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
    return incarnation, read_layout(namespace, shard.meta, layout)


def describe_settings(windows: Windows, summaries: Summaries, limits: Limits) -> str:
    """Encode the settings that workers of a namespace should share, as they are stored (JSON)."""
    parts = {
        "windows": asdict(windows),
        "summaries": asdict(summaries),
        "limits": asdict(limits),
    }
    return json.dumps(
        {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
    )


def ttl_ms(windows: Windows, summaries: Summaries) -> int:
    """The time to live of a key: twice as long as any cluster needs it, and a week at least."""
    longest_us = 2 * (windows.max_age_us + summaries.retention_us)
    return min(max(longest_us, LEAST_TTL_US), codec.LATEST_US) // 1000
