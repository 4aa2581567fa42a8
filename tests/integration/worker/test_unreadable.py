"""Batches that do not unpack, or to too much, from a real broker, with both guarantees."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from tests.integration.worker.running import Trial, Worker, text_headers, wait_for
from tests.services.kafka import Kafka, KafkaBroker
from tests.services.redis import RedisServer

CODECS = ("gzip", "snappy", "lz4", "zstd")
MIB = 1 << 20
SMALL: dict[str, object] = {"kafka__max_unpacked_bytes": "1MiB"}

CHECKSUM_AT, SIGNED_AT, HEAD_BYTES = 17, 21, 61


def write_bombs(trial: Trial) -> None:
    """Write a small batch that unpacks to 3 MiB with each codec, between good events."""
    for number, codec in enumerate(CODECS):
        trial.kafka.produce(trial.read, [b"good words before event %d" % number], 0)
        trial.kafka.produce(
            trial.read, [bytes(3 * MIB)], 0, compression_type=codec, message_max_bytes=64 * MIB
        )
    trial.kafka.produce(trial.read, [b"good words at the end"], 0)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_bombs_are_dead_lettered_and_what_follows_is_read(
    kafka: Kafka, redis_server: RedisServer, guarantee: str
) -> None:
    trial = Trial(kafka, redis_server.url, partitions=1)
    write_bombs(trial)
    done = trial.once(worker__guarantee=guarantee, **SMALL)
    assert done.code == 0, done.err
    assert [record.value for record in kafka.consume(trial.out)] == [
        *(b"good words before event %d" % number for number in range(len(CODECS))),
        b"good words at the end",
    ]
    letters = kafka.consume(trial.dead)
    assert [(letter.key, letter.value) for letter in letters] == [(None, None)] * len(CODECS)
    for number, letter in enumerate(letters):
        offset = str(2 * number + 1)
        assert text_headers(letter) == {
            "sd-error": "unreadable batch",
            "sd-error-message": (
                f"batch {offset} to {offset}: it unpacks to more than 1,048,576 bytes"
            ),
            "sd-topic": trial.read,
            "sd-partition": "0",
            "sd-offset": offset,
            "sd-last-offset": offset,
        }
    assert trial.committed() == 2 * len(CODECS) + 1


def peak_bytes(worker: Worker) -> int:
    """The most memory that a worker has had."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    (found,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found) * 1024


def test_a_bomb_costs_little_memory(kafka: Kafka, redis_server: RedisServer) -> None:
    trial = Trial(kafka, redis_server.url, partitions=1)
    with trial.worker() as worker:
        trial.kafka.produce(trial.read, [b"good words"], 0)
        wait_for(lambda: trial.committed() == 1, "the first event")
        before = peak_bytes(worker)
        kafka.produce(
            trial.read, [bytes(600 * MIB)], 0, compression_type="zstd",
            message_max_bytes=1_000_000_000, queue_buffering_max_kbytes=1 << 20, timeout_s=120,
        )  # fmt: skip
        kafka.produce(trial.read, [b"good words after it"], 0)
        wait_for(lambda: trial.committed() == 3, "the event after the bomb")
        assert peak_bytes(worker) - before < 128 * MIB
    assert [text_headers(letter)["sd-offset"] for letter in kafka.consume(trial.dead)] == ["1"]


def damage(broker: KafkaBroker, topic: str, partition: int) -> None:
    """Overwrite the records of a partition's second batch, with a right checksum."""
    log = broker.log_file(topic, partition)
    raw = bytearray(log.read_bytes())
    start = 12 + int.from_bytes(raw[8:12], "big")
    end = start + 12 + int.from_bytes(raw[start + 8 : start + 12], "big")
    for at in range(start + HEAD_BYTES, end):
        raw[at] = 0xDE + at % 3
    checksum = calc_crc32c(bytes(raw[start + SIGNED_AT : end]))
    raw[start + CHECKSUM_AT : start + SIGNED_AT] = checksum.to_bytes(4, "big")
    with log.open("r+b") as file:  # the broker has it open
        file.write(raw)


@pytest.mark.parametrize("codec", ["none", *CODECS])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_batch_that_does_not_unpack_is_dead_lettered(
    unreadable_broker: KafkaBroker, redis_server: RedisServer, guarantee: str, codec: str
) -> None:
    trial = Trial(unreadable_broker, redis_server.url, partitions=1)
    write_and_damage(trial, unreadable_broker, codec)
    done = trial.once(worker__guarantee=guarantee)
    assert done.code == 0, done.err
    values = [record.value for record in trial.kafka.consume(trial.out)]
    assert values == [b"good words before", b"good words after"]
    (letter,) = trial.kafka.consume(trial.dead)
    headers = text_headers(letter)
    assert (headers["sd-offset"], headers["sd-last-offset"]) == ("1", "30")
    assert headers["sd-error"] == "unreadable batch"
    assert trial.committed() == 32


@pytest.mark.parametrize("path", ["fast path", "public interface"])
def test_a_partition_is_paused_and_the_other_is_read(
    unreadable_broker: KafkaBroker,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    if path == "public interface":  # where even a dead letter cannot say where the batch ends
        monkeypatch.setenv("STREAM_DEDUP_PURE_PYTHON", "1")
    trial = Trial(unreadable_broker, redis_server.url)
    write_and_damage(trial, unreadable_broker, "zstd")
    trial.kafka.produce(trial.read, [b"words of the other"] * 5, 1)
    policy = "pause" if path == "fast path" else "dead_letter"
    with trial.worker(pipelines__0__on_unreadable=policy) as worker:
        wait_for(lambda: trial.committed() == 6, "all before the batch, and the other partition")
        wait_for(lambda: worker.metric("paused_partitions") == 1, "a paused partition is shown")
        reasons = worker.reasons()
        assert re.match("paused: offset 1 cannot be read", reasons[f"main: {trial.read}-0"])
        trial.kafka.produce(trial.read, [b"more words of the other"] * 5, 1)
        wait_for(lambda: trial.committed() == 11, "the other partition is read on")
    assert trial.kafka.consume(trial.dead) == []
    assert len(trial.kafka.consume(trial.out)) == 11


def write_and_damage(trial: Trial, broker: KafkaBroker, codec: str) -> None:
    """Write an event, a batch of 30, and another event; damage the batch."""
    trial.kafka.produce(trial.read, [b"good words before"], 0)
    lines = [b"words of a batch, words of a batch %d" % number for number in range(30)]
    asyncio.run(produce_one_batch(broker, trial.read, lines, codec))
    trial.kafka.produce(trial.read, [b"good words after"], 0)
    damage(broker, trial.read, 0)


async def produce_one_batch(
    broker: KafkaBroker, topic: str, values: list[bytes], codec: str
) -> None:
    """Write all values as one batch to partition 0, however slow the machine is."""
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=None if codec == "none" else codec
    ) as producer:
        batch = producer.create_batch()
        for value in values:
            assert batch.append(key=None, value=value, timestamp=None) is not None
        await (await producer.send_batch(batch, topic, partition=0))


@pytest.fixture(scope="module")
def unreadable_broker() -> Iterator[KafkaBroker]:
    """A broker whose files are written to."""
    with KafkaBroker() as broker:
        yield broker
