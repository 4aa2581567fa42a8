"""Sketches of sets: what two sets have in common, from some hundred bytes of each.

Problem: of those who share a key of bands most are strangers. To tell them apart the features of
each cluster have to be kept, which are many.

Idea (Broder 1997): keep the 128 least of the features' hashes. What two sets have in common up to
where both sketches reach is a random sample of both together, and its share is their Jaccard index:
common features / all features. Of sets that have no more features it is the index itself.

Two bytes of a hash are enough: its first 16 bits, or, where only the least of many hashes are kept,
less of the zeros that they all begin with. Two sketches of different precision are compared by the
lesser one.

Worked bits, hashes of 6 bits in values of 3, three at most::

    hashes     000010 000101 001100 011000 110000       001100 011010
    least      000010 000101 001100                     001100 011010 (all)
    values     001 010 110, of the first 5 bits         001 011, of the first 3
    compared   000 (once) 001, by 3 bits                001; the left one does not reach 011
    index      1 of 2

Deviation: two bytes. Among 87 hashes, as messages of 8 to 20 words have, a hash of another set is
found by chance once in 750; among the values of a sketch of many, once in 250 at most. And all that
both sketches reach is compared, which may be more than 128 values of both together.

Of few features some are common by chance, so there more must be (`threshold`).

Where many are stored they are packed (Elias 1974; Fano 1971): of each value the last eight bits as
they are, and its first eight as how much they are above those of the value before. In a row of bits
each value is a one, behind a zero for each step. Worked bits, values of 4 with 2 last bits::

    values     0110 0111 1101                last bits 10 11 01
    steps      1, 0, 2                       0 1 1 0 0 1

So 128 values take 128 bytes and some 40, and 80 take 80 and some 41.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from stream_dedup.native import native_or

SKETCH = 128
"""Hashes in a sketch, at most."""

HASH_BITS = 32

VALUE_BITS = 16
"""Of a hash in a sketch."""

_ALL_8 = 0xFF

FEW = 24
FEW_JACCARD = 0.6
"""Where one of two events has fewer than `FEW` features, they must share at least so many."""


def sketch(hashes: Iterable[int]) -> bytes:
    """Return the sketch of a set, given as 32-bit hashes of its features; empty of an empty set.

    Numbers of two bytes in the machine's order. The first is the *head*: how many of the last bits
    of each hash are left out, times two, and one more if the set has more hashes than are here. The
    remaining bits of the `SKETCH` least hashes follow, ascending, equal ones once.

    >>> found = sketch([0x2B7_0001, 0x5EED_0000, 0x5EED_0001])
    >>> array("H", found).tolist() == [2 * 16, 0x2B7, 0x5EED]
    True
    """
    least = heapq.nsmallest(SKETCH + 1, set(hashes))
    if not least:
        return b""
    is_cut = len(least) > SKETCH
    shift = HASH_BITS - VALUE_BITS
    if is_cut:
        del least[SKETCH:]
        shift = max(0, least[-1].bit_length() - VALUE_BITS)
    return array("H", [2 * shift + is_cut, *sorted({x >> shift for x in least})]).tobytes()


def reference_pack(sketched: bytes) -> bytes:
    """Pack a sketch: the head, how many values there are, their last bytes, and the row of bits.

    The first bit is the highest of a byte.

    >>> reference_pack(array("H", [32, 0x0001, 0x0002, 0x0203]).tobytes()).hex(" ")
    '20 03 01 02 03 c8'

    Raises:
        ValueError: it is no sketch: it is cut off, has more than 255 values, or does not ascend.
    """
    if not sketched:
        return b""
    if len(sketched) % 2:
        raise ValueError("numbers of a sketch have two bytes each")
    head, *values = array("H", sketched)
    if max(head, len(values)) > _ALL_8 or any(x >= y for x, y in pairwise(values)):
        raise ValueError("this is no sketch")
    bits = sum(1 << (value >> 8) + place for place, value in enumerate(values))
    size = -(-bits.bit_length() // 8)
    row = int(f"{bits:0{8 * size}b}"[::-1], 2) if values else 0  # the first bit becomes the highest
    return bytes([head, len(values), *(value & _ALL_8 for value in values)]) + row.to_bytes(
        size, "big"
    )


def reference_unpack(packed: bytes) -> bytes:
    """Unpack a sketch.

    >>> array("H", reference_unpack(bytes.fromhex("2003010203c8"))).tolist()
    [32, 1, 2, 515]

    Raises:
        ValueError: it is damaged.
    """
    if not packed:
        return b""
    head, count, *lows = packed if len(packed) > 1 else (0, 1)
    row = "".join(f"{byte:08b}" for byte in lows[count:])
    steps = [place for place, bit in enumerate(row) if bit == "1"]
    values = [(at - n << 8) + low for n, (at, low) in enumerate(zip(steps, lows, strict=False))]
    in_order = all(x < y for x, y in pairwise(values)) and values[-1:] <= [_ALL_8 << 8 | _ALL_8]
    if len(steps) != count or len(lows) < count or not in_order or row[-8:] == "0" * 8:
        raise ValueError("a packed sketch is damaged")
    return array("H", [head, *values]).tobytes()


def fastest_pack() -> Callable[[bytes], bytes]:
    """Return the native function of the same result, where it was built."""
    return native_or("tables._native", "pack_sketch", reference_pack)


def fastest_unpack() -> Callable[[bytes], bytes]:
    """Return the native function of the same result, where it was built."""
    return native_or("tables._native", "unpack_sketch", reference_unpack)


def features(sketched: bytes) -> int:
    """Return how many features a sketch has values of.

    >>> features(sketch(range(0, 10 << 16, 1 << 16))), features(b"")
    (10, 0)
    """
    return max(len(sketched) // 2 - 1, 0)


def threshold(jaccard: float, few: int) -> float:
    """Return the least Jaccard index of two events of a cluster.

    Args:
        jaccard: the recipe's threshold.
        few: how many distinct features the event with fewer of them has.
    """
    return max(jaccard, FEW_JACCARD) if few < FEW else jaccard


def reference_jaccard(left: bytes, right: bytes) -> float:
    """Return the Jaccard index of two sketches; two empty ones are equal.

    >>> one, other = (sketch(x << 16 for x in some) for some in ([1, 2, 3], [2, 3, 4]))
    >>> reference_jaccard(one, other)
    0.5
    """
    if left == right:
        return 1.0
    if not left or not right:
        return 0.0
    heads, values = zip(
        *((head, its) for head, *its in (array("H", left), array("H", right))), strict=True
    )
    shift = max(heads) >> 1
    ours, theirs = (
        {value >> shift - (head >> 1) for value in its}
        for head, its in zip(heads, values, strict=True)
    )
    reach = min(
        max(its) if head & 1 else 1 << VALUE_BITS
        for head, its in zip(heads, (ours, theirs), strict=True)
    )
    union = {value for value in ours | theirs if value <= reach}
    return len(union & ours & theirs) / len(union)


def reference_alike(pairs: Sequence[int], sketches: Sequence[bytes], jaccard: float) -> array[int]:
    """Return the pairs whose sketches are alike.

    Args:
        pairs: two numbers of sketches each.
        sketches: by number; the first one of a pair counts as alike if it is empty.
        jaccard: the recipe's threshold; with few features it is higher (`threshold`).
    """
    found = array("I")
    for one, other in zip(pairs[::2], pairs[1::2], strict=True):
        ours, theirs = sketches[one], sketches[other]
        least = threshold(jaccard, min(features(ours), features(theirs)))
        if not ours or reference_jaccard(ours, theirs) >= least:
            found.extend((one, other))
    return found


def fastest_alike() -> Callable[[array[int], list[bytes], float], array[int]]:
    """Return the native function of the same result, where it was built."""
    return native_or("tables._native", "alike", reference_alike)


def fastest_jaccard() -> Callable[[bytes, bytes], float]:
    """Return the native function of the same result, where it was built."""
    return native_or("tables._native", "jaccard", reference_jaccard)
