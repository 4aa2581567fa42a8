"""Telling: summaries that are due are claimed, sent, and confirmed.

Several workers may share an index: each claims what nobody else has leased. If one dies after it
claimed, the lease runs out and another sends the same summary, under the same revision; if it dies
after it sent, the same is sent once more. Whoever reads takes the last word on a (cluster,
revision), which a topic compacted by key keeps anyway.

Without a topic for summaries they are settled unsent, so that closed clusters leave the index.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from stream_dedup.connectors.base import Record
from stream_dedup.errors import BrokerUnavailable, IndexReset, IndexUnavailable, TooMuchPoison
from stream_dedup.model import Summary
from stream_dedup.worker.lanes import Lanes
from stream_dedup.worker.wiring import Wiring

CLAIMED = 500
"""Summaries sent at once; each may hold some kilobytes."""


class Telling:
    """Tells what is due.

    Args:
        wiring: what the pipeline's parts share.
        lanes: whose shaper shapes summaries too.
    """

    def __init__(self, wiring: Wiring, lanes: Lanes) -> None:
        self._wiring = wiring
        self._lanes = lanes
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Tell, for ever; what is away is tried again.

        Where no events come, nothing else asks for the index: so this says whether it is there.
        """
        wiring = self._wiring
        while True:
            try:
                await wiring.engine.index.expire(wiring.engine.clock.now_us())
                wiring.ready("index")
                await self.tell()
            except IndexUnavailable as error:
                wiring.metrics.add("index_retries_total", pipeline=wiring.plan.name)
                wiring.not_ready("index", str(error))
                wiring.warn(f"summaries wait: {error}")
            except (BrokerUnavailable, IndexReset) as error:
                wiring.warn(f"summaries wait: {error}")
            await asyncio.sleep(wiring.plan.flow.tell_every_s)

    async def tell(self) -> None:
        """Tell all that is due by now."""
        async with self._one_at_a_time:
            while summaries := await self._wiring.engine.due(CLAIMED):
                await self._tell(summaries)

    async def _tell(self, summaries: list[Summary]) -> None:
        wiring = self._wiring
        wiring.step("claimed")
        with wiring.timed("tell", wiring.traces.tell(len(summaries))):
            if wiring.plan.emission.summary_topic:
                await self._send(summaries)
            wiring.step("told")
            await wiring.engine.confirm(summaries)
        wiring.step("confirmed")

    async def _send(self, summaries: list[Summary]) -> None:
        wiring = self._wiring
        pattern_of = wiring.engine.pattern
        told = [
            replace(summary, pattern=pattern_of(summary.representative)) for summary in summaries
        ]
        await wiring.sink.send(self._lanes.shaper.summaries(told), _too_large)
        wiring.metrics.add("outputs_total", len(told), pipeline=wiring.plan.name, kind="summary")


def _too_large(topic: str, record: Record) -> None:
    raise TooMuchPoison(
        f"a summary of {len(record.value or b''):,} bytes is too large for {topic}; raise its "
        "max.message.bytes, or lower samples or max_value_bytes"
    )
