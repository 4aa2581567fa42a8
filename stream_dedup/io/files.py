"""Reading lines from files and pipes, in batches; and writing a file completely or not at all.

A regular file is read in large pieces; from a pipe comes what is available, so lines are processed
as they arrive. Compressed files are unpacked, and other encodings become UTF-8 (see `formats`).
Memory is bounded by the piece size and the longest line: longer lines are returned in pieces.
"""

from __future__ import annotations

import glob
import os
import secrets
import select
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EBADF
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Self, cast

from stream_dedup.errors import InputError
from stream_dedup.io.formats import HEAD_BYTES, Transcoder, packing, refusal, unpacked

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES = 512 * 1024
"""Bytes read at once: a few thousand lines."""

MAX_LINE_BYTES = 8 << 20
"""A longer line is returned in pieces."""


@dataclass(slots=True)
class Lines:
    """Lines read together.

    Attributes:
        values: the lines' bytes, without line ends.
        first: number of the first line, from 1.
        pieces: indexes of values that are pieces of a line that is too long, except its last
            piece; the next value continues the same line.
        tails: indexes of values that are the last piece of such a line.
        goes_on: whether the first value continues a line that an earlier call began.
        size: bytes read from the input so far, before decompression.
        text: bytes of text that were taken for them, their line ends included.
    """

    values: list[bytes]
    first: int
    pieces: set[int] = field(default_factory=set)
    tails: set[int] = field(default_factory=set)
    goes_on: bool = False
    size: int = 0
    text: int = field(default=0, compare=False)


