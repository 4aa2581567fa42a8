"""How far a search for open clusters goes."""

from __future__ import annotations

import sys
from array import array

from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import Limits, Query
from stream_dedup.index.memory.lookup import Lookup
from stream_dedup.model import Position

LIMITS = Limits()
VERIFIED = Recipe(match=Match(k=3, jaccard=0.7))


def query(number: int) -> Query:
    """One of a crowd: near all others, and like none."""
    sketch = array("Q", range(8 * number, 8 * number + 8)).tobytes()
    return Query("", number, 1 << number % 64, sketch, True, 0, 0, Position("x", 0, number))


def crowd(count: int) -> Lookup:
    lookup = Lookup(VERIFIED, LIMITS)
    for number in range(count):
        lookup.add(number, query(number), 0)
    return lookup


def calls_of_a_search(lookup: Lookup, number: int) -> int:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        lookup.by_fingerprint(query(number))
    finally:
        sys.setprofile(before)
    return calls


def test_the_work_of_a_search_does_not_grow_with_the_crowd() -> None:
    small, large = (
        calls_of_a_search(crowd(times * LIMITS.max_verified), 10**6) for times in (4, 40)
    )

    assert large < 1.1 * small  # a garbage collection in between calls functions, too


def test_a_search_that_skips_some_of_a_crowd_counts_as_truncated() -> None:
    found = []
    for count in (LIMITS.max_verified, 5 * LIMITS.max_verified):
        lookup = crowd(count)
        lookup.by_fingerprint(query(10**6))
        found.append(lookup.truncated)

    assert found == [0, 1]
