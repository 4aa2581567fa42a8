"""One namespace: its layout, fixed when it is created, and how its shards are opened.

Every shard stores the namespace's layout and the recipe's digest in its ``meta`` key, and both are
checked whenever it is opened. It also stores a random *incarnation*, which every script compares
with what its caller knows: a shard that lost its data gets a new one, so the loss is noticed.

``meta`` holds the key of the hashes that decide (see `fingerprint.siphash`), too: random, chosen by
whoever creates the namespace, in the script that creates its first shard, so workers that start at
the same time agree. Whoever creates another shard takes the key of those that exist.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from dataclasses import asdict
from typing import NamedTuple

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, IndexUnavailable, RecipeMismatch
from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint import bands
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.index.base import Limits, check_width
from stream_dedup.index.redis import codec, layouts, scripts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.tables.entries import MAX_SLICES, Entries, make_entries
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import REDIS, choose

FORMAT = 7
"""Version of what is stored. Raised when an older program could not read or maintain it."""

MAX_SHARDS = 256

SPREAD_DIGEST, SPREAD_NAME = ":spread", ", sharded by fingerprint"
"""Behind the digest and name of the recipe of a namespace of `open_spread`."""

CALL_WORK = 1_000
"""Commands of a script call, about: three milliseconds."""

SLICE_ENTRIES = 64
"""The most entries a slice at the planned size, on average; at least half as many. Redis keeps sets
of up to 128 short entries in a fraction of the memory that larger ones take, and one that was ever
larger never goes back. Around 64 that is eight standard deviations away; around 100 it would be
three, and over the years every slice would get there."""

BANDS_SLICE_ENTRIES = 128
"""The same of keys of bands, whose slices are strings, read from the beginning. With 64, twice as
many keys take 45 bytes more a cluster."""

OPENING_ATTEMPTS = 20
OPENING_PAUSE_S = (0.05, 0.1)
"""Of `open_spread`: how often it tries, and how long it waits before it takes what it finds for a
loss: creating all shards takes some milliseconds. The pauses grow."""

LEAST_TTL_US = 7 * 24 * 3600 * US_PER_S


def plan_layout(
    recipe: Recipe, max_clusters: int, shards: int, blocks: int | None = None
) -> NamespaceLayout:
    """Plan the layout of a namespace for so many clusters.

    Tables are planned for a namespace half full, as most are most of the time; slices for all the
    clusters there may be. Bands have one table a key.

    Raises:
        RecipeError: no index holds fingerprints of the recipe's width.
    """
    check_width(recipe)
    each = -(-max_clusters // shards)
    width, k = recipe.fingerprint.width, recipe.match.k
    half = -(-each // 2)
    is_bands = recipe.fingerprint.kind == "bands"
    if is_bands:
        tables = Layout(bands.BITS, bands.BANDS - 1, bands.BANDS)
    else:
        tables = Layout(width, k, blocks) if blocks else choose(width, k, half, REDIS).layout
    exact_slices = _slices(each, SLICE_ENTRIES)
    slices = _slices(each, BANDS_SLICE_ENTRIES) if is_bands else exact_slices
    return NamespaceLayout(
        FORMAT, tables.width, tables.k, tables.blocks, slices, exact_slices, shards
    )


def _slices(entries: int, most: int) -> int:
    """Return how many slices hold so many entries, at most so many each on average."""
    return min(1 << max(0, (entries - 1) // most).bit_length(), MAX_SLICES)


def pack_matching(
    recipe: Recipe,
    layout: NamespaceLayout,
    limits: Limits,
    entries: Entries,
    search_work: int = 0,
) -> bytes:
    """Pack what counts as near; see `layouts.MATCHING`."""
    return layouts.MATCHING.struct.pack(
        layout.k,
        recipe.match.jaccard,
        recipe.match.aliases,
        limits.max_candidates,
        limits.max_verified,
        entries.prefix_bytes,
        entries.member_bytes,
        layout.table_layout.tables,
        CALL_WORK,
        search_work,
        recipe.match.learn,
        layout.exact_slices.bit_length() - 1,
        layout.posting_slices.bit_length() - 1,
    )


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
            f"{FORMAT}; use another namespace, or the program that made it; or delete it "
            "(stream-dedup index delete-namespace)"
        )
    return layout


def read_key(namespace: str, key: bytes, stored: bytes | None) -> HashKey:
    """Decode the key of the hashes, as it is stored in the field ``key`` of a key.

    Raises:
        IndexRefused: it is damaged; the Redis key is named, the secret is not.
    """
    try:
        return HashKey(stored or b"")
    except ValueError as error:
        raise _damaged(namespace, key) from error


def _damaged(namespace: str, key: bytes) -> IndexRefused:
    return IndexRefused(
        f"namespace {namespace!r} has a damaged layout in {key.decode()}; delete it "
        "(stream-dedup index delete-namespace) and have the workers create it again"
    )


class Opened(NamedTuple):
    """A namespace, or a shard of it, as it is stored.

    Attributes:
        incarnations: of its shards.
        layout: how it is laid out.
        key: of its hashes.
    """

    incarnations: list[bytes]
    layout: NamespaceLayout
    key: HashKey


async def open_namespace(
    client: RedisClient,
    namespace: str,
    recipe: Recipe,
    planned: NamespaceLayout,
    key: HashKey,
    *,
    windows: Windows,
    summaries: Summaries,
    settings: str = "",
    spread: bool = False,
) -> Opened:
    """Open the shards of a namespace; create those that do not exist.

    A shard that alone was lost is created again with the layout and key of the others.

    Args:
        client: the service.
        namespace: its name.
        recipe: the recipe it is created with.
        planned: its layout if it is new.
        key: of its hashes if it is new.
        windows: the caller's; they decide how long its keys live.
        summaries: these too.
        settings: what `describe_settings` returns for the caller's; stored for others to compare.
        spread: whether it is one of `open_spread`.

    Raises:
        RecipeMismatch: it was created with another recipe.
        IndexRefused: it was created by another version, with other shards, or is damaged.
    """
    order = await _existing_first(client, namespace, planned.shards)
    incarnations: dict[int, bytes] = {}
    layout = planned
    for number in order:
        shard = ShardKeys(namespace, number)
        opened = await _open_shard(
            client, shard, recipe, layout, key, ttl_ms(windows, summaries), settings,
            spread=spread,
        )  # fmt: skip
        if opened.layout.shards != planned.shards:
            raise IndexRefused(
                f"namespace {namespace!r} was made with {opened.layout.shards} shard(s), not "
                f"{planned.shards}; give that number, or another namespace"
            )
        difference = ""
        if number != order[0] and opened.layout != layout:
            difference = (
                f"is laid out as {tuple(opened.layout)}, shard {order[0]} as {tuple(layout)}"
            )
        elif number != order[0] and opened.key != key:
            difference = f"and shard {order[0]} have different hash keys"
        if difference:
            raise IndexRefused(
                f"namespace {namespace!r}: shard {number} {difference}; delete the namespace, or "
                "the shard that is wrong, and have the workers create it again"
            )
        (incarnations[number],), layout, key = opened
    return Opened([incarnations[number] for number in range(planned.shards)], layout, key)


async def _existing_first(client: RedisClient, namespace: str, shards: int) -> list[int]:
    """The shards' numbers, those that exist already first."""
    exists = [
        bool(await client.command(meta, "EXISTS", meta))
        for meta in (ShardKeys(namespace, number).meta for number in range(shards))
    ]
    return sorted(range(shards), key=lambda number: not exists[number])


