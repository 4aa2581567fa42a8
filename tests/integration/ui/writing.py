"""Writes events into a namespace as a worker does, for the tests of the web application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from stream_dedup.clock import US_PER_S, SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import Limits
from stream_dedup.model import Batch, Decision, Partition
from tests.integration.redis.helpers import opened

HERE = Partition("app logs; rm -rf", 0)
ALL_VALUES = Summaries(values_every=1)


class Writer:
    """An engine over a namespace.

    Attributes:
        engine: the engine.
        written: events so far.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.written = 0

    async def write(
        self, lines: Sequence[bytes], *, time_us: int | None = None, group: str = ""
    ) -> list[Decision]:
        """Write events of one time, by default of now."""
        time_us = SystemClock().now_us() if time_us is None else time_us
        offsets = range(self.written, self.written + len(lines))
        groups = [group] * len(lines) if group else None
        batch = Batch(HERE, offsets, list(lines), [time_us] * len(lines), groups)
        self.written += len(lines)
        return await self.engine.process(batch, committed=self.written)


@asynccontextmanager
async def writing(
    url: str,
    namespace: str,
    *,
    shards: int = 1,
    clusters: int = 200_000,
    idle_s: int = 3_600,
    summaries: Summaries = ALL_VALUES,
) -> AsyncIterator[Writer]:
    """A namespace of the recipe `logs` that is written to."""
    recipe, clock = load_recipe("logs"), SystemClock()
    windows = Windows(idle_us=idle_s * US_PER_S)
    async with opened(
        url, recipe, namespace=namespace, shards=shards, limits=Limits(clusters), windows=windows,
        summaries=summaries, clock=clock,
    ) as index:  # fmt: skip
        engine = Engine(
            recipe, index, windows=windows, summaries=summaries, clock=clock,
            near_cache_size=200_000,
        )  # fmt: skip
        await engine.claim_partition(HERE, None)
        yield Writer(engine)
