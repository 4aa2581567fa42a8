"""Files and pipes: whatever the pieces, the lines are those of the bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dedup.errors import InputError
from stream_dedup.io import files, formats
from stream_dedup.io.files import InputFile, Lines, expand, is_live

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MARK = b"\xef\xbb\xbf"


def is_plain(body: bytes) -> bool:
    return not (
        body.startswith(MARK)
        or formats.packing(body)
        or formats.refusal(body)
        or formats.encoding_of(body)
    )


bodies = (
    st.lists(st.one_of(st.binary(max_size=12), st.just(b""), st.just(b"\r")))
    .map(b"\n".join)
    .filter(is_plain)
)
PACKERS: list[Callable[[bytes], bytes]] = [
    gzip.compress, zstd.compress, lzma.compress, partial(bz2.compress, compresslevel=1)
]  # fmt: skip
packers = st.sampled_from([bytes, *PACKERS])


@pytest.fixture
def piece_bytes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda size: monkeypatch.setattr(files, "PIECE_BYTES", size)


def batches(source: InputFile) -> Iterator[Lines]:
    while (lines := source.read()) is not None:
        yield lines


def expected_lines(body: bytes) -> list[bytes]:
    lines = body.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def wholes(read: list[Lines]) -> dict[int, bytes]:
    """Number → line, pieces joined."""
    found: dict[int, bytes] = {}
    for lines in read:
        for index, value in enumerate(lines.values):
            number = lines.first + index
            goes_on = lines.goes_on and index == 0
            assert goes_on == (number in found)
            found[number] = found.get(number, b"") + value
    return found


@given(bodies, st.integers(1, 20), packers)
def test_lines_are_those_of_the_bytes_whatever_the_pieces(
    piece_bytes: Callable[[int], None],
    tmp_path: Path,
    body: bytes,
    size: int,
    pack: Callable[[bytes], bytes],
) -> None:
    piece_bytes(size)
    path = tmp_path / "f"
    path.write_bytes(pack(body))
    source = InputFile(str(path))
    read = list(batches(source))
    source.close()
    assert expected_lines(body) == [value for lines in read for value in lines.values]
    numbers = [lines.first + i for lines in read for i in range(len(lines.values))]
    assert list(range(1, len(numbers) + 1)) == numbers
    assert not any(lines.pieces or lines.tails or lines.goes_on for lines in read)


@given(
    st.lists(st.binary(max_size=30)).map(b"\n".join).filter(is_plain),
    st.integers(1, 20),
    st.integers(1, 9),
)
def test_a_line_too_long_comes_in_pieces_that_join_to_it(
    piece_bytes: Callable[[int], None], tmp_path: Path, body: bytes, size: int, longest: int
) -> None:
    piece_bytes(size)
    path = tmp_path / "f"
    path.write_bytes(body)
    source = InputFile(str(path), max_line_bytes=longest)
    read = list(batches(source))
    source.close()
    assert dict(enumerate(expected_lines(body), 1)) == wholes(read)
    assert all(len(value) <= longest + size for lines in read for value in lines.values)


writings = st.lists(st.binary(min_size=1, max_size=12), max_size=8).filter(
    lambda writes: not writes or writes[0].startswith(MARK) or is_plain(writes[0])
)


@given(writings)
@example([MARK, b"a\n"])
def test_a_pipe_gives_the_lines_whatever_the_write_sizes(writes: list[bytes]) -> None:
    # A byte order mark is left out if it comes in one piece.
    mark = MARK if writes and writes[0].startswith(MARK) else b""
    ours, theirs = os.pipe()
    source = InputFile(f"/dev/fd/{ours}")
    read: list[Lines] = []
    for write in writes:
        os.write(theirs, write)
        lines = source.read()
        assert lines is not None
        read.append(lines)
        # What came so far, without the line whose end has not come.
        came = b"".join(writes[: len(read)])
        assert came.removeprefix(mark).split(b"\n")[:-1] == [
            value for lines in read for value in lines.values
        ]
    os.close(theirs)
    read += batches(source)
    source.close()
    os.close(ours)
    body = b"".join(writes).removeprefix(mark)
    assert expected_lines(body) == [value for lines in read for value in lines.values]


@pytest.mark.parametrize("pack", PACKERS)
def test_a_truncated_file_gives_all_that_can_be_read_of_it(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "f"
    body = b"".join(b"line %d of a file %x\n" % (n, n * 2654435761 % 2**32) for n in range(50_000))
    packed = pack(body)
    path.write_bytes(packed[: len(packed) // 2])
    source = InputFile(str(path))
    read: list[bytes] = []
    with pytest.raises(InputError, match="cannot be read"):
        read.extend(value for lines in batches(source) for value in lines.values)
    source.close()
    assert len(read) > 15_000
    assert body.startswith(b"\n".join(read))
    assert source.read() is None


def test_members_and_frames_are_read_one_after_the_other(tmp_path: Path) -> None:
    for pack in PACKERS:
        path = tmp_path / "f"
        path.write_bytes(pack(b"a\nb") + pack(b"c\nd\n"))
        source = InputFile(str(path))
        assert [v for lines in batches(source) for v in lines.values] == [b"a", b"bc", b"d"]
        source.close()


def test_the_rest_of_a_line_is_given_when_asked_for(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    source = InputFile(f"/dev/fd/{ours}")
    os.write(theirs, b"whole\nhalf")
    assert source.read() == Lines([b"whole"], 1)
    assert source.rest() == Lines([b"half"], 2)
    assert source.rest() is None
    source.close()
    os.close(theirs)
    os.close(ours)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/tmp", "/proc/self/mem", "x" * 5000])  # noqa: S108
def test_a_file_that_cannot_be_opened_is_named_with_the_reason(path: str) -> None:
    with pytest.raises(InputError, match="cannot be opened: ") as caught:
        InputFile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert isinstance(caught.value.__cause__, OSError)


def test_patterns_the_shell_left_are_expanded(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "c.txt", "[x].log"):
        (tmp_path / name).touch()
    pattern, nothing = f"{tmp_path}/?.log", f"{tmp_path}/*.gz"
    assert list(expand([pattern])) == [f"{tmp_path}/a.log", f"{tmp_path}/b.log"]
    assert list(expand([nothing])) == [nothing]
    assert list(expand([f"{tmp_path}/[x].log"])) == [f"{tmp_path}/[x].log"]
    assert list(expand(["-", f"{tmp_path}/c.txt"])) == ["-", f"{tmp_path}/c.txt"]


def test_pipes_are_live_and_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    ours, theirs = os.pipe()
    assert not is_live([str(tmp_path / "f"), "/nowhere"])
    assert is_live([str(tmp_path / "f"), f"/dev/fd/{ours}"])
    os.close(ours)
    os.close(theirs)
