"""Records handed out in pieces are those that the driver hands out one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import TopicPartition, errors
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.connectors import kafka_fetched
from stream_dedup.connectors.base import Records
from stream_dedup.connectors.kafka_fetched import _Fetched, _Piece, columns

PLACE = TopicPartition("t", 0)
PRODUCER = 7

fields = st.none() | st.binary(max_size=5)
headers = st.lists(st.tuples(st.text(max_size=3), fields), max_size=2)
rows = st.lists(st.tuples(st.integers(0, 2**40), fields, fields, headers), min_size=1, max_size=9)
kinds = st.sampled_from(["plain", "gzip", "aborted"])
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


def in_pieces(raw: bytes, wanted: int) -> Fetched:
    fetched = Fetched(raw, wanted)
    _Fetched()[PLACE] = fetched
    return fetched


def rows_of(records: Records) -> list[tuple[Any, ...]]:
    return [(*row[:4], tuple(row.headers)) for row in records]


@given(batches, st.integers(0, 40), st.integers(1, 4))
def test_pieces_hold_what_the_driver_hands_out_one_by_one(
    given_batches: list[tuple[list[Any], str]], wanted: int, piece: int
) -> None:
    raw, first = b"", 0
    for some, kind in given_batches:
        raw += packed(kind, first, some)
        first += len(some) + 2  # compaction leaves gaps
    one_by_one, pieces = Fetched(raw, wanted), in_pieces(raw, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_fetched, "PIECE_RECORDS", piece)
        singles, handed_out = list(one_by_one), list(pieces)
    assert all(type(each) is _Piece and 1 <= len(each.records) <= piece for each in handed_out)
    assert all(last.offset < then.records.offsets[0] for last, then in pairwise(handed_out))
    assert pieces.next_offset == one_by_one.next_offset
    assert bool(singles) == bool(handed_out)
    if singles:
        assert rows_of(columns(singles)) == rows_of(columns(handed_out))


def test_a_piece_moves_the_position_behind_its_last_record_and_no_further() -> None:
    fetched = in_pieces(packed("plain", 100, [(0, None, b"v", [])] * 1_200), 150)
    found = iter(fetched)
    seen = [(next(found).records.offsets[0], fetched.next_offset) for _ in range(3)]
    assert [(150, 650), (650, 1_150), (1_150, 1_300)] == seen


def test_a_broken_batch_is_refused_as_ever() -> None:
    raw = bytearray(packed("plain", 0, [(0, None, b"value", [])]))
    raw[-3] ^= 1
    with pytest.raises(errors.CorruptRecordException):
        list(in_pieces(bytes(raw), 0))


def test_an_error_is_kept_as_it_is() -> None:
    fetched, error = _Fetched(), object()
    fetched[PLACE] = error
    assert error is fetched[PLACE]
