"""The planner: how many blocks for a width, a k and a capacity, and what it costs.

Cost of one check-and-insert against N stored fingerprints, with T tables of p prefix bits::

    time   = T x (look-up + insert) + sum over tables of N x share(p) x candidate
    memory = N x (fixed + T x a table)

`share(p)` says how many of the others have the same p bits: 2^-p of random fingerprints. Those of
texts with words in common agree in more than every other bit, so they meet more often::

    share(p) = (1 - alike) x 2^-p + alike x agree^p

The constants of the memory index were measured on one core at 10^6 random fingerprints (`make
bench` prints them again); those of Redis are the server's time inside a batch script, the bytes of
sliced sorted sets, and the likeness of log lines. The planner takes the layout with the least time
among those within a budget of memory, and of near-equals the one with fewer tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

from stream_dedup.tables.permutation import MAX_TABLES, Layout


@dataclass(frozen=True, slots=True)
class CostModel:
    """What one kind of index costs.

    Attributes:
        name: as people know it.
        lookup_us: microseconds to look up one table.
        insert_us: microseconds to insert into one table.
        candidate_us: microseconds to compare one candidate.
        fixed_bytes: bytes a fingerprint, beside the tables.
        table_bytes: bytes a fingerprint and table; at 64 bits.
        width_bytes: share of the fingerprint's own bytes that every table repeats, 0 or 1.
        alike: share of stored fingerprints that are like the one looked for.
        agree: share of bits in which such two agree.
    """

    name: str
    lookup_us: float
    insert_us: float
    candidate_us: float
    fixed_bytes: float
    table_bytes: float
    width_bytes: int
    alike: float = 0.0
    agree: float = 0.5


MEMORY = CostModel("memory", 0.12, 0.13, 0.1, 32, 16, 0)
"""Chained hash tables in native memory (`_native`), arrays three quarters full on average."""

REDIS = CostModel("redis", 2.3, 3.0, 0.27, 0, 23, 1, alike=0.12, agree=0.685)
"""Sliced sorted sets read inside a script: 93 bytes a fingerprint at four tables, 64 bits.

How alike: a search among 959 patterns of sixteen real logs met 4.3 % of them in 7 tables and 1.4 %
in 28 (k = 6); among 20,000 replayed lines, 4.9 and 1.1 %. Random ones would be 1.2 and 0.04 %.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout and what it is expected to cost.

    Attributes:
        layout: the blocks and tables.
        candidates: entries compared a query, over all tables.
        query_us: expected time of a query, in microseconds.
        insert_us: expected time of an insert.
        bytes_each: expected memory a fingerprint, in bytes.
    """

    layout: Layout
    candidates: float
    query_us: float
    insert_us: float
    bytes_each: float


def evaluate(layout: Layout, capacity: int, model: CostModel) -> Plan:
    """What a layout costs at `capacity` stored fingerprints."""
    shares = (
        (1 - model.alike) / 2**bits + model.alike * model.agree**bits for bits in layout.prefix_bits
    )
    candidates = capacity * sum(shares)
    table_bytes = model.table_bytes + model.width_bytes * (layout.width / 8 - 8)
    return Plan(
        layout,
        candidates,
        layout.tables * model.lookup_us + candidates * model.candidate_us,
        layout.tables * model.insert_us,
        model.fixed_bytes + layout.tables * table_bytes,
    )


def plans(width: int, k: int, capacity: int, model: CostModel) -> Iterator[Plan]:
    """Every layout worth a look: from k + 1 blocks on, while the tables stay few enough."""
    for blocks in range(k + 1, width + 1):
        if comb(blocks, k) > min(MAX_TABLES, 500):
            return
        yield evaluate(Layout(width, k, blocks), capacity, model)


def choose(
    width: int, k: int, capacity: int, model: CostModel = MEMORY, budget_bytes: float = 1200
) -> Plan:
    """The layout for a capacity.

    Args:
        width: bits of a fingerprint.
        k: the largest distance to be found.
        capacity: stored fingerprints to plan for.
        model: what kind of index.
        budget_bytes: memory a fingerprint that the layout should keep to, if any does.

    >>> choose(64, 3, 1_000_000).layout.blocks
    5
    """
    found = list(plans(width, k, capacity, model))
    if not found:
        raise ValueError(
            f"no layout finds everything within k={k} with few enough tables: give a smaller k"
        )
    within = [plan for plan in found if plan.bytes_each <= budget_bytes] or found[:1]
    fastest = min(plan.query_us + plan.insert_us for plan in within)
    near = [plan for plan in within if plan.query_us + plan.insert_us <= 1.1 * fastest]
    return min(near, key=lambda plan: plan.layout.tables)
