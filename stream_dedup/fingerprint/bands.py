"""Bands: sets with much in common share one of sixteen keys, so that a look-up finds them.

Problem: find texts that share some half of their features, among millions. Their simhashes differ
in too many bits for a search by distance, and short texts have too few features to vote.

Idea (Broder 1997; Indyk and Motwani 1998): a *minhash* is the least hash of a set's features. Two
sets have the same one with the probability J, their Jaccard index: common features / all features.
Take 48 minhashes, of 48 hash functions, and cut them into 16 *bands* of 3. The hash of a band is a
*key*. All three are equal with the probability J³, so two texts share at least one of 16 keys with
the probability 1 - (1 - J³)¹⁶:

    J          .2    .3    .42   .5    .6    .7    .8
    chance     .12   .35   .71   .88   .98   1.0   1.0

Who shares a key is compared by *sketches*, the least hashes of each set (`tables.sketches`).

The fingerprint of an event is its 16 keys of 32 bits, key 0 highest: a number of 512 bits. The
distance of two is the number of keys in which they differ, so "near" is a distance below 16. Two
different bands have the same key once in 2³²: among a million clusters a look-up of 16 keys meets
such a stranger once in 270 events, and the sketches tell them apart.

Worked bits, 2 bands of 2 minhashes::

    features   0110 1010 1100        0110 1010 0011
    minhashes  0010 0100|0011 0001   0010 0100|0001 0001     of the second band one differs
    keys       b7|52                 b7|e0                   the first key is shared

Deviation: the 48 hash functions are x → a·x + b mod 2³², a odd, of one 32-bit hash of a feature.
They permute the 32-bit numbers and are computed side by side. That hash is keyed (`siphash`), so
nobody without the key can choose texts that share keys or a sketch. The numbers a and b come from
the recipe's seed.

A key may be shared by many, by chance or because someone sends many texts with the same beginning.
So a search reads a bounded number of each key's members (`CROWD`), and a key that has as many gets
no more.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from stream_dedup.fingerprint.hashing import MASK32, hash128, mix

BANDS = 16
ROWS = 3
"""Minhashes in a band."""

KEY_BYTES = 4
BITS = 8 * KEY_BYTES * BANDS
"""Bits of a fingerprint."""

CROWD = 16
"""Members of a key that are read. A key that has as many gets no more."""

MAX_VERIFIED = 16
"""Clusters whose sketches a search in Redis compares with an event's, at most."""

_KEY_BITS = 8 * KEY_BYTES
_KEYS = struct.Struct(f">{BANDS}I")


def factors(seed: int) -> list[tuple[int, int]]:
    """Return (a, b) of each of the hash functions."""
    pairs = (hash128(struct.pack("<I", number), seed) for number in range(BANDS * ROWS))
    return [(low & MASK32 | 1, high & MASK32) for low, high in pairs]


def minhashes(hashes: Collection[int], seed: int = 0) -> list[int]:
    """Return the 48 minhashes of a set, given as 32-bit hashes of its features."""
    none = MASK32
    return [min((a * x + b & MASK32 for x in hashes), default=none) for a, b in factors(seed)]


def fingerprint(hashes: Collection[int], seed: int = 0) -> int:
    """Return the keys of a set as one number of 512 bits.

    >>> disk = fingerprint(range(1, 40))
    >>> differing_keys(disk, fingerprint(range(2, 42))) < BANDS
    True
    """
    least = minhashes(hashes, seed)
    value = 0
    for band in range(BANDS):
        first, second, third = least[ROWS * band : ROWS * (band + 1)]
        key = mix(mix(first | second << 32) ^ third) >> 64 - _KEY_BITS
        value = value << _KEY_BITS | key
    return value


def keys(value: int) -> tuple[int, ...]:
    """Return the keys of a fingerprint, key 0 first."""
    return _KEYS.unpack(value.to_bytes(BITS // 8, "big"))


def differing_keys(left: int, right: int) -> int:
    """Return the distance of two fingerprints: 0 to 16."""
    return BANDS - keys(left ^ right).count(0)


def chance_of_meeting(jaccard: float) -> float:
    """Return how likely two sets share a key, over all keys of the hash.

    >>> f"{chance_of_meeting(0.42):.2f}", f"{chance_of_meeting(0.6):.2f}"
    ('0.71', '0.98')
    """
    return float(1 - (1 - jaccard**ROWS) ** BANDS)
