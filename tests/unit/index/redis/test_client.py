"""What does not need a server: which errors pass, and what they count as."""

from __future__ import annotations

import asyncio

import pytest
from redis import exceptions

from stream_dedup.index.redis.client import MAX_CONCURRENT_CALLS, RedisClient, RetryPolicy

SOON = RetryPolicy(within_s=5, first_delay_s=0.001, max_delay_s=0.001)


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (exceptions.MaxConnectionsError("Too many connections"), False),
        (exceptions.NoScriptError("No matching script"), False),
        (exceptions.ConnectionError("connection refused"), True),
    ],
)
def test_only_the_servers_own_errors_count_as_an_outage(error: Exception, away: bool) -> None:
    server = RedisClient("redis://h", retry_policy=SOON)
    left, seen = [error] * 3, []

    async def attempt() -> object:
        seen.append(server.retrying)
        if left:
            raise left.pop()
        return 7

    assert asyncio.run(server._with_retries("call", attempt)) == 7
    assert [False, away, away, away] == seen
    assert server.counts["retries"] == (3 if away else 0)
    assert not server.retrying


def test_more_calls_than_connections_wait_for_each_other() -> None:
    server = RedisClient("redis://h", retry_policy=SOON)
    running = most = 0

    async def attempt() -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return None

    async def call_all() -> None:
        await asyncio.gather(*(server._with_retries("call", attempt) for _ in range(1_000)))

    asyncio.run(call_all())
    assert most == MAX_CONCURRENT_CALLS
