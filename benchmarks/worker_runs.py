"""What `worker` measures: ``python -m benchmarks.worker_runs KIND …``, each in its own process.

Prints what it took, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.corpus import replayed_log
from benchmarks.speed import real_lines
from stream_dedup.assembly import connect_redis, make_pipeline, tune
from stream_dedup.clock import SystemClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.config import PipelineConfig, WorkerConfig, load
from stream_dedup.engine.engine import Engine
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import Index
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.store import RedisIndex
from stream_dedup.io.base import Record, Records, Topic
from stream_dedup.io.decoder import DecoderOptions, RecordDecoder
from stream_dedup.kafka._fastpath.batches import NativeBatch
from stream_dedup.kafka.consumer import KafkaConsumer
from stream_dedup.kafka.packing import MAX_BATCH_BYTES
from stream_dedup.metrics import NoMetrics
from stream_dedup.model import Partition
from stream_dedup.worker.output import OutputBuilder
from stream_dedup.worker.telemetry.health import Health

PARTITIONS = 4
BATCH = 2_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took.

    Attributes:
        events: how many were read.
        wall_s: from joining the group to leaving it, all committed.
        cpu_s: processor time of the process.
    """

    events: int
    wall_s: float
    cpu_s: float

    @property
    def per_wall(self) -> float:
        """Events a second."""
        return self.events / self.wall_s

    @property
    def per_cpu(self) -> float:
        """Events a second of the process's processor time."""
        return self.events / self.cpu_s


async def copy(bootstrap: str, topic: str, output: str, group: str, codec: str = "") -> Cost:
    """Copy a topic with nothing between."""
    started, cpu = time.perf_counter(), time.process_time()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False,
        auto_offset_reset="earliest", isolation_level="read_committed",
    )  # fmt: skip
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=512 * 1024,
        compression_type=codec or None,
    )  # fmt: skip
    await consumer.start()
    await producer.start()
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    left = await consumer.end_offsets(places)
    events, sent = 0, dict[TopicPartition, asyncio.Future[Any]]()
    while left:
        found = await consumer.getmany(timeout_ms=100, max_records=BATCH)
        for place, records in found.items():
            batch = producer.create_batch()
            for record in records:
                batch.append(
                    key=record.key, value=record.value, timestamp=record.timestamp,
                    headers=list(record.headers),
                )  # fmt: skip
            sent[place] = await producer.send_batch(batch, output, partition=place.partition)
            events += len(records)
            if records[-1].offset + 1 >= left.get(place, 0):
                left.pop(place, None)
    for future in sent.values():
        await future
    await consumer.commit()
    await producer.stop()
    await consumer.stop()
    return Cost(events, time.perf_counter() - started, time.process_time() - cpu)


async def work(settings: list[str]) -> Cost:
    """Run a pipeline once."""
    tune()
    config = load(None, settings).config
    section = config.pipelines[0]
    async with connect_redis(config) as server:
        pipeline = await make_pipeline(config, section, NoMetrics(), Health(), server)
        started, cpu = time.perf_counter(), time.process_time()
        await pipeline.run(once=True)
        counts = pipeline.context.engine.counts
        return Cost(counts.events, time.perf_counter() - started, time.process_time() - cpu)


async def read(bootstrap: str, topic: str, group: str) -> Cost:
    """Read a topic, and do nothing with it."""
    started, cpu = time.perf_counter(), time.process_time()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False,
        auto_offset_reset="earliest", isolation_level="read_committed",
    )  # fmt: skip
    await consumer.start()
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    left, events = sum((await consumer.end_offsets(places)).values()), 0
    while events < left:
        found = await consumer.getmany(timeout_ms=100, max_records=BATCH)
        events += sum(map(len, found.values()))
    cost = Cost(events, time.perf_counter() - started, time.process_time() - cpu)
    await consumer.stop()
    return cost


