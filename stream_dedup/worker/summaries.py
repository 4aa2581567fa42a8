"""Telling: summaries that are due are claimed, sent, and confirmed.

Several workers may share an index: each claims what nobody else has leased. If one dies after it
claimed, the lease runs out and another sends the same summary, under the same revision; if it dies
after it sent, the same is sent once more. Whoever reads takes the last word on a (cluster,
revision), which a topic compacted by key keeps anyway.

Without a topic for summaries they are recorded unsent, so that closed clusters leave the index.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from stream_dedup.errors import (
    BrokerUnavailable,
    IndexReset,
    IndexUnavailable,
    TooManyInvalidEvents,
)
from stream_dedup.io.base import Record
from stream_dedup.model import Summary
from stream_dedup.worker.assignment import Lanes
from stream_dedup.worker.context import Context

CLAIMED = 500
"""Summaries sent at once; each may hold some kilobytes."""


class Telling:
    """Tells what is due.

    Args:
        context: what the pipeline's parts share.
        lanes: whose shaper shapes summaries too.
    """

    def __init__(self, context: Context, lanes: Lanes) -> None:
        self._context = context
        self._lanes = lanes
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Tell, for ever; what is away is tried again.

        Where no events come, nothing else asks for the index: so this says whether it is there.
        """
        context = self._context
        while True:
            try:
                await context.engine.index.expire(context.engine.clock.now_us())
                context.ready("index")
                await self.tell()
            except IndexUnavailable as error:
                context.metrics.add("index_retries_total", pipeline=context.plan.name)
                context.not_ready("index", str(error))
                context.warn(f"summaries wait: {error}")
            except (BrokerUnavailable, IndexReset) as error:
                context.warn(f"summaries wait: {error}")
            await asyncio.sleep(context.plan.flow.tell_every_s)

    async def tell(self) -> None:
        """Tell all that is due by now."""
        async with self._one_at_a_time:
            while summaries := await self._context.engine.claim_summaries(CLAIMED):
                await self._tell(summaries)

    async def _tell(self, summaries: list[Summary]) -> None:
        context = self._context
        context.step("claimed")
        with context.timed("tell", context.traces.tell(len(summaries))):
            if context.plan.emission.summary_topic:
                await self._send(summaries)
            context.step("told")
            await context.engine.confirm_summaries(summaries)
        context.step("confirmed")

    async def _send(self, summaries: list[Summary]) -> None:
        context = self._context
        pattern_of = context.engine.pattern
        told = [
            replace(summary, pattern=pattern_of(summary.representative)) for summary in summaries
        ]
        await context.sink.send(self._lanes.shaper.summaries(told), _too_large)
        context.metrics.add("outputs_total", len(told), pipeline=context.plan.name, kind="summary")


def _too_large(topic: str, record: Record) -> None:
    raise TooManyInvalidEvents(
        f"a summary of {len(record.value or b''):,} bytes is too large for {topic}; raise its "
        "max.message.bytes, or lower samples or max_value_bytes"
    )
