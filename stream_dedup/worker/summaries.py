"""Summaries that are due: claimed from the index, sent, and confirmed.

Several workers may share an index. Each claims summaries that no other worker has leased. If a
worker dies after the claim, the lease runs out, and another worker sends the same summary under the
same revision. If it dies after sending, the summary is sent twice: readers keep the last record of
each (cluster, revision), as a topic compacted by key does.

Without a summary topic, summaries are confirmed unsent, so that closed clusters leave the index.
"""

from __future__ import annotations

import asyncio

from stream_dedup.clock import US_PER_MS
from stream_dedup.errors import BrokerUnavailable, IndexReset, IndexUnavailable
from stream_dedup.io.base import Outgoing, Refused
from stream_dedup.model import Closing, Summary
from stream_dedup.worker.context import Context
from stream_dedup.worker.output import OutputBuilder

MAX_CLAIMED = 500
"""Summaries sent at once; each may hold some kilobytes."""


class SummaryEmitter:
    """Emits the summaries that are due.

    Args:
        context: the pipeline's settings and connections.
        output: builds the records.

    Attributes:
        rounds: grows when summaries were emitted, or none was due.
    """

    def __init__(self, context: Context, output: OutputBuilder) -> None:
        self._context = context
        self._output = output
        self._lock = asyncio.Lock()
        self.rounds = 0

    async def run(self) -> None:
        """Emit due summaries periodically, without end; errors of connections are retried.

        Where no events come, nothing else calls the index, so this also reports whether the index
        can be reached.
        """
        context = self._context
        while True:
            try:
                await context.engine.index.expire(context.engine.clock.now_us())
                await self.emit_due()
                context.ready("index", by="summaries")
            except (BrokerUnavailable, IndexReset, IndexUnavailable) as error:
                context.count_retry(error)
                if isinstance(error, IndexUnavailable):
                    context.not_ready("index", str(error), by="summaries")
                context.warn(f"summaries wait: {error}")
            await asyncio.sleep(context.summaries_every_s)

    async def emit_due(self) -> None:
        """Emit all summaries that are due now."""
        async with self._lock:
            while summaries := await self._context.engine.claim_summaries(MAX_CLAIMED):
                await self._emit(summaries)
                self.rounds += 1
            self.rounds += 1

    async def _emit(self, summaries: list[Summary]) -> None:
        context = self._context
        context.step("claimed")
        trace = context.traces.summaries(len(summaries)) if context.traces else None
        with context.timed("tell", trace):
            if context.config.summary_topic:
                await self._send(summaries)
            context.step("emitted")
            await context.engine.confirm_summaries(summaries)
        merged = sum(each.closing is Closing.MERGED for each in summaries)
        context.metrics.add("clusters_merged_total", merged, pipeline=context.config.name)
        context.step("confirmed")

    async def _send(self, summaries: list[Summary]) -> None:
        context = self._context
        named = await asyncio.to_thread(context.engine.describe, summaries)

        def instead(refused: Refused) -> Outgoing:
            now_ms = context.engine.clock.now_us() // US_PER_MS
            return self._output.summary_instead(refused, named, now_ms)

        async with context.delivery_limit("summaries"):
            await context.sink.send(self._output.summaries(named), instead)
        context.metrics.add(
            "outputs_total", len(named), pipeline=context.config.name, kind="summary"
        )
