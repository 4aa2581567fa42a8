"""Runs the pipelines of a worker until a signal, the end of the input, or an error.

The first SIGTERM or SIGINT lets every pipeline finish what is on its way and the worker end well;
a second ends it at once, which is safe too. One pipeline that cannot go on ends them all: an
orchestrator starts the worker anew, and sees why not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence

from stream_dedup.worker.pipeline import Pipeline
from stream_dedup.worker.telemetry.health import START, Health

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

SIGNALLED = 128
"""What a shell adds to a signal's number."""


class Stop:
    """Whether the worker is to end. The first signal asks; the second does not."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to signals."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _signalled(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._asked.is_set():
            log.warning("%s again: ending at once", name)
            logging.shutdown()
            os._exit(SIGNALLED + number)
        log.info("%s: finishing what is on its way; once more to end at once", name)
        self._asked.set()

    def ask(self) -> None:
        """Ask the worker to end."""
        self._asked.set()

    async def asked(self) -> None:
        """Wait until it is to end."""
        await self._asked.wait()


async def run_pipelines(
    pipelines: Sequence[Pipeline], health: Health, stop: Stop, *, once: bool
) -> None:
    """Run pipelines side by side until all have ended, or one cannot go on.

    Raises:
        StreamDedupError: why the first of them ended.
    """
    running = [asyncio.create_task(pipeline.run(once=once)) for pipeline in pipelines]
    asked = asyncio.create_task(stop.asked())
    health.ready(START)
    try:
        await asyncio.wait(
            [asyncio.create_task(_all(running)), asked], return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        asked.cancel()
        for pipeline in pipelines:
            pipeline.stop()
        done = await asyncio.gather(*running, return_exceptions=True)
    for error in done:
        if isinstance(error, BaseException):
            raise error


async def _all(running: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all, or for the first that fails."""
    await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)


async def each_second(*tasks: Callable[[], Awaitable[None] | None]) -> None:
    """Do some things each second, for ever. What fails is logged, and done again."""
    while True:
        for task in tasks:
            try:
                waiting = task()
                if waiting is not None:
                    await waiting
            except Exception:
                log.exception("something that is done each second failed")
        await asyncio.sleep(1)
