"""What varies together in whole lines is noted in Redis; if that fails, nothing else does."""

from __future__ import annotations

import pytest

from stream_dedup.errors import IndexUnavailable
from stream_dedup.index.redis.store import RedisIndex
from tests.contract.driver import START_US
from tests.contract.test_learned_words import LEARNS, asked
from tests.integration.redis.helpers import in_loop, opened
from tests.services.redis import RedisServer

LINES = [f"task a{n % 29} assigned to worker b{n % 31} by scheduler c{n % 37}" for n in range(300)]


@pytest.mark.parametrize("shards", [1, 3])
@in_loop
async def test_lines_are_answered_though_what_varies_cannot_be_noted(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    redis_server.command("FLUSHALL")
    failed = 0

    async def fails(*_: object) -> None:
        nonlocal failed
        failed += 1
        raise IndexUnavailable("away")

    async with opened(redis_server.url, LEARNS, shards=shards) as index:
        with monkeypatch.context() as patched:
            patched.setattr(index._resolver, "combine", fails)
            assert await opens(index, 0, 100) == 100
        assert failed
        await opens(index, 100, 200)
        assert await opens(index, 200, 300) == 0  # what was lost is found again


async def opens(index: RedisIndex, start: int, end: int) -> int:
    """Resolve some lines; how many of them opened a cluster."""
    answers = []
    for number in range(start, end):
        answers += await index.resolve([asked(number, LINES[number], number)], START_US)
    return sum(answer.new for answer in answers)
