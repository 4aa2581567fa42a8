"""The worker's life: it runs pipelines until a signal, the end of the input, or an error.

The first SIGTERM, SIGINT or SIGHUP lets every pipeline finish its batches in progress; a second one
ends the process at once, which is safe too. A pipeline that cannot go on ends the worker: an
orchestrator restarts it and sees the reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence

from stream_dedup.worker.pipeline import Pipeline
from stream_dedup.worker.telemetry.health import START, Health

log = logging.getLogger(__name__)

SIGNAL_EXIT_CODE = 128
"""A shell adds this to the number of the signal that ended a process."""


class StopRequest(asyncio.Event):
    """Set when the worker should stop. A signal requests it; a second signal ends the process."""

    def signalled(self, number: int) -> None:
        """Take a signal that ends a worker."""
        name = signal.Signals(number).name
        if self.is_set():
            log.warning("%s again: ending at once", name)
            logging.shutdown()
            os._exit(SIGNAL_EXIT_CODE + number)
        log.info("%s: finishing the batches in progress; a second signal ends at once", name)
        self.set()


async def run_pipelines(
    pipelines: Sequence[Pipeline], health: Health, stop: StopRequest, *, once: bool
) -> None:
    """Run pipelines concurrently until all have ended, or the first one fails.

    Raises:
        StreamDedupError: the reason why the first of them ended.
    """
    running = [asyncio.create_task(pipeline.run(once=once)) for pipeline in pipelines]
    ended = asyncio.create_task(asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION))
    stopping = asyncio.create_task(stop.wait())
    health.ready(START)
    try:
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        for pipeline in pipelines:
            pipeline.stop()
        done = await asyncio.gather(*running, return_exceptions=True)
    for error in done:
        if isinstance(error, BaseException):
            raise error


async def run_every_second(*works: Callable[[], Awaitable[None] | None]) -> None:
    """Call functions every second, without end; errors are logged."""
    while True:
        for work in works:
            try:
                waiting = work()
                if waiting is not None:
                    await waiting
            except Exception:
                log.exception("a task that runs every second failed")
        await asyncio.sleep(1)
