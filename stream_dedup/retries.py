"""Retries of calls to a broker or an index that is away for now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
"""The first and the longest pause between two calls."""

T = TypeVar("T")


async def with_retries(
    work: Callable[[], Awaitable[T]],
    retryable: Callable[[BaseException], bool],
    report: Callable[[Exception], None],
) -> T:
    """Call `work` until it succeeds, as often as it takes; a cancellation ends it at once.

    Args:
        work: makes the call.
        retryable: whether to try again after this exception; any other is raised.
        report: gets each exception that is followed by another call.
    """
    try:
        return await work()
    except Exception as error:
        if not retryable(error):
            raise
        report(error)
    return await retry(work, retryable, report)


async def retry(
    work: Callable[[], Awaitable[T]],
    retryable: Callable[[BaseException], bool],
    report: Callable[[Exception], None],
) -> T:
    """Call `work` again after a failure that was reported, until it succeeds; see `with_retries`.

    The pauses are random, and their limit doubles from call to call up to `MAX_PAUSE_S`.
    """
    await asyncio.sleep(FIRST_PAUSE_S)

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        if isinstance(error, Exception):
            report(error)

    retrying = AsyncRetrying(
        retry=retry_if_exception(retryable),
        wait=wait_random_exponential(2 * FIRST_PAUSE_S, min=FIRST_PAUSE_S, max=MAX_PAUSE_S),
        before_sleep=before_sleep,
    )
    return await retrying(work)
