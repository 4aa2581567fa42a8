"""Lists: search, order, pages; slots; neighbours."""

from __future__ import annotations

import asyncio
import random
from itertools import product
from typing import Any, cast, get_args

import pytest

from stream_dedup.clock import US_PER_S
from stream_dedup.features.recipe import load_recipe
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.ui.files import FileSource
from stream_dedup.ui.lists import Lists
from stream_dedup.ui.patterns import (
    STEP,
    Entry,
    Query,
    Sort,
    choices,
    find_in_steps,
    neighbours,
    parts,
)
from stream_dedup.volume.counts import BUCKETS, Axis
from tests.unit.ui.helpers import find

AXIS = Axis(US_PER_S, slides=True)
AXIS.reach((BUCKETS - 1) * US_PER_S)


def entry(identity: int, pattern: str, early: int, late: int, *, last_s: int = 59) -> Entry:
    made = Entry(identity, early + late, identity * US_PER_S, last_s * US_PER_S, pattern=pattern)
    made.counts.add(AXIS, 0, early)
    made.counts.add(AXIS, (BUCKETS - 1) * US_PER_S, late)
    return made


STEADY = entry(1, "user <*> logged in", 30, 10)
RISING = entry(2, "disk <*> is full", 0, 20)
OVER = entry(3, "cron <*> started", 25, 0, last_s=0)
SMALL = entry(4, "user <*> logged out", 1, 0, last_s=30)
OVER.open = False
RISING.variant, RISING.group = ("ERROR",), "pod=api"


class Shown(FileSource):
    """A source of many entries."""

    def __init__(self) -> None:
        super().__init__([], load_recipe("logs"), DecoderOptions(), 1)
        self._shown.clusters.axis = AXIS
        self._shown.clusters.entries = {n: entry(n, f"p{n}", 1, n) for n in range(5 * STEP)}


ALL = [STEADY, RISING, OVER, SMALL]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(), [STEADY, OVER, RISING, SMALL]),
        (Query(sort="newest"), [SMALL, OVER, RISING, STEADY]),
        (Query(sort="growing"), [RISING]),
        (Query(sort="vanished"), [OVER, SMALL]),
        (Query(words="LOGGED user"), [STEADY, SMALL]),
        (Query(words="<*> out"), [SMALL]),
        (Query(level="ERROR"), [RISING]),
        (Query(group="pod=api"), [RISING]),
        (Query(state="closed"), [OVER]),
        (Query(state="open", sort="newest"), [SMALL, RISING, STEADY]),
        (Query(seen="1m"), [STEADY, OVER, RISING, SMALL]),
        (Query(page=2, limit=3), [SMALL]),
        (Query(page=9), []),
    ],
)
def test_a_query_finds_what_it_asks_for_in_order(query: Query, expected: list[Entry]) -> None:
    assert find(ALL, query, AXIS).entries == expected


def several(numbers: random.Random, count: int) -> list[Entry]:
    """Entries that differ in everything that is searched for."""
    words = "user disk cron cache login full lost".split()
    made = []
    for identity in range(count):
        pattern = " ".join(numbers.choices(words, k=3))
        late = numbers.choice([0, numbers.randrange(20)])
        each = entry(identity, pattern, numbers.randrange(30), late)
        each.last = numbers.randrange(150) * US_PER_S
        each.bytes, each.open = numbers.randrange(10**6), numbers.random() < 0.5
        each.variant = (numbers.choice(["ERROR", "INFO"]),)
        each.group = numbers.choice(["", "pod=api", "pod=web"])
        made.append(each)
    return made


