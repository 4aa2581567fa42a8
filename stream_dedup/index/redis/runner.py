"""Script calls on the shards of a namespace, and the partitions claimed here; losses of data.

`ScriptRunner` gives every call the incarnation of its shard, so a shard that lost its data answers
none. `Partitions` keeps what this process knows of the partitions that it has claimed.

A partition has a fence, a high water and a journal in each shard. They are claimed in the first
shard, which chooses the fence, then in the others. A crash between two shards leaves their high
waters apart; the lowest is the partition's, the others are segment boundaries (see
`base.Ownership`).

A commit names the incarnation that its shard had when the partition was claimed. So each partition
notices a loss of data, even if another has noticed it before. If a server came back without its
last writes, a high water has gone back.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stream_dedup.clock import monotonic_s
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, IndexReset
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Commit, Limits, Ownership
from stream_dedup.index.redis import codec, scripts
from stream_dedup.index.redis.client import Arguments, RedisClient, Refusal
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.namespace import (
    describe_settings,
    open_namespace,
    open_spread,
    ttl_ms,
)
from stream_dedup.index.redis.scripts import Argument, Script
from stream_dedup.model import Decision, Partition
from stream_dedup.rules.keeping import joined

log = logging.getLogger(__name__)

RESETS = b"-1"
"""An end of a partition that is not beyond any high water, not even that of before the first."""


class ScriptRunner:
    """Runs scripts on the shards of a namespace, and creates a shard again that lost its data.

    Args:
        client: the service.
        namespace: its name.
        recipe: the recipe it was created with.
        layout: how it is laid out.
        packer: packs queries under the namespace's key.
        incarnations: of each shard, as it was opened.
        windows: when clusters close.
        summaries: how often summaries are emitted.
        limits: how much it holds.
        spread: whether the tables of a group lie on all shards: they are lost together.

    Attributes:
        incarnations: of each shard, the latest known.
        resets: how often a shard had lost its data.
        ttl_ms: the time to live of a key.
        on_call: called with the seconds that a script call took, its retries included.
    """

    def __init__(
        self,
        client: RedisClient,
        namespace: str,
        recipe: Recipe,
        layout: NamespaceLayout,
        packer: codec.Packer,
        incarnations: list[bytes],
        *,
        windows: Windows,
        summaries: Summaries,
        limits: Limits,
        spread: bool = False,
    ) -> None:
        self.incarnations = incarnations
        self._spread = spread
        self.resets = 0
        self.ttl_ms = ttl_ms(windows, summaries)
        self.on_call: Callable[[float], None] = lambda _seconds: None
        self._client = client
        self._namespace = namespace
        self._recipe = recipe
        self._layout = layout
        self._packer = packer
        self._windows = windows
        self._summaries = summaries
        self._limits = limits

    def settings(self, now_us: int) -> bytes:
        """Pack the caller's clock and settings, the second argument of most scripts.

        A shard's cap on clusters is its share of the limits'.
        """
        max_clusters = -(-self._limits.max_clusters // self._layout.shards)
        return codec.pack_settings(
            now_us, self._windows, self._summaries, self.ttl_ms, max_clusters
        )

    async def run(
        self,
        shard: ShardKeys,
        script: Script,
        keys: Sequence[bytes],
        arguments: Arguments,
        incarnation: bytes | None = None,
    ) -> Any:  # noqa: ANN401 -- each script documents what it returns
        """Run a script on a shard.

        Args:
            shard: where.
            script: the script.
            keys: its keys.
            arguments: those behind the incarnation, or a function that returns those of each
                attempt.
            incarnation: the one that the caller knows; the latest without.

        Raises:
            IndexReset: the shard has another incarnation: its data was lost.
            Refusal, IndexUnavailable, IndexRefused: see `RedisClient.run`.
        """
        incarnation = incarnation or self.incarnations[shard.number]

        def of_attempt() -> list[Argument]:
            return [incarnation, *(arguments() if callable(arguments) else arguments)]

        started_s = monotonic_s()
        try:
            return await self._client.run(script, keys, of_attempt)
        except Refusal as refusal:
            if refusal.code != "SDRESET":
                raise
            if self.incarnations[shard.number] == incarnation:  # else another call has noticed it
                await self._create_again(shard, incarnation)
            raise IndexReset(
                f"{self._client.address}: namespace {self._namespace!r} has lost its data: the "
                "server came back without it, or it was deleted"
            ) from refusal
        finally:
            self.on_call(monotonic_s() - started_s)

    async def _create_again(self, shard: ShardKeys, lost: bytes) -> None:
        # Somebody else may have created it meanwhile, with another key.
        opens = open_spread if self._spread else open_namespace
        opened = await opens(
            self._client, self._namespace, self._recipe, self._layout, self._packer.key,
            windows=self._windows, summaries=self._summaries,
            settings=describe_settings(self._windows, self._summaries, self._limits),
        )  # fmt: skip
        if opened.layout != self._layout:
            raise IndexRefused(
                f"namespace {self._namespace!r} was created again with another layout by somebody "
                "else; open it again"
            )
        if self.incarnations[shard.number] != lost:
            return  # another task has done it
        # Other shards may be lost, too; the next call to each finds that out and counts it.
        if self._spread:
            self.incarnations[:] = opened.incarnations
        self.incarnations[shard.number] = opened.incarnations[shard.number]
        if opened.key != self._packer.key:
            self._packer.use_key(opened.key)
        self.resets += 1
        log.warning(
            "%s: namespace %r has lost its data (a server without persistence was restarted, or "
            "FLUSHALL or delete-namespace was run): going on with an empty index",
            self._client.address, self._namespace,
        )  # fmt: skip


class _Claim(NamedTuple):
    """The latest claim of a partition by this process.

    Attributes:
        fence: as it was returned.
        incarnations: of each shard, at that time.
    """

    fence: int
    incarnations: tuple[bytes, ...]


class Partitions:
    """The partitions that this process has claimed.

    Args:
        runner: runs the scripts.
        shards: of the namespace.
        address: of the service, for messages.

    Attributes:
        rollbacks: how often a high water had gone back.
        on_rollback: called whenever one has.
    """

    def __init__(self, runner: ScriptRunner, shards: Sequence[ShardKeys], address: object) -> None:
        self.rollbacks = 0
        self.on_rollback: Callable[[], None] = lambda: None
        self._runner = runner
        self._shards = shards
        self._address = address
        self._claims: dict[Partition, _Claim] = {}
        # by shard and partition: the shard's incarnation, and the high water
        self._high_waters: dict[tuple[int, Partition], tuple[bytes, int]] = {}
        self._names: dict[tuple[int, Partition], tuple[bytes, bytes, bytes]] = {}

    @property
    def claimed(self) -> list[Partition]:
        """The partitions held here, as far as is known."""
        return list(self._claims)

    def order(self, partition: Partition) -> Sequence[ShardKeys]:
        """The shards, in the order in which a partition is claimed there."""
        del partition
        return self._shards

    async def claim(
        self, partition: Partition, end_offset: int | None, identity: str = ""
    ) -> Ownership:
        """Claim a partition; see `Index.claim_partition`."""
        end, topic = b"" if end_offset is None else b"%d" % end_offset, identity.encode()
        # Fences keep growing even where the server has lost them.
        known = self._claims.get(partition)
        least = known.fence if known else 0
        reset = created_again = False
        while True:
            # The token identifies a call that is sent again because its answer was lost.
            token = secrets.token_hex(8)
            incarnations = tuple(self._runner.incarnations)
            first, *others = self.order(partition)
            answers = [await self._claim(first, partition, b"", least, end, token, topic)]
            fence = int(answers[0][0])
            # Others may be behind, and their high water below the end: they are reset together.
            others_end = RESETS if answers[0][3] else end
            answers += [
                await self._claim(shard, partition, b"%d" % fence, 0, others_end, token, topic)
                for shard in others
            ]
            reset = reset or any(answer[3] for answer in answers)
            created_again = created_again or any(answer[3] == 2 for answer in answers)
            least = max(int(answer[0]) for answer in answers)
            torn = len({bool(answer[3]) for answer in answers}) > 1
            if torn:  # of a topic that was made again one shard knew more than another
                end = RESETS
            elif least == fence:
                break  # else a shard knows a later claim, or the first has lost its data
        self._claims[partition] = _Claim(fence, incarnations)
        for shard in self._shards:
            self._high_waters.pop((shard.number, partition), None)  # those of another owner
        owned = self._ownership(partition, fence, incarnations, answers)
        return owned._replace(reset=reset, created_again=created_again)

    async def read(self, partition: Partition, fence: int) -> Ownership:
        """Read a partition's state under the fence of its claim; see `Index.read_partition`."""
        incarnations = self._incarnations(partition)
        answers = []
        for shard in self.order(partition):
            keys = [shard.meta, shard.partition(partition), shard.journal(partition)]
            answers.append(
                await self._runner.run(
                    shard, scripts.READ_PARTITION, keys, [fence], incarnations[shard.number]
                )
            )
        return self._ownership(partition, fence, incarnations, answers)

    def _incarnations(self, partition: Partition) -> tuple[bytes, ...]:
        """Return those under which the partition was claimed; without a claim the latest."""
        claim = self._claims.get(partition)
        return tuple(self._runner.incarnations) if claim is None else claim.incarnations

    def _ownership(
        self,
        partition: Partition,
        fence: int,
        incarnations: Sequence[bytes],
        answers: Sequence[Sequence[Any]],
    ) -> Ownership:
        """Combine what the shards hold of a partition."""
        marks = [int(answer[1]) for answer in answers]
        for shard, mark in zip(self.order(partition), marks, strict=True):
            self._note_high_water(shard, partition, incarnations[shard.number], mark, mark)
        journal: dict[int, Decision] = {}
        for answer in answers:
            committed = int(answer[2])
            for packed in answer[5:]:
                decisions = codec.unpack_journal(packed).items()
                journal.update(item for item in decisions if item[0] >= committed)
        boundaries = tuple(sorted({mark for mark in marks if mark > min(marks)}))
        recorded = [int(answer[2]) for answer in answers if int(answer[1]) >= 0]
        kept = joined(codec.unpack_kept(answer[4]) for answer in answers)
        return Ownership(
            fence, min(marks), journal, segment_boundaries=boundaries,
            committed=max(recorded, default=None), kept=kept,
        )  # fmt: skip

    async def _claim(
        self,
        shard: ShardKeys,
        partition: Partition,
        fence: bytes,
        least: int,
        end: bytes,
        token: str,
        topic: bytes = b"",
    ) -> list[Any]:
        keys = [shard.meta, shard.partition(partition), shard.journal(partition)]
        arguments: list[Argument] = [self._runner.ttl_ms, fence, least, end, token, topic]
        answer: list[Any] = await self._runner.run(shard, scripts.CLAIM_PARTITION, keys, arguments)
        return answer

    async def note_committed(self, partition: Partition, fence: int, offset: int) -> None:
        """Note what is committed; see `Index.note_committed`."""
        incarnations = self._incarnations(partition)
        for shard in self._shards:
            keys = [shard.meta, *self.names(shard, partition)[:2]]
            under, given = incarnations[shard.number], [fence, offset]
            await self._runner.run(shard, scripts.NOTE_COMMITTED, keys, given, under)

    async def release(self, partition: Partition) -> None:
        """Release a partition; see `Index.release_partition`."""
        self._claims.pop(partition, None)
        settings = self._runner.settings(0)
        for shard in self._shards:
            keys = [shard.meta, shard.heads]
            arguments = [settings, codec.pack_partition(partition)]
            await self._runner.run(shard, scripts.RELEASE_PARTITION, keys, arguments)
            self._names.pop((shard.number, partition), None)

    def names(self, shard: ShardKeys, partition: Partition) -> tuple[bytes, bytes, bytes]:
        """The keys of a partition and of its journal, and its packed name; made once."""
        slot = shard.number, partition
        if slot not in self._names:
            keys = shard.partition(partition), shard.journal(partition)
            self._names[slot] = *keys, codec.pack_partition(partition)
        return self._names[slot]

    def incarnation(self, shard: ShardKeys, commit: Commit) -> bytes | None:
        """The shard's incarnation when the commit's fence was claimed; None if not claimed here."""
        claim = self._claims.get(commit.partition)
        if claim is None or claim.fence != commit.fence:
            return None
        return claim.incarnations[shard.number]

    def superseded(self, partition: Partition, fence: int) -> None:
        """Forget a claim: its fence is no longer the latest."""
        claim = self._claims.get(partition)
        if claim is not None and claim.fence == fence:
            del self._claims[partition]

    def check_high_water(self, shard: ShardKeys, commit: Commit, before: int) -> bool:
        """Compare the high water with the last known one.

        Args:
            shard: where the commit was recorded.
            commit: the commit.
            before: the high water that the script found.

        Returns:
            Whether a call whose answer was lost has recorded these offsets.
        """
        incarnation = self._runner.incarnations[shard.number]
        now = max(before, commit.last_offset)
        known = self._note_high_water(shard, commit.partition, incarnation, before, now)
        return known < commit.last_offset <= before

    def _note_high_water(
        self, shard: ShardKeys, partition: Partition, incarnation: bytes, found: int, now: int
    ) -> int:
        """Note a high water, and report if the server has lost writes; return the last known one.

        Args:
            shard: where it is.
            partition: whose it is.
            incarnation: of the shard.
            found: the one that a script has found.
            now: the one that it has left.
        """
        slot = shard.number, partition
        known_incarnation, known = self._high_waters.get(slot, (incarnation, -1))
        if known_incarnation == incarnation and found < known:
            self.rollbacks += 1
            self.on_rollback()
            log.warning(
                "%s: the high water of %s had gone back from %d to %d: the server lost its last "
                "writes, and what they counted",
                self._address, partition, known, found,
            )  # fmt: skip
        self._high_waters[slot] = incarnation, now
        return known
