"""A worker that kills itself: ``crashing_worker.py STEP N --set KEY=VALUE …``.

It dies after the Nth time that this step was done: resolved, recorded, sent, committed; claimed,
remembered, emitted, deleted, confirmed (remembered and deleted: of events about patterns).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from stream_dedup import assembly
from stream_dedup.config import load
from stream_dedup.index.base import Query, Resolution
from stream_dedup.metrics import Metrics
from stream_dedup.worker.telemetry.health import Health
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics


class Wrapped:
    """An index that reports the step "resolved"."""

    def __init__(self, index: Any, step: Callable[[str], None]) -> None:
        self._index = index
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        answers: list[Resolution] = await self._index.resolve(queries, now_us)
        self._step("resolved")
        return answers


def killer(step: str, times: int) -> Callable[[str], None]:
    """A function that kills this process when a step was done so many times."""
    seen = 0

    def done(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == times:
            os.kill(os.getpid(), signal.SIGKILL)

    return done


async def work(step: str, times: int, settings: tuple[str, ...]) -> None:
    config = load(None, settings).config
    metrics: Metrics = PrometheusMetrics()
    health, done = Health(metrics), killer(step, times)
    async with assembly.connect_redis(config) as server:
        pipeline = await assembly.make_pipeline(
            config, config.pipelines[0], metrics, health, server, done
        )
        engine = pipeline.context.engine
        engine._context = replace(engine._context, index=Wrapped(engine.index, done))
        await pipeline.run()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), tuple(sys.argv[4::2])))
