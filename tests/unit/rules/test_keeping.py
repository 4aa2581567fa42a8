from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.rules.keeping import MINUTE_US, MINUTES, Keeping, joined
from stream_dedup.rules.model import PatternRule, RuleKind

TWO = PatternRule(RuleKind.KEEP, ("job <*> ended",), per_minute=2)


def left(minutes: list[int]) -> list[bool]:
    keeping = Keeping({}, [TWO.id])
    return [keeping.leaves(TWO, minute * MINUTE_US + 1, first=False) for minute in minutes]


def test_late_events_count_in_their_own_minutes() -> None:
    assert left([5, 5, 4, 4, 5, 4, 6]) == [True, True, True, True, False, False, True]


def test_events_from_before_count_in_the_oldest_minute() -> None:
    assert left([MINUTES, 1, 0, 0, -5]) == [True, True, True, False, False]


def test_a_minute_begins_at_a_full_minute() -> None:
    keeping = Keeping({}, [TWO.id])
    times_us = [-1, 0, MINUTE_US - 1, MINUTE_US]
    for time_us in times_us:
        keeping.leaves(TWO, time_us, first=False)

    assert keeping.kept == {TWO.id: {-1: 1, 0: 2, 1: 1}}


def test_first_events_leave_beyond_the_limit_and_count() -> None:
    keeping = Keeping({TWO.id: {0: 2}}, [TWO.id])

    assert keeping.leaves(TWO, 0, first=True)
    assert keeping.kept == {TWO.id: {0: 3}}


def test_rules_that_no_longer_act_are_forgotten() -> None:
    before = {TWO.id: {0: 1}, "r-other": {0: 1}}
    keeping = Keeping(before, [TWO.id])
    keeping.leaves(TWO, 0, first=False)

    assert keeping.kept == {TWO.id: {0: 2}}
    assert before == {TWO.id: {0: 1}, "r-other": {0: 1}}


def test_of_several_copies_the_largest_counts_hold() -> None:
    assert joined([{"a": {1: 2}}, {"a": {1: 1, 2: 3}, "b": {0: 1}}, {}]) == {
        "a": {1: 2, 2: 3},
        "b": {0: 1},
    }


@given(st.lists(st.integers(0, 3 * MINUTES)), st.integers(1, 4))
def test_no_minute_within_the_last_ten_gets_more(minutes: list[int], most: int) -> None:
    rule = PatternRule(RuleKind.KEEP, ("job <*> ended",), per_minute=most)
    keeping, leaving, latest = Keeping({}, [rule.id]), Counter[int](), 0
    for minute in minutes:
        latest = max(latest, minute)
        if keeping.leaves(rule, minute * MINUTE_US, first=False):
            leaving[max(minute, latest - MINUTES + 1)] += 1
        assert len(keeping.kept[rule.id]) <= MINUTES

    assert all(count <= most for count in leaving.values())
