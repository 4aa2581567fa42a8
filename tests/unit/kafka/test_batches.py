"""Batches packed natively and by aiokafka: the same bytes, and reading them returns the records."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from aiokafka import codec
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_dedup.io.base import Records
from stream_dedup.kafka import packing
from stream_dedup.kafka._fastpath import _batches
from stream_dedup.kafka._fastpath.batches import NativeBatch
from stream_dedup.kafka.codecs import CODECS
from stream_dedup.kafka.packing import MAX_BATCH_BYTES


class DriverBatch(BatchBuilder):  # type: ignore[misc]  # it has no types
    """The driver's batch, which takes record by record until it is full."""

    def __init__(self, size: int, codec: int, transactional: bool) -> None:
        super().__init__(size, codec, is_transactional=transactional)

    def fill(self, records: Records) -> int:
        taken = 0
        for _, timestamp, key, value, some in records:
            added = self.append(timestamp=timestamp, key=key, value=value, headers=list(some))
            if added is None:
                break
            taken += 1
        self.close()
        return taken


class PublicBatch(BatchBuilder):  # type: ignore[misc]  # it has no types
    """The driver's batch, filled through its public interface alone."""

    def __init__(self, size: int, codec: int, transactional: bool) -> None:
        super().__init__(MAX_BATCH_BYTES, codec, is_transactional=transactional)
        self._limit = size

    def fill(self, records: Records) -> int:
        return packing.fill(self, records, self._limit)


KINDS: dict[str, Any] = {"native": NativeBatch, "public": PublicBatch}
INSTALLED = [n for name, n in CODECS.items() if name is None or getattr(codec, f"has_{name}")()]
HEAD_BYTES = 61
MANY = 600_000

fields = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.builds(bytes, st.sampled_from([62, 63, 64, 65, 8_190, 8_191, 8_192, 70_000])),
)
headers = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=4)
many_headers = headers.map(lambda some: some * 30)
some_headers = st.one_of(headers, headers.map(tuple), many_headers)
timestamps = st.one_of(
    st.just(-1), st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-(2**61), 2**61)
)
records = st.tuples(fields, fields, timestamps, some_headers)
some_records = st.one_of(
    st.lists(records, min_size=1, max_size=12),
    # Enough of them for places in the batch that take two bytes.
    st.lists(records, min_size=1, max_size=3).map(lambda some: some * 40),
)
limits = st.one_of(st.integers(-1, 400), st.integers(400, 9_000), st.just(MANY))


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def fill(batch: Any, given: Sequence[Any]) -> Any:
    keys, values, timestamps, some = (list(column) for column in zip(*given, strict=True))
    return batch.fill(Records([-1] * len(given), timestamps, keys, values, some))


def built(batch: Any) -> bytes:
    return bytes(batch._build())


def read(packed: bytes) -> list[tuple[object, ...]]:
    """The records of a batch, by aiokafka's reader."""
    found = MemoryRecords(packed).next_batch()
    assert found.validate_crc()
    return [(r.key, r.value, r.timestamp, list(r.headers)) for r in found]


def plain(given: Sequence[Any]) -> list[tuple[object, ...]]:
    return [(key, value, timestamp, list(some)) for key, value, timestamp, some in given]


@given(some_records, limits, st.booleans())
def test_a_native_batch_equals_the_drivers_byte_for_byte(
    given: list[Any], limit: int, transactional: bool
) -> None:
    moments = [timestamp for _, _, timestamp, _ in given]
    assume(moments[0] != -1 or set(moments) == {-1})
    seen = []
    for kind in (NativeBatch, DriverBatch):
        batch = kind(limit, 0, transactional)
        taken = fill(batch, given)
        counts = (batch.record_count(), batch.size(), batch.closed())
        batch._set_producer_state(4_000_000_000, 7, 123_456)
        packed = built(batch)
        seen.append((taken, counts, packed, batch.size()))

    assert seen[0] == seen[1]


