"""Which signals end a process that runs until it is told to end, and who hears of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def ending() -> list[signal.Signals]:
    """Return SIGINT, SIGTERM and SIGHUP; the last one not where it is ignored, as under `nohup`."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


@contextmanager
def handled(handler: Callable[[int], None], numbers: Sequence[int] | None = None) -> Iterator[None]:
    """Handle signals on the running event loop.

    Args:
        handler: called with the number of each signal.
        numbers: which signals; by default those that end a process.
    """
    loop, numbers = asyncio.get_running_loop(), ending() if numbers is None else numbers
    for number in numbers:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def ended_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run a coroutine, and return whether it ended before an event was set; else it is cancelled.

    An error of the coroutine is raised.
    """
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        return doing.done()
    finally:  # also if the caller is cancelled
        stopping.cancel()
        doing.cancel()