async def _open_shard(
    client: RedisClient,
    shard: ShardKeys,
    recipe: Recipe,
    planned: NamespaceLayout,
    key: HashKey,
    ttl: int,
    settings: str,
    *,
    spread: bool,
    incarnation: str = "",
) -> Opened:
    """Create a shard, or open one that exists; see `open_namespace`."""
    namespace = shard.namespace
    own_digest, own_name = stored_identity(recipe, spread=spread)
    born, digest, name, layout, stored_key = await client.run(
        scripts.OPEN,
        [shard.meta, *shard.fixed],
        [
            incarnation or secrets.token_hex(8),
            own_digest,
            own_name,
            json.dumps(planned._asdict()),
            ttl,
            settings,
            key.secret(),
        ],
    )
    if digest is None or name is None:
        raise _damaged(namespace, shard.meta)
    if digest.decode() != own_digest:
        raise RecipeMismatch(
            namespace, f"{name.decode()} ({digest.decode()})", f"{own_name} ({own_digest})"
        )
    found = read_layout(namespace, shard.meta, layout)
    return Opened([born], found, read_key(namespace, shard.meta, stored_key))


def stored_identity(recipe: Recipe, *, spread: bool) -> tuple[str, str]:
    """Return the digest and name of its recipe that a namespace stores; each kind has its own."""
    return (
        (f"{recipe.digest}{SPREAD_DIGEST}", f"{recipe.name}{SPREAD_NAME}")
        if spread
        else (recipe.digest, recipe.name)
    )


