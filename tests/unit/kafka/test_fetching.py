"""Pieces hold the same records as the driver returns one by one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition, errors
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dedup.io.base import Records, Unreadable
from stream_dedup.kafka._fastpath import _batches, fetching
from stream_dedup.kafka._fastpath.fetching import (
    _Client,
    _Fetched,
    _Piece,
    columns,
    fetch_in_pieces,
)
from stream_dedup.kafka.codecs import CODECS, Decompressor

PLACE = TopicPartition("t", 0)
PRODUCER = 7
ATTRIBUTES_AT, LATEST_AT, CHECKSUM_AT, HEAD_BYTES = 21, 35, 17, 61
APPENDED_MS = 1_700_000_000_000
LIMIT = 1 << 20

fields = st.none() | st.binary(max_size=5)
headers = st.lists(st.tuples(st.text(max_size=3), fields), max_size=2)
rows = st.lists(st.tuples(st.integers(0, 2**40), fields, fields, headers), min_size=1, max_size=9)
kinds = st.sampled_from(["plain", "gzip", "aborted", "appended"])
batches = st.lists(st.tuples(rows, kinds), min_size=1, max_size=4) | st.lists(
    st.tuples(rows, st.just("legacy")), min_size=1, max_size=4
)


def packed(kind: str, first: int, some: list[Any]) -> bytes:
    """A batch as a broker sends it."""
    if kind == "legacy":
        legacy = LegacyRecordBatchBuilder(1, 0, 10**6)
        for offset, (timestamp, key, value, _) in enumerate(some, first):
            legacy.append(offset, timestamp, key, value)
        return bytes(legacy.build())
    aborted = kind == "aborted"
    builder = DefaultRecordBatchBuilder(
        2, 1 if kind == "gzip" else 0, aborted, PRODUCER if aborted else -1, 0, 0, 10**6
    )
    for offset, (timestamp, key, value, some_headers) in enumerate(some):
        builder.append(offset, timestamp, key, value, some_headers)
    raw = builder.build()
    raw[:8] = first.to_bytes(8, "big")  # the checksum does not cover it
    if kind == "appended":  # the broker's clock goes for all
        raw[ATTRIBUTES_AT + 1] |= 8
        raw[LATEST_AT : LATEST_AT + 8] = APPENDED_MS.to_bytes(8, "big")
    return signed(raw)


def signed(raw: bytearray) -> bytes:
    """A batch with the checksum that it should have."""
    raw[CHECKSUM_AT:ATTRIBUTES_AT] = calc_crc32c(bytes(raw[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return bytes(raw)


class Fetched:
    """What the driver keeps of a fetched partition."""

    def __init__(self, raw: bytes, wanted: int) -> None:
        self._partition_records = PartitionRecords(
            PLACE, MemoryRecords(raw), [(PRODUCER, 0)], wanted, None, None, True, READ_COMMITTED
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partition_records)

    @property
    def next_offset(self) -> int:
        """From where on it would be fetched next."""
        return int(self._partition_records.next_fetch_offset)


def in_pieces(raw: bytes, wanted: int, decompressor: Decompressor | None = None) -> Fetched:
    fetched = Fetched(raw, wanted)
    store = _Fetched(decompressor or Decompressor(LIMIT))
    store.answered = {PLACE: raw}
    store[PLACE] = fetched
    return fetched


def rows_of(records: Records) -> list[tuple[Any, ...]]:
    return [(*row[:4], tuple(row.headers)) for row in records]


@pytest.mark.skipif(not _batches.HAS_CRC32C, reason="the processor has no instruction for it")
@given(st.binary(max_size=100), st.integers(0, 9))
def test_the_checksum_is_that_of_the_driver(data: bytes, start: int) -> None:
    assert _batches.crc32c(memoryview(data)[start:]) == calc_crc32c(data[start:])


@given(batches, st.integers(0, 40), st.integers(1, 4), st.integers(0, 60))
def test_pieces_hold_what_the_driver_returns_one_by_one(
    given_batches: list[tuple[list[Any], str]], wanted: int, piece: int, cut: int
) -> None:
    raw, first = b"", 0
    for some, kind in given_batches:
        raw += packed(kind, first, some)
        first += len(some) + 2  # compaction leaves gaps
    raw = raw[: len(raw) - cut]
    one_by_one, pieces = Fetched(raw, wanted), in_pieces(raw, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "PIECE_RECORDS", piece)
        singles, returned = list(one_by_one), list(pieces)
    # After a batch that lies before the wanted offset, the driver goes back.
    singles = [record for record in singles if record.offset >= wanted]
    if given_batches[0][1] != "legacy":
        assert all(type(each) is _Piece and 1 <= len(each.records) <= piece for each in returned)
    assert all(last.offset < then.offset for last, then in pairwise(returned))
    assert pieces.next_offset == max(wanted, one_by_one.next_offset)
    assert bool(singles) == bool(returned)
    if singles:
        assert rows_of(columns(returned)) == rows_of(columns(singles))


def test_records_of_an_old_format_mix_with_pieces() -> None:
    some: list[Any] = [(5, None, b"old", []), (6, None, b"old", [])]
    raw = packed("legacy", 0, some) + packed("plain", 2, some) + packed("legacy", 4, some)
    returned = list(in_pieces(raw, 1))
    assert [type(each) is _Piece for each in returned] == [False, True, False, False]
    assert columns(returned).offsets == [1, 2, 3, 4, 5]


def test_a_piece_moves_the_position_after_its_last_record() -> None:
    fetched = in_pieces(packed("plain", 100, [(0, None, b"v", [])] * 1_200), 150)
    found = iter(fetched)
    seen = [(next(found).records.offsets[0], fetched.next_offset) for _ in range(3)]
    assert seen == [(150, 650), (650, 1_150), (1_150, 1_300)]


def test_records_whose_offset_does_not_rise_are_skipped() -> None:
    raw = bytearray(packed("plain", 0, [(0, None, b"v", [])] * 10))
    del raw[-4 * (raw[HEAD_BYTES] // 2 + 1) :]  # as if compaction had removed the last four
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[57:61] = (6).to_bytes(4, "big")
    size = raw[HEAD_BYTES] // 2 + 1  # of each record, with its length
    for number, delta in enumerate([0, 5, 3, 4, 9, 1]):
        raw[HEAD_BYTES + number * size + 3] = 2 * delta
    hostile = signed(raw)
    singles = columns(list(Fetched(hostile, 0)))
    assert columns(list(in_pieces(hostile, 0))).offsets == singles.offsets == [0, 5, 9]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "PIECE_RECORDS", 1)
        assert columns(list(in_pieces(hostile, 0))).offsets == [0, 5, 9]


def test_an_invalid_header_name_is_read_as_in_java() -> None:
    raw = bytearray(packed("plain", 0, [(0, None, b"v", [("name", b"x")])]))
    raw[raw.index(b"name") + 1] = 0xFF
    (row,) = columns(list(in_pieces(signed(raw), 0)))
    assert row.headers == [("n\ufffdme", b"x")]


def test_fetched_bytes_are_freed_with_their_last_user() -> None:
    fetched = in_pieces(packed("plain", 0, [(0, None, b"value", [])] * 3), 0)
    records = fetched._partition_records
    held = [weakref.ref(records), weakref.ref(records._records)]
    gc.disable()  # it is not to wait for that
    try:
        assert [len(piece.records) for piece in fetched] == [3]
        del records, fetched
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("instruction", [True, False])
def test_a_corrupt_batch_is_refused(monkeypatch: pytest.MonkeyPatch, *, instruction: bool) -> None:
    monkeypatch.setattr(_batches, "HAS_CRC32C", _batches.HAS_CRC32C and instruction)
    raw = bytearray(packed("plain", 0, [(0, None, b"value", [])]))
    raw[-3] ^= 1
    with pytest.raises(errors.CorruptRecordException):
        list(in_pieces(bytes(raw), 0))


def has_long_attributes(raw: bytes | bytearray) -> bool:
    """Whether a record's attributes go on in a second byte, would they be a number."""
    at = HEAD_BYTES
    while at < len(raw):
        size = shift = 0
        while raw[at] & 0x80:
            size |= (raw[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        size |= raw[at] << shift
        if raw[at + 1] & 0x80:
            return True
        at += 1 + (size >> 1)
    return False


@example([(0, None, None, [("", b"")])], [(5, 128)])
@given(rows, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3))
def test_hostile_batches_are_read_alike_or_refused(
    some: list[Any], changed: list[tuple[int, int]]
) -> None:
    raw = bytearray(packed("plain", 0, some))
    for at, byte in changed:
        raw[HEAD_BYTES - 4 + at % (len(raw) - HEAD_BYTES + 4)] = byte
    hostile = signed(raw)
    found = list(in_pieces(hostile, 0))
    if columns(found).unreadable:
        return
    try:
        expected = list(Fetched(hostile, 0))
    except (errors.CorruptRecordException, UnicodeDecodeError, SystemError):
        return
    # The driver takes a record's attributes for a number of any length, and may read on elsewhere.
    assert rows_of(columns(found)) == rows_of(columns(expected)) or has_long_attributes(raw)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (bytes(8) + (-12).to_bytes(4, "big", signed=True), "0 bytes"),
        (bytes(8) + (-99).to_bytes(4, "big", signed=True), "0 bytes"),
        (bytes(8) + (-15).to_bytes(4, "big", signed=True) + bytes(99), "0 bytes"),
        (bytes(8) + (4).to_bytes(4, "big") + bytes(4), "16 bytes"),
        (bytes(8) + (5).to_bytes(4, "big") + bytes(5), "less than the minimum"),
        (bytes(8) + (20).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(15), "32 bytes"),
    ],
)
def test_bytes_that_are_no_batch_are_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(errors.CorruptRecordException, match=reason):
        list(in_pieces(raw, 0))


