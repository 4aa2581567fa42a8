"""Sorting fingerprints and removing repeats, in memory or in a temporary file.

Words are collected in a buffer of a third of the memory allowed. A full buffer is sorted and its
repeats are removed; if it is still more than half full, it is written to a temporary file without a
name, as a *sorted run*. At the end the runs are merged into one file: a piece of each run is held;
all words up to the smallest of the pieces' last words are taken out together, sorted and written,
and the pieces are refilled.

Memory: the buffer, as much again while it is sorted, and the pieces. Disk: at most twice the runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO, Self, cast

from stream_dedup.errors import InputError
from stream_dedup.offline import kernel
from stream_dedup.offline.reference import Bytes, unpacked, word_bytes

MIN_MEMORY_BYTES = 1 << 20
"""The least memory used, whatever is allowed."""

PIECE_BYTES = 1 << 20
"""Bytes of a file read at once."""


class SortedWords:
    """Fingerprints as words, ascending and distinct; a context manager.

    Attributes:
        count: number of words.
        memory_bytes: memory they take; 0 where they are in a file.
    """

    def __init__(self, width: int, held: Bytes, file: BinaryIO | None = None) -> None:
        self._held = held
        self._file = file
        self._bytes = os.fstat(file.fileno()).st_size if file else len(held)
        self.count = self._bytes // word_bytes(width)
        self.memory_bytes = 0 if file else self._bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def pieces(self) -> Iterator[Bytes]:
        """Yield all words in order, in pieces. Several threads may call it at the same time."""
        if self._file is None:
            yield self._held
            return
        for start in range(0, self._bytes, PIECE_BYTES):
            yield os.pread(self._file.fileno(), PIECE_BYTES, start)


class Sorter:
    """Takes words in any order and returns them sorted and distinct.

    Args:
        width: bits of a fingerprint.
        memory_bytes: approximate limit; words beyond it go to a temporary file in `TMPDIR`.
    """

    def __init__(self, width: int, memory_bytes: int) -> None:
        self._width = width
        self._size = word_bytes(width)
        self._most = max(memory_bytes, MIN_MEMORY_BYTES) // 3 // self._size * self._size
        self._buffer = bytearray()
        self._runs: list[tuple[int, int]] = []  # start and end of each in the file
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def add(self, words: Bytes) -> None:
        """Add words.

        Raises:
            InputError: the temporary file cannot be written.
        """
        view = memoryview(words)
        while view:
            room = self._most - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) == self._most:
                self._compact()
                if len(self._buffer) > self._most // 2:
                    self._spill()

    def finish(self) -> SortedWords:
        """Return all words added. Nothing can be added after this.

        Raises:
            InputError: the temporary file cannot be written.
        """
        self._compact()
        if self._file is None:
            return SortedWords(self._width, self._buffer)
        self._spill()
        with self._stack:
            merged = self._temporary()
            try:
                for words in self._merged():
                    _write(merged, words)
                merged.flush()
            except BaseException:
                merged.close()
                raise
            return SortedWords(self._width, b"", merged)

    def _compact(self) -> None:
        del self._buffer[kernel.sort_distinct(self._buffer, self._width) * self._size :]

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._stack.enter_context(self._temporary())
        start = self._runs[-1][1] if self._runs else 0
        _write(self._file, self._buffer)
        self._file.flush()
        self._runs.append((start, start + len(self._buffer)))
        self._buffer.clear()

    def _merged(self) -> Iterator[bytearray]:
        assert self._file is not None
        fd = self._file.fileno()
        share = self._most // max(1, len(self._runs)) // 2
        piece = max(min(share, PIECE_BYTES) // self._size, 1) * self._size
        runs = [(b"", start, end) for start, end in self._runs]
        while runs:
            filled = []
            for held, start, end in runs:
                if not held and start < end:
                    got = os.pread(fd, min(piece, end - start), start)
                    filled.append((got, start + len(got), end))
                elif held:
                    filled.append((held, start, end))
            runs = filled
            if not runs:
                return
            bound = min(unpacked(held[-self._size :], self._width)[0] for held, _, _ in runs)
            out = bytearray()
            left = []
            for held, start, end in runs:
                upto = kernel.count_up_to(held, bound, self._width) * self._size
                out += held[:upto]
                left.append((held[upto:], start, end))
            runs = left
            yield out[: kernel.sort_distinct(out, self._width) * self._size]

    @staticmethod
    def _temporary() -> BinaryIO:
        try:
            return cast(BinaryIO, tempfile.TemporaryFile(buffering=0))
        except OSError as error:
            raise _failed(error) from error


def _write(file: BinaryIO, words: Bytes) -> None:
    view = memoryview(words)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise _failed(error) from error


def _failed(error: OSError) -> InputError:
    return InputError(
        f"a temporary file in {tempfile.gettempdir()} cannot be written: {error.strerror}; "
        "name a folder with room in TMPDIR, or allow more memory"
    )
