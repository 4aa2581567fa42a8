"""Whether two counts of a pattern differ by more than chance, among many patterns.

Problem: of a thousand patterns in two logs nearly all have different counts. Which of these
differences mean something?

Idea, in three steps:

1. *One pattern.* Let it have a events in one input and b in the other, whose exposures (events, or
   seconds) are A and B. If its rate is the same in both, then of its n = a + b events each is in
   the second input with probability s = B / (A + B), so b is binomial (n, s): the conditional test
   of two Poisson rates (Przyborowski and Wilenski, "Homogeneity of results in testing samples from
   Poisson series", Biometrika 1940). It is exact for small counts, where the approximation by
   G² = 2 Σ observed · ln(observed / expected) makes single events look unlikely. The p of both
   sides is twice that of the nearer tail.
2. *Many patterns.* Of a thousand unchanged patterns, ten have p ≤ 0.01 by chance. So the limit for
   p depends on all of them: with the p in ascending order, the largest p_i ≤ q · i / m is the limit
   (Benjamini and Hochberg, "Controlling the false discovery rate", 1995). Then at most a share q of
   those reported are expected to be unchanged; and if nothing changed at all, anything is reported
   with probability q.
3. *Bursts.* Lines come in groups, more unevenly than Poisson has it, and with large counts any
   small difference is significant. So the rate must also have changed by a factor, whose counts
   have half an event added (Haldane, 1956), so that 0 and 1 are not an infinite change.

Example: a = 0, b = 5, A = B. s = 1/2, so P(b ≥ 5) = 1/32 and p = 1/16; G² = 6.9 would say 0.009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

FALSE_SHARE = 0.01
"""Of the changes reported, the share that may be chance: q above."""

LEAST_FACTOR = 2.0
"""By which a rate must have changed, by default."""

_ENOUGH = 1e-17
"""A term that is so small a part of the sum adds nothing to it."""

_DOUBLED = math.log(2)


class Counts(NamedTuple):
    """Events of a pattern in the old and the new input."""

    old: int
    new: int


class Exposure(NamedTuple):
    """What the counts are divided by to give rates: all events, or seconds. Both above 0."""

    old: float
    new: float


def log_p(counts: Counts, exposure: Exposure) -> float:
    """Return the natural logarithm of the probability of so large a difference by chance.

    >>> round(math.exp(log_p(Counts(0, 5), Exposure(1, 1))), 4)
    0.0625
    """
    total = counts.old + counts.new
    share = exposure.new / (exposure.old + exposure.new)
    if counts.new >= total * share:
        tail = _log_upper_tail(counts.new, total, share)
    else:
        tail = _log_upper_tail(counts.old, total, 1 - share)
    return min(0.0, tail + _DOUBLED)


def _log_upper_tail(least: int, total: int, share: float) -> float:
    """Logarithm of P(X ≥ least), X binomial (total, share), for `least` at or above its mean."""
    if least <= 0:
        return 0.0
    first = (
        math.lgamma(total + 1)
        - math.lgamma(least + 1)
        - math.lgamma(total - least + 1)
        + least * math.log(share)
        + (total - least) * math.log1p(-share)
    )
    odds = share / (1 - share)
    # Beyond the mean each term is smaller than the one before, ever faster.
    term = sum_ = 1.0
    for number in range(least, total):
        term *= (total - number) / (number + 1) * odds
        sum_ += term
        if term < _ENOUGH * sum_:
            break
    return first + math.log(sum_)


def factor(counts: Counts, exposure: Exposure) -> float:
    """Return how many times as high the new rate is, with half an event added to each count."""
    return (counts.new + 0.5) / (counts.old + 0.5) * exposure.old / exposure.new


def significant(
    counts: Sequence[Counts],
    log_ps: Sequence[float],
    exposure: Exposure,
    least_factor: float = LEAST_FACTOR,
) -> list[bool]:
    """Return which of all patterns changed; `FALSE_SHARE` of these may be unchanged.

    Args:
        counts: of each pattern.
        log_ps: their `log_p`.
        exposure: of the inputs.
        least_factor: by which a rate must be higher or lower.
    """
    limit = -math.inf
    for rank, found in enumerate(sorted(log_ps), 1):
        if found <= math.log(FALSE_SHARE * rank / len(log_ps)):
            limit = found
    least = math.log(least_factor)
    return [
        found <= limit and abs(math.log(factor(each, exposure))) >= least
        for each, found in zip(counts, log_ps, strict=True)
    ]


class RateChange(NamedTuple):
    """What happened to a pattern.

    Attributes:
        row: of which pattern.
        counts: its events.
        kind: what.
        times: how many times as high its rate is; None if one of the counts is 0.
        log_p: as `log_p`; None if one of the inputs has no event.
        sure: whether it is significant.
    """

    row: int
    counts: Counts
    kind: Literal["new", "vanished", "more", "fewer"]
    times: float | None
    log_p: float | None
    sure: bool


def changes(
    counts: Sequence[Counts], exposure: Exposure | None, least_factor: float = LEAST_FACTOR
) -> list[RateChange]:
    """Return what changed, the least likely by chance first.

    New and vanished patterns with too few events to be sure of come last.

    >>> [(each.row, each.kind) for each in changes([Counts(9, 9), Counts(0, 40)], Exposure(1, 1))]
    [(1, 'new')]

    Args:
        counts: of each pattern.
        exposure: of the inputs; None if one of them has no event: then all is new, or vanished.
        least_factor: by which a rate must be higher or lower.
    """
    if exposure is None:
        log_ps: Sequence[float | None] = [None] * len(counts)
        sure = [True] * len(counts)
    else:
        log_ps = known = [log_p(each, exposure) for each in counts]
        sure = significant(counts, known, exposure, least_factor)
    found = [
        RateChange(row, each, *_kind(each, exposure), p, is_sure)
        for row, (each, p, is_sure) in enumerate(zip(counts, log_ps, sure, strict=True))
        if is_sure or not each.old or not each.new
    ]
    found.sort(key=lambda each: (not each.sure, each.log_p or 0.0, -sum(each.counts)))
    return found


def _kind(
    counts: Counts, exposure: Exposure | None
) -> tuple[Literal["new", "vanished", "more", "fewer"], float | None]:
    if not counts.old:
        return "new", None
    if not counts.new or exposure is None:
        return "vanished", None
    times = counts.new / counts.old * exposure.old / exposure.new
    return "more" if times > 1 else "fewer", times
