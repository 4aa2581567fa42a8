"""Other ways to keep near-duplicates in Redis, on the same data.

`datasketch` (https://github.com/ekzhu/datasketch) keeps a MinHash LSH in Redis: a list of bands a
key and a set a band's value. It is used as its documentation shows: 128 permutations, `insert` and
`query` one by one, or an `insertion_session`, which sends inserts in pipelines and asks nothing.

*Plain sorted sets* are what one would write with a Redis at hand: a sorted set a table, looked up
with ``ZRANGEBYLEX`` and added to with ``ZADD``, a pipeline a batch for each of the two. Members are
those of our own tables, not in slices. Two such clients could both admit near-twins: between
looking and adding is time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import redis

from benchmarks.peers import PeerMissingError
from stream_dedup.tables.entries import make_entries
from stream_dedup.tables.permutation import Layout

PERMUTATIONS = 128
THRESHOLD = 0.7
AFTER = b"\xff" * 32


class DatasketchPeer:
    """A `MinHashLSH` with Redis as its storage.

    Args:
        port: of the server on 127.0.0.1.

    Raises:
        PeerMissingError: it is not installed.
    """

    def __init__(self, port: int) -> None:
        self._module = _datasketch()
        self._lsh: Any = self._module.MinHashLSH(
            threshold=THRESHOLD,
            num_perm=PERMUTATIONS,
            storage_config={
                "type": "redis",
                "basename": b"peer",
                "redis": {"host": "127.0.0.1", "port": port},
            },
        )
        self._next = 0

    @property
    def bands(self) -> int:
        """Into how many bands it cut the permutations."""
        return int(self._lsh.b)

    def _hashed(self, line: bytes) -> object:
        minhash: Any = self._module.MinHash(num_perm=PERMUTATIONS)
        minhash.update_batch(set(line.split()))
        return minhash

    def check_and_insert(self, lines: Sequence[bytes]) -> int:
        """Query and insert one by one; how many were found."""
        found = 0
        for line in lines:
            minhash = self._hashed(line)
            found += bool(self._lsh.query(minhash))
            self._lsh.insert(self._key(), minhash)
        return found

    def insert_all(self, lines: Sequence[bytes]) -> None:
        """Insert through a session, without asking: for its keys, which are new, neither."""
        hashed: Iterator[Any] = self._module.MinHash.generator(
            [set(line.split()) for line in lines], num_perm=PERMUTATIONS
        )
        with self._lsh.insertion_session() as session:
            for minhash in hashed:
                session.insert(self._key(), minhash, check_duplication=False)

    def _key(self) -> str:
        self._next += 1
        return f"event-{self._next}"


class SortedSetPeer:
    """One sorted set a table, looked up and added to in pipelines.

    Args:
        driver: a client of the server.
        layout: blocks and tables.
    """

    def __init__(self, driver: redis.Redis, layout: Layout) -> None:
        self._driver = driver
        self._layout = layout
        self._entries = make_entries(layout, 1)
        self._next = 0

    def check_and_insert(self, fingerprints: Sequence[int]) -> int:
        """Look a batch up, then add what is new; how many had one near them."""
        prefix, size = self._entries.prefix_bytes, self._entries.member_bytes
        look = self._driver.pipeline(transaction=False)
        arranged = []
        for fingerprint in fingerprints:
            self._next += 1
            keys, packed = self._entries.arrange(fingerprint, 0, self._next, b"plain:")
            members = [packed[start : start + size] for start in range(0, len(packed), size)]
            arranged.append((fingerprint, keys, members))
            for key, member in zip(keys, members, strict=True):
                first = b"[" + member[:prefix]
                look.zrangebylex(key, first, first + AFTER)
        answers = iter(look.execute())
        add = self._driver.pipeline(transaction=False)
        found = 0
        for fingerprint, keys, members in arranged:
            near = [
                member
                for table in range(len(keys))
                for member in next(answers)
                if self._distance(fingerprint, member, table) <= self._layout.k
            ]
            found += bool(near)
            if not near:
                for key, member in zip(keys, members, strict=True):
                    add.zadd(key, {member: 0})
        add.execute()
        return found

    def _distance(self, fingerprint: int, member: bytes, table: int) -> int:
        return (self._entries.fingerprint(member, table) ^ fingerprint).bit_count()


def _datasketch() -> ModuleType:
    try:
        return import_module("datasketch")
    except ModuleNotFoundError as error:
        raise PeerMissingError("datasketch is not installed: pip install datasketch") from error
