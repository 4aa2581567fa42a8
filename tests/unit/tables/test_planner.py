from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.planner import MEMORY, REDIS, CostModel, choose, evaluate, plans

MODELS = [MEMORY, REDIS]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.name))
@pytest.mark.parametrize(("width", "k"), [(32, 3), (64, 3), (64, 6), (128, 8)])
def test_a_larger_capacity_never_plans_fewer_tables_or_less_time(
    model: CostModel, width: int, k: int
) -> None:
    chosen = [choose(width, k, 10**exponent, model) for exponent in range(2, 9)]
    tables = [plan.layout.tables for plan in chosen]
    times = [plan.query_us + plan.insert_us for plan in chosen]
    assert sorted(tables) == tables
    # Near-equals may change places: a tenth is the planner's own tolerance.
    assert all(later >= 0.9 * earlier for earlier, later in pairwise(times))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.name))
def test_a_larger_k_never_costs_less(model: CostModel) -> None:
    chosen = [choose(64, k, 100_000, model) for k in range(9)]
    times = [plan.query_us + plan.insert_us for plan in chosen]
    assert all(later >= 0.9 * earlier for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("k", "capacity", "model", "blocks"),
    [
        (3, 1_000_000, MEMORY, 5),
        (0, 10**6, MEMORY, 1),
        (3, 100_000, REDIS, 4),
        (6, 10_000, REDIS, 7),
        (6, 20_000, REDIS, 8),
    ],
)
def test_documented_choices_hold(k: int, capacity: int, model: CostModel, blocks: int) -> None:
    assert Layout(64, k, blocks) == choose(64, k, capacity, model).layout


def test_the_chosen_plan_is_within_a_tenth_of_the_fastest_in_budget() -> None:
    chosen = choose(64, 6, 100_000, MEMORY, budget_bytes=700)
    within = [p for p in plans(64, 6, 100_000, MEMORY) if p.bytes_each <= 700]
    fastest = min(plan.query_us + plan.insert_us for plan in within)
    assert chosen.bytes_each <= 700
    assert chosen.query_us + chosen.insert_us <= 1.1 * fastest


def test_a_budget_nobody_can_keep_to_gives_the_smallest_layout() -> None:
    assert choose(64, 6, 10**6, MEMORY, budget_bytes=1).layout.blocks == 7


def test_costs_follow_the_formula() -> None:
    plan = evaluate(Layout(64, 1, 2), 2**33, MEMORY)
    assert plan.candidates == 4.0  # two tables, 2^33 / 2^32 each
    assert pytest.approx(2 * 0.12 + 4 * 0.1) == plan.query_us
    assert pytest.approx(2 * 0.13) == plan.insert_us
    assert plan.bytes_each == 32 + 2 * 16


def test_fingerprints_that_are_alike_meet_more_often() -> None:
    model = replace(MEMORY, alike=0.25, agree=0.75)
    plan = evaluate(Layout(64, 1, 2), 2**20, model)
    assert pytest.approx(2**21 * (0.75 / 2**32 + 0.25 * 0.75**32)) == plan.candidates


@pytest.mark.parametrize("k", [64, 70])
def test_an_impossible_k_is_an_error_that_says_what_to_do(k: int) -> None:
    with pytest.raises(ValueError, match="smaller k"):
        choose(64, k, 1000)
