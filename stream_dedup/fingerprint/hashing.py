"""Hashes: MurmurHash3 x64-128, and those of other systems for fingerprints like theirs.

A *feature hash* is the 128-bit digest as two 64-bit halves (low, high). Fingerprints of 32 and
64 bits are folded from the low half, of 128 bits from both. Sequences of hashes are hashed as the
concatenation of their low halves, eight bytes each, little-endian, so the value is the same on
every platform.

MurmurHash3 is not cryptographic: an attacker can make two texts collide, for any seed. Therefore it
only makes fingerprints. Exact hashes and sketches, which decide whether features and events are
equal, use a keyed hash (`siphash`).

A recipe may name another hash (`OTHERS`) to reproduce the fingerprints of a system that uses it.
That hash also gives only the votes on a fingerprint's bits: Java's hash of "Aa" equals that of
"BB".
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence

import mmh3

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1


def hash128(data: bytes, seed: int = 0) -> tuple[int, int]:
    """Return the two halves (low, high) of the digest, unsigned.

    >>> [f"{half:016x}" for half in hash128(b"hello")]
    ['cbd8a7b341bd9b02', '5b1e906a48ae1d19']
    """
    low, high = mmh3.hash64(data, seed, x64arch=True, signed=False)
    return low, high


def hash_sequence(lows: Sequence[int], seed: int = 0) -> tuple[int, int]:
    """Return the digest of a sequence of 64-bit hashes."""
    return hash128(struct.pack(f"<{len(lows)}Q", *lows), seed)


def mix(value: int) -> int:
    """Return the finaliser of MurmurHash3: every bit depends on every bit.

    >>> f"{mix(1):016x}"
    'b456bcfc34c2cb2c'
    """
    value = (value ^ value >> 33) * 0xFF51_AFD7_ED55_8CCD & MASK64
    value = (value ^ value >> 33) * 0xC4CE_B9FE_1A85_EC53 & MASK64
    return value ^ value >> 33


def java(data: bytes) -> int:
    """Return Java's ``String.hashCode`` of a UTF-8 text: 32 bits, as an unsigned number.

    With u the text's n UTF-16 units: u[0]·31^(n-1) + … + u[n-1], modulo 2^32. Invalid bytes are
    read as U+FFFD, as in ``new String(bytes, UTF_8)``; an encoded surrogate gives one for each
    byte, where Java gives a single one.

    >>> f"{java(b'this'):b}", java(b"Aa") == java(b"BB")
    ('1101100100111010011110', True)
    """
    marked = data.decode("utf-8", "replace").encode("utf-16")  # with a byte order mark
    value = 0
    for unit in memoryview(marked)[2:].cast("H"):
        value = (31 * value + unit) & MASK32
    return value


def md5(data: bytes) -> int:
    """Return the MD5 digest as a number: 128 bits, big-endian.

    >>> f"{md5(b'hello'):032x}"
    '5d41402abc4b2a76b9719d911017c592'
    """
    return int.from_bytes(hashlib.md5(data, usedforsecurity=False).digest(), "big")


def lookup3(data: bytes) -> int:
    """Return Bob Jenkins' lookup3 (``hashlittle2``, both seeds 0): 64 bits, the better half high.

    Three 32-bit words take in twelve bytes at a time, little-endian; each round rotates, adds and
    XORs them into each other. Source: https://burtleburtle.net/bob/c/lookup3.c (public domain).

    >>> f"{lookup3(b'Four score and seven years ago'):016x}"
    '17770551ce7226e6'
    """
    a = b = c = (0xDEAD_BEEF + len(data)) & MASK32
    if not data:
        return c << 32 | b
    padded = data + bytes(-len(data) % 12)
    last = len(padded) - 12
    for start in range(0, len(padded), 12):
        x, y, z = struct.unpack_from("<3I", padded, start)
        a, b, c = (a + x) & MASK32, (b + y) & MASK32, (c + z) & MASK32
        if start == last:
            break
        for shift in (4, 6, 8, 16, 19, 4):
            # One step of a round; the variables rotate for the next.
            a = (a - c) & MASK32 ^ rotate(c, shift, 32)
            c = (c + b) & MASK32
            a, b, c = b, c, a
    for shift in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - rotate(b, shift, 32)) & MASK32
        a, b, c = b, c, a
    return b << 32 | a


def cyclic(hashes: Iterable[int]) -> int:
    """Return the cyclic hash of a window of 64-bit hashes: each is rotated once a later one.

    Order matters, and moving the window by one takes a rotation and two XORs (Cohen, "Recursive
    hashing functions for n-grams", 1997).

    >>> f"{cyclic([0b001, 0b001, 0b100]):03b}"
    '010'
    """
    value = 0
    for one in hashes:
        value = rotate(value, 1, 64) ^ one
    return value


def rotate(value: int, shift: int, width: int) -> int:
    """Rotate a number of `width` bits to the left by `shift` < `width` bits."""
    return (value << shift | value >> (width - shift)) & (1 << width) - 1


def codepoint(data: bytes) -> int:
    """Return the code point of a UTF-8 text's first character, 21 bits; 0 for an empty text.

    >>> [f"{codepoint(letter) & 31:05b}" for letter in (b"a", b"b", b"z")]
    ['00001', '00010', '11010']
    """
    text = data[:4].decode("utf-8", "replace")
    return ord(text[0]) if text else 0


OTHERS: dict[str, Callable[[bytes], int]] = {
    "java": java,
    "md5": md5,
    "cyclic": lookup3,
    "codepoint": codepoint,
}
"""The hashes of a feature that a recipe may name instead of MurmurHash3."""
