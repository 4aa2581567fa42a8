"""Print the modules that one batch of duplicates crosses from fetch to commit.

``python -m benchmarks.batch_path`` starts a broker and a Redis, runs a worker over them, and lists
the modules of the package whose code runs for every batch. ``docs/architecture.md`` shows the list,
and a test compares the two.

A profiler notes each Python function that is entered. Timers (metrics, heartbeats, summaries) run
beside the batches, so several batches are sent one after the other, and only what runs for each of
them counts. The profiler does not see native modules; the page names them beside their callers.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import stream_dedup
from stream_dedup.assembly import connect_redis, make_pipeline
from stream_dedup.config import load
from stream_dedup.worker.telemetry.health import Health
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from tests.services.kafka import Kafka, KafkaBroker
from tests.services.redis import RedisServer

PACKAGE = Path(stream_dedup.__file__).parent
EVENTS = 200
BATCHES = 12
WITHIN_S = 60.0
"""How long a batch may take on a machine that is busy with other work."""


class ModuleTrace:
    """The modules of the package in which a function was entered while `recording` was on."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.enabled = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.enabled and event == "call":
            self.files.add(frame.f_code.co_filename)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note what runs within the block."""
        self.files.clear()
        self.enabled = True
        try:
            yield
        finally:
            self.enabled = False

    def modules(self) -> set[str]:
        """Paths below the package, such as ``engine/engine.py``."""
        paths = (Path(file) for file in self.files)
        return {str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE)}


async def batch_path(kafka: Kafka, redis_url: str) -> list[str]:
    """The modules that every batch of duplicates crosses, sorted by path.

    Args:
        kafka: a broker, and a client that creates topics and writes the batches.
        redis_url: where the index is.
    """
    topic, output = kafka.fresh_topic(1), kafka.fresh_topic(1)
    config = load(
        None,
        [
            f"kafka.bootstrap_servers={kafka.bootstrap}",
            f"kafka.group_id={topic}",
            f"index.url={redis_url}",
            "worker.commit_every_s=0",
            f"pipelines.0.topics={topic}",
            f"pipelines.0.output_topic={output}",
            f"pipelines.0.namespace={topic}",
            "pipelines.0.emit=annotate",
        ],
    ).config
    trace, committed = ModuleTrace(), asyncio.Event()

    def on_step(name: str) -> None:
        if name == "committed":
            committed.set()

    async def send(number: int) -> None:
        lines = [b"disk %d of host %d is full" % (number, n) for n in range(EVENTS)]
        committed.clear()
        await asyncio.to_thread(partial(kafka.produce, topic, lines, partition=0))
        async with asyncio.timeout(WITHIN_S):
            while True:
                await committed.wait()
                committed.clear()
                if pipeline.context.engine.counts.events >= (number + 1) * EVENTS:
                    return

    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        async with connect_redis(config) as server:
            pipeline = await make_pipeline(
                config, config.pipelines[0], PrometheusMetrics(), Health(), server, on_step
            )
            running = asyncio.create_task(pipeline.run())
            await send(0)  # opens the cluster
            await send(1)
            found: list[set[str]] = []
            for number in range(2, 2 + BATCHES):
                with trace.recording():
                    await send(number)
                found.append(trace.modules())
            pipeline.stop()
            await running
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(set.intersection(*found))


def main() -> None:
    """Start the services, and print the modules."""
    with KafkaBroker() as broker, RedisServer() as redis:
        modules = asyncio.run(batch_path(broker, redis.url))
    print("\n".join(modules))
    print(f"{len(modules)} modules")


if __name__ == "__main__":
    main()
