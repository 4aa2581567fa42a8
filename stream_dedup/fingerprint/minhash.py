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
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import reduce
from operator import xor

from stream_dedup.fingerprint.hashing import MASK64


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
