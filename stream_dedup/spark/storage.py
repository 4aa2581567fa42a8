"""Small files beside Spark's own, on any file system that Spark reads."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from stream_dedup.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCK = "_lock"
"""Empty; locked by the backfill that writes in the folder."""

_GLOB = frozenset("*?[{")


def _is_hidden(path: object) -> bool:
    """Return whether Spark leaves out a file or folder, by its path of Hadoop."""
    return str(path).rpartition("/")[2].startswith(("_", "."))


class Storage:
    """A folder, through Hadoop's file systems. Names are relative to it.

    Args:
        spark: the session.
        folder: a path or URI.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 -- the only way to Hadoop's files
        self._hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 -- as above
        self._folder = folder.rstrip("/") or "/"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let nobody else write here meanwhile: where the folder is one of this machine's.

        Raises:
            InputError: another process holds the lock, or nothing can be written there.
        """
        path, files = self._open(LOCK)
        if files.getUri().getScheme() != "file":
            yield  # Hadoop's file systems have no locks
            return
        local = Path(files.makeQualified(path).toUri().getPath())
        with ExitStack() as held:  # the system releases the lock, however the process ends
            try:
                local.parent.mkdir(parents=True, exist_ok=True)
                file = held.enter_context(local.open("ab"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"{self._folder}: another backfill writes there: wait until it has ended, or "
                    "give another --output"
                ) from error
            except OSError as error:
                # Of a file in the place of the folder, "File exists" would say little.
                kind = errno.ENOTDIR if isinstance(error, FileExistsError) else error.errno
                problem = os.strerror(kind or errno.EIO)
                raise InputError(f"{self._folder}: cannot be written: {problem}") from error
            yield

    def path(self, name: str) -> str:
        """Return the path of a name."""
        return f"{self._folder}/{name}"

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or folder."""
        path, files = self._open(name)
        return bool(files.exists(path))

    def is_done(self, stage: str, digest: str) -> bool:
        """Return whether Spark has written a stage to its end, with the settings of a digest."""
        return self.read(f"{stage}/_settings") == digest and self.exists(f"{stage}/_SUCCESS")

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if there is none.

        Raises:
            InputError: it cannot be read.
        """
        path, files = self._open(name)
        if not files.exists(path):
            return None
        try:
            stream = files.open(path)
            try:
                text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
        except Py4JError as error:
            raise InputError(
                f"{self.path(name)}: cannot be read, or is damaged; check its permissions, or run "
                "the backfill again, with --overwrite"
            ) from error
        return str(text)

    def write(self, name: str, text: str, *, private: bool = False) -> None:
        """Write a file, whole or not at all.

        Args:
            name: its name.
            text: what is in it.
            private: whether only its owner may read it, where the file system knows that.
        """
        path, files = self._open(name)
        part, _ = self._open(f"{name}.part")
        stream = files.create(part, True)
        try:
            if private:
                permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission("600")
                files.setPermission(part, permission)
            stream.write(text.encode())
        finally:
            stream.close()
        files.delete(path, False)
        files.rename(part, path)

    def delete(self, name: str) -> None:
        """Delete a file or folder, if there is one."""
        path, files = self._open(name)
        files.delete(path, True)

    def files(self, inputs: Sequence[str]) -> list[tuple[str, int, int]]:
        """Return path, size and time of all files that paths, globs and folders name.

        In folders, and where a glob matches them, hidden files are left out, as Spark does it.

        Raises:
            InputError: one of them names nothing, or a file is named twice.
        """
        found: list[tuple[str, int, int]] = []
        for each in inputs:
            path = self._jvm.org.apache.hadoop.fs.Path(each)
            files = path.getFileSystem(self._hadoop)
            named = files.globStatus(path)
            if not named:
                raise InputError(f"{each}: there is no such file")
            is_glob = not _GLOB.isdisjoint(each)
            for status in named:
                if not (is_glob and _is_hidden(status.getPath())):
                    found += self._below(files, status)
        if not found:
            raise InputError(f"{', '.join(inputs)}: there is no file in it")
        found.sort()
        for (path, *_), (other, *_) in pairwise(found):
            if path == other:
                raise InputError(f"{path}: is named twice by {', '.join(inputs)}")
        return found

    def whole_path(self, name: str) -> str:
        """Return the path of a name as `files` returns those of inputs."""
        path, files = self._open(name)
        return str(files.makeQualified(path).toString())

    def head(self, path: str, size: int) -> bytes:
        """Return the first bytes of a file, by its whole path."""
        where = self._jvm.org.apache.hadoop.fs.Path(path)
        stream = where.getFileSystem(self._hadoop).open(where)
        try:
            read = (stream.read() for _ in range(size))
            return bytes(byte for byte in read if byte >= 0)
        finally:
            stream.close()

    def _below(self, files: Any, status: Any) -> list[tuple[str, int, int]]:  # noqa: ANN401 -- Java's
        path = status.getPath()
        if not status.isDirectory():
            return [(str(path.toString()), status.getLen(), status.getModificationTime())]
        inside = files.listStatus(path)
        return [
            each for s in inside if not _is_hidden(s.getPath()) for each in self._below(files, s)
        ]

    def _open(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(self.path(name))
        return path, path.getFileSystem(self._hadoop)
