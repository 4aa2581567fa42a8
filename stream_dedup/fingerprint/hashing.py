"""The one hash: MurmurHash3 x64-128, as the `mmh3` package computes it.

A *feature hash* is the 128-bit digest as two 64-bit halves (low, high). Fingerprints of 32 and
64 bits are folded from the low half, of 128 bits from both. Sequences of hashes are hashed as the
concatenation of their low halves, eight bytes each, little-endian, so the value is the same on
every platform.

Not a cryptographic hash: whoever can choose the text and knows the seed can make two texts
collide. Give a namespace its own seed where that matters.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import mmh3

MASK64 = (1 << 64) - 1


def hash128(data: bytes, seed: int = 0) -> tuple[int, int]:
    """The digest's two halves (low, high), unsigned.

    >>> [f"{half:016x}" for half in hash128(b"hello")]
    ['cbd8a7b341bd9b02', '5b1e906a48ae1d19']
    """
    low, high = mmh3.hash64(data, seed, x64arch=True, signed=False)
    return low, high


def hash_sequence(lows: Sequence[int], seed: int = 0) -> tuple[int, int]:
    """The digest of a sequence of 64-bit hashes, in order."""
    return hash128(struct.pack(f"<{len(lows)}Q", *lows), seed)