class Answer:
    """What a broker answers to a fetch."""

    topics: tuple[Any, ...] = (("t", [(0, 0, 9, 9, [], b"batches"), (1, 3, -1, -1, [], None)]),)


class Brokers:
    """A client that has one answer."""

    name = "theirs"

    async def send(self, node: int, request: object) -> Answer:
        assert (node, request is not None) == (3, True)
        return Answer()


def test_the_answer_to_a_fetch_is_noted() -> None:
    fetched = _Fetched(Decompressor(LIMIT))
    client = _Client(Brokers(), fetched)

    async def ask() -> None:
        assert isinstance(await client.send(3, object()), Answer)
        assert fetched.answered == {}, "that was not a fetch"
        assert isinstance(await client.send(3, FetchRequest.__new__(FetchRequest)), Answer)
        assert fetched.answered == {PLACE: b"batches", TopicPartition("t", 1): None}
        await asyncio.sleep(0)
        assert fetched.answered == {}, "what was not stored is not kept"

    asyncio.run(ask())
    assert client.name == "theirs"


def test_a_result_without_noted_bytes_is_left_alone() -> None:
    raw = packed("plain", 0, [(0, None, b"value", [])])
    fetched = Fetched(raw, 0)
    _Fetched(Decompressor(LIMIT))[PLACE] = fetched
    assert type(fetched._partition_records._records) is MemoryRecords
    assert rows_of(columns(list(fetched))) == [(0, 0, None, b"value", ())]


