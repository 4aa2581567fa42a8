"""A cancellation that the driver swallows is heard all the same."""

from __future__ import annotations

import asyncio

import pytest
from redis.exceptions import TimeoutError as NoAnswer

from stream_dedup.index.redis.client import _raise_cancellation


async def _deaf(fails: bool) -> str:
    """What swallows a cancellation, as `asyncio.wait_for` may, and then ends, well or not."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    if fails:
        raise NoAnswer
    return "answer"


@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_is_heard_as_the_attempt_ends(fails: bool) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(_raise_cancellation(_deaf(fails)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_without_one_all_is_handed_on() -> None:
    async def answers() -> str:
        return "answer"

    async def refuses() -> str:
        raise NoAnswer

    assert asyncio.run(_raise_cancellation(answers())) == "answer"
    with pytest.raises(NoAnswer):
        asyncio.run(_raise_cancellation(refuses()))
