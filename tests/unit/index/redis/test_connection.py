from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from stream_dedup.errors import IndexRefused, IndexUnavailable
from stream_dedup.index.redis.client import RedisClient, RetryPolicy
from stream_dedup.index.redis.connection import Tls

LOOP_TURNS = 60
"""More than it takes to connect, to send the first command and to wait for its answer."""

GENEROUS_S = 20.0


@pytest.mark.parametrize("file", ["ca_file", "cert_file", "key_file"])
def test_a_certificate_that_cannot_be_read_is_named(file: str) -> None:
    with pytest.raises(IndexRefused, match=r"/no/such\.pem"):
        RedisClient("rediss://127.0.0.1", tls=replace(Tls(), **{file: "/no/such.pem"}))  # type: ignore[arg-type]


def test_without_tls_no_certificate_is_looked_for() -> None:
    assert str(RedisClient("redis://h", tls=Tls("/no/such.pem")).address) == "redis://h:6379"


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """A server that accepts connections and never answers; its URL."""

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def cancelled_after(turns: int, url: str) -> None:
    """Cancel a call after so many turns of the event loop, and wait until it has ended."""
    # Without an answer it would end after far longer than the test waits.
    client = RedisClient(url, retry_policy=RetryPolicy(within_s=600, timeout_s=300))
    call = asyncio.create_task(client.command(b"key", "PING"))
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel()
    done, _ = await asyncio.wait([call], timeout=GENEROUS_S)
    assert done == {call}, f"cancelled after {turns} turns, it goes on"
    assert call.cancelled()
    await client.aclose()


def test_a_cancelled_call_ends_at_once_whatever_it_does() -> None:
    async def test() -> None:
        async with silent_server() as url:
            for turns in range(LOOP_TURNS):
                await cancelled_after(turns, url)

    asyncio.run(test())


def test_an_answer_that_does_not_come_in_time_counts_as_lost() -> None:
    async def test() -> None:
        async with silent_server() as url:
            client = RedisClient(url, retry_policy=RetryPolicy(within_s=0.01, timeout_s=0.05))
            with pytest.raises(IndexUnavailable, match=r"no answer within 0\.05 s"):
                await client.command(b"key", "PING")
            await client.aclose()

    asyncio.run(test())
