"""Packs the keys of patterns for ``resolve.lua``. Native, or in Python.

Problem: an event that opens a cluster writes a posting for each of its words. Cutting keys, joining
them with the hash of the group and sorting them by their slices takes a script some two
microseconds a word, of the one core that all processes share.

Idea: the caller does all that. It knows the slices, the fields, and the postings that the event
adds if it opens a cluster, as that has an id of its own. The script unpacks the fields of a slice
by one format, and if no posting list exists, fields and postings by another one: they are the
arguments of the command that writes them.

That is right only if no other query of the call has changed these lists before. So a pattern is
*plain* if its keys differ from each other and from those of all patterns before it; the script
looks at the others one list at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from stream_dedup.clustering.learning import OWN
from stream_dedup.fingerprint.combinations import list_keys, shape_key
from stream_dedup.fingerprint.one_off import counted_of, gaps_of, word_count
from stream_dedup.index.redis import layouts
from stream_dedup.native import native_or

Row = tuple[bytes, int, int]
"""The keys of a pattern (`fingerprint.one_off.pack`), the hash of its group, and the id of the
cluster that it may open."""

_ALL_64 = (1 << 64) - 1
_NO_PATTERN = layouts.PATTERN.struct.pack(0, 0, 0, 0, 0, 0) + layouts.LISTS.struct.pack(b"", b"")


def spread_of(group: int) -> int:
    """Return the bits that shift the slices of a group; see `layouts.GROUP_FACTOR`."""
    return group * layouts.GROUP_FACTOR & _ALL_64


def reference_pack_patterns(rows: Sequence[Row], shift: int) -> bytes:
    """Pack patterns, one after the other.

    Args:
        rows: the patterns of the queries of a call, in their order.
        shift: bits of a key behind the number of its slice.

    Returns:
        For each `layouts.PATTERN`, `layouts.LISTS`, its keys, and for each slice that holds some of
        them its number in digits, behind their count(1), how many keys follow(1), and those
        (`layouts.PATTERN_KEY`). The first slice is that of the pattern's own key; the others follow
        in the order of the slots.
    """
    taken: set[int] = set()
    out: list[bytes] = []
    for one_off, group, identity in rows:
        if not one_off:
            out.append(_NO_PATTERN)
            continue
        numbers = array("Q", one_off)
        spread, head = spread_of(group), group.to_bytes(4, "big")
        owner = identity.to_bytes(8, "big")
        keys = [key ^ spread for key in numbers[::2]]
        plain = len(set(keys)) == len(keys) and taken.isdisjoint(keys)
        taken.update(keys)
        slices: dict[int, list[bytes]] = {}
        for place, key in enumerate(keys):
            about = numbers[2 * place + 1] if place else OWN | gaps_of(numbers) << 32
            number, around, value = about & 0xFF, about >> 8 & 0xFF, about >> 32
            assigned = about >> 16 & 1
            its_value = value.to_bytes(layouts.POSTING_VALUE_BYTES, "big")
            posting = layouts.POSTING.struct.pack(number + layouts.FIRST_NUMBER, its_value, owner)
            field = head + (key ^ spread).to_bytes(8, "big")
            packed = layouts.PATTERN_KEY.struct.pack(field, posting, around, assigned, place)
            slices.setdefault(key >> shift, []).append(packed)
        parts = [key.to_bytes(8, "big") for key in numbers[::2]]
        for number, of_slice in slices.items():
            digits = b"%d" % number
            parts += (b"%c%b%c" % (len(digits), digits, len(of_slice)), *of_slice)
        rest = b"".join(parts)
        words = word_count(numbers), counted_of(numbers)
        counts = (*words, plain, len(slices), len(keys), len(rest))
        shape = shape_key(numbers).to_bytes(8, "big")
        lists = b"".join(head + key.to_bytes(8, "big") for key in list_keys(numbers))
        out += (layouts.PATTERN.struct.pack(*counts), layouts.LISTS.struct.pack(shape, lists), rest)
    return b"".join(out)


def is_listed(shapes: bytes, one_off: bytes) -> bool:
    """Return whether combinations may be listed for patterns such as one with these keys.

    Args:
        shapes: a bit for each number of shapes, as ``_words.lua`` keeps them; or empty.
        one_off: the keys of the pattern.
    """
    if not shapes or not one_off:
        return False
    # As `shape_of` there: the first nine bits are the byte's place, bits 48 to 50 the bit's.
    key = shape_key(array("Q", one_off))
    return bool(shapes[key >> 55] >> (key >> 48 & 7) & 1)


def fastest_pack_patterns() -> Callable[[Sequence[Row], int], bytes]:
    """Return the native function of the same result, where it was compiled."""
    return native_or("index.redis._one_off", "pack_patterns", reference_pack_patterns)
