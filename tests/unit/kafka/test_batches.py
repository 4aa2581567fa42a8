"""Batches, filled natively and by aiokafka: the same bytes, and what went in is read back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from aiokafka import codec
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import assume, given
from hypothesis import strategies as st

import stream_dedup.kafka._fastpath
from stream_dedup.io.base import Records
from stream_dedup.kafka._fastpath import _batches, batches
from stream_dedup.kafka._fastpath.batches import Batch, ReferenceBatch, make_batch
from stream_dedup.kafka._fastpath.native_batches import NativeBatch
from stream_dedup.kafka.producer import CODECS

KINDS: dict[str, Any] = {"native": NativeBatch, "reference": ReferenceBatch}
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


@pytest.fixture
def chosen_anew() -> Iterator[None]:
    batches._kind.cache_clear()
    yield
    batches._kind.cache_clear()


def fill(batch: Batch, given: Sequence[Any]) -> int:
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
def test_the_native_batch_is_the_reference_byte_for_byte(
    given: list[Any], limit: int, transactional: bool
) -> None:
    moments = [timestamp for _, _, timestamp, _ in given]
    assume(moments[0] != -1 or set(moments) == {-1})
    seen = []
    for kind in KINDS.values():
        batch = kind(limit, 0, transactional)
        taken = fill(batch, given)
        counts = (batch.record_count(), batch.size(), batch.closed())
        batch._set_producer_state(4_000_000_000, 7, 123_456)
        packed = built(batch)
        seen.append((taken, counts, packed, batch.size()))

    assert seen[0] == seen[1]


@given(some_records, limits, st.booleans())
def test_records_without_a_time_at_the_head_are_packed_as_the_drivers_python_does(
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
def test_what_is_read_back_is_what_went_in(
    given: list[Any], limit: int, number: int, transactional: bool
) -> None:
    batch = NativeBatch(limit, number, transactional)
    taken = fill(batch, given)
    batch._set_producer_state(4_000_000_000, 7, 123_456)
    packed = built(batch)

    assert plain(given[:taken]) == read(packed)
    found = MemoryRecords(packed).next_batch()
    assert transactional == found.is_transactional
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
    native, reference = NativeBatch(MANY, 0, False), ReferenceBatch(MANY, 0, False)

    assert len(given) == fill(native, given) == fill(reference, given)
    assert built(reference) == built(native)


@pytest.mark.parametrize("number", INSTALLED)
def test_what_compression_makes_no_smaller_is_not_compressed(number: int) -> None:
    batch = NativeBatch(MANY, number, False)
    fill(batch, [(None, random.Random(7).randbytes(5_000), 1, [])])
    size = batch.size()
    packed = built(batch)

    assert len(packed) == size
    assert MemoryRecords(packed).next_batch().compression_type == 0


@pytest.mark.parametrize("number", INSTALLED)
def test_every_codec_makes_a_batch_smaller_and_says_which_it_was(make: Any, number: int) -> None:
    given = [(b"key", b"some words " * 9, i, [("name", b"value")]) for i in range(50)]
    batch = make(MANY, number, False)
    fill(batch, given)
    before = batch.size()
    packed = built(batch)

    assert plain(given) == read(packed)
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

    assert plain(given) == found


def test_a_record_larger_than_the_limit_is_taken_alone(make: Any) -> None:
    large = (None, b"x" * 3_000, 5, ())
    batch = make(1_000, 0, False)

    assert fill(batch, [large, (None, b"", 5, ())]) == 1
    assert batch.size() > 3_000
    assert plain([large]) == read(built(batch))


def test_a_batch_stays_below_its_limit(make: Any) -> None:
    given = [(None, None, 5, ())] * 2  # seven bytes each

    assert fill(make(HEAD_BYTES + 14, 0, False), given) == 1
    assert fill(make(HEAD_BYTES + 15, 0, False), given) == 2


def test_timestamps_as_far_apart_as_can_be_come_back(make: Any) -> None:
    given = [(None, None, -(2**63), ()), (None, None, 2**63 - 1, ()), (None, None, 0, ())]
    batch = make(MANY, 0, False)
    fill(batch, given)

    assert plain(given) == read(built(batch))


def test_a_batch_is_filled_once(make: Any) -> None:
    batch = make(MANY, 0, False)

    assert fill(batch, [(b"k", b"v", 5, ())]) == 1
    assert batch.closed()
    assert fill(batch, [(b"k", b"v", 5, ())]) == 0
    assert batch.append(timestamp=5, key=b"k", value=b"v") is None
    assert batch.record_count() == 1


def test_of_no_records_nothing_is_taken(make: Any) -> None:
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


def test_a_name_that_is_no_text_and_a_time_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(UnicodeEncodeError):
        fill(make(MANY, 0, False), [(b"k", b"v", 5, [("\ud800", b"value")])])
    with pytest.raises(OverflowError):
        fill(make(MANY, 0, False), [(b"k", b"v", 2**63, [])])


def test_nothing_that_was_packed_or_refused_is_held_on_to() -> None:
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


@pytest.mark.usefixtures("chosen_anew")
def test_the_native_batch_serves_unless_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_batch(MANY, 0, transactional=False)) is NativeBatch

    batches._kind.cache_clear()
    monkeypatch.setenv("STREAM_DEDUP_PURE_PYTHON", "1")

    assert type(make_batch(MANY, 0, transactional=False)) is ReferenceBatch


@pytest.mark.usefixtures("chosen_anew")
def test_the_reference_serves_where_the_native_batch_was_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("_batches", "native_batches"):
        monkeypatch.delitem(sys.modules, f"stream_dedup.kafka._fastpath.{module}", raising=False)
        monkeypatch.delattr(stream_dedup.kafka._fastpath, module)
    monkeypatch.setitem(sys.modules, "stream_dedup.kafka._fastpath._batches", None)

    assert type(make_batch(MANY, 0, transactional=True)) is ReferenceBatch
