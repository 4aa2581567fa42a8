"""Followed files: whatever is done to the file of a name, its lines are read once, in order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stream_dedup.errors import InputError
from stream_dedup.io.files import InputFile
from stream_dedup.io.following import FollowedFile


class Reader:
    """Follows a file, and keeps what it reads and says."""

    def __init__(self, path: Path) -> None:
        self.notes: list[str] = []
        self._idle, self._wakeup = os.pipe()
        self.file = FollowedFile(str(path), self.notes.append, partial(InputFile, growing=True))

    def lines(self) -> list[tuple[int, bytes]]:
        """The lines that can be read now, with their numbers."""
        found: list[tuple[int, bytes]] = []
        while self.file.wait(self._idle, 0):
            lines = self.file.read()
            found += enumerate(lines.values, lines.first)
        return found

    def close(self) -> None:
        self.file.__exit__()
        os.close(self._idle)
        os.close(self._wakeup)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


@pytest.fixture
def reader(path: Path) -> Iterator[Reader]:
    path.write_bytes(b"one\n")
    found = Reader(path)
    yield found
    found.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_what_is_there_and_what_is_added_is_read(reader: Reader, path: Path) -> None:
    assert reader.lines() == [(1, b"one")]
    assert reader.lines() == []
    append(path, b"two\nthr")
    assert reader.lines() == [(2, b"two")]
    append(path, b"ee\n")
    assert reader.lines() == [(3, b"three")]
    assert reader.notes == []


def test_a_renamed_file_is_read_to_its_end_then_the_new_one(reader: Reader, path: Path) -> None:
    assert reader.lines() == [(1, b"one")]
    old = path.rename(path.with_suffix(".1"))
    append(old, b"two\n")
    assert reader.lines() == [(2, b"two")]
    path.touch()
    append(old, b"three, by a writer that has not opened the new file\nrest")
    assert reader.lines()[0][0] == 3
    append(path, b"new\n")
    assert reader.lines() == [(4, b"rest"), (5, b"new")]
    assert reader.notes == [f"{path}: is another file now; reading it"]


def test_a_file_removed_and_made_again_is_read_on(reader: Reader, path: Path) -> None:
    assert reader.lines() == [(1, b"one")]
    path.unlink()
    assert reader.lines() == []
    path.with_suffix(".new").write_bytes(b"two\n")
    path.with_suffix(".new").rename(path)
    assert reader.lines() == [(2, b"two")]


def test_a_truncated_file_is_read_from_its_beginning(reader: Reader, path: Path) -> None:
    append(path, b"half a li")
    assert reader.lines() == [(1, b"one")]
    os.truncate(path, 0)
    append(path, b"two\n")
    assert reader.lines() == [(2, b"half a li"), (3, b"two")]
    assert reader.notes == [f"{path}: was truncated; reading from its beginning"]


def test_a_file_that_is_missing_is_waited_for(path: Path) -> None:
    reader = Reader(path)
    assert reader.lines() == []
    path.write_bytes(b"one\n")
    assert reader.lines() == [(1, b"one")]
    assert reader.notes == [f"{path}: cannot be opened: No such file or directory; waiting for it"]
    reader.close()


def test_a_folder_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        Reader(tmp_path)


def test_a_compressed_file_is_refused(path: Path) -> None:
    path.write_bytes(b"\x1f\x8b\x08")
    reader = Reader(path)
    with pytest.raises(InputError, match="compressed"):
        reader.lines()
    reader.close()


def test_the_beginning_of_a_line_is_given_at_the_end(reader: Reader, path: Path) -> None:
    append(path, b"half")
    assert reader.lines() == [(1, b"one")]
    rest = reader.file.rest()
    assert rest is not None
    assert (rest.first, rest.values) == (2, [b"half"])
    assert reader.file.rest() is None
