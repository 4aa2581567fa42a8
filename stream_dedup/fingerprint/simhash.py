"""Simhash: many features, few bits, similar sets close together.

Problem: decide from 64 bits each whether two events share most of their features, without looking
at the features again.

Idea (Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002): hash every
feature to W bits; let each feature vote on each bit, +weight where its hash has a 1, -weight where
it has a 0; the fingerprint's bit is 1 where the sum is above 0. Replacing one feature changes only
the bits with a narrow vote, so events that share most features differ in few bits.

Worked bits, W = 5, all weights 1::

    feature   hash      votes
    disk      10110     +1 -1 +1 +1 -1
    sda       00111     -1 -1 +1 +1 +1
    full      10010     +1 -1 -1 +1 -1
    sum                 +1 -3 +1 +3 -1
    fingerprint         1  0  1  1  0

With ``sdb`` (01010) instead of ``sda`` the sums become +1 -1 -1 +3 -3: fingerprint 10010, at
distance 1.

Deviation: Charikar takes signs of random projections of real vectors; here, as is usual (Manku,
Jain, Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007), a hash replaces the
projections. Weights are integers, so the sums are exact and equal on every platform. A sum of 0
gives bit 0, or bit 1 if the recipe says so, as some systems do.

The native kernel keeps the W counters as bit planes: plane j holds bit j of all counters. Adding a
hash takes a few ANDs and XORs, and one comparison of the planes with half the total weight gives
all bits at once. Memory: W / 8 bytes a plane.
"""

from __future__ import annotations

from collections.abc import Iterable

WIDTHS = (32, 64, 128)
"""The widths of fingerprints in an index, in bits; the native kernel supports only these."""


def votes(features: Iterable[tuple[int, int]], width: int) -> list[int]:
    """Return the sum of votes on each bit, bit 0 (the lowest) first.

    Args:
        features: (hash, weight) pairs; of each hash the low `width` bits are used.
        width: bits of the fingerprint.

    >>> votes([(0b10110, 1), (0b00111, 1), (0b10010, 1)], 5)
    [-1, 3, 1, -3, 1]
    """
    sums = [0] * width
    for value, weight in features:
        for bit in range(width):
            sums[bit] += weight if value >> bit & 1 else -weight
    return sums


def simhash(features: Iterable[tuple[int, int]], width: int = 64, tie: int = 0) -> int:
    """Return the simhash of (hash, weight) pairs.

    Args:
        features: of each hash the low `width` bits are used.
        width: bits of the fingerprint.
        tie: the bit for a sum of 0, which is every sum if there are no features.

    >>> f"{simhash([(0b10110, 1), (0b00111, 1), (0b10010, 1)], 5):05b}"
    '10110'
    >>> f"{simhash([(0b10110, 1), (0b01010, 1), (0b10010, 1)], 5):05b}"
    '10010'
    """
    sums = enumerate(votes(features, width))
    return sum(1 << bit for bit, total in sums if total > 0 or (total == 0 and tie))


def distance(left: int, right: int) -> int:
    """Return the Hamming distance: the number of bits in which two fingerprints differ.

    >>> distance(0b10110, 0b10010)
    1
    """
    return (left ^ right).bit_count()
