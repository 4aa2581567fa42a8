"""False spikes in a day of the example logs, and bursts that are found, as a worker reports them.

``python -m benchmarks.pattern_events`` replays the logs of ``examples/logs`` again and again for 24
hours of stream time, each faster or slower, with pauses in between, through what a worker does:
events are decided and counted in the index (in memory), and every 15 seconds of stream time
summaries that are due are claimed, watched for events about patterns, and confirmed. Nothing in the
logs is known to be a burst, so each spike counts as false.

Then it replays the same day with bursts: at random minutes from the fifth hour on, copies of a line
that was seen before, five times as many as its template ever had in a minute, but at least 30. A
burst is found if a spike of its pattern is reported, in the minute of the burst, the one before, or
one of the two after it; other spikes are false.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_dedup.changes.events import Name, cluster_name
from stream_dedup.clock import US_PER_S, ManualClock
from stream_dedup.config import PipelineConfig
from stream_dedup.engine.engine import Engine
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.patterns import MemoryPatterns
from stream_dedup.model import Batch, Partition
from stream_dedup.worker.patterns import PatternRecord, PatternWatcher

LOGS = Path(__file__).parents[1] / "examples" / "logs"
START_US = 1_700_000_000 * US_PER_S
SLICE_S = 15
EARLIEST, LATEST = -1, 2
"""Minutes from a burst to the spike that shows it."""

PART = 5_000
"""Events processed at once."""

CONFIG = PipelineConfig(
    topics=("in",), output_topic="out", namespace="logs", summary_topic="s", pattern_topic="p"
)


class Burst(NamedTuple):
    """A burst that was put into the stream.

    Attributes:
        minute: when.
        cluster: of its lines.
        patterns: that of the cluster; several if it merges within the next minutes.
    """

    minute: int
    cluster: int
    patterns: set[int]

    def is_shown_by(self, spike: dict[str, object]) -> bool:
        """Whether a spike that was reported is this burst."""
        pattern, _, second = str(spike["id"]).replace("-spike-", " ").partition(" ")
        late = (int(second) - START_US // US_PER_S) // 60 - self.minute
        return int(pattern, 16) in self.patterns and EARLIEST <= late <= LATEST


class Found(NamedTuple):
    """What a day showed.

    Attributes:
        events: the events about patterns.
        lines: how many lines were read.
        bursts: those that were put in.
        watch_s: processor time for the events about patterns.
        summaries: that were watched.
    """

    events: list[dict[str, object]]
    lines: int
    bursts: list[Burst]
    watch_s: float
    summaries: int


def day(hours: float, pause_s: float, seed: int) -> dict[int, list[bytes]]:
    """The lines of each slice of the day."""
    numbers = random.Random(seed)
    slices: defaultdict[int, list[bytes]] = defaultdict(list)
    for path in sorted(LOGS.glob("*.log.gz")):
        lines = gzip.decompress(path.read_bytes()).splitlines()
        second = numbers.uniform(0, 600)
        while second < hours * 3600:
            length = numbers.uniform(60, 240)
            for row, line in enumerate(lines):
                slices[int(second + length * row / len(lines)) // SLICE_S].append(line)
            second += length + numbers.expovariate(1 / pause_s) if pause_s else length
    return slices


class Replay:
    """Replays a day through an engine and a watcher."""

    def __init__(self) -> None:
        self._clock = ManualClock(START_US)
        recipe, windows, summaries = CONFIG.load_recipe(), CONFIG.windows(), CONFIG.summaries()
        index = MemoryIndex(recipe, namespace="logs", windows=windows, summaries=summaries)
        self._engine = Engine(
            recipe, index, windows=windows, summaries=summaries, clock=self._clock, templates=True
        )
        self._store = MemoryPatterns(100_000)
        self._watcher = PatternWatcher(
            self._store,
            self._clock,
            every_us=summaries.every_us or 0,
            lease_us=summaries.lease_us,
            namespace="logs",
        )
        self._offset = 0
        self._events: list[PatternRecord] = []
        self._watch_s = 0.0
        self._summaries = 0
        # Of each template: its events in this minute, the most in a minute before, and a line.
        self._now: Counter[int] = Counter()
        self._busiest: Counter[int] = Counter()
        self._line: dict[int, bytes] = {}

    async def run(self, slices: dict[int, list[bytes]], minutes: set[int], seed: int) -> Found:
        """Replay a day, with a burst in some minutes."""
        numbers, bursts, lines = random.Random(seed), [], 0
        for number in range(max(slices) + 1):
            minute, quarter = divmod(number, 60 // SLICE_S)
            if quarter == 0:
                self._busiest |= self._now
                self._now.clear()
            read = slices.get(number, [])
            if quarter == 1 and minute in minutes:
                template = numbers.choice(sorted(self._line))
                size = max(30, 5 * max(self._busiest[template], self._now[template]))
                burst = [self._line[template]] * size
                cluster = await self._read(burst, number * SLICE_S)
                assert cluster is not None
                bursts.append(Burst(minute, cluster, set()))
                lines += size
            self._clock.advance(SLICE_S)
            for part in _parts(read):
                await self._read(part, number * SLICE_S)
            lines += len(read)
            await self._look()
            await self._learn([each for each in bursts if minute <= each.minute + LATEST])
        self._clock.advance(120)
        await self._look()
        await self._learn(bursts[-1:])
        events = [msgspec.json.decode(each.value) for each in self._events]
        return Found(events, lines, bursts, self._watch_s, self._summaries)

    async def _read(self, lines: list[bytes], second: int) -> int | None:
        """Count lines of a second; return the cluster of the last."""
        offsets = range(self._offset, self._offset + len(lines))
        self._offset += len(lines)
        times_us = [START_US + second * US_PER_S] * len(lines)
        batch = Batch(Partition("in", 0), offsets, lines, times_us)
        decisions = await self._engine.process(batch)
        for line, decision in zip(lines, decisions, strict=True):
            if decision.template is not None:
                self._now[decision.template] += 1
                self._line.setdefault(decision.template, line)
        return decisions[-1].cluster

    async def _look(self) -> None:
        """What `SummaryEmitter.emit_due` does, without Kafka."""
        engine, watcher = self._engine, self._watcher
        await engine.index.expire(self._clock.now_us())
        found = await watcher.begin()
        while summaries := await engine.claim_summaries(500):
            described = engine.describe(summaries)
            started_s = time.process_time()
            found += await watcher.observe(described)
            self._watch_s += time.process_time() - started_s
            self._summaries += len(summaries)
            await engine.confirm_summaries(summaries)
        if watcher.has_observed:
            found += await watcher.end((await engine.index.size()).stream_us)
        await watcher.sent(found)
        self._events += found

    async def _learn(self, bursts: list[Burst]) -> None:
        """Note which patterns the clusters of bursts belong to."""
        names = [cluster_name(each.cluster) for each in bursts]
        stored = await self._store.read(names, self._clock.now_us())
        for burst, key in zip(bursts, names, strict=True):
            name = Name.unpacked(stored.names.get(key, b""))
            if name is not None:
                burst.patterns.add(name.pattern)


def _parts(lines: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(lines), PART):
        yield lines[start : start + PART]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--pause-s", type=float, default=1800)
    parser.add_argument("--bursts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    slices = day(options.hours, options.pause_s, options.seed)
    late = range(240, int(options.hours * 60) - 5)
    minutes = set(random.Random(options.seed).sample(late, min(options.bursts, len(late))))
    for chosen in (set[int](), minutes):
        found = asyncio.run(Replay().run(slices, chosen, options.seed))
        kinds = Counter(str(event["change"]) for event in found.events)
        names = Counter((event["change"], event["pattern_id"]) for event in found.events)
        twice = sum(count > 1 for (change, _), count in names.items() if change == "new")
        print(f"{found.lines:,} lines, {len(found.bursts)} bursts: {dict(sorted(kinds.items()))}")
        print(f"  patterns that were new twice: {twice}")
        spikes = [event for event in found.events if event["change"] == "spike"]
        shown = sum(any(map(burst.is_shown_by, spikes)) for burst in found.bursts)
        false = sum(not any(b.is_shown_by(spike) for b in found.bursts) for spike in spikes)
        print(f"  bursts found: {shown}; false spikes an hour: {false / options.hours:.2f}")
        each_us = found.watch_s / max(1, found.summaries) * US_PER_S
        print(f"  {found.summaries:,} summaries, {each_us:.0f} µs each")


if __name__ == "__main__":
    main()
