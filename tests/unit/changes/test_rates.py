"""Whether counts differ by more than chance, against sums over all outcomes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.changes.rates import Counts, Exposure, factor, log_p, significant

EQUAL = Exposure(1, 1)

exposures = st.builds(Exposure, st.floats(0.1, 1e6), st.floats(0.1, 1e6))


def exact_p(counts: Counts, exposure: Exposure) -> float:
    """Twice the nearer tail of the binomial distribution, term by term."""
    total = sum(counts)
    share = exposure.new / (exposure.old + exposure.new)
    terms = [
        math.comb(total, number) * share**number * (1 - share) ** (total - number)
        for number in range(total + 1)
    ]
    high = counts.new >= total * share
    return min(1.0, 2 * sum(terms[counts.new :] if high else terms[: counts.new + 1]))


@given(st.integers(0, 40), st.integers(0, 40), st.floats(0.02, 50))
def test_p_is_the_sum_over_all_outcomes_as_unlikely(old: int, new: int, ratio: float) -> None:
    counts, exposure = Counts(old, new), Exposure(1, ratio)
    assert math.exp(log_p(counts, exposure)) == pytest.approx(exact_p(counts, exposure))


@given(st.integers(0, 10**7), st.integers(0, 10**7), exposures)
def test_p_is_the_same_with_the_sides_exchanged(old: int, new: int, exposure: Exposure) -> None:
    other = log_p(Counts(new, old), Exposure(exposure.new, exposure.old))
    assert log_p(Counts(old, new), exposure) == pytest.approx(other, rel=1e-6, abs=1e-6)


def test_p_of_large_counts_is_a_logarithm_below_any_float() -> None:
    assert log_p(Counts(0, 100_000), EQUAL) == pytest.approx(-99_999 * math.log(2))


def test_single_events_are_not_significant_among_many() -> None:
    counts = [Counts(0, 1)] * 50 + [Counts(1, 0)] * 50
    assert not any(significant(counts, [log_p(c, EQUAL) for c in counts], EQUAL))


def test_a_rate_must_change_by_the_factor_too() -> None:
    counts = [Counts(10_000, 15_000), Counts(10_000, 25_000)]
    ps = [log_p(c, EQUAL) for c in counts]
    assert significant(counts, ps, EQUAL) == [False, True]
    assert significant(counts, ps, EQUAL, least_factor=1.2) == [True, True]


def test_nothing_is_significant_where_nothing_changed() -> None:
    numbers = random.Random(1)
    wrong = 0
    for _ in range(200):
        totals = [numbers.randrange(1, 200) for _ in range(100)]
        counts = []
        for total in totals:
            new = numbers.getrandbits(total).bit_count()
            counts.append(Counts(total - new, new))
        ps = [log_p(c, EQUAL) for c in counts]
        wrong += any(significant(counts, ps, EQUAL, least_factor=1.0))
    assert wrong <= 6  # of 200 comparisons, 0.01 each: more happen once in 2,000 seeds


def test_the_factor_divides_by_the_exposures() -> None:
    assert factor(Counts(0, 0), Exposure(1, 4)) == 0.25
    assert factor(Counts(10, 21), Exposure(2, 2)) == pytest.approx(21.5 / 10.5)
