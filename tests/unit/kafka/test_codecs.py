"""Decompression gives what was packed, stops at its limit, and refuses everything else."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from aiokafka import codec
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.errors import UnreadableBatch
from stream_dedup.kafka.codecs import FIRST_BYTES, MOST_KEPT_BYTES, Decompressor

LIMIT = 4 * FIRST_BYTES

CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, codec.gzip_encode),
    "gzip, several members": (1, lambda data: b"".join(map(gzip.compress, (data[:9], data[9:])))),
    "gzip, padded": (1, lambda data: gzip.compress(data) + bytes(5)),
    "snappy in blocks": (2, codec.snappy_encode),
    "snappy": (2, lambda data: bytes(codec.snappy_encode(data, xerial_compatible=False))),
    "lz4": (3, codec.lz4_encode),
    "zstd": (4, codec.zstd_encode),
}

every_codec = pytest.mark.parametrize("name", CODECS)


def unpack(name: str, packed: bytes, limit: int = LIMIT) -> bytes:
    return bytes(Decompressor(limit).unpack(CODECS[name][0], memoryview(packed)))


@every_codec
@pytest.mark.parametrize("size", [0, 10, FIRST_BYTES, FIRST_BYTES + 1, LIMIT - 1, LIMIT])
def test_data_up_to_the_limit_is_unpacked(name: str, size: int) -> None:
    data = (b"some words, " * (size // 12 + 1))[:size]
    assert unpack(name, CODECS[name][1](data)) == data


@every_codec
def test_data_above_the_limit_is_refused(name: str) -> None:
    packed = CODECS[name][1](bytes(LIMIT + 1))
    with pytest.raises(UnreadableBatch, match="it unpacks to more than 1,048,576 bytes"):
        unpack(name, packed)


@every_codec
def test_a_bomb_is_refused_without_unpacking_it(name: str) -> None:
    unpacker = Decompressor(LIMIT)
    with pytest.raises(UnreadableBatch, match="unpacks to more"):
        unpacker.unpack(CODECS[name][0], memoryview(CODECS[name][1](bytes(64 << 20))))
    assert unpacker.room == LIMIT, "nothing was unpacked"


@every_codec
def test_damaged_data_is_refused(name: str) -> None:
    packed = CODECS[name][1](b"some words, " * 50)
    for damaged in (packed[: len(packed) // 2], b"\xde\xad\xbe\xef" * 8):
        with pytest.raises(UnreadableBatch, match="it does not unpack"):
            unpack(name, damaged)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_refused(number: int) -> None:
    with pytest.raises(UnreadableBatch, match=f"number {number}"):
        Decompressor(LIMIT).unpack(number, memoryview(b"data"))


@given(st.sampled_from([1, 2, 3, 4]), st.binary(max_size=200))
def test_any_bytes_are_unpacked_or_refused(number: int, packed: bytes) -> None:
    try:
        unpacked = Decompressor(1_000).unpack(number, memoryview(packed))
    except UnreadableBatch:
        return
    assert len(unpacked) <= 1_000


@pytest.mark.parametrize("size", [-1, 1 << 20])
def test_a_block_beyond_its_batch_is_refused(size: int) -> None:
    head = codec.snappy_encode(b"words")[:16]
    with pytest.raises(UnreadableBatch, match=f"a block of {size} bytes, and 1 are left"):
        unpack("snappy in blocks", head + size.to_bytes(4, "big", signed=True) + b"x")


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_memory_grows_with_the_batches_up_to_a_bound(name: str) -> None:
    number, pack = CODECS[name]
    unpacker = Decompressor(64 << 20)
    for size in (100, 3 * FIRST_BYTES, 5 * FIRST_BYTES, 2 * MOST_KEPT_BYTES, 100):
        assert len(unpacker.unpack(number, memoryview(pack(bytes(size))))) == size
    assert FIRST_BYTES < len(unpacker._kept) <= MOST_KEPT_BYTES


def test_what_is_unpacked_uses_up_the_room() -> None:
    unpacker = Decompressor(1_000)
    for _ in range(2):
        unpacker.unpack(4, memoryview(codec.zstd_encode(bytes(400))))
    assert unpacker.room == 200