@given(some_records, limits, st.booleans())
def test_leading_records_without_timestamps_keep_having_none(
    given: list[Any], limit: int, transactional: bool
) -> None:
    batch = NativeBatch(limit, 0, transactional)
    taken = fill(batch, given)

    # Of the driver's two builders the one in Python fills the limit, the compiled one stays below.
    python = _DefaultRecordBatchBuilderPy(2, 0, transactional, -1, -1, 0, limit - 1)
    for place, (key, value, timestamp, some) in enumerate(given):
        if python.append(place, timestamp, key, value, list(some)) is None:
            break

    assert python._num_records == taken
    assert bytes(python.build()) == built(batch)


@given(some_records, limits, st.sampled_from(INSTALLED), st.booleans())
def test_reading_a_batch_returns_the_packed_records(
    given: list[Any], limit: int, number: int, transactional: bool
) -> None:
    batch = NativeBatch(limit, number, transactional)
    taken = fill(batch, given)
    batch._set_producer_state(4_000_000_000, 7, 123_456)
    packed = built(batch)

    assert read(packed) == plain(given[:taken])
    found = MemoryRecords(packed).next_batch()
    assert found.is_transactional == transactional
    assert (
        found.producer_id,
        found.producer_epoch,
        found.base_sequence,
    ) == (4_000_000_000, 7, 123_456)
    moments = [timestamp for _, _, timestamp, _ in given[:taken]]
    assert (found.first_timestamp, found.max_timestamp) == (moments[0], max(moments))
    assert (found.last_offset_delta, found.next_offset) == (taken - 1, taken)


def test_headers_that_records_share_are_packed_for_each() -> None:
    rng = random.Random(7)
    kinds = [[("name", b"%d" % n), ("other", bytes(n % 5))] for n in range(3_000)]
    given: list[Any] = [(None, b"x", 1, rng.choice(kinds)) for _ in range(9_000)]
    native, reference = NativeBatch(MANY, 0, False), DriverBatch(MANY, 0, False)

    assert fill(native, given) == fill(reference, given) == len(given)
    assert built(native) == built(reference)


@pytest.mark.parametrize("number", INSTALLED)
def test_incompressible_records_are_sent_uncompressed(number: int) -> None:
    batch = NativeBatch(MANY, number, False)
    fill(batch, [(None, random.Random(7).randbytes(5_000), 1, [])])
    size = batch.size()
    packed = built(batch)

    assert len(packed) == size
    assert MemoryRecords(packed).next_batch().compression_type == 0


@pytest.mark.parametrize("number", INSTALLED)
def test_every_codec_compresses_and_is_named_in_the_head(make: Any, number: int) -> None:
    given = [(b"key", b"some words " * 9, i, [("name", b"value")]) for i in range(50)]
    batch = make(MANY, number, False)
    fill(batch, given)
    before = batch.size()
    packed = built(batch)

    assert read(packed) == plain(given)
    assert MemoryRecords(packed).next_batch().compression_type == number
    assert (len(packed) < before) == (number != 0)
    assert len(packed) == batch.size()


@given(some_records, limits)
def test_batch_after_batch_takes_every_record_once(given: list[Any], limit: int) -> None:
    left, found = given, list[tuple[object, ...]]()
    while left:
        batch = NativeBatch(limit, 0, False)
        taken = fill(batch, left)
        assert taken == 1 or batch.size() < limit
        found += read(built(batch))
        left = left[taken:]

    assert found == plain(given)


def test_a_record_larger_than_the_limit_is_taken_alone(make: Any) -> None:
    large = (None, b"x" * 3_000, 5, ())
    batch = make(1_000, 0, False)

    assert fill(batch, [large, (None, b"", 5, ())]) == 1
    assert batch.size() > 3_000
    assert read(built(batch)) == plain([large])


def test_a_batch_stays_below_its_limit(make: Any) -> None:
    given = [(None, None, 5, ())] * 2  # seven bytes each

    assert fill(make(HEAD_BYTES + 14, 0, False), given) == 1
    assert fill(NativeBatch(HEAD_BYTES + 15, 0, False), given) == 2
    assert fill(make(HEAD_BYTES + 50, 0, False), given) == 2


@given(some_records, st.integers(-1, 9_000))
def test_the_public_path_takes_each_record_once_below_the_limit(
    given: list[Any], limit: int
) -> None:
    # The driver gives a record without timestamp that of a later one.
    given = [(key, value, max(0, timestamp), some) for key, value, timestamp, some in given]
    left, found = given, list[tuple[object, ...]]()
    while left:
        batch = PublicBatch(limit, 0, False)
        taken = fill(batch, left)
        assert taken == 1 or batch.size() < limit
        found += read(built(batch))
        left = left[taken:]

    assert found == plain(given)


