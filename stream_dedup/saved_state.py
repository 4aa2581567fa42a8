"""The file in which a `Deduplicator` is saved: a header, its clusters, and a digest of all.

::

    "stream-dedup state\\n"  version (4 bytes)  record …  BLAKE2b of everything before (32 bytes)
    record = length (4 bytes), MessagePack; the first is the header, each other one a cluster

Numbers are big-endian. Nothing in it is code. The digest finds damage, not malice, so every value
is checked when it is read, and lengths before memory is taken for them. The file holds the secret
key of the hashes and values of events: only its owner may read it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Annotated, BinaryIO, TypeVar

import msgspec

from stream_dedup.engine.engine import Counts
from stream_dedup.errors import StateError
from stream_dedup.index.memory.saved import Count, SavedCluster, SavedIndex, Text

MAGIC = b"stream-dedup state\n"
VERSION = 2
"""Raised with every change of a record."""

MAX_RECORD_BYTES = 64 << 20
"""A cluster with all samples at their largest takes a sixtieth of it."""

T = TypeVar("T")

_DIGEST_BYTES = 32
_LENGTH_BYTES = 4
_PIECE_BYTES = 1 << 20


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a saved state holds besides clusters.

    Attributes:
        digest: of the recipe.
        recipe: its name, for messages.
        key: of the hashes that decide.
        source: names the input in positions.
        offset: of the next event.
        counts: what was decided.
        index: what the index holds besides clusters.
        clusters: how many follow.
    """

    digest: str
    recipe: str
    key: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    source: Text
    offset: Count
    counts: Counts
    index: SavedIndex
    clusters: Count

    def __repr__(self) -> str:
        """Without the key."""
        return f"Header(recipe={self.recipe!r}, clusters={self.clusters})"


def write_state(file: BinaryIO, header: Header, clusters: Iterable[SavedCluster]) -> None:
    """Write a state.

    Raises:
        OSError: it cannot be written.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    encode = msgspec.msgpack.Encoder().encode

    def put(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    put(MAGIC + VERSION.to_bytes(4, "big"))
    for record in (header, *clusters):
        body = encode(record)
        put(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
    file.write(digest.digest())


def read_state(file: BinaryIO, path: str) -> tuple[Header, Iterator[SavedCluster]]:
    """Read a state's header, and return it with its clusters, which are read one by one.

    Raises:
        StateError: it is no such file, damaged, or of another version. Also raised by the iterator.
        OSError: it cannot be read.
    """
    begin = file.read(len(MAGIC) + 4)
    if not begin.startswith(MAGIC):
        raise StateError(path, "is not a saved state", "give a file that `save` has written")
    version = int.from_bytes(begin[len(MAGIC) :], "big")
    if version != VERSION:
        problem = f"has format {version}, and this version of stream-dedup reads {VERSION}"
        raise StateError(
            path, problem, "load it with the version that has saved it, or start without it"
        )
    end = _checked_end(file, path, begin)
    records = _records(file, path, end)
    header = _decoded(next(records, b""), Header, path)

    def clusters() -> Iterator[SavedCluster]:
        count = 0
        for body in records:
            yield _decoded(body, SavedCluster, path)
            count += 1
        if count != header.clusters:
            raise _damaged(path, f"has {count} of {header.clusters} clusters")

    return header, clusters()


def _checked_end(file: BinaryIO, path: str, begin: bytes) -> int:
    """Check the digest, and return where the records end; the file is read to its end and back."""
    end = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
    digest, left = blake2b(begin, digest_size=_DIGEST_BYTES), end - len(begin)
    while left > 0:
        piece = file.read(min(left, _PIECE_BYTES))
        if not piece:
            break
        digest.update(piece)
        left -= len(piece)
    if left or file.read() != digest.digest():
        raise _damaged(path, "is damaged or cut short")
    file.seek(len(begin))
    return end


def _records(file: BinaryIO, path: str, end: int) -> Iterator[bytes]:
    while file.tell() < end:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "big")
        if length > min(MAX_RECORD_BYTES, end - file.tell()):
            raise _damaged(path, f"has a record of {length:,} bytes")
        yield file.read(length)


def _decoded(body: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, f"has an invalid record: {error}") from error


def _damaged(path: str, problem: str) -> StateError:
    return StateError(path, problem, "load an earlier copy, or start without it")
