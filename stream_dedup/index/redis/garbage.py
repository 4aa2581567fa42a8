"""Packs what closed clusters have left, for ``purge.lua``. Native, or in Python.

Problem: a closed cluster leaves its names in slices of exact hashes and of tables, and the records
of its words in others. Where all events are new and the index is full, each event closes a cluster,
and finding these slices took a fifth of the time that the worker has for an event.

A call of the script takes so much that other clients do not wait long. What a cluster has left may
be shared out to several calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stream_dedup.clustering.learning import MAX_RECORDS
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.namespace import CALL_WORK
from stream_dedup.index.redis.one_off import spread_of
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.native import extension

Call = tuple[list[bytes], list[Argument]]
"""The keys and arguments of pieces of garbage, as ``purge.lua`` takes them."""

Arrange = Callable[[int, int, int, bytes], tuple[list[bytes], bytes]]
"""Finds the slices and members of a fingerprint; see `Entries.arrange`."""


class Shape(NamedTuple):
    """How a namespace stores what leads to its clusters, and what removing it costs.

    Attributes:
        head_bytes: of a name list, before the names.
        name_bytes: of a name.
        width_bytes: of a fingerprint.
        exact_shift: bits of an exact hash behind the number of its slice.
        record_shift: the same of the key of a record.
        name_work: commands that a name takes. A record takes one, about: those of a slice are read
            and written at once.
        call_work: commands of a call, about.
    """

    head_bytes: int
    name_bytes: int
    width_bytes: int
    exact_shift: int
    record_shift: int
    name_work: int
    call_work: int


def shape_of(layout: NamespaceLayout) -> Shape:
    """Return the shape of a namespace."""
    return Shape(
        layout.names_at, layout.name_bytes, layout.width // 8, layout.exact_shift,
        layout.record_shift, min(layout.table_layout.tables + 4, CALL_WORK), CALL_WORK,
    )  # fmt: skip


def reference_pack_garbage(
    pieces: Sequence[bytes], shard: ShardKeys, shape: Shape, arrange: Arrange
) -> list[Call]:
    """Pack pieces of garbage.

    Args:
        pieces: as a script has handed them out: `layouts.PIECE`, the keys of records, and a name
            list. One that is cut off has left nothing, so it is only removed from the list.
        shard: whose they are.
        shape: of the namespace.
        arrange: finds the members of a fingerprint in the tables.

    Returns:
        The calls, in their order: the keys and arguments of their pieces.
    """
    calls: list[Call] = [([], [])]
    room = shape.call_work
    for piece in pieces:
        records, group, names = _parts(piece, shape)
        spread = spread_of(int.from_bytes(group, "big"))
        while True:
            keys, arguments = calls[-1]
            fitting = room // shape.name_work
            now, names = names[:fitting], names[fitting:]
            room -= len(now) * shape.name_work
            fitting = 0 if names else room
            its_records, records = records[:fitting], records[fitting:]
            room -= len(its_records)
            is_last = not names and not records
            slices: dict[int, bytes] = {}
            for key in its_records:
                number = (int.from_bytes(key, "big") ^ spread) >> shape.record_shift
                slices[number] = slices.get(number, b"") + group + key
            keys.append(shard.cluster(piece[: layouts.ID_BYTES]))
            arguments += (piece, len(now), int(is_last), len(slices))
            for raw, fingerprint in now:
                exact = int.from_bytes(raw[: layouts.EXACT_BYTES], "big")
                keys.append(shard.exact((exact ^ spread) >> shape.exact_shift))
                members = b""
                if fingerprint and raw[-1] == 1:
                    found, members = arrange(
                        int.from_bytes(fingerprint, "big"), int.from_bytes(group, "big"),
                        int.from_bytes(piece[: layouts.ID_BYTES], "big"), shard.prefixes.table,
                    )  # fmt: skip
                    keys += found
                arguments += (group + raw, members)
            keys += map(shard.record, slices)
            arguments += slices.values()
            if room < shape.name_work:
                calls.append(([], []))
                room = shape.call_work
            if is_last:
                break
    return [call for call in calls if call[0]]


def _parts(piece: bytes, shape: Shape) -> tuple[list[bytes], bytes, list[tuple[bytes, bytes]]]:
    """The keys of records of a piece, the hash of its group, and its names with fingerprints."""
    if len(piece) < layouts.PIECE.struct.size:
        return [], b"", []
    _, keys, packed = codec.unpack_piece(piece)
    head, size = shape.head_bytes, shape.name_bytes
    if len(packed) < head or len(keys) > layouts.KEY_BYTES * MAX_RECORDS:
        return [], b"", []
    records = [keys[at : at + layouts.KEY_BYTES] for at in range(0, len(keys), layouts.KEY_BYTES)]
    group, of_first = packed[: layouts.GROUP_BYTES], packed[layouts.GROUP_BYTES : head]
    raws = [packed[at : at + size] for at in range(head, len(packed) - size + 1, size)]
    own = [raw[layouts.EXACT_BYTES : -layouts.FLAG_BYTES] for raw in raws]
    if of_first and own:
        own[0] = of_first[: shape.width_bytes]  # keys of bands: only the representative has them
    return records, group, [*zip(raws, own, strict=True)]


_native = extension("index.redis._garbage")
pack_garbage: Callable[[Sequence[bytes], ShardKeys, Shape, Arrange], list[Call]] = (
    _native.pack_garbage if _native else reference_pack_garbage
)
