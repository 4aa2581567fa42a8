"""Summaries that are due: claimed from the index, sent, and confirmed.

Several workers may share an index. Each claims summaries that no other worker has leased. If a
worker dies after the claim, the lease runs out, and another worker sends the same summary under the
same revision. If it dies after sending, the summary is sent twice: readers keep the last record of
each (cluster, revision), as a topic compacted by key does.

Without a summary topic and a pattern topic nobody reads summaries: only those of clusters that
merged are claimed, and confirmed unsent. With a pattern topic, events about patterns are found in
them, and sent beside them (`patterns`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from stream_dedup.clock import US_PER_MS
from stream_dedup.errors import BrokerUnavailable, IndexReset, IndexUnavailable
from stream_dedup.io.base import Outgoing, Refused
from stream_dedup.model import Closing, Summary
from stream_dedup.worker.context import Context
from stream_dedup.worker.output import OutputBuilder
from stream_dedup.worker.patterns import PatternRecord, PatternWatcher

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
        self._patterns = _watcher(context)
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
        """Emit all summaries that are due now, and events about patterns."""
        async with self._lock:
            patterns, index = self._patterns, self._context.engine.index
            if patterns is not None:
                while unsent := await patterns.begin():
                    await self._emit([], unsent)
            while summaries := await self._context.engine.claim_summaries(MAX_CLAIMED):
                await self._claimed(summaries)
                self.rounds += 1
            if patterns is not None and patterns.has_observed:
                silent = await patterns.end((await index.size()).stream_us)
                if silent:
                    self._context.step("remembered")
                    await self._emit([], silent)
            self.rounds += 1

    async def _claimed(self, summaries: list[Summary]) -> None:
        context = self._context
        context.step("claimed")
        trace = context.traces.summaries(len(summaries)) if context.traces else None
        with context.timed("emit", trace):
            events: list[PatternRecord] = []
            if context.config.summary_topic or self._patterns is not None:
                summaries = await asyncio.to_thread(context.engine.describe, summaries)
            if self._patterns is not None:
                events = await self._patterns.observe(summaries)
                context.step("remembered")
            await self._emit(summaries if context.config.summary_topic else [], events)
            await context.engine.confirm_summaries(summaries)
        merged = sum(each.closing is Closing.MERGED for each in summaries)
        context.metrics.add("clusters_merged_total", merged, pipeline=context.config.name)
        context.step("confirmed")

    async def _emit(self, summaries: Sequence[Summary], patterns: Sequence[PatternRecord]) -> None:
        """Send described summaries and events about patterns; these are no longer unsent then."""
        context, name = self._context, self._context.config.name

        def instead(refused: Refused) -> Outgoing:
            now_ms = context.engine.clock.now_us() // US_PER_MS
            if refused.topic == context.config.pattern_topic:
                return self._output.pattern_instead(refused, now_ms)
            return self._output.summary_instead(refused, summaries, now_ms)

        outgoing = self._output.summaries(summaries) if summaries else []
        if patterns:
            outgoing += self._output.patterns([each.record() for each in patterns])
        if outgoing:
            async with context.delivery_limit("summaries"):
                await context.sink.send(outgoing, instead)
        context.step("emitted")
        context.metrics.add("outputs_total", len(summaries), pipeline=name, kind="summary")
        if self._patterns is None or not patterns:
            return
        context.metrics.add("outputs_total", len(patterns), pipeline=name, kind="pattern")
        for change, count in Counter(each.change for each in patterns).items():
            context.metrics.add("pattern_events_total", count, pipeline=name, change=change)
        await self._patterns.sent(patterns)
        context.step("deleted")


def _watcher(context: Context) -> PatternWatcher | None:
    """Make what finds events about patterns, if they are wanted."""
    summaries = context.config.summaries()
    if context.patterns is None or summaries.every_us is None:
        return None
    return PatternWatcher(
        context.patterns,
        context.engine.clock,
        every_us=summaries.every_us,
        lease_us=summaries.lease_us,
        namespace=context.config.namespace,
    )