def test_an_error_is_stored_unchanged() -> None:
    fetched, error = _Fetched(Decompressor(LIMIT)), object()
    fetched[PLACE] = error
    assert fetched[PLACE] is error


def emptied(first: int, last: int) -> bytes:
    """What compaction leaves of a batch all of whose records are gone: its head."""
    raw = bytearray(packed("plain", first, [(0, None, b"v", [])])[:HEAD_BYTES])
    raw[8:12] = (HEAD_BYTES - 12).to_bytes(4, "big")
    raw[23:27] = (last - first).to_bytes(4, "big")
    raw[57:61] = bytes(4)
    return signed(raw)


def test_a_batch_emptied_by_compaction_is_skipped() -> None:
    alone, more = emptied(0, 4), emptied(0, 4) + packed("plain", 5, [(7, None, b"v", [])])
    for kind in (Fetched, in_pieces):
        fetched = kind(alone, 0)
        assert list(fetched) == []
        assert fetched.next_offset == 5
        fetched = kind(more, 0)
        assert rows_of(columns(list(fetched))) == [(5, 7, None, b"v", ())]
        assert fetched.next_offset == 6


def test_noted_bytes_are_dropped_once_stored() -> None:
    store, raw = _Fetched(Decompressor(LIMIT)), packed("plain", 0, [(0, None, b"v", [])])
    store.answered = {PLACE: raw}
    store[PLACE] = Fetched(raw, 0)
    assert store.answered == {}


