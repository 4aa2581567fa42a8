"""Signals that end a process which runs until it is told to end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from stream_dedup.signals import ended_before, handled

NAMES = "from stream_dedup import signals; print(*(each.name for each in signals.ending()))"


@pytest.mark.parametrize(
    ("ignored", "expected"), [(False, "SIGINT SIGTERM SIGHUP"), (True, "SIGINT SIGTERM")]
)
def test_a_hangup_does_not_end_what_nohup_started(*, ignored: bool, expected: str) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        done = subprocess.run(
            [sys.executable, "-c", NAMES], capture_output=True, text=True, check=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.stdout.strip() == expected


def test_a_handler_gets_the_number_of_each_signal_until_its_end() -> None:
    came: list[int] = []
    before = signal.getsignal(signal.SIGUSR1)

    async def run() -> None:
        event = asyncio.Event()

        def handler(number: int) -> None:
            came.append(number)
            event.set()

        with handled(handler, (signal.SIGUSR1,)):
            os.kill(os.getpid(), signal.SIGUSR1)
            await event.wait()

    asyncio.run(run())
    assert came == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) == before


def test_work_ends_unless_the_event_comes_first() -> None:
    ended: list[bool] = []

    async def fails() -> None:
        raise LookupError

    async def run() -> None:
        stop = asyncio.Event()
        ended.append(await ended_before(stop, asyncio.sleep(0)))
        with pytest.raises(LookupError):
            await ended_before(stop, fails())
        stop.set()
        ended.append(await ended_before(stop, asyncio.sleep(3600)))

    asyncio.run(run())
    assert ended == [True, False]


def test_work_ends_with_its_cancelled_caller() -> None:
    async def run() -> set[asyncio.Task[None]]:
        caller = asyncio.create_task(ended_before(asyncio.Event(), asyncio.sleep(3600)))
        await asyncio.sleep(0.01)
        caller.cancel()
        await asyncio.wait({caller})
        await asyncio.sleep(0.01)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()
