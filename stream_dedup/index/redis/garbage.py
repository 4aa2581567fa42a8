"""Packs what closed clusters have left, for ``purge.lua``. Native, or in Python.

Problem: a closed cluster leaves its names in slices of exact hashes and of tables, and the postings
of its words in others. Where all events are new and the index is full, each event closes a cluster,
and finding these slices took a fifth of the time that the worker has for an event.

A call of the script takes so much that other clients do not wait long. What a cluster has left may
be shared out to several calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stream_dedup.clustering.learning import MAX_POSTING_LISTS
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.one_off import spread_of
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.native import native_or

Call = tuple[list[bytes], list[Argument]]
"""The keys and arguments of pieces of garbage, as ``purge.lua`` takes them."""

Arrange = Callable[[int, int, int, bytes], tuple[list[bytes], bytes]]
"""Finds the slices and members of a fingerprint; see `Entries.arrange`."""


def reference_pack_garbage(
    pieces: Sequence[bytes],
    shard: ShardKeys,
    layout: NamespaceLayout,
    arrange: Arrange,
    call_work: int,
) -> list[Call]:
    """Pack pieces of garbage.

    Args:
        pieces: as a script has handed them out: `layouts.PIECE`, the keys of posting lists, and a
            name list. One that is cut off has left nothing, so it is only removed from the list.
        shard: whose they are.
        layout: of the namespace.
        arrange: finds the members of a fingerprint in the tables.
        call_work: commands of a call, about; at least those of a name. A posting list takes one:
            those of a slice are read and written at once.

    Returns:
        The calls, in their order: the keys and arguments of their pieces.
    """
    calls: list[Call] = [([], [])]
    room = call_work
    for piece in pieces:
        posting_keys, group, names = _parts(piece, layout)
        its_group, owner = int.from_bytes(group, "big"), piece[: layouts.ID_BYTES]
        spread = spread_of(its_group)
        while True:
            keys, arguments = calls[-1]
            fitting = room // layout.name_work
            now, names = names[:fitting], names[fitting:]
            room -= len(now) * layout.name_work
            fitting = 0 if names else room
            its_keys, posting_keys = posting_keys[:fitting], posting_keys[fitting:]
            room -= len(its_keys)
            is_last = not names and not posting_keys
            slices: dict[int, bytes] = {}
            for key in its_keys:
                number = (int.from_bytes(key, "big") ^ spread) >> layout.posting_shift
                slices[number] = slices.get(number, b"") + group + key
            keys.append(shard.cluster(owner))
            arguments += (piece, len(now), int(is_last), len(slices))
            for name in now:
                exact = int.from_bytes(name.exact, "big")
                keys.append(shard.exact((exact ^ spread) >> layout.exact_shift))
                members = b""
                if name.searchable and name.fingerprint is not None:
                    number = int.from_bytes(owner, "big")
                    found, members = arrange(
                        name.fingerprint, its_group, number, shard.prefixes.table
                    )
                    keys += found
                arguments += (group + name.raw, members)
            keys += map(shard.postings_slice, slices)
            arguments += slices.values()
            if room < layout.name_work:
                calls.append(([], []))
                room = call_work
            if is_last:
                break
    return [call for call in calls if call[0]]


def _parts(piece: bytes, layout: NamespaceLayout) -> tuple[list[bytes], bytes, list[codec.Name]]:
    """The keys of the posting lists of a piece, the hash of its group, and its names."""
    if len(piece) < layouts.PIECE.struct.size:
        return [], b"", []
    _, keys, packed = codec.unpack_piece(piece)
    behind = len(packed) - layout.names_at
    if behind < 0 or len(keys) > layouts.KEY_BYTES * MAX_POSTING_LISTS:
        return [], b"", []
    posting_keys = [
        keys[at : at + layouts.KEY_BYTES] for at in range(0, len(keys), layouts.KEY_BYTES)
    ]
    whole = packed[: len(packed) - behind % layout.name_bytes]
    return posting_keys, *codec.unpack_names(whole, layout)


pack_garbage = native_or("index.redis._garbage", "pack_garbage", reference_pack_garbage)
