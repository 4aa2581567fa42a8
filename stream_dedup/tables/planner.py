"""The planner: chooses the number of blocks for a width, a k and a capacity.

Estimated cost of one query and insert against N stored fingerprints, with T tables of p prefix
bits::

    time   = T x (look-up + insert) + sum over tables of N x share(p) x candidate
    memory = N x (fixed + T x a table)

`share(p)` is the share of stored fingerprints with the same p bits: 2^-p of random ones. Texts with
words in common have fingerprints that agree in more than half of the bits, so they share prefixes
more often::

    share(p) = (1 - alike) x 2^-p + alike x agree^p

The constants of the memory index were measured on one core with 10^6 random fingerprints (`make
bench` prints them again). Those of Redis are the server's time inside a batch script, the bytes of
sliced sorted sets, and the similarity of log lines. Whole files (`offline`) are sorted: a table
costs each fingerprint its share of permuting and sorting, and half a comparison a candidate, as
each pair is compared once.

Keys of bands have one layout, so nothing is chosen; a candidate is a cluster that shares a key and
whose sketch is compared.

The planner takes the fastest layout within a memory budget; among layouts of nearly the same speed,
the one with the fewest tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, comb

from stream_dedup.tables.permutation import MAX_TABLES, Layout


@dataclass(frozen=True, slots=True)
class CostModel:
    """The costs of one kind of index.

    Attributes:
        name: shown to people.
        lookup_us: microseconds to look up one table.
        insert_us: microseconds to insert into one table.
        candidate_us: microseconds to compare one candidate.
        fixed_bytes: bytes a fingerprint, outside the tables.
        table_bytes: bytes a fingerprint and table, at 64 bits.
        width_bytes: share of the fingerprint's own bytes that every table repeats, 0 or 1.
        alike: share of stored fingerprints of texts similar to the query's.
        agree: share of bits in which two such fingerprints agree.
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
"""Chained hash tables in native memory (`_native`); arrays are three quarters full on average."""

REDIS = CostModel("redis", 2.3, 3.0, 0.27, 0, 23, 1, alike=0.12, agree=0.685)
"""Sliced sorted sets read inside a script: 93 bytes a fingerprint at four tables, 64 bits.

Similarity: a query among 959 patterns of sixteen real logs had 4.3 % of them as candidates in 7
tables and 1.4 % in 28 (k = 6); among 20,000 replayed lines, 4.9 % and 1.1 %. With random
fingerprints it would be 1.2 % and 0.04 %.
"""

OPENING_US, OPENING_TABLE_US = 20.0, 4.0
"""Time of a Redis node to open and count a cluster, and for each table, where mirrors search for
it: 34 microseconds were measured with four tables, 48 with seven."""

REQUEST_US, COUNTING_US = 14.0, 25.0
"""The same of an index that is sharded by fingerprint, of all nodes: for each of `tables + 2`
requests, which took 9 to 18 microseconds, and for counting."""

UNEVEN = 1.5
"""The busiest of some nodes has so many times the mean, as slots of shards are not even."""

OFFLINE = CostModel("offline", 0.0, 0.03, 0.0003, 16, 0, 0)
"""Sorted arrays, one table at a time; measured on one core among 10^6 fingerprints."""


BANDS_MEMORY = CostModel("memory", 0.18, 0.37, 0.5, 306, 18, 0, alike=0.02, agree=0.85)
"""Keys of bands in native memory; besides the tables the sketch, of 128 hashes at most.

Similarity: among 20,000 messages of 8 to 20 words, few of them frequent, a query shared a key with
two or three. With random keys it would be none.
"""

BANDS_REDIS = CostModel("redis", 0.7, 1.3, 12.0, 637, 13, 0, alike=0.02, agree=0.85)
"""Keys of bands in slices that are strings, all read at once. Besides the tables the whole cluster,
with a sketch of 80 hashes, as messages have; a candidate has to be read."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A layout and its estimated cost.

    Attributes:
        layout: the blocks and tables.
        candidates: entries compared a query, over all tables.
        query_us: time of a query, in microseconds.
        insert_us: time of an insert.
        bytes_each: memory a fingerprint.
    """

    layout: Layout
    candidates: float
    query_us: float
    insert_us: float
    bytes_each: float


def evaluate(layout: Layout, capacity: int, model: CostModel) -> TablePlan:
    """Estimate the cost of a layout with `capacity` stored fingerprints."""
    shares = (
        tables * ((1 - model.alike) / 2**bits + model.alike * model.agree**bits)
        for bits, tables in layout.prefix_sizes.items()
    )
    candidates = capacity * sum(shares)
    table_bytes = model.table_bytes + model.width_bytes * (layout.width / 8 - 8)
    return TablePlan(
        layout,
        candidates,
        layout.tables * model.lookup_us + candidates * model.candidate_us,
        layout.tables * model.insert_us,
        model.fixed_bytes + layout.tables * table_bytes,
    )


def opening_us(plan: TablePlan) -> float:
    """Return the time of one Redis node for an event that opens a cluster."""
    return OPENING_US + plan.layout.tables * OPENING_TABLE_US


def nodes_for_twice(plan: TablePlan) -> int:
    """Return how many nodes, sharded by fingerprint, open twice the clusters that one node opens.

    No mirror searches for them.
    """
    requests_us = (plan.layout.tables + 2) * REQUEST_US + COUNTING_US
    sharded_us = requests_us + plan.candidates * REDIS.candidate_us
    return ceil(2 * UNEVEN * sharded_us / opening_us(plan))


def plans(width: int, k: int, capacity: int, model: CostModel) -> Iterator[TablePlan]:
    """Yield every useful layout: from k + 1 blocks on, while there are not too many tables."""
    for blocks in range(k + 1, width + 1):
        if comb(blocks, k) > min(MAX_TABLES, 500):
            return
        yield evaluate(Layout(width, k, blocks), capacity, model)


def choose(
    width: int, k: int, capacity: int, model: CostModel = MEMORY, budget_bytes: float = 1200
) -> TablePlan:
    """Choose the layout for a capacity.

    Where every layout exceeds `budget_bytes` (memory a fingerprint), the one with the fewest blocks
    is chosen.

    Raises:
        ValueError: every layout for this k has too many tables.

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


def offline_layout(width: int, k: int, count: int, blocks: int | None = None) -> Layout:
    """Choose the layout for matching a whole file of fingerprints, unless `blocks` is given.

    >>> offline_layout(64, 3, 1_000_000).blocks
    4

    Raises:
        ValueError: not 0 <= k < blocks <= width, or there would be too many tables.
    """
    if not 0 <= k < width:
        raise ValueError(f"distance {k} is not from 0 to {width - 1}, the width less one")
    if blocks is None:
        return choose(width, k, max(count, 1), OFFLINE).layout
    if blocks > width:
        raise ValueError(f"{blocks} blocks are more than the width has bits, {width}")
    if blocks <= k:
        raise ValueError(f"{blocks} blocks are not more than the distance, {k}")
    return Layout(width, k, blocks)
