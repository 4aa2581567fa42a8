"""What the first bytes of an input say: how it is unpacked, what is refused, and its encoding.

Nothing here goes by a file's name. What would come out as noise, an archive or a table of columns,
is refused with the command that turns it into lines.
"""

from __future__ import annotations

import codecs
import gzip
import sys
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, cast

from stream_dedup.errors import InputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEAD_BYTES = 512
"""First bytes of an input that are looked at."""

XZ_MEMORY_BYTES = 256 << 20
"""Memory that unpacking xz may take; `xz -9` needs 65 MiB. A file names what it needs itself."""

_XZ_READ_BYTES = 64 * 1024

_UTF_8_MARK = b"\xef\xbb\xbf"
_MARKS = (  # UTF-32's first: it begins as UTF-16's does
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# (offset, first bytes, what it is, command that writes its lines)
_REFUSED = (
    (0, b"PK\x03\x04", "a ZIP archive", "unzip -p FILE"),
    (0, b"PK\x05\x06", "an empty ZIP archive", "unzip -p FILE"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "7z x -so FILE"),
    (0, b"\x04\x22\x4d\x18", "compressed with LZ4", "lz4 -dc FILE"),
    (0, b"\xff\x06\x00\x00sNaPpY", "compressed with Snappy", "snzip -dc FILE"),
    (0, b"\x1f\x9d", "compressed with compress", "zcat FILE"),
    (257, b"ustar\x00", "a tar archive", "tar -xOf FILE"),
    (257, b"ustar  \x00", "a tar archive", "tar -xOf FILE"),
    (0, b"PAR1", "Parquet", "duckdb -c \"COPY 'FILE' TO '/dev/stdout' (FORMAT json)\""),
    (0, b"ORC", "ORC", "orc-contents FILE"),
    (0, b"Obj\x01", "Avro", "avro-tools tojson FILE"),
    (0, b"LPKSHHRH", "a journal of systemd", "journalctl --file FILE -o cat"),
)
_CONTROLS = frozenset(bytes([byte]) for byte in range(32)) - {b"\t", b"\n", b"\r"}
"""One of them follows first bytes that are letters, or they may be the first word of a line."""

_PACKED = (
    (b"\x1f\x8b", "gzip", "zcat FILE"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstdcat FILE"),
    (b"\xfd7zXZ\x00", "xz", "xzcat FILE"),
    (b"BZh", "bzip2", "bzcat FILE"),
)
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")


def packing(head: bytes) -> str | None:
    """Return the name of the compression that an input begins with; None if it is not known."""
    for magic, name, _ in _PACKED:
        if head.startswith(magic) and (magic != b"BZh" or head[4:10] in _BZIP2_BLOCKS):
            return name
    return None


def unpacked(raw: BinaryIO, name: str) -> BinaryIO:
    """Return a file that unpacks another one while it is read.

    Raises:
        InputError: this Python was built without the library for it.
    """
    if name == "gzip":
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb"))
    if name == "Zstandard":
        return cast("BinaryIO", zstd.ZstdFile(raw, "rb"))
    try:
        if name == "xz":
            return cast("BinaryIO", _XzFile(raw))
        from bz2 import BZ2File  # noqa: PLC0415 -- some builds of Python have none
    except ImportError as error:
        raise InputError(f"this Python cannot read {name}; {_remedy(name)}") from error
    return cast("BinaryIO", BZ2File(raw, "rb"))


def refusal(head: bytes) -> str | None:
    """Return why an input that is read as it comes cannot be lines, and what to do; or None."""
    name = packing(head)
    if name is not None:
        return f"it is compressed with {name}; {_remedy(name)}"
    for offset, magic, what, command in _REFUSED:
        end = offset + len(magic)
        letters = magic.isalnum()
        if head[offset:end] == magic and (not letters or head[end : end + 1] in _CONTROLS):
            return f"it is {what}; {_as_lines(command)}"
    return None


def encoding_of(head: bytes) -> str | None:
    """Return the encoding that an input begins with, if it is not one in which lines are ASCII.

    UTF-16 and UTF-32 are recognised by their byte order mark, UTF-16 without one by its ASCII
    characters: every other byte is NUL.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    even, odd = head[0:HEAD_BYTES:2], head[1:HEAD_BYTES:2]
    if len(odd) < 4:
        return None
    for encoding, nulls, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if 0 not in others and nulls.count(0) >= 0.75 * len(nulls):
            return encoding
    return None


class Transcoder:
    """Turns the bytes of an input into UTF-8; ASCII and UTF-8 pass unchanged.

    Args:
        encoding: a codec's name; empty to go by the first bytes. Bytes that are not valid in it
            become U+FFFD.

    Raises:
        InputError: no codec for text has that name.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._begun = False
        self._decode: Callable[[bytes, bool], str] | None = None
        if encoding:
            self._use(encoding)

    def convert(self, piece: bytes, *, at_end: bool) -> bytes:
        """Return the next piece as UTF-8, without a byte order mark at the beginning.

        It may be empty: a byte order mark alone, or half a character.

        Raises:
            InputError: the encoding names no byte order, and the input has no mark.
        """
        if piece and not self._begun and not self._encoding:
            found = encoding_of(piece[:HEAD_BYTES])
            if found is not None:
                self._use(found)
        if self._decode is not None:
            try:
                piece = self._decode(piece, at_end).encode("utf-8", "replace")
            except UnicodeError as error:
                raise InputError(f"{str(error).lower()}; give utf-16-le or utf-16-be") from error
        if piece and not self._begun:
            self._begun = True
            piece = piece.removeprefix(_UTF_8_MARK)
        return piece

    def _use(self, encoding: str) -> None:
        try:
            name = codecs.lookup(encoding).name
            "\n".encode(encoding).decode(encoding)
            decoder = codecs.getincrementaldecoder(encoding)("replace")
            codecs.getincrementaldecoder(encoding)("replace").decode(b"\n")
        except (LookupError, UnicodeError, ValueError, TypeError) as error:
            raise InputError(
                f"encoding {encoding!r} is not known; use utf-8, utf-16, latin-1, cp1252 or "
                "another text encoding of Python"
            ) from error
        if name not in ("utf-8", "ascii"):  # its bytes are lines already
            self._decode = decoder.decode


class _XzFile:
    """An xz file of any number of streams, in bounded memory, which `lzma.LZMAFile` has not."""

    def __init__(self, raw: BinaryIO) -> None:
        import lzma  # noqa: PLC0415 -- some builds of Python have none

        self._raw = raw
        self._error = lzma.LZMAError
        self._make = partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)
        self._stream = self._make()

    def read1(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end.

        Raises:
            EOFError: the file ends within a stream.
            InputError: it is damaged, or needs too much memory.
        """
        part = b""
        while not part:
            data = b""
            if self._stream.eof:
                # Streams may be padded with NUL bytes.
                data = self._stream.unused_data.lstrip(b"\0")
                while not data:
                    data = self._raw.read(_XZ_READ_BYTES)
                    if not data:
                        return b""
                    data = data.lstrip(b"\0")
                self._stream = self._make()
            elif self._stream.needs_input:
                data = self._raw.read(_XZ_READ_BYTES)
                if not data:
                    raise EOFError("the compressed data ends too early")
            try:
                part = self._stream.decompress(data, size)
            except self._error as error:
                raise InputError(f"{str(error).lower()}; {_remedy('xz')}") from error
        return part

    def close(self) -> None:
        """Do nothing: whoever opened the file below closes it."""


def _remedy(name: str) -> str:
    return _as_lines(next(command for _, known, command in _PACKED if known == name))


def _as_lines(command: str) -> str:
    return f"make lines of it first, as in: {command} | stream-dedup dedup"
