"""Decompression of record batches, bounded: a batch of some kilobytes may unpack to gigabytes.

Each codec writes into memory of a bounded size, or states the size in advance, and stops at the
limit. Nothing above the limit is ever unpacked.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from mmap import mmap

import cramjam

from stream_dedup.errors import UnreadableBatch

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Names of the codecs → their numbers in Kafka's format."""

MAX_UNPACKED_BYTES = 64 << 20
"""Default for the bytes that a batch may unpack to. Brokers accept batches of 1 MiB by default; of
a log storm, text unpacks to fifty times as much."""

FIRST_BYTES, MOST_KEPT_BYTES = 1 << 18, 1 << 23
"""Size of the memory that is kept for unpacking LZ4 and Zstandard, at first and at most. It grows
with the batches, so the usual batch is unpacked in one attempt."""

_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to say gzip

_XERIAL = b"\x82SNAPPY\0"
"""Begins Snappy data in blocks, as Java's clients write it: the magic and two versions, 16 bytes,
then blocks, each after its length."""
_XERIAL_HEAD_BYTES = 16


class Decompressor:
    """Unpacks the records of batches.

    Args:
        limit: bytes that a batch may unpack to.

    Attributes:
        limit: as given.
        room: bytes that may still be unpacked now: once it is used up, no further batch is begun.
            Each poll sets it to the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = self.room = limit
        self._kept = bytearray(FIRST_BYTES)
        self._codecs: dict[int, Callable[[memoryview], bytes | memoryview]] = {
            1: self._gzip,
            2: self._snappy,
            3: lambda packed: self._into(cramjam.lz4.decompress_into, packed),
            4: lambda packed: self._into(cramjam.zstd.decompress_into, packed),
        }

    def unpack(self, codec: int, packed: memoryview) -> bytes | memoryview:
        """Return what compressed records unpack to.

        Args:
            codec: the number of the codec in Kafka's format.
            packed: the compressed bytes.

        Raises:
            UnreadableBatch: they do not unpack, or to more than the limit.
        """
        unpack = self._codecs.get(codec)
        if unpack is None:
            raise UnreadableBatch(f"its codec has number {codec}, which Kafka does not define")
        try:
            unpacked = unpack(packed)
        except (cramjam.DecompressionError, zlib.error, struct.error, ValueError) as error:
            raise UnreadableBatch(f"it does not unpack: {error}") from error
        self.room -= len(unpacked)
        return unpacked

    def _into(
        self, decompress_into: Callable[[memoryview, bytearray | mmap], int], packed: memoryview
    ) -> bytes | memoryview:
        """Unpack into the kept memory, or into new memory as large as the limit.

        The system provides new memory only as far as it is written to.
        """
        if len(self._kept) < self.limit:
            try:
                size = decompress_into(packed, self._kept)
            except cramjam.DecompressionError:
                pass  # larger, or damaged: the next attempt shows which
            else:
                return bytes(memoryview(self._kept)[:size])
        room = mmap(-1, self.limit)
        try:
            size = decompress_into(packed, room)
        except cramjam.DecompressionError as error:
            raise self._too_large() if "whole buffer" in str(error) else error from None
        wanted = 1 << size.bit_length()
        if wanted <= MOST_KEPT_BYTES and wanted < self.limit:
            self._kept = bytearray(max(wanted, len(self._kept)))
        return memoryview(room)[:size]

    def _gzip(self, packed: memoryview) -> bytes:
        parts, left, rest = [], self.limit, bytes(packed)
        while rest:
            member = zlib.decompressobj(_GZIP)
            part = member.decompress(rest, left + 1)
            left -= len(part)
            if left < 0:
                raise self._too_large()
            if not member.eof:
                raise ValueError("the gzip data is cut short")
            parts.append(part)
            rest = member.unused_data.lstrip(b"\0")  # members may be padded
        return b"".join(parts)

    def _snappy(self, packed: memoryview) -> bytes:
        blocks = [packed]
        if len(packed) >= _XERIAL_HEAD_BYTES and packed[: len(_XERIAL)] == _XERIAL:
            blocks, at = [], _XERIAL_HEAD_BYTES
            while at < len(packed):
                (size,) = struct.unpack_from(">i", packed, at)
                at += 4
                if not 0 <= size <= len(packed) - at:
                    raise ValueError(f"a block of {size} bytes, and {len(packed) - at} are left")
                blocks.append(packed[at : at + size])
                at += size
        if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > self.limit:
            raise self._too_large()
        return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)

    def _too_large(self) -> UnreadableBatch:
        return UnreadableBatch(f"it unpacks to more than {self.limit:,} bytes")
