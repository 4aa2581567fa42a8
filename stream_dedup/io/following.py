"""Reading a file as it grows, as ``tail -F`` does: by its name, whatever file that names.

Theory of operation. The name is looked up before the open file's size, so that what was written
before the name led to another file is read before that file is.

| the name leads to | the open file | what happens |
| --- | --- | --- |
| any | is larger than what was read | it is read on |
| any | is smaller | it was truncated: it is read from its beginning |
| another file, with content | was read to its end | rotated: the other file is opened |
| another file, empty | was read to its end | the writer may still use the open file: wait |
| nothing | was read to its end | wait |

When a file is left, the beginning of a line at its end is a line. Line numbers go on, so that each
line has a position of its own. A file that was truncated and has grown beyond what was read in
between looks as if it had only grown: copying and truncating (``copytruncate``) may lose lines, as
it does with any reader.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Self

from stream_dedup.errors import InputError
from stream_dedup.io.files import InputFile, Lines


class FollowedFile:
    """A file that is followed; read like an `InputFile` that never ends.

    Args:
        path: the file's path. If it names no file yet, that is waited for.
        note: writes a message to the user.
        opened: opens a file to follow.

    Raises:
        InputError: it cannot be opened, for another reason than that there is none.
    """

    live = True

    def __init__(
        self, path: str, note: Callable[[str], None], opened: Callable[[str], InputFile]
    ) -> None:
        self.name = path
        self._note = note
        self._opened = opened
        self._file: InputFile | None = None
        self._left = False
        self._lines = 0
        self._bytes = 0
        self._missing = False
        self._open(first=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def wait(self, wakeup_fd: int, timeout_s: float | None) -> bool:
        """Return whether there is more to read; if not, wait for `wakeup_fd` or until time is up.

        A file cannot be waited for: call this again.
        """
        if self._more():
            return True
        if timeout_s != 0:
            select.select([wakeup_fd], [], [], timeout_s)
        return False

    def read(self) -> Lines:
        """Return the next lines; there may be none.

        Raises:
            InputError: the file cannot be read further.
        """
        if self._file is None:
            return Lines([], self._lines + 1)
        lines = self._file.rest() if self._left else self._file.read()
        size = self._bytes + (lines.size if lines is not None else 0)
        if self._left:
            self._bytes = size
            self._file.close()
            self._file, self._left = None, False
            self._open()
        return self._numbered(lines, size)

    def rest(self) -> Lines | None:
        """Return the beginning of a line whose end has not been read, if there is one."""
        lines = None if self._file is None else self._file.rest()
        return None if lines is None else self._numbered(lines, self._bytes + lines.size)

    def _numbered(self, lines: Lines | None, size: int) -> Lines:
        """Give lines their numbers through all files of the name."""
        if lines is None:
            return Lines([], self._lines + 1, size=size)
        lines.first = self._lines + 1
        lines.size = size
        self._lines += len(lines.values) - len(lines.pieces)
        return lines

    def _more(self) -> bool:
        if self._file is None:
            self._open()
            return self._file is not None
        try:
            named = os.stat(self.name)  # noqa: PTH116 -- pathlib's raises other errors for odd names
        except OSError:
            named = None
        unread = self._file.unread()
        if unread > 0:
            return True
        if unread < 0:
            self._note(f"{self.name}: was truncated; reading from its beginning")
            self._left = True
        elif named is not None and named.st_size and not self._file.is_same(named):
            self._note(f"{self.name}: is another file now; reading it")
            self._left = True
        return self._left

    def _open(self, *, first: bool = False) -> None:
        try:
            self._file = self._opened(self.name)
        except InputError as error:
            if first and not isinstance(error.__cause__, FileNotFoundError):
                raise
            if not self._missing:
                self._note(f"{error}; waiting for it")
            self._missing = True
        else:
            self._missing = False
