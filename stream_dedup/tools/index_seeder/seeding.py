"""Seeding: the lines that taught a backfill something are given to the engine of a namespace.

To the index the backfill is one more partition, and a line's number is its offset. So what holds
for events of Kafka holds here: the index keeps the number of the last line that it has recorded, a
run that was killed goes on behind it, and no line is counted twice. Workers may go on meanwhile:
two callers that resolve near-duplicates at the same time never both open a cluster.

The name of the partition depends on the secret key of the namespace. A namespace that has lost its
data gets another key, so its seeding begins again with the first line, also in a later run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from stream_dedup.assembly import open_redis_index
from stream_dedup.clock import US_PER_S
from stream_dedup.config import Config, PipelineConfig
from stream_dedup.engine.engine import Counts, Engine
from stream_dedup.engine.hashing import HashedBatch
from stream_dedup.errors import IndexReset, StreamDedupError
from stream_dedup.features.fields import decoded
from stream_dedup.index.base import Ownership
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.rules import RedisRules
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.model import Batch, Partition
from stream_dedup.spark.teaching import Lines, TeachingLines

TOO_LONG = "too long"
"""Why a line is passed of which the backfill kept only a part."""

EXPIRE_EVERY_US = 2 * US_PER_S
"""The index renews what is in use at least so often; see `Index.expire`."""


class Seeded(NamedTuple):
    """What a seeding did.

    Attributes:
        lines: how many there are.
        before: of these, those that an earlier run had seeded.
        counts: what was decided about the others.
    """

    lines: int
    before: int
    counts: Counts


class _Rules:
    """Gives an engine the rules of its namespace, as they are now.

    Args:
        engine: the engine.
        source: where the rules are.
    """

    def __init__(self, engine: Engine, source: RedisRules) -> None:
        self._engine = engine
        self._source = source
        self._version = -1  # none is read yet

    async def look(self) -> None:
        """Read the rules if they have changed.

        Raises:
            RuleError: they are damaged.
            IndexUnavailable, IndexRefused: the index cannot be used.
        """
        if await self._source.version() == self._version:
            return
        book = await self._source.read()
        self._engine.use_rules(await asyncio.to_thread(book.compiled))
        self._version = book.version


class _LostError(StreamDedupError):
    """The index has lost what was seeded."""


class _Engine(Engine):
    """An engine that claims its partition only once.

    Else it would go on with the next line in an index that has just lost the lines before it.
    """

    _is_claimed = False

    async def claim_partition(
        self, partition: Partition, end_offset: int | None = None, identity: str = ""
    ) -> Ownership:
        if self._is_claimed:
            raise _LostError
        self._is_claimed = True
        return await super().claim_partition(partition, end_offset, identity)


async def seed(
    config: Config,
    section: PipelineConfig,
    server: RedisClient,
    lines: TeachingLines,
    progress: Callable[[int, int], None],
    *,
    again: bool = False,
) -> Seeded:
    """Seed the namespace of a pipeline.

    Args:
        config: the whole configuration.
        section: the pipeline, whose recipe is that of the backfill.
        server: Redis.
        lines: of the backfill.
        progress: called with how many lines were seeded, and how many there are.
        again: begin with the first line, though some were seeded before.

    Raises:
        InputError: the backfill cannot be read.
        RuleError: the rules of the namespace are damaged.
        StaleFence: another process has begun to seed the same.
        IndexUnavailable, IndexRefused, RecipeMismatch: the index cannot be used. What was seeded
            stays, and the next run goes on behind it.
    """
    try:
        return await _until_seeded(config, section, server, lines, progress, again=again)
    except asyncio.CancelledError:
        lines.cancel()  # else the thread that reads would be waited for
        raise


async def _until_seeded(
    config: Config,
    section: PipelineConfig,
    server: RedisClient,
    lines: TeachingLines,
    progress: Callable[[int, int], None],
    *,
    again: bool,
) -> Seeded:
    """Begin again whenever the index has lost its data."""
    total: int | None = None  # counted once it is known that the index can be used
    while True:
        index = await open_redis_index(config, section, server)
        if total is None:
            total = await asyncio.to_thread(lines.count)
        engine = _Engine(
            section.load_recipe(),
            index,
            windows=section.windows(),
            summaries=section.summaries(),
            clock=index.clock,
            near_cache_size=0,  # each line is another one
            offload=asyncio.to_thread,
            templates=False,
        )
        rules = _Rules(engine, RedisRules(server, section.namespace))
        with suppress(_LostError, IndexReset):
            return await _seed(engine, index, rules, lines, total, progress, again=again)


async def _seed(
    engine: Engine,
    index: RedisIndex,
    rules: _Rules,
    lines: TeachingLines,
    total: int,
    progress: Callable[[int, int], None],
    *,
    again: bool,
) -> Seeded:
    partition = partition_of(lines.digest, index)
    await rules.look()
    claimed = await engine.claim_partition(partition, end_offset=0 if again else None)
    before = claimed.high_water + 1
    progress(before, total)
    if before < total:
        batches = lines.batches(engine.recipe, before)
        following = asyncio.create_task(asyncio.to_thread(_hashed, engine, partition, batches))
        expired_us = 0
        try:
            while (batch := await following) is not None:
                following = asyncio.create_task(
                    asyncio.to_thread(_hashed, engine, partition, batches)
                )
                await rules.look()  # lines that were hashed under others are hashed again
                await engine.process(batch, committed=batch.batch.offsets[0])
                progress(batch.batch.offsets[-1] + 1, total)
                now_us = engine.clock.now_us()
                if now_us - expired_us >= EXPIRE_EVERY_US:
                    await index.expire(now_us)
                    expired_us = now_us
        finally:
            following.cancel()
    await engine.release_partition(partition)
    return Seeded(total, before, engine.counts)


def partition_of(digest: str, index: RedisIndex) -> Partition:
    """Return the partition that stands for a backfill in an index."""
    keyed = blake2b(digest.encode(), key=index.key.secret(), digest_size=16).hexdigest()
    return Partition(f"seed:{keyed}", 0)


def _hashed(engine: Engine, partition: Partition, batches: Iterator[Lines]) -> HashedBatch | None:
    """Read and hash the next batch; None after the last. Blocks."""
    lines = next(batches, None)
    if lines is None:
        return None
    values = [text or b"" for text in lines.texts]
    # A microsecond apart: of equally near clusters the oldest is chosen, whatever their ids are.
    now_us = engine.clock.now_us()
    return engine.hash(
        Batch(
            partition,
            range(lines.first, lines.first + len(values)),
            values,
            range(now_us, now_us + len(values)),
            lines.groups if any(lines.groups) else None,
            list(map(decoded, values)) if engine.takes_fields else None,
            passed={row: TOO_LONG for row, text in enumerate(lines.texts) if text is None},
        )
    )