def test_all_filters_and_orders_hold_together() -> None:
    many = several(random.Random(1), 2 * STEP + 100)
    latest = max(each.last for each in many)

    def is_asked_for(each: Entry, query: Query) -> bool:
        return (
            set(query.words.split()) <= set(each.pattern.split())
            and query.level in ("", *each.variant)
            and query.group in ("", each.group)
            and (query.seen == "any" or each.last >= latest - 60 * US_PER_S)
            and query.state in ("all", "open" if each.open else "closed")
        )

    def rank(each: Entry, sort: Sort) -> int | None:
        values = each.counts.values(AXIS)
        late, early = sum(values[45:]), sum(values[:45])
        ranks: dict[Sort, int | None] = {
            "count": each.count,
            "bytes": each.bytes,
            "newest": each.first,
            "growing": late - early // 3 if late > early // 3 else None,
            "vanished": each.count if early and not late else None,
        }
        return ranks[sort]

    filters = [("", "user lost"), ("", "ERROR"), ("", "pod=api"), ("any", "1m"), ("all", "closed")]
    for words, level, group, seen, state in product(*filters):
        for sort in get_args(Sort):
            query = Query(words=words, level=level, group=group, seen=cast("Any", seen),
                          state=cast("Any", state), sort=sort, page=2, limit=20)  # fmt: skip
            ranked = [(rank(each, sort), each.identity, each) for each in many
                      if is_asked_for(each, query)]  # fmt: skip
            kept = sorted((each for each in ranked if each[0] is not None), reverse=True)
            found = find(many, query, AXIS)
            assert found.entries == [each for _, _, each in kept[20:40]]
            assert (found.patterns, found.events) == (
                len(kept), sum(each.count for _, _, each in kept)
            )  # fmt: skip


def test_seen_counts_from_the_last_event_of_all() -> None:
    late = entry(5, "late", 0, 1, last_s=200)
    assert find([*ALL, late], Query(seen="1m"), AXIS).entries == [late]


def test_nothing_grows_in_a_steady_stream_that_began_lately() -> None:
    steady = [Entry(n, 15 * n, 40 * US_PER_S, 59 * US_PER_S) for n in range(1, 4)]
    for each in steady:
        for second in range(40, BUCKETS):
            each.counts.add(AXIS, second * US_PER_S, each.identity)
    assert find(steady, Query(sort="growing"), AXIS).entries == []


def test_a_page_of_many_is_that_of_all_in_order() -> None:
    many = [entry(n, f"p{n % 7}", n * 7_919 % 1_000, 0) for n in range(1_000)]
    whole = sorted(many, key=lambda each: (each.count, each.identity), reverse=True)
    for page in (1, 2, 20):
        query = Query(page=page, limit=50)
        assert find(many, query, AXIS).entries == whole[50 * page - 50 : 50 * page]


@pytest.mark.parametrize("sort", ["count", "growing", "vanished"])
def test_a_long_list_is_found_in_short_steps(sort: Sort) -> None:
    many = [entry(n, f"p{n}", 1, n) for n in range(5 * STEP)]
    last_page = Query(sort=sort, page=2 * STEP // 50, limit=50)
    steps = sum(1 for _ in find_in_steps(many, last_page, AXIS))
    assert steps >= 5
    assert find(many, last_page, AXIS).entries == find(many[::-1], last_page, AXIS).entries


def test_others_go_on_while_a_long_list_is_found() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def check() -> None:
        counting = asyncio.create_task(count_turns())
        await Lists(Shown()).find(Query(sort="growing"))
        counting.cancel()

    asyncio.run(check())
    assert turns >= 5


def test_all_that_was_found_is_counted() -> None:
    found = find(ALL, Query(words="user", limit=1), AXIS)
    assert (found.patterns, found.events) == (2, 41)


def test_choices_are_the_groups_and_levels_there_are() -> None:
    assert choices(ALL) == (["pod=api"], ["ERROR"])


def test_words_in_angle_brackets_are_no_slots() -> None:
    kinds = [part.kind for part in parts("<b> <number> <script> <5xx> <ipv4>")]
    assert kinds == ["", "number", "", "other", "", "place"]
    assert "".join(part.text for part in parts("a <*><number> b")) == "a <*><number> b"


def test_neighbours_share_most_words() -> None:
    assert neighbours(STEADY, ALL)[0] is SMALL
    assert STEADY not in neighbours(STEADY, ALL)
