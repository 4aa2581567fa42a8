"""Whole files or none: what is written stands under another name until it is complete."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from stream_dedup.errors import InputError


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to be written; it takes its name at the end, and is deleted if that is not reached.

    A device or a named pipe is written as it is.

    Args:
        path: the file's path; ``-`` for standard output.

    Raises:
        InputError: it cannot be made or written.
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
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", suffix=".part", delete=False
        ) as file:
            try:
                yield cast(BinaryIO, file)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.replace(file.name, target)  # noqa: PTH105 -- a name, as tempfile gives it
            except BaseException:
                os.unlink(file.name)  # noqa: PTH108 -- as above
                raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _umask() -> int:
    """What new files are not allowed; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