class InputFile:
    """One input, read line by line; a context manager that closes it.

    Args:
        path: a file's path; ``-`` for standard input.
        max_line_bytes: a longer line is returned in pieces.
        encoding: of its text; empty to recognise UTF-16, and to take anything else as it is.
        growing: whether a file's end is not the end of the input, as more may be added.

    Raises:
        InputError: it cannot be opened, or there is no such encoding.
    """

    def __init__(
        self,
        path: str,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        encoding: str = "",
        growing: bool = False,
    ) -> None:
        self._growing = growing
        self._text = Transcoder(encoding)
        self.name = "standard input" if path == "-" else path
        self._max_line_bytes = max_line_bytes
        try:
            self._raw = _standard_input() if path == "-" else open(path, "rb", buffering=0)  # noqa: SIM115, PTH123 -- closed by close()
            mode = os.fstat(self._raw.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(21, "is a directory")
            self._regular = stat.S_ISREG(mode)
            self.total = os.fstat(self._raw.fileno()).st_size if self._regular else None
            self._file = self._decompressed()
        except (OSError, InputError) as error:
            if path != "-" and hasattr(self, "_raw"):
                self._raw.close()
            raise self._failed("opened", error) from error
        self._keep_open = path == "-"
        self._left: list[bytes] = []  # the beginning of a line whose end has not been read
        self._left_bytes = 0
        self._text_bytes = 0  # that were read, and are in no lines yet
        self._next = 1
        self._long = False
        self._begun = False
        self._ended = False
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def live(self) -> bool:
        """Whether more lines may arrive: from a pipe, a terminal or a growing file."""
        return not self._regular or self._growing

    def unread(self) -> int:
        """Return how many bytes a growing file has that were not read; below 0: it was cut."""
        return os.fstat(self._raw.fileno()).st_size - self._raw.tell()

    def is_same(self, other: os.stat_result) -> bool:
        """Return whether this is the file with that status."""
        return os.path.samestat(os.fstat(self._raw.fileno()), other)

    def wait(self, wakeup_fd: int, timeout_s: float | None) -> bool:
        """Wait until the input or `wakeup_fd` is readable, or time is up.

        Returns:
            Whether the input is readable (or has ended).
        """
        if not self.live:
            return True
        ready, _, _ = select.select([self._raw.fileno(), wakeup_fd], [], [], timeout_s)
        return self._raw.fileno() in ready

    def read(self) -> Lines | None:
        """Return the next lines; None at the end. Blocks while there is nothing to read.

        There may be no line, where a live input has only the beginning of one.

        Raises:
            InputError: the input cannot be read further. All that could be read was returned.
        """
        while not self._ended:
            piece, at_end = self._read_text()
            if at_end or (not piece and self._error is not None):
                self._ended = True
                if piece:  # what is left of a character
                    self._left.append(piece)
                rest = self.rest()
                if rest is not None:
                    return rest
                break
            lines = piece.split(b"\n")
            if self._left and len(lines) > 1:
                lines[0] = b"".join((*self._left, lines[0]))
                self._left.clear()
                self._left_bytes = 0
            last = lines.pop()
            if last:
                self._left.append(last)
                self._left_bytes += len(last)
            if self._left_bytes > self._max_line_bytes:
                lines.append(self._take_left())
                return self._lines(lines, whole=False)
            if lines:
                return self._lines(lines, whole=True)
            if self.live:
                return Lines([], self._next)  # another read would block
        if self._error is not None:
            error, self._error = self._error, None
            raise self._failed("read", error) from error
        return None

    def rest(self) -> Lines | None:
        """Return the beginning of a line whose end has not been read, if there is one."""
        if not self._left and not self._long:
            return None
        return self._lines([self._take_left()], whole=True)

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if not self._keep_open:
            self._file.close()
            self._raw.close()

    def _take_left(self) -> bytes:
        left = b"".join(self._left)
        self._left.clear()
        self._left_bytes = 0
        return left

    def _read_text(self) -> tuple[bytes, bool]:
        """Return the next bytes as UTF-8, and whether they are the last. They may be empty."""
        piece = self._read_piece()
        at_end = not piece and not self._growing
        if piece and not self._begun:
            self._begun = True
            reason = refusal(piece[:HEAD_BYTES])
            if reason is not None:
                self._error = InputError(reason)
                return b"", at_end
        try:
            text = self._text.convert(piece, at_end=at_end)
        except InputError as error:
            self._error = error
            return b"", at_end
        self._text_bytes += len(text)
        return text, at_end

    def _read_piece(self) -> bytes:
        """Return the next bytes; nothing at the end, or once the input cannot be read further."""
        parts: list[bytes] = []
        room = PIECE_BYTES
        try:
            if self._file is self._raw:
                return os.read(self._raw.fileno(), room)
            # Small reads: what was decompressed before an error is kept.
            while room and (part := self._file.read1(room)):  # type: ignore[attr-defined]
                parts.append(part)
                room -= len(part)
        except (OSError, EOFError, zlib.error, zstd.ZstdError, InputError) as error:
            self._error = error
        return b"".join(parts)

    def _lines(self, values: list[bytes], *, whole: bool) -> Lines:
        lines = Lines(values, self._next, goes_on=self._long)
        if self._long:
            lines.tails.add(0)
        self._next += len(values)
        if not whole:
            lines.pieces.add(len(values) - 1)
            self._next -= 1
            if self._long and len(values) == 1:
                lines.tails.clear()
        self._long = not whole
        lines.size = self._raw.tell() if self._regular else 0
        lines.text, self._text_bytes = self._text_bytes - self._left_bytes, self._left_bytes
        return lines

    def _decompressed(self) -> BinaryIO:
        raw = cast("BinaryIO", self._raw)
        if self.live:
            return raw
        name = packing(os.pread(self._raw.fileno(), HEAD_BYTES, 0))
        return raw if name is None else unpacked(raw, name)

    def _failed(self, what: str, error: Exception) -> InputError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return InputError(f"{self.name}: cannot be {what}: {reason}")


def _standard_input() -> FileIO:
    if sys.stdin is None:
        raise OSError(EBADF, "it is closed; give a file, or something to read")
    return cast("FileIO", sys.stdin.buffer.raw)  # type: ignore[union-attr]


def is_live(paths: Sequence[str]) -> bool:
    """Return whether more lines may arrive from one of the paths: one is no file or folder."""
    for path in paths:
        try:
            status = os.fstat(_standard_input().fileno()) if path == "-" else os.stat(path)  # noqa: PTH116
        except OSError:
            continue  # reported when it is opened
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return True
    return False


def expand(paths: Sequence[str]) -> Iterator[str]:
    """Yield the paths, with patterns (``'logs/*.gz'``) replaced by the files that they match.

    A pattern that matches nothing is kept, and is reported later as a missing file.
    """
    for path in paths:
        if path != "-" and not os.path.lexists(path) and glob.has_magic(path):
            yield from sorted(glob.glob(path, recursive=True)) or [path]  # noqa: PTH207 -- "**" and "~" as the shell has them
        else:
            yield path


@contextmanager
def whole_file(path: str, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name only when it is complete.

    If the block raises, nothing is left behind. A device or a named pipe is written directly, and
    ``-`` is standard output.

    Args:
        path: its name.
        private: whether only its owner may read it, from its first byte on; otherwise it has the
            permissions of the file that it replaces, or the usual ones.

    Raises:
        InputError: it cannot be created or written.
    """
    if path == "-":
        yield sys.stdout.buffer
        return
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        mode = target.stat().st_mode & 0o777 if target.exists() else None
        mode = 0o600 if private else mode
        # Named before it is created: a signal at any moment leaves no file behind.
        part = target.with_name(f".{target.name[:64]}.{secrets.token_hex(8)}.part")
        try:
            with open(part, "xb", opener=partial(os.open, mode=mode or 0o666)) as file:
                yield file
                file.flush()
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
