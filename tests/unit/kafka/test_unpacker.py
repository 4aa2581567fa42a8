"""Unpacking records: malformed bytes are refused, and nothing beyond them is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.kafka._fastpath._batches import Unpacker


def varint(number: int) -> bytes:
    """A number of 64 bits as Kafka writes it."""
    left, found = (number << 1 ^ number >> 63) & (1 << 64) - 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def record(*parts: int | bytes) -> bytes:
    """A record: attributes, timestamp, position, key, value, number of headers, and headers."""
    body = b"".join(part if isinstance(part, bytes) else varint(part) for part in parts)
    return varint(len(body)) + body


NONE = -1
WHOLE = record(b"\0", 5, 0, NONE, NONE, 0)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (record(b"\0", 0, 0, -2, NONE, 0), "a field of -2 bytes"),
        (record(b"\0", 0, 0, NONE, -3, 0), "a field of -3 bytes"),
        (record(b"\0", 0, 0, NONE, 2, 0), "a field of 2 bytes, and its record has 1 left"),
        (record(b"\0", 0, 0, NONE, 2**62, 0), "a field of 4611686018427387904 bytes"),
        (record(b"\0", 0, 0, NONE, NONE, -1), "-1 headers"),
        (record(b"\0", 0, 0, NONE, NONE, 2, 0), "2 headers in 1 bytes"),
        (record(b"\0", 0, 0, NONE, NONE, 1, NONE, NONE), "a header has no name"),
        (record(b"\0", 0, 0, NONE, NONE, 1, -2, NONE), "a field of -2 bytes"),
        (record(b"\0", 0, 0, NONE, NONE, 0, b"\0"), "1 too long"),
        (record(b"\0", 0, 0, NONE, NONE), "goes beyond its record"),
        (record(b"\0", 0), "goes beyond its record"),
        (record(), "a record of 0 bytes"),
        (varint(-1), "a record of -1 bytes"),
        (varint(2) + b"\0", "a record of 2 bytes, and 1 are left"),
        (record(b"\0", b"\xff" * 10 + b"\1", 0, NONE, NONE, 0), "more than ten bytes"),
    ],
)
def test_a_malformed_record_is_refused(raw: bytes, reason: str) -> None:
    # Other records follow, which a broken length could reach into.
    with pytest.raises(ValueError, match=reason):
        Unpacker(memoryview(raw + WHOLE * 3)[: len(raw)], 2, 0, 0).take(1, 0)
    with pytest.raises(ValueError, match=r".+"):
        Unpacker(raw + WHOLE * 3, 4, 0, 0).take(1, 0)


@pytest.mark.parametrize("number", [-(2**63), -(2**62) - 1, -1, 0, 2**62, 2**63 - 1])
def test_the_largest_numbers_take_ten_bytes(number: int) -> None:
    raw = record(b"\0", number, 0, b"\0", NONE, 0)
    assert Unpacker(raw, 1, 0, 0).take(1, 0) == ([0], [number], [b""], [None], [()])


@pytest.mark.parametrize("wanted", [0, 1, 2, 9])
def test_the_number_of_records_must_match_the_head(wanted: int) -> None:
    raw = b"".join(record(b"\0", 0, place, NONE, NONE, 0) for place in range(2))
    for count, reason in (
        *((-1, "bytes follow the last record"), (0, "bytes follow the last record")),
        *((1, "bytes follow the last record"), (3, "goes beyond its record")),
    ):
        unpacker = Unpacker(raw, count, 0, 0)
        whole = range(wanted, min(max(count, 0), 2))
        if whole:  # the sound records are returned first
            assert unpacker.take(9, wanted)[0] == list(whole)  # type: ignore[index]
        for _ in range(2):
            with pytest.raises(ValueError, match=reason):
                unpacker.take(9, wanted)
    unpacker = Unpacker(raw, 2, 0, 0)
    taken = unpacker.take(9, wanted)
    assert list(range(wanted, 2)) == (taken[0] if taken else [])
    assert unpacker.take(9, wanted) is None


def test_a_number_must_end_before_the_bytes_do() -> None:
    beyond = memoryview(WHOLE + WHOLE)
    for end in range(1, len(WHOLE)):
        with pytest.raises(ValueError, match=r"are left"):
            Unpacker(beyond[:end], 2, 0, 0).take(1, 0)
    with pytest.raises(ValueError, match="goes beyond"):
        Unpacker(beyond[:0], 2, 0, 0).take(1, 0)


def test_a_skipped_record_is_checked_too() -> None:
    raw = record(b"\0", 0)  # without a position; the next byte would be a valid one
    with pytest.raises(ValueError, match="goes beyond its record"):
        Unpacker(raw + WHOLE * 3, 4, 0, 0).take(1, 99)


@given(st.binary(max_size=80), st.integers(-(2**31), 2**31 - 1))
def test_any_bytes_are_unpacked_or_refused(records: bytes, count: int) -> None:
    unpacker = Unpacker(records, count, 0, 0)
    try:
        taken = unpacker.take(100, 0)
    except ValueError:
        return
    assert (0 if taken is None else len(taken[0])) <= max(count, 0)
