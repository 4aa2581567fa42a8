"""Minhash by the n least hashes: equal fingerprints for sets that share their least features.

Problem: a match by nothing but a key look-up, with no distance to search within, whose chance
grows with what two sets share.

Idea (Broder, "On the resemblance and containment of documents", 1997): under a random hash each
feature of the union A ∪ B is equally likely to be among its least. The fingerprint is the XOR of a
set's n least hashes, so it depends on those n features alone. Two sets agree when the n least of
the union lie in the intersection: with i = |A ∩ B| and u = |A ∪ B| that happens with probability
C(i, n) / C(u, n). Small n forgives, large n is strict.

Worked bits, n = 2::

    A: disk 0010, sda 1011, full 0111, warn 1110     least 0010, 0111     XOR 0101
    B: disk 0010, sdb 1001, full 0111, warn 1110     least 0010, 0111     XOR 0101     equal
    C: disk 0010, sdc 0100, full 0111, warn 1110     least 0010, 0100     XOR 0110     not

Deviation: Broder compares the sketches themselves and estimates the resemblance; here the n least
hashes become one value, compared for equality (k = 0).

So an event needs neither tables nor search: its fingerprint is a key, under which its cluster is
found or opened (`lookup_keys`). That costs one look-up however many clusters there are, and which
events share a cluster does not depend on the order in which they came.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import reduce
from math import comb
from operator import xor

from stream_dedup.fingerprint.hashing import MASK64
from stream_dedup.fingerprint.numbers import Fingerprints

KEY_FACTOR = 0xFF51_AFD7_ED55_8CCD
"""Odd, so that different fingerprints make different keys; from the finaliser of MurmurHash3."""


def minhash(hashes: Iterable[int], least: int, width: int = 64) -> int:
    """The XOR of the `least` least distinct hashes (of all, where there are fewer).

    Args:
        hashes: of up to 128 bits; they are told apart and ranked by their low 64.
        least: how many count.
        width: of each hash the low `width` bits are kept.

    >>> f"{minhash([0b0010, 0b1011, 0b0111, 0b1110], 2):04b}"
    '0101'
    """
    by_rank = {value & MASK64: value for value in hashes}
    chosen = (by_rank[rank] for rank in heapq.nsmallest(least, by_rank))
    return reduce(xor, chosen, 0) & (1 << width) - 1


def chance_of_equality(shared: int, union: int, least: int) -> float:
    """How likely two sets are to have equal fingerprints, over all seeds of the hash.

    Args:
        shared: elements of both, i.
        union: elements of one or both, u.
        least: n. A set of fewer elements equals no other.

    >>> f"{chance_of_equality(9, 11, 1):.2f}", f"{chance_of_equality(9, 11, 4):.2f}"
    ('0.82', '0.38')
    """
    if shared == union:
        return 1.0
    return comb(shared, least) / comb(union, least) if union >= least else 0.0


def lookup_keys(numbers: Fingerprints, min_features: int) -> list[int]:
    """The 64 bits under which each event's cluster is found: equal keys, equal cluster.

    The key is the fingerprint (of 128 bits both halves, XORed) times `KEY_FACTOR`. The product does
    two things. The n least of many hashes begin with zeros, and so does their XOR; the product's
    high bits are spread evenly, as they have to be where they choose the slice of an index. And it
    keeps fingerprints apart from exact hashes, to which a lone n-gram's fingerprint is equal.

    An event with too few words has its exact hash for a key, and so has one without any feature
    that counts: the XOR of nothing would be the same for all of those.

    Args:
        numbers: what the kernel says of the events, in full.
        min_features: the words (features that are no placeholders) that are enough.
    """
    values: Iterable[int] = numbers.low
    if numbers.high:
        values = map(xor, numbers.low, numbers.high)
    return [
        value * KEY_FACTOR & MASK64 if value and words >= min_features else exact
        for value, words, exact in zip(values, numbers.words, numbers.exact, strict=True)
    ]
