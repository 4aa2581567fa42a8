from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.windows import FOREVER_US, StreamTime, Windows
from stream_dedup.model import Partition

A, B, C = (Partition("topic", number) for number in range(3))
S = 1_000_000
WINDOWS = Windows(idle_us=100, max_age_us=250, quiet_after_us=60 * S)


@pytest.mark.parametrize(
    ("opened", "last", "time", "live"),
    [
        (0, 0, 100, True),
        (0, 0, 101, False),
        (0, 200, 250, True),
        (0, 200, 251, False),
        (0, 50, -(10**9), True),
    ],
)
def test_a_cluster_is_live_until_idle_or_max_age_end_it(
    opened: int, last: int, time: int, live: bool
) -> None:
    assert WINDOWS.live(opened, last, time) == live


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.integers(-3000, 3000))
def test_expiry_is_the_last_live_moment(opened: int, later: int, time: int) -> None:
    last = opened + later
    assert WINDOWS.live(opened, last, time) == (time <= WINDOWS.expires_us(opened, last))


@pytest.mark.parametrize("name", ["idle_us", "max_age_us", "quiet_after_us"])
@pytest.mark.parametrize("value", [0, -1])
def test_windows_of_zero_or_less_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        Windows(**{name: value})


def test_forever_keeps_the_order_of_last_times() -> None:
    windows = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
    assert windows.expires_us(5, 5) < windows.expires_us(6, 6)


def test_before_the_first_event_there_is_no_stream_time() -> None:
    time = StreamTime(WINDOWS)
    assert (time.value_us, time.advance(10**15)) == (None, None)


def test_stream_time_is_the_least_of_the_active_partitions() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 500, 0)
    time.record(B, 300, 0)
    time.record(C, 900, 0)
    assert time.advance(0) == 300
    time.record(B, 700, 1)
    assert time.advance(1) == 500


def test_a_partitions_earlier_times_do_not_lower_it() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 500, 0)
    time.record(A, 100, 0)
    assert time.advance(0) == 500


def test_a_partition_far_behind_moves_stream_time_back() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 500, 0)
    assert time.advance(0) == 500
    time.record(B, 100, 1)
    assert (time.value_us, time.advance(1)) == (100, 100)
    time.record(A, 900, 2)
    assert time.advance(2) == 100
    time.record(B, 800, 3)
    assert time.advance(3) == 800


def test_a_quiet_partition_behind_moves_it_back_when_active() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 100, 0)
    time.record(B, 500, 61 * S)
    assert time.advance(61 * S) == 500
    time.record(A, 200, 62 * S)
    assert time.advance(62 * S) == 200


def test_a_quiet_partition_does_not_hold_stream_time_back() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 100, 0)
    time.record(B, 500, 60 * S)
    assert time.advance(60 * S) == 100
    assert time.advance(60 * S + 1) == 500


def test_a_released_partition_does_not_hold_stream_time_back() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 100, 0)
    time.record(B, 500, 0)
    time.release(A)
    assert time.advance(0) == 500
    time.record(B, 800, 0)
    time.release(B)
    time.release(B)
    assert time.value_us == 800


def test_stream_time_moves_with_the_clock_when_all_are_quiet() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 100, 0)
    time.record(B, 500, 0)
    assert time.advance(0) == 100
    assert time.advance(60 * S) == 100
    assert time.advance(60 * S + 1) == 500
    assert time.advance(70 * S + 1) == 500 + 10 * S
    assert time.advance(50 * S) == 500 + 10 * S  # the clock went back: B counts as active again
    time.record(B, 600, 80 * S)
    assert time.advance(80 * S) == 600
    time.record(A, 7, 80 * S)
    assert time.advance(80 * S) == 100  # as far as it had come


def test_the_first_call_in_quiet_times_adds_no_time() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 100, 1_700_000_000 * S)
    assert time.advance(1_700_000_100 * S) == 100
    assert time.advance(1_700_000_101 * S) == 100 + S


steps = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 2), st.integers(-(10**9), 10**9)),
        st.tuples(st.just("release"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("clock"), st.just(0), st.integers(-100 * S, 100 * S)),
    ),
    max_size=40,
)


@given(steps)
def test_stream_time_goes_back_only_to_an_active_partition(
    steps: list[tuple[str, int, int]],
) -> None:
    time = StreamTime(WINDOWS)
    now_us = 10**12
    before: int | None = None
    heads: dict[int, int] = {}
    for action, number, value in steps:
        if action == "record":
            heads[number] = max(value, heads.get(number, value))
            before = heads[number] if before is None else min(before, heads[number])
            if len(heads) == 1:
                before = None  # it may have started again
            time.record((A, B, C)[number], value, now_us)
        elif action == "release":
            heads.pop(number, None)
            time.release((A, B, C)[number])
        else:
            now_us += value
        after = time.advance(now_us)
        assert before is None or (after is not None and after >= before)
        if action == "record":
            assert after is not None
            assert after <= heads[number]
        before = after


def test_stream_time_starts_again_after_all_are_released() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 1000 * S, 0)
    time.release(A)
    assert time.advance(0) == 1000 * S
    time.record(B, 10 * S, 0)
    assert time.advance(0) == 10 * S


def test_progress_of_differing_clocks_counts_once() -> None:
    time = StreamTime(WINDOWS)
    time.record(A, 1_000 * S, 0)
    time.advance(61 * S)
    for second in range(62, 100):
        time.advance(second * S)
        time.advance((second - 5) * S)  # another worker, five seconds behind
    assert time.value_us == (1_000 + 99 - 61) * S
