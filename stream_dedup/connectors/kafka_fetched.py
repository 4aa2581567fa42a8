"""Fetched records, handed out by aiokafka a batch at a time, as columns.

aiokafka hands its records out one by one, through a generator and a copy each, which costs more
than to decode them. There is no public way to have them otherwise. So the consumer's store of what
was fetched is replaced by one that puts something before each partition's batches: what iterates
over a batch gets all its records as one piece. Checksums, transactions, positions and the reaction
to a rebalance stay the driver's. Should it come to name its parts otherwise, it hands out single
records as before, which `columns` takes as well.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_dedup.connectors.base import Records

PIECE_RECORDS = 500
"""Records of a piece, at most: a poll is bounded by pieces."""


def fetch_in_pieces(consumer: AIOKafkaConsumer) -> None:
    """Have a consumer hand out pieces of batches; before anything is fetched."""
    with contextlib.suppress(AttributeError):
        fetcher = consumer._fetcher  # noqa: SLF001
        if not fetcher._records:  # noqa: SLF001
            fetcher._records = _Fetched()  # noqa: SLF001


def columns(handed_out: Sequence[Any]) -> Records:
    """What a poll gave of a partition, at least one: all pieces, or all single records."""
    if type(handed_out[0]) is not _Piece:
        return Records.of(handed_out)
    records: Records = handed_out[0].records
    for piece in handed_out[1:]:
        records.extend(piece.records)
    return records


class _Fetched(OrderedDict[TopicPartition, Any]):
    """What was fetched, by partition."""

    def __setitem__(self, place: TopicPartition, result: Any) -> None:  # noqa: ANN401
        fetched = getattr(result, "_partition_records", None)  # an error has none
        if fetched is not None:
            with contextlib.suppress(AttributeError):
                fetched._records = _Batches(fetched._records, fetched)  # noqa: SLF001
                fetched._consumer_record = _as_it_is  # noqa: SLF001
        super().__setitem__(place, result)


def _as_it_is(_place: TopicPartition, piece: _Piece) -> _Piece:
    return piece


class _Piece:
    """Records of a batch that follow each other.

    Attributes:
        offset: the last one's: the driver reads on after it.
        records: the records.
    """

    __slots__ = ("offset", "records")

    def __init__(self, records: Records) -> None:
        self.offset = records.offsets[-1]
        self.records = records


class _Batches:
    """A partition's batches.

    Args:
        batches: the driver's.
        fetched: knows from which offset on records are wanted.
    """

    def __init__(self, batches: Any, fetched: Any) -> None:  # noqa: ANN401
        self.has_next = batches.has_next
        self._next = batches.next_batch
        self._fetched = fetched

    def next_batch(self) -> _Batch:
        return _Batch(self._next(), self._fetched)


class _Batch:
    """A batch that gives its records in pieces; all else is as the driver's says."""

    def __init__(self, batch: Any, fetched: Any) -> None:  # noqa: ANN401
        self._batch = batch
        self._fetched = fetched

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._batch, name)

    def __next__(self) -> Any:  # noqa: ANN401 -- a control batch is asked for its only record
        return next(self._batch)

    def __iter__(self) -> Iterator[_Piece]:
        rows = list(self._batch)
        # It may begin before what was asked for.
        start = bisect_left(rows, self._fetched.next_fetch_offset, key=attrgetter("offset"))
        for at in range(start, len(rows), PIECE_RECORDS):
            yield _Piece(Records.of(rows[at : at + PIECE_RECORDS]))
