"""Packs requests of the spread index for ``steps.lua``, and unpacks its answers."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from stream_dedup.clock import US_PER_S
from stream_dedup.index.base import Query
from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.scripts import Argument
from stream_dedup.index.spread.protocol import (
    Add,
    Answer,
    Begin,
    Beside,
    Entry,
    Found,
    Join,
    Judge,
    Key,
    Neighbour,
    Offer,
    Open,
    Places,
    Remove,
    Request,
    Ticket,
    Withdraw,
    exact_key,
    table_keys,
)
from stream_dedup.model import Position

_ANSWERS = {
    layouts.ANSWER_WAIT: Answer.WAIT,
    layouts.ANSWER_ABSENT: Answer.ABSENT,
    layouts.ANSWER_STALE: Answer.STALE,
    layouts.ANSWER_LOST: Answer.LOST,
    layouts.ANSWER_FULL: Answer.FULL,
    layouts.ANSWER_DONE: Answer.DONE,
}
_LENGTH = Struct(">I")
_NO_TICKET = bytes(layouts.TICKET.struct.size)
_NO_HASH = bytes(layouts.SLICE_HASH_BYTES)


class Steps:
    """Packs the requests of calls to shards, and unpacks their answers.

    Args:
        layout: how the namespace is laid out.
        places: which shard holds what.
    """

    def __init__(self, layout: NamespaceLayout, places: Places) -> None:
        self._places = places
        self._slices = layout.spread_slices
        self._bytes = layout.width // 8
        self._tables = layout.table_layout

    def pack(
        self, shard: ShardKeys, requests: Sequence[Request]
    ) -> tuple[list[bytes], list[Argument]]:
        """Pack requests for one shard: the keys and the last arguments of ``steps.lua``."""
        keys = [
            shard.meta, shard.begun, shard.expiry, shard.recency, shard.due, shard.garbage,
            shard.gone, shard.held,
        ]  # fmt: skip
        places: dict[Query, int] = {}
        packed: list[bytes] = []
        for request in requests:
            place, asker, hashed, fingerprint, cut = 0, _NO_TICKET, _NO_HASH, b"", False
            if isinstance(request, Begin | Judge | Open | Join):
                place = places.setdefault(request.query, len(places))
            match request:
                case Begin(entry, query):
                    kind = layouts.STEP_BEGIN
                    hashed, slice_key = self._slice(shard, exact_key(query))
                    keys += (*_cluster(shard, entry), slice_key)
                case Judge(entry, asking, _, equal):
                    kind = layouts.STEP_JUDGE_EQUAL if equal else layouts.STEP_JUDGE
                    asker = pack_ticket(asking)
                    keys += _cluster(shard, entry)
                case Open(entry, _, cut):
                    kind = layouts.STEP_OPEN
                    keys += _cluster(shard, entry)
                case Join(entry, _, is_named, cut):
                    kind = layouts.STEP_JOIN_NAMED if is_named else layouts.STEP_JOIN
                    keys.append(_cluster(shard, entry)[0])
                case Withdraw(entry):
                    kind = layouts.STEP_WITHDRAW
                    keys.append(_cluster(shard, entry)[1])
                case Offer(key, entry, bits) | Add(key, entry, bits) | Remove(key, entry, bits):
                    kind = _KINDS[type(request)]
                    hashed, slice_key = self._slice(shard, key)
                    keys.append(slice_key)
                    fingerprint = bits.to_bytes(self._bytes, "big")
            identity, ticket = codec.pack_id(entry.identity), pack_ticket(entry.ticket)
            packed += (
                layouts.STEP.struct.pack(kind, place, identity, ticket, asker, hashed, cut),
                bytes((len(fingerprint),)),
                fingerprint,
            )
        return keys, [b"".join(packed), *map(self._pack_query, places)]

    def _slice(self, shard: ShardKeys, key: Key) -> tuple[bytes, bytes]:
        hashed = self._places.hash_of(key)
        number = hashed // self._places.shards % self._slices
        return hashed.to_bytes(layouts.SLICE_HASH_BYTES, "big"), shard.spread(number)

    def _pack_query(self, query: Query) -> bytes:
        texts = (
            query.fingerprint.to_bytes(self._bytes, "big"),
            codec.big_endian(query.sketch),
            codec.pack_group(query.group),
            codec.pack_position(query.position),
        )
        first_us, last_us = codec.clamp_us(query.first_us), codec.clamp_us(query.last_us)
        head = layouts.ASKED.struct.pack(first_us, last_us, codec.pack_id(query.exact), query.near)
        return head + b"".join(_LENGTH.pack(len(text)) + text for text in texts)

    def unpack(self, answer: bytes) -> object:
        """Unpack an answer."""
        if answer[0] == layouts.ANSWER_FOUND:
            _, identity, ticket, bits, similarity, opened_us, last_us, recorded, names = (
                layouts.FOUND.struct.unpack(answer)
            )
            entry = unpack_entry(identity, ticket)
            times = int(opened_us), int(last_us)
            return Found(entry, bits, similarity, *times, bool(recorded), names)
        if answer[0] in (layouts.ANSWER_BESIDE, layouts.ANSWER_CUT):
            head = layouts.SPREAD_ENTRY.struct
            each = head.size + self._bytes
            beside = [
                Neighbour(
                    unpack_entry(*head.unpack_from(answer, at)),
                    int.from_bytes(answer[at + head.size : at + each], "big"),
                )
                for at in range(1, len(answer), each)
            ]
            return Beside(beside) if answer[0] == layouts.ANSWER_CUT else beside
        return _ANSWERS[answer[0]]

    def unpack_piece(self, piece: bytes) -> list[Remove]:
        """Unpack a piece of garbage: the entries of a closed cluster."""
        head, size = layouts.SPREAD_NAMES.struct, layouts.NAME_OTHER_BYTES + self._bytes
        identity, _, packed = codec.unpack_piece(piece)
        ticket, length = head.unpack_from(packed)
        group = codec.unpack_group(packed[head.size : head.size + length])
        removed: dict[Remove, None] = {}
        for at in range(head.size + length, len(packed), size):
            exact, bits = packed[at : at + layouts.EXACT_BYTES], packed[at + layouts.EXACT_BYTES :]
            fingerprint = int.from_bytes(bits[: self._bytes], "big")
            query = _stored_query(group, exact, fingerprint, near=bits[self._bytes] == 1)
            for key in [exact_key(query), *table_keys(query, self._tables)]:
                removed[Remove(key, unpack_entry(identity, ticket), fingerprint)] = None
        return list(removed)

    def unpack_attempt(self, packed: bytes, value: bytes) -> tuple[Entry, Query, int]:
        """Unpack an attempt: its entry, what of the query says where it lies, and when it began."""
        head = layouts.BEGUN.struct
        since_s, exact, near = head.unpack_from(value)
        fingerprint, group = value[head.size :][: self._bytes], value[head.size + self._bytes :]
        query = _stored_query(
            codec.unpack_group(group), exact, int.from_bytes(fingerprint, "big"), near=bool(near)
        )
        return (
            unpack_entry(*layouts.SPREAD_ENTRY.struct.unpack(packed)),
            query,
            since_s * US_PER_S,
        )


_KINDS: dict[type[Request], int] = {
    Offer: layouts.STEP_OFFER,
    Add: layouts.STEP_ADD,
    Remove: layouts.STEP_REMOVE,
}


def _stored_query(group: str, exact: bytes, fingerprint: int, *, near: bool) -> Query:
    """What of a query says where its entries lie."""
    number = int.from_bytes(exact, "big")
    return Query(group, number, fingerprint, b"", near, 0, 0, Position("", 0, 0))


def _cluster(shard: ShardKeys, entry: Entry) -> tuple[bytes, bytes]:
    identity = codec.pack_id(entry.identity)
    return shard.cluster(identity), shard.intent(identity)


def pack_ticket(ticket: Ticket) -> bytes:
    """Pack a ticket; tickets are ordered as their bytes are."""
    return layouts.TICKET.struct.pack(*ticket)


def unpack_entry(identity: bytes, ticket: bytes) -> Entry:
    """Unpack an entry."""
    number = int.from_bytes(identity, "big")
    return Entry(number, Ticket(*layouts.TICKET.struct.unpack(ticket)))
