"""Partitions as this process has claimed them: fences, high waters, and what was lost of them.

A partition has a fence, a high water and a journal in each shard. They are claimed in the first
shard, which chooses the fence, then in the others. A crash between two shards leaves their high
waters apart; the lowest is the partition's, the others are segment boundaries (see
`base.Ownership`).

A record names the incarnation of its shard as it was when the partition was claimed, so a loss of
data is noticed by each partition, whoever else has noticed it before. A server that came back
without its last writes is noticed by a high water that has gone back.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stream_dedup.index.base import Commit, Ownership
from stream_dedup.index.redis import codec, scripts
from stream_dedup.index.redis.calls import Calls
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.server import Argument
from stream_dedup.model import Decision, Partition

log = logging.getLogger(__name__)


class _Claim(NamedTuple):
    """A partition as it was claimed here last.

    Attributes:
        fence: as it was returned.
        incarnations: of each shard, as they were then.
    """

    fence: int
    incarnations: tuple[bytes, ...]


class Partitions:
    """What a process knows of the partitions it has claimed.

    Args:
        calls: runs the scripts.
        shards: of the namespace.
        address: of the server, for messages.

    Attributes:
        rollbacks: how often a high water had gone back.
        rolled_back: called whenever it had.
    """

    def __init__(self, calls: Calls, shards: Sequence[Shard], address: object) -> None:
        self.rollbacks = 0
        self.rolled_back: Callable[[], None] = lambda: None
        self._calls = calls
        self._shards = shards
        self._address = address
        self._claims: dict[Partition, _Claim] = {}
        self._high_water: dict[tuple[int, Partition], int] = {}

    @property
    def claimed(self) -> list[Partition]:
        """Those held here, as far as is known."""
        return list(self._claims)

    async def claim(self, partition: Partition, end_offset: int | None) -> Ownership:
        """Claim a partition; see `Index.claim_partition`."""
        end = b"" if end_offset is None else b"%d" % end_offset
        # Fences go on even where the server has forgotten them.
        known = self._claims.get(partition)
        least = known.fence if known else 0
        reset = False
        while True:
            # Sent again because its answer was lost, a call is known by its token.
            token = secrets.token_hex(8)
            incarnations = tuple(self._calls.incarnations)
            first, *others = self._shards
            answers = [await self._claim(first, partition, b"", least, end, token)]
            fence = int(answers[0][0])
            answers += [
                await self._claim(shard, partition, b"%d" % fence, 0, end, token)
                for shard in others
            ]
            reset = reset or any(answer[3] for answer in answers)
            least = max(int(answer[0]) for answer in answers)
            if least == fence:
                break  # else a shard knows of a later claim, or the first has lost its data
        self._claims[partition] = _Claim(fence, incarnations)
        marks = [int(answer[1]) for answer in answers]
        for shard, mark in zip(self._shards, marks, strict=True):
            self._high_water[shard.number, partition] = mark
        journal: dict[int, Decision] = {}
        for answer in answers:
            committed = int(answer[2])
            for packed in answer[4:]:
                decisions = codec.unpack_journal(packed).items()
                journal.update(item for item in decisions if item[0] >= committed)
        boundaries = tuple(sorted({mark for mark in marks if mark > min(marks)}))
        return Ownership(fence, min(marks), journal, reset, boundaries)

    async def _claim(
        self, shard: Shard, partition: Partition, fence: bytes, least: int, end: bytes, token: str
    ) -> list[Any]:
        keys = [shard.meta, shard.partition(partition), shard.journal(partition)]
        arguments: list[Argument] = [self._calls.ttl_ms, fence, least, end, token]
        answer: list[Any] = await self._calls.run(shard, scripts.CLAIM_PARTITION, keys, arguments)
        return answer

    async def release(self, partition: Partition) -> None:
        """Give a partition up; see `Index.release_partition`."""
        self._claims.pop(partition, None)
        settings = self._calls.settings(0)
        for shard in self._shards:
            keys = [shard.meta, shard.heads]
            arguments = [settings, codec.pack_partition(partition)]
            await self._calls.run(shard, scripts.RELEASE_PARTITION, keys, arguments)

    def incarnation(self, shard: Shard, record: Commit) -> bytes | None:
        """The shard's as the record's fence was claimed; None if that was not here."""
        claim = self._claims.get(record.partition)
        if claim is None or claim.fence != record.fence:
            return None
        return claim.incarnations[shard.number]

    def superseded(self, record: Commit) -> None:
        """The record's fence is not the latest: somebody else holds the partition."""
        claim = self._claims.get(record.partition)
        if claim is not None and claim.fence == record.fence:
            del self._claims[record.partition]

    def watch(self, shard: Shard, record: Commit, before: int) -> None:
        """Notice when the server has lost what it had answered for.

        Args:
            shard: where the record was written.
            record: the record.
            before: the high water that it found.
        """
        place = shard.number, record.partition
        known = self._high_water.get(place)
        if known is not None and before < known:
            self.rollbacks += 1
            self.rolled_back()
            log.warning(
                "%s: the high water of %s had gone back from %d to %d: the server lost its last "
                "writes, and what they counted",
                self._address, record.partition, known, before,
            )  # fmt: skip
        self._high_water[place] = max(before, record.last_offset)

    def forget_marks(self, number: int) -> None:
        """A shard is made anew: its high waters begin again."""
        self._high_water = {
            place: mark for place, mark in self._high_water.items() if place[0] != number
        }
