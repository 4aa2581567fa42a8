"""Blocks, permutations and prefixes: find every fingerprint within k bits without a scan.

Problem: among N stored fingerprints of W bits, find all that differ from a query in at most k
bits. Comparing all takes N steps; listing all values within k bits takes C(W, k).

Idea (Manku, Jain, Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007): cut the W
bits into m blocks, m > k. Two fingerprints within k bits differ in at most k blocks, so they are
equal in at least m - k blocks. Make a table for each choice of m - k blocks, C(m, k) in all. In a
table the chosen blocks come first (the *permutation*), and entries with the same beginning (the
*prefix*) are stored together. In at least one table the two share the prefix. So looking up the
query's prefix in every table finds all of them; comparing removes the rest.

Worked bits, W = 8, k = 1, m = 2: blocks of 4 bits, C(2, 1) = 2 tables, prefixes of 4 bits::

    stored              1011 0010
    query               1011 0110      differs in one bit, in the second block
    table 1 (block 1)   1011|0010      the query's prefix 1011 finds it
    table 2 (block 2)   0010|1011      its prefix 0110 does not

A table's bucket holds N / 2^p entries on average, p the prefix's bits. More blocks make longer
prefixes and fewer candidates, but more tables: k = 3, W = 64 gives 4 tables with p = 16, or 10
with p = 25. `planner` weighs them.

Deviation: the paper keeps compressed sorted lists, searched by interpolation, and rebuilds them in
batches; the tables here support single inserts and deletes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb

MAX_TABLES = 2_000
"""More tables than this are slower than comparing everything."""


@dataclass(frozen=True)
class Layout:
    """The blocks of fingerprints and the tables made of them.

    Attributes:
        width: bits of a fingerprint.
        k: the largest distance that is always found.
        blocks: m; more than k, at most the width.
    """

    width: int
    k: int
    blocks: int

    def __post_init__(self) -> None:
        if not 0 <= self.k < self.blocks <= self.width:
            raise ValueError(f"0 <= k < blocks <= width does not hold for {self}")
        if comb(self.blocks, self.k) > MAX_TABLES:
            raise ValueError(f"{self} would take more than {MAX_TABLES} tables")

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """(shift, bits) of each block, the highest block first; sizes differ by one at most."""
        size, larger = divmod(self.width, self.blocks)
        bounds = []
        shift = self.width
        for block in range(self.blocks):
            bits = size + (block < larger)
            shift -= bits
            bounds.append((shift, bits))
        return tuple(bounds)

    @cached_property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """For each table, its order of the blocks: the chosen ones, then the others."""
        return tuple(
            (*chosen, *(block for block in range(self.blocks) if block not in chosen))
            for chosen in combinations(range(self.blocks), self.blocks - self.k)
        )

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """For each table, the mask of its prefix bits in the unpermuted fingerprint."""
        return tuple(
            sum(((1 << bits) - 1) << shift for shift, bits in map(self.bounds.__getitem__, chosen))
            for chosen in (order[: self.blocks - self.k] for order in self.orders)
        )

    @property
    def tables(self) -> int:
        """The number of tables: C(blocks, k)."""
        return comb(self.blocks, self.k)

    @cached_property
    def prefix_bits(self) -> tuple[int, ...]:
        """For each table, the length of its prefix in bits."""
        return tuple(mask.bit_count() for mask in self.masks)

    @property
    def prefix_sizes(self) -> dict[int, int]:
        """How many tables have a prefix of how many bits; without a look at each table."""
        size, larger = divmod(self.width, self.blocks)
        chosen = self.blocks - self.k
        return {
            size * chosen + wide: tables
            for wide in range(chosen + 1)
            if (tables := comb(larger, wide) * comb(self.blocks - larger, chosen - wide))
        }

    def permute(self, fingerprint: int, table: int) -> int:
        """Move the table's chosen blocks to the front of a fingerprint.

        >>> f"{Layout(8, 1, 2).permute(0b10110010, 1):08b}"
        '00101011'
        """
        out = 0
        for block in self.orders[table]:
            shift, bits = self.bounds[block]
            out = out << bits | fingerprint >> shift & (1 << bits) - 1
        return out

    def restore(self, permuted: int, table: int) -> int:
        """Undo `permute`."""
        out = 0
        for block in reversed(self.orders[table]):
            shift, bits = self.bounds[block]
            out |= (permuted & (1 << bits) - 1) << shift
            permuted >>= bits
        return out
