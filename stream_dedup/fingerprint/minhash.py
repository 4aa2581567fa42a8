"""Minhash by the n least hashes: sets that share their least features get equal fingerprints.

Problem: find similar sets by a key look-up alone, without a search by distance. The more two sets
share, the more likely they should match.

Idea (Broder, "On the resemblance and containment of documents", 1997): under a random hash each
feature of the union A ∪ B is equally likely to be among its least. The fingerprint is the XOR of a
set's n least hashes, so it depends on those n features alone. Two sets agree when the n least of
the union lie in the intersection: with i = |A ∩ B| and u = |A ∪ B| that happens with probability
C(i, n) / C(u, n). A small n is tolerant, a large n is strict.

Worked bits, n = 2::

    A: disk 0010, sda 1011, full 0111, warn 1110     least 0010, 0111     XOR 0101
    B: disk 0010, sdb 1001, full 0111, warn 1110     least 0010, 0111     XOR 0101     equal
    C: disk 0010, sdc 0100, full 0111, warn 1110     least 0010, 0100     XOR 0110     not

Deviation: Broder compares the sketches themselves and estimates the resemblance; here the n least
hashes become one value, compared for equality (k = 0).

An event needs neither tables nor a search: the features that were chosen are the key under which
its cluster is found or created (`lookup_keys`), by a keyed hash that nobody can forge. That costs
one look-up for any number of clusters, and which events share a cluster does not depend on their
order. Which features are chosen is public, so that results can be repeated: a sender who copies
another text's chosen words, and adds only words that are not chosen, joins its cluster.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from functools import reduce
from math import comb
from operator import xor

from stream_dedup.fingerprint.hashing import MASK64
from stream_dedup.fingerprint.kernel import Fingerprints


def minhash(hashes: Iterable[int], least: int, width: int = 64) -> int:
    """Return the XOR of the `least` least distinct hashes (of all, if there are fewer).

    Args:
        hashes: of up to 128 bits; they are distinguished and ranked by their low 64.
        least: n.
        width: of each hash the low `width` bits are used.

    >>> f"{minhash([0b0010, 0b1011, 0b0111, 0b1110], 2):04b}"
    '0101'
    """
    by_rank: dict[int, int] = {}
    for value in hashes:
        by_rank.setdefault(value & MASK64, value)
    chosen = (by_rank[rank] for rank in least_hashes(by_rank, least))
    return reduce(xor, chosen, 0) & (1 << width) - 1


def least_hashes(hashes: Collection[int], least: int) -> list[int]:
    """Return the `least` least of distinct hashes, ascending."""
    return heapq.nsmallest(least, hashes)


def chance_of_equality(shared: int, union: int, least: int) -> float:
    """Return the probability that two sets have equal fingerprints, over all seeds of the hash.

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
    """Return the 64-bit key of each event's cluster: equal keys, same cluster.

    It is the keyed hash of the chosen features and their number, with the variant XORed in. The key
    of an event with too few words is its exact hash, and so is that of an event without any feature
    that counts: otherwise all of those would share a key.

    Args:
        numbers: the kernel's full result.
        min_features: the least number of words (features that are not placeholders).
    """
    return [
        chosen ^ variant if chosen and words >= min_features else exact
        for chosen, words, exact, variant in zip(
            numbers.chosen, numbers.words, numbers.exact, numbers.variants, strict=True
        )
    ]