def test_the_most_distant_timestamps_are_packed(make: Any) -> None:
    given = [(None, None, -(2**63), ()), (None, None, 2**63 - 1, ()), (None, None, 0, ())]
    batch = make(MANY, 0, False)
    fill(batch, given)

    assert read(built(batch)) == plain(given)


def test_a_batch_is_filled_once(make: Any) -> None:
    batch = make(MANY, 0, False)

    assert fill(batch, [(b"k", b"v", 5, ())]) == 1
    assert batch.closed()
    assert fill(batch, [(b"k", b"v", 5, ())]) == 0
    assert batch.append(timestamp=5, key=b"k", value=b"v") is None
    assert batch.record_count() == 1


def test_no_records_make_an_empty_batch(make: Any) -> None:
    batch = make(MANY, 0, False)

    assert batch.fill(Records.of([])) == 0
    assert batch.record_count() == 0


WRONG: dict[str, object] = {
    "key": ("key", b"v", 5, []),
    "value": (b"k", 5, 5, []),
    "time": (b"k", b"v", "5", []),
    "no headers": (b"k", b"v", 5, None),
    "header": (b"k", b"v", 5, [["name", b"value"]]),
    "name": (b"k", b"v", 5, [(b"name", b"value")]),
    "header's value": (b"k", b"v", 5, [("name", "value")]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_record_of_wrong_types_is_refused(make: Any, wrong: object) -> None:
    with pytest.raises(TypeError):
        fill(make(MANY, 0, False), [(b"k", b"v", 5, []), wrong])


MISSHAPEN: dict[str, object] = {
    "no time": (b"k", b"v", None, []),
    "header's fields": (b"k", b"v", 5, [("name", b"value", 1)]),
}


@pytest.mark.parametrize("wrong", [*WRONG.values(), *MISSHAPEN.values()], ids=WRONG | MISSHAPEN)
def test_a_refused_record_leaves_the_native_batch_as_it_was(wrong: object) -> None:
    batch = NativeBatch(MANY, 0, False)
    with pytest.raises(TypeError):
        fill(batch, [(b"k", b"v", 5, []), wrong])

    assert (batch.record_count(), batch.size(), batch.closed()) == (0, HEAD_BYTES, False)
    assert fill(batch, [(b"k", b"v", 5, [])]) == 1


@pytest.mark.parametrize("short", range(4))
def test_columns_of_unequal_length_are_refused(short: int) -> None:
    columns: list[Any] = [[5, 5], [b"k", b"k"], [b"v", b"v"], [[], []]]
    columns[short].pop()
    timestamps, keys, values, some = columns
    with pytest.raises(ValueError, match=r"^[12] timestamps, "):
        _batches.pack(timestamps, keys, values, some, MANY)


def test_columns_that_shrink_while_they_are_packed_are_refused() -> None:
    keys: list[bytes | None] = [b"k", b"k"]

    class Shrinking:
        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            keys.clear()
            return iter([])

    with pytest.raises(IndexError):
        _batches.pack([5, 5], keys, [b"v", b"v"], [cast(Any, Shrinking()), []], MANY)


def test_an_invalid_name_or_timestamp_is_refused(make: Any) -> None:
    with pytest.raises(UnicodeEncodeError):
        fill(make(MANY, 0, False), [(b"k", b"v", 5, [("\ud800", b"value")])])
    with pytest.raises(OverflowError):
        fill(make(MANY, 0, False), [(b"k", b"v", 2**63, [])])


def test_packed_and_refused_objects_are_released() -> None:
    key, value, moment, name = b"a key", b"a value", 1_700_000_000_000, "a näme"
    some: list[object] = [(name, value)]
    output = (key, value, moment, some)
    held = [key, value, moment, name, some, some[0], output]
    before = [sys.getrefcount(each) for each in held]
    for outputs in ([output] * 9, [output, (key, value, moment, [*some, (name, 5)])]):
        try:
            fill(NativeBatch(200, 0, False), outputs)
        except TypeError:
            pass
    del outputs

    assert [sys.getrefcount(each) for each in held] == before
