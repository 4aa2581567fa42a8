from __future__ import annotations

import time

import pytest

from stream_dedup.clock import ManualClock, SystemClock


def test_the_system_clock_returns_microseconds_since_1970() -> None:
    before = time.time()
    now_us = SystemClock().now_us()
    assert before - 1 <= now_us / 1_000_000 <= time.time() + 1


def test_a_manual_clock_moves_only_when_it_is_moved() -> None:
    clock = ManualClock(5)
    assert [clock.now_us(), clock.now_us()] == [5, 5]
    clock.advance(1.5)
    assert clock.now_us() == 1_500_005
    clock.advance(-1.5)
    assert clock.now_us() == 5
    assert ManualClock().now_us() == 0


@pytest.mark.parametrize("seconds", [1e-6, 0.000_001_4])
def test_a_manual_clock_moves_by_whole_microseconds(seconds: float) -> None:
    clock = ManualClock()
    clock.advance(seconds)
    assert clock.now_us() == 1
