"""Records that are passed: compressed, without a value, or too large."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable

import pytest

from stream_dedup.features.recipe import load_recipe
from stream_dedup.io.base import Record, Records
from stream_dedup.io.decoder import (
    COMPRESSED,
    INVALID,
    MAX_RECORD_BYTES,
    NOT_JSON,
    TOMBSTONE,
    TOO_LARGE,
    DecoderOptions,
    Format,
    RecordDecoder,
)
from stream_dedup.model import Batch, Partition

LOGS = load_recipe("logs")
EVENT = b'{"message": "disk sda1 is full"}'
FORMATS: tuple[Format, ...] = ("auto", "text", "jsonl")

# The last three have no packer in the standard library: how their formats say they begin.
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda value: b"\x28\xb5\x2f\xfd" + value,
    "lz4": lambda value: b"\x04\x22\x4d\x18" + value,
    "snappy": lambda value: b"\xff\x06\x00\x00sNaPpY" + value,
}


def decoded(form: Format, *values: bytes | None) -> Batch:
    decoder = RecordDecoder(DecoderOptions(format=form), LOGS)
    records = [Record(offset, 1, None, value) for offset, value in enumerate(values)]
    return decoder.decode(Partition("t", 0), Records.of(records), 0)


def test_levels_and_statuses_beside_the_text_are_compared() -> None:
    values = [
        b'{"level":"error","message":"a b"}',
        b'{"level":30,"pid":7,"message":"a b","res":{"statusCode":503}}',
        b"error a b",
    ]
    batch = decoded("auto", *values)
    texts = ["‹error› a b", "‹info statusCode=5xx› a b", "error a b"]
    assert batch.values == [text.encode() for text in texts]
    assert batch.raws == values  # what is measured and written


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("packer", PACKED)
def test_compressed_values_pass_and_are_not_invalid(form: Format, packer: str) -> None:
    batch = decoded(form, EVENT, PACKED[packer](EVENT), EVENT)
    assert batch.passed == {1: COMPRESSED}
    assert COMPRESSED not in INVALID
    assert batch.values[1] == b""
    assert batch.values[0] == batch.values[2] != b""


@pytest.mark.parametrize("form", FORMATS)
def test_tombstones_pass_and_are_not_invalid(form: Format) -> None:
    assert decoded(form, None, EVENT).passed == {0: TOMBSTONE}
    assert TOMBSTONE not in INVALID


@pytest.mark.parametrize("form", FORMATS)
def test_values_that_are_too_large_are_not_read(form: Format) -> None:
    large = EVENT[:-2] + b"x" * MAX_RECORD_BYTES
    assert decoded(form, EVENT, large).passed == {1: TOO_LARGE}
    assert decoded("text", b"x" * MAX_RECORD_BYTES).passed == {}


def test_values_that_only_look_compressed_are_read() -> None:
    values = [b"BZ is a region", b"\x1f", b"\x04\x22\x4d", b"\x28(", b"\xff\x06\x00\x00"]
    assert decoded("text", *values).passed == {}
    assert decoded("jsonl", *values).passed == dict.fromkeys(range(5), NOT_JSON)