@pytest.mark.parametrize("raw", [b"", None])
def test_an_error_in_an_answer_is_stored_unchanged(raw: bytes | None) -> None:
    fetched, error = _Fetched(Decompressor(LIMIT)), object()
    fetched.answered = {PLACE: raw}
    fetched[PLACE] = error
    assert fetched[PLACE] is error
    assert fetched.answered == {}


def consumer_of(records: Any) -> Any:
    return SimpleNamespace(_fetcher=SimpleNamespace(_records=records, _client=object()))


def test_a_consumer_is_made_to_return_pieces() -> None:
    consumer = consumer_of({})
    client = consumer._fetcher._client
    fetch_in_pieces(consumer, Decompressor(LIMIT))
    assert type(consumer._fetcher._records) is _Fetched
    assert type(consumer._fetcher._client) is _Client
    assert client is consumer._fetcher._client._client
    assert consumer._fetcher._records is consumer._fetcher._client._fetched


def test_a_consumer_that_has_fetched_already_is_left_alone() -> None:
    records = {PLACE: object()}
    consumer = consumer_of(records)
    client = consumer._fetcher._client
    fetch_in_pieces(consumer, Decompressor(LIMIT))
    assert consumer._fetcher._records is records
    assert consumer._fetcher._client is client


def test_the_brokers_timestamp_replaces_the_records() -> None:
    some: list[Any] = [(5, None, b"v", []), (6, None, b"w", [])]
    returned = list(in_pieces(packed("appended", 0, some), 0))
    assert columns(returned).timestamps == [APPENDED_MS] * 2


# ------------------------------------------------------------ what cannot be read


