"""Compressed files, archives, tables and encodings: read as text or refused, never as noise."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_dedup.errors import InputError
from stream_dedup.io import files, formats
from stream_dedup.io.files import InputFile
from stream_dedup.io.formats import encoding_of, packing, refusal

LINES = ["disk sda1 is 91% full", "Größe überschritten", "日本", ""]
BODY = "\n".join(LINES)


def lines_of(path: Path, encoding: str = "") -> list[bytes]:
    with InputFile(str(path), encoding=encoding) as source:
        read: list[bytes] = []
        while (lines := source.read()) is not None:
            read += lines.values
        return read


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("app.log", BODY)
    return out.getvalue()


def tarred() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("app.log")
        info.size = len(BODY.encode())
        archive.addfile(info, io.BytesIO(BODY.encode()))
    return out.getvalue()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (zipped(), "it is a ZIP archive; make lines of it first, as in: unzip -p FILE |"),
        (tarred(), "it is a tar archive; make lines of it first, as in: tar -xOf FILE |"),
        (gzip.compress(tarred(), mtime=0), "it is a tar archive"),
        (lzma.compress(gzip.compress(BODY.encode(), mtime=0)), "it is compressed with gzip"),
        (b"PAR1\x15\x04\x15\x20", "it is Parquet; make lines of it first, as in: duckdb"),
        (b"ORC\x11\x00", "it is ORC"),
        (b"Obj\x01\x04\x14avro.codec", "it is Avro"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "it is a 7-Zip archive"),
        (b"\x04\x22\x4d\x18\x64\x40", "it is compressed with LZ4"),
        (b"LPKSHHRH\x00\x00", "journalctl --file FILE -o cat"),
    ],
)
def test_what_has_no_lines_is_refused_with_a_remedy(tmp_path: Path, body: bytes, says: str) -> None:
    path = tmp_path / "input"
    path.write_bytes(body)
    with pytest.raises(InputError) as caught:
        lines_of(path)
    assert str(caught.value).startswith(f"{path}: cannot be read: it is ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"PAR1 of 3 arrived",
        b"PAR1",
        b"ORC\n",
        b"BZh is a word",
        b"7z x a.7z",
        b"x" * 257 + b"ustar",
    ],
)
def test_lines_that_begin_like_a_format_are_lines(body: bytes) -> None:
    assert (packing(body), refusal(body), encoding_of(body)) == (None, None, None)


@pytest.mark.parametrize(
    ("pack", "command"),
    [(lzma.compress, "xzcat"), (bz2.compress, "bzcat"), (gzip.compress, "zcat")],
)
def test_what_a_pipe_has_compressed_is_refused(
    pack: Callable[[bytes], bytes], command: str
) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, pack(BODY.encode()))
    os.close(theirs)
    with pytest.raises(InputError, match=f"as in: {command} FILE | stream-dedup dedup"):
        lines_of(Path(f"/dev/fd/{ours}"))
    os.close(ours)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("size", [1000, 7, 2])
def test_a_byte_order_mark_tells_the_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, size: int
) -> None:
    body = ("\ufeff" + BODY).encode(encoding)
    # A first piece that ends within the mark is not recognised.
    monkeypatch.setattr(files, "PIECE_BYTES", max(size, 4))
    path = tmp_path / "input"
    path.write_bytes(body)
    assert lines_of(path) == [line.encode() for line in LINES if line]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_known_by_its_ascii(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "input"
    path.write_bytes("disk 1 full\ndisk 2 full\n".encode(encoding))
    assert lines_of(path) == [b"disk 1 full", b"disk 2 full"]


@pytest.mark.parametrize("body", [b"\x00" * 64, b"a\x00b and so on\n", b"\x00\x01" * 3, b""])
def test_nul_bytes_alone_are_no_encoding(body: bytes) -> None:
    assert encoding_of(body) is None


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["utf-16", "utf-16-le", "utf-8", "utf-32", "latin-1", "cp1252", "shift-jis"]),
    st.integers(4, 40),
)
def test_text_in_a_given_encoding_becomes_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, encoding: str, size: int
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", size)
    text = text.encode(encoding, "ignore").decode(encoding)
    path = tmp_path / "input"
    path.write_bytes(text.encode(encoding))
    lines = text.removeprefix("\ufeff").encode().split(b"\n")
    assume(not refusal(text.encode(encoding)) and not packing(text.encode(encoding)))
    assert lines_of(path, encoding) == (lines if lines[-1] else lines[:-1])


def test_utf_16_without_a_mark_asks_for_the_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes("disk 1 full\n".encode("utf-16-le"))
    with pytest.raises(InputError, match="does not start with bom; give utf-16-le or utf-16-be"):
        lines_of(path, "utf-16")


def test_half_a_character_at_the_end_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes("\ufeffab\n".encode("utf-16-le") + b"c\x00d")
    assert lines_of(path) == [b"ab", "c\ufffd".encode()]


@pytest.mark.parametrize("encoding", ["no-such", "base64", "idna", "undefined", "utf\x00"])
def test_an_unknown_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "input").touch()
    with pytest.raises(InputError, match="is not known; use utf-8, utf-16, latin-1, cp1252 or"):
        InputFile(str(tmp_path / "input"), encoding=encoding)


def test_xz_takes_no_more_memory_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "XZ_MEMORY_BYTES", 1 << 20)
    path = tmp_path / "input"
    path.write_bytes(lzma.compress(BODY.encode(), preset=9))
    with pytest.raises(InputError, match="memory usage limit exceeded; make lines of it first"):
        lines_of(path)


def test_padding_between_xz_streams_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(lzma.compress(b"a\nb") + bytes(8) + lzma.compress(b"c\n") + bytes(4))
    assert lines_of(path) == [b"a", b"bc"]
