"""Simhash: many features, few bits, similar sets close together.

Problem: tell whether two events share most of their features, from 64 bits each, without looking
at the features again.

Idea (Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002): hash every
feature to W bits; let each feature vote on each bit, +weight where its hash has a 1, -weight where
it has a 0; the fingerprint's bit is 1 where the sum is above 0. A feature replaced moves only the
bits on which the vote was narrow, so events that share most features differ in few bits.

Worked bits, W = 5, all weights 1::

    feature   hash      votes
    disk      10110     +1 -1 +1 +1 -1
    sda       00111     -1 -1 +1 +1 +1
    full      10010     +1 -1 -1 +1 -1
    sum                 +1 -3 +1 +3 -1
    fingerprint         1  0  1  1  0

With ``sdb`` (01010) in the place of ``sda`` the sums become +1 -1 -1 +3 -3: fingerprint 10010,
at distance 1.

Deviation: Charikar takes signs of random projections of real vectors; here, as is usual (Manku,
Jain, Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007), a hash stands for the
projections. Weights are whole numbers, so the sums are exact and equal on every platform. A sum
of 0 gives bit 0, unless a recipe says that ties give ones, as some systems have it.

The native kernel keeps the W counters as bit planes: plane j holds bit j of all counters, adding
a hash is a ripple of ANDs and XORs over a few words, and one comparison of the planes against half
the total weight gives all bits at once. Memory: W / 8 bytes a plane.
"""

from __future__ import annotations

from collections.abc import Iterable

WIDTHS = (32, 64, 128)
"""The widths that indexes hold and the native kernel makes, in bits. Letters have 5, too."""


def votes(features: Iterable[tuple[int, int]], width: int) -> list[int]:
    """The sum of votes on each bit, bit 0 (the lowest) first.

    Args:
        features: (hash, weight) pairs; of each hash the low `width` bits count.
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
    """The simhash of (hash, weight) pairs.

    Args:
        features: of each hash the low `width` bits count.
        width: bits of the fingerprint.
        tie: the bit where the votes come out even, as they do everywhere when there are none.

    >>> f"{simhash([(0b10110, 1), (0b00111, 1), (0b10010, 1)], 5):05b}"
    '10110'
    >>> f"{simhash([(0b10110, 1), (0b01010, 1), (0b10010, 1)], 5):05b}"
    '10010'
    """
    sums = enumerate(votes(features, width))
    return sum(1 << bit for bit, total in sums if total > 0 or (total == 0 and tie))


def distance(left: int, right: int) -> int:
    """Hamming distance: the number of bits in which two fingerprints differ.

    >>> distance(0b10110, 0b10010)
    1
    """
    return (left ^ right).bit_count()