def compressed(codec: int, first: int, count: int, value: bytes = b"some words " * 5) -> bytearray:
    """A batch as a broker sends it, to be damaged and then signed."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, 0, 0, 10**8)
    for offset in range(count):
        builder.append(offset, 1_000 + offset, None, value, [])
    raw: bytearray = builder.build()
    raw[:8] = first.to_bytes(8, "big")
    return raw


def damaged(codec: int, first: int, count: int) -> bytes:
    """A batch with a right checksum whose records do not unpack."""
    raw = compressed(codec, first, count)
    raw[HEAD_BYTES:] = b"\xde\xad\xbe\xef" * 8
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    return signed(raw)


every_codec = pytest.mark.parametrize("codec", CODECS.values())


@every_codec
def test_a_damaged_batch_gives_its_offsets_and_is_skipped(codec: int) -> None:
    sound = packed("plain", 0, [(5, None, b"v", [])] * 2)
    after = packed("plain", 12, [(6, None, b"w", [])])
    fetched = in_pieces(sound + damaged(codec, 2, 10) + after, 0)
    found = columns(list(fetched))
    assert found.offsets == [0, 1, 11, 12]
    assert found.values == [b"v", b"v", None, b"w"]
    (why,) = found.unreadable.values()
    assert (list(found.unreadable), why.first, why.to_the_end) == ([11], 2, True)
    assert why.reason.startswith("batch 2 to 11: ")
    assert fetched.next_offset == 13


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_unpacks_to_too_much_is_skipped(codec: int) -> None:
    raw = signed(compressed(codec, 7, 3, bytes(LIMIT // 2)))
    found = columns(list(in_pieces(raw, 8)))
    assert (found.offsets, found.values, found.timestamps) == ([9], [None], [1_002])
    assert found.unreadable == {
        9: Unreadable(8, f"batch 7 to 9: it unpacks to more than {LIMIT:,} bytes")
    }
    assert len(columns(list(in_pieces(raw, 7, Decompressor(2 * LIMIT))))) == 3


def test_records_before_a_malformed_one_are_returned() -> None:
    raw = bytearray(packed("plain", 20, [(0, None, b"v", [])] * 6))
    size = raw[HEAD_BYTES] // 2 + 1
    raw[HEAD_BYTES + 4 * size] ^= 1  # the length of the fifth is negative
    hostile = signed(raw)
    for piece in (1, 3, 500):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fetching, "PIECE_RECORDS", piece)
            found = columns(list(in_pieces(hostile, 21)))
        assert found.offsets == [21, 22, 23, 25]
        assert found.unreadable[25].first == 24


def test_a_record_after_the_end_of_its_batch_is_unreadable() -> None:
    raw = bytearray(packed("plain", 0, [(0, None, b"v", [])] * 2))
    raw[-7 + 3 - len(b"v")] = 2 * 60  # where the last one's offset is
    fetched = in_pieces(signed(raw), 0)
    found = columns(list(fetched))
    assert found.offsets[-1] == 1
    assert set(found.unreadable) == {1}
    assert fetched.next_offset == 2


def test_bytes_after_the_last_record_are_ignored() -> None:
    raw = bytearray(packed("plain", 0, [(0, None, b"v", [])] * 2)) + b"more"
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    found = columns(list(in_pieces(signed(raw), 0)))
    assert (found.offsets, dict(found.unreadable)) == ([0, 1], {})


def old(codec: int, value: bytes) -> bytearray:
    """A compressed batch of three records in the format before Kafka 0.11."""
    builder = LegacyRecordBatchBuilder(1, codec, 10**8)
    for offset in range(3):
        builder.append(offset, 1_000, b"key", value)
    raw: bytearray = builder.build()
    raw[:8] = (2).to_bytes(8, "big")  # brokers store the offset of the last one
    return raw


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_old_batches_are_bounded_too(codec: int) -> None:
    after = packed("plain", 3, [(6, None, b"w", [])])
    sound = columns(list(in_pieces(bytes(old(codec, b"value")) + after, 0)))
    assert (sound.offsets, sound.values) == ([0, 1, 2, 3], [b"value"] * 3 + [b"w"])
    bomb = columns(list(in_pieces(bytes(old(codec, bytes(LIMIT // 2))) + after, 0)))
    assert (bomb.offsets, bomb.values) == ([2, 3], [None, b"w"])
    assert bomb.unreadable == {
        2: Unreadable(0, f"batch to 2: it unpacks to more than {LIMIT:,} bytes")
    }


def test_a_piece_ends_with_the_record_that_fills_it() -> None:
    raw = signed(compressed(0, 0, 5, bytes(fetching.PIECE_BYTES // 2)))
    assert [len(piece.records) for piece in in_pieces(raw, 0)] == [2, 2, 1]
    many: list[Any] = [(0, None, b"v", [("", None)] * 6_000)] * 4
    assert [len(piece.records) for piece in in_pieces(packed("plain", 0, many), 0)] == [2, 2]


def test_no_batch_is_begun_once_the_room_is_used_up() -> None:
    some = [signed(compressed(4, first, 2, bytes(LIMIT // 4))) for first in range(0, 20, 2)]
    decompressor = Decompressor(LIMIT)
    offsets, polls = list[int](), []
    while len(offsets) < 20:
        fetched = in_pieces(b"".join(some[len(offsets) // 2 :]), len(offsets), decompressor)
        found = columns(list(fetched)).offsets
        offsets += found
        polls.append(len(found))
        assert fetched.next_offset == len(offsets)
        decompressor.room = LIMIT
    assert offsets == list(range(20))
    assert polls == [4] * 5


@given(rows, st.integers(0, 4), st.data())
def test_any_damage_behind_a_right_checksum_is_survived(
    some: list[Any], codec: int, data: st.DataObject
) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, 0, 0, 10**6)
    for offset, (timestamp, key, value, some_headers) in enumerate(some):
        builder.append(offset, timestamp, key, value, some_headers)
    raw = builder.build()
    raw[HEAD_BYTES:] = data.draw(st.binary(min_size=1, max_size=60))
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    fetched = in_pieces(signed(raw) + packed("plain", len(some), [(0, None, b"end", [])]), 0)
    found = columns(list(fetched))
    assert found.values[-1] == b"end"
    assert fetched.next_offset == len(some) + 1