async def take(bootstrap: str, topic: str, group: str) -> Cost:
    """Read a topic as the worker does, and do nothing with it."""
    tune()
    started, cpu = time.perf_counter(), time.process_time()
    options = {"bootstrap_servers": bootstrap, "isolation_level": "read_committed"}
    source = KafkaConsumer([topic], group_id=group, options=options, start="earliest")
    assigned = Assigned()
    await source.start(assigned)
    partitions = await assigned.partitions
    events = 0
    left = sum((await source.ends(partitions)).values())
    for partition in partitions:
        source.seek(partition, 0)
    while events < left:
        found = await source.poll(partitions, 4 * WorkerConfig().max_batch_events, 0.1)
        events += sum(map(len, found.values()))
    cost = Cost(events, time.perf_counter() - started, time.process_time() - cpu)
    await source.stop()
    return cost


class Assigned:
    """Waits for an assignment."""

    def __init__(self) -> None:
        self.partitions: asyncio.Future[Sequence[Partition]] = asyncio.Future()

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        """Nothing is on its way."""

    async def assigned(self, partitions: Sequence[Partition]) -> None:
        self.partitions.set_result(partitions)


async def stages(redis_url: str, events: int) -> dict[str, float]:
    """Processor time of the worker's own stages, in microseconds an event."""
    tune()
    spent: dict[str, float] = defaultdict(float)

    def lap(name: str, work: Callable[..., T], *given: object) -> T:
        began = time.process_time()
        done = work(*given)
        spent[name] += time.process_time() - began
        return done

    recipe, windows, summaries = load_recipe("logs"), Windows(), Summaries()
    lines = replayed_log(real_lines(), events, duplicate_share=0.95)
    began_ms = int(time.time() * 1000)
    records = [
        Record(i // PARTITIONS, began_ms + i // 100, None, line) for i, line in enumerate(lines)
    ]
    server = RedisClient(redis_url) if redis_url else None
    index: Index = (
        await RedisIndex.open(server, recipe, windows=windows, summaries=summaries)
        if server
        else MemoryIndex(recipe, windows=windows, summaries=summaries)
    )
    engine = Engine(recipe, index, windows=windows, summaries=summaries, clock=SystemClock())
    decoder = RecordDecoder(DecoderOptions(), recipe)
    topics = {"t": Topic(PARTITIONS), "o": Topic(PARTITIONS)}
    config = PipelineConfig(topics=("t",), output_topic="o", emit="annotate", namespace="n")
    output = OutputBuilder(config, 64, topics)
    max_events = WorkerConfig().max_batch_events
    for start in range(0, events // PARTITIONS, max_events):
        for number in range(PARTITIONS):
            rows = records[number::PARTITIONS][start : start + max_events]
            some = Records.of(rows)
            batch = lap("decode", decoder.decode, Partition("t", number), some, began_ms * 1000)
            hashed = lap("exact hashes", engine.hash, batch)
            began = time.process_time()
            decisions = await engine.process(hashed, committed=some.offsets[0])
            spent["decide, count, journal"] += time.process_time() - began
            built = lap("shape", output.batch, some, batch, decisions)
            lap("pack for Kafka", _pack, built.outgoing[0].records)
    if server:
        await server.aclose()
    return {name: seconds / events * 1e6 for name, seconds in spent.items()}


def _pack(records: Records) -> None:
    while records:
        batch = NativeBatch(MAX_BATCH_BYTES, 0, transactional=False)
        records = records.part(batch.fill(records), len(records))


def main() -> None:
    """Measure, and print what it took."""
    kind, *rest = sys.argv[1:]
    logging.getLogger().setLevel(logging.ERROR)
    if kind == "stages":
        print(json.dumps(asyncio.run(stages(rest[0], int(rest[1])))))
        return
    doing = {
        "copy": lambda: copy(*rest),
        "read": lambda: read(*rest),
        "take": lambda: take(*rest),
        "work": lambda: work(rest),
    }
    cost = asyncio.run(doing[kind]())
    print(json.dumps([cost.events, cost.wall_s, cost.cpu_s]))


if __name__ == "__main__":
    main()
