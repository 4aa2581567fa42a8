"""Layouts: what scripts pack is what Python unpacks."""

from __future__ import annotations

import pytest

from stream_dedup.index.redis.layouts import NO_TIME_US, Layout
from tests.services.redis import RedisServer

NUMBERS = Layout("<", time_us="i7", count="I6", bytes="I7", revision="I", state="B")


@pytest.mark.parametrize(
    "numbers",
    [(0, 0, 0, 0, 0), (-1, 1, 1, 1, 1), (-(1 << 52), (1 << 48) - 1, 1 << 53, 7, 255)],
)
def test_integers_of_a_few_bytes_are_what_the_script_packed(
    redis_server: RedisServer, numbers: tuple[int, ...]
) -> None:
    script = f"return struct.pack('{NUMBERS.lua}', unpack(ARGV))"
    packed = redis_server.command("EVAL", script, "0", *map(str, numbers))
    assert isinstance(packed, bytes)
    assert NUMBERS.integers(packed + b"what follows") == [*numbers]


def test_a_time_later_than_any_event_has_its_place(redis_server: RedisServer) -> None:
    script = (
        "return tostring(struct.unpack('<i7', struct.pack('<i7', ARGV[1])) == tonumber(ARGV[1]))"
    )
    for time_us in (NO_TIME_US, -NO_TIME_US, 1 << 54):
        assert redis_server.command("EVAL", script, "0", str(time_us)) == b"true"
