"""Calls of the scripts of one namespace, under the data that its callers know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stream_dedup.clock import monotonic_s
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import IndexRefused, IndexReset
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.base import Limits
from stream_dedup.index.redis import codec
from stream_dedup.index.redis.keys import Shard
from stream_dedup.index.redis.layout import Stamp, describe, stamp_shard, ttl_ms
from stream_dedup.index.redis.scripts import Script
from stream_dedup.index.redis.server import Argument, Arguments, Refusal, Server

CALL_WORK = 1_000
"""Commands of a script call, about: three milliseconds."""


class Calls:
    """Runs scripts on the shards of a namespace.

    Each shard carries a random incarnation, which every script compares with what its caller
    knows. A shard that lost its data is made anew, once, and all who knew the old one are told.

    Args:
        server: the service.
        namespace: its name.
        recipe: what it was made with.
        stamp: how it is laid out.
        incarnations: of each shard, as it was opened.
        windows: when clusters close.
        summaries: how often they are told of.
        limits: how much it holds.

    Attributes:
        incarnations: of each shard, as they are known now.
        resets: how often a shard was found lost.
        ttl_ms: how long a key stands that nobody writes to.
        lost: called with the number of a shard that is made anew.
        took: called with the seconds that a script call took, its retries included.
    """

    def __init__(
        self,
        server: Server,
        namespace: str,
        recipe: Recipe,
        stamp: Stamp,
        incarnations: list[bytes],
        *,
        windows: Windows,
        summaries: Summaries,
        limits: Limits,
    ) -> None:
        self.incarnations = incarnations
        self.resets = 0
        self.ttl_ms = ttl_ms(windows, summaries)
        self.lost: Callable[[int], None] = lambda _number: None
        self.took: Callable[[float], None] = lambda _seconds: None
        self._server = server
        self._namespace = namespace
        self._recipe = recipe
        self._stamp = stamp
        self._windows = windows
        self._summaries = summaries
        self._limits = limits

    def settings(self, now_us: int, max_clusters: int | None = None) -> bytes:
        """What every script is told of its caller.

        Args:
            now_us: the clock.
            max_clusters: a shard's cap on clusters; its share of the limits' without.
        """
        if max_clusters is None:
            max_clusters = -(-self._limits.max_clusters // self._stamp.shards)
        return codec.pack_settings(
            now_us, self._windows, self._summaries, self.ttl_ms, max_clusters
        )

    async def run(
        self,
        shard: Shard,
        script: Script,
        keys: Sequence[bytes],
        arguments: Arguments,
        incarnation: bytes | None = None,
    ) -> Any:  # noqa: ANN401 -- each script says what it returns
        """Run a script.

        Args:
            shard: where.
            script: the script.
            keys: its keys.
            arguments: its arguments behind the incarnation; or what gives those of each attempt.
            incarnation: the one its caller goes by; the latest known without.

        Raises:
            IndexReset: that one is gone.
        """
        incarnation = incarnation or self.incarnations[shard.number]

        def of_attempt() -> list[Argument]:
            return [incarnation, *(arguments() if callable(arguments) else arguments)]

        started_s = monotonic_s()
        try:
            return await self._server.run(script, keys, of_attempt)
        except Refusal as refusal:
            if refusal.code != "SDRESET":
                raise
            if self.incarnations[shard.number] == incarnation:  # else another call has seen it
                await self._begin_anew(shard, incarnation)
            raise IndexReset(
                f"{self._server.address}: namespace {self._namespace!r} has lost its data: the "
                "server came back without it, or it was deleted"
            ) from refusal
        finally:
            self.took(monotonic_s() - started_s)

    async def _begin_anew(self, shard: Shard, lost: bytes) -> None:
        incarnation, stamp = await stamp_shard(
            self._server, self._namespace, shard.number, self._recipe, self._stamp,
            self._windows, self._summaries,
            describe(self._windows, self._summaries, self._limits),
        )  # fmt: skip
        if stamp != self._stamp:
            raise IndexRefused(
                f"namespace {self._namespace!r} was made anew with another layout by somebody "
                "else; open it again"
            )
        if self.incarnations[shard.number] != lost:
            return  # another task has seen it too
        self.incarnations[shard.number] = incarnation
        self.resets += 1
        self.lost(shard.number)