async def open_spread(
    client: RedisClient,
    namespace: str,
    recipe: Recipe,
    planned: NamespaceLayout,
    key: HashKey,
    *,
    windows: Windows,
    summaries: Summaries,
    settings: str = "",
) -> Opened:
    """Open a namespace whose tables are spread over its shards, or create it.

    All its shards have one incarnation. If one of them is lost, slices of clusters on the others
    are lost with it, so recall would no longer be complete: then all begin again, empty. Whoever
    chooses an incarnation gives it to the first shard last, and to each only if it has none. So
    if all have the same, none has lost anything since.

    Args: as `open_namespace`.

    Raises:
        IndexUnavailable: others open it at the same time, again and again; or as `RedisClient.run`.
        RecipeMismatch, IndexRefused: as `open_namespace`.
    """
    shards = [ShardKeys(namespace, number) for number in range(planned.shards)]
    before: list[bytes | None] = []
    for attempt in range(OPENING_ATTEMPTS):
        found = [await _incarnation(client, shard, recipe) for shard in shards]
        if found[0] is not None and len(set(found)) == 1:
            opened = await open_namespace(
                client, namespace, recipe, planned, key, windows=windows, summaries=summaries,
                settings=settings, spread=True,
            )  # fmt: skip
            if opened.incarnations == found:
                return opened
        elif any(found) and found != before:  # somebody else may be creating it
            before = found
            await asyncio.sleep(random.uniform(*OPENING_PAUSE_S) * (attempt + 1))  # noqa: S311 -- spreads attempts
        else:
            for shard, known in zip(shards, found, strict=True):
                if known is not None:
                    await client.run(scripts.FORGET, [shard.meta], [known])
            incarnation = secrets.token_hex(8)
            for shard in (*shards[1:], shards[0]):
                (born,), *_ = await _open_shard(
                    client, shard, recipe, planned, key, ttl_ms(windows, summaries), settings,
                    spread=True, incarnation=incarnation,
                )  # fmt: skip
                if born != incarnation.encode():
                    break
    raise IndexUnavailable(
        f"{client.address}: namespace {namespace!r} was created and lost {OPENING_ATTEMPTS} times "
        "while it was opened; look whether a server loses its data, and try again"
    )


async def _incarnation(client: RedisClient, shard: ShardKeys, recipe: Recipe) -> bytes | None:
    """Return the incarnation of a shard of such a namespace; None if it does not exist."""
    stored = await client.command(
        shard.meta, "HMGET", shard.meta, "incarnation", "digest", "recipe"
    )
    incarnation: bytes | None = stored[0]
    own_digest, own_name = stored_identity(recipe, spread=True)
    if incarnation is not None and stored[1] != own_digest.encode():
        digest, name = ((text or b"?").decode() for text in stored[1:])
        raise RecipeMismatch(shard.namespace, f"{name} ({digest})", f"{own_name} ({own_digest})")
    return incarnation


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
