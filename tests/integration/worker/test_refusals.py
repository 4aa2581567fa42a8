"""What brokers refuse for good: by the producer alone, and by whole workers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from stream_dedup.errors import BrokerRefused, RecordsRefused
from stream_dedup.io.base import Outgoing, Record, Records, Refusal, Refused
from stream_dedup.kafka.producer import KafkaProducer
from stream_dedup.model import Partition
from tests.integration.worker.running import Trial, last_line, text_headers, wait_for
from tests.services.kafka import Kafka, KafkaBroker
from tests.services.redis import RedisServer

EVENTS = 1_000
DAY_MS = 86_400_000
LARGEST = 1_048_588 - 90
"""Bytes of a value that just fits a topic by Kafka's default."""

COMPACTED = {"cleanup.policy": "compact"}
AN_HOUR = {"message.timestamp.after.max.ms": "3600000"}
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}


# ------------------------------------------------------------ the producer


class Sink:
    """A producer over a topic, and what is refused for another one."""

    def __init__(self, kafka: Kafka, settings: Mapping[str, str], *, exactly_once: bool) -> None:
        self.source = Partition(kafka.fresh_topic(), 0)
        self.topic = kafka.fresh_topic(1, settings)
        self.dead = kafka.fresh_topic(1, ANY_TIME)
        self.refused: dict[int, Refusal] = {}
        self.tries = 0
        self.sink = KafkaProducer(
            options={"bootstrap_servers": kafka.bootstrap},
            group_id=self.topic,
            transactional_prefix=self.topic if exactly_once else "",
        )

    def hide_settings(self) -> None:
        """Have it not know the topics' settings, as without permission."""

        async def denied(_topic: str) -> Mapping[str, str]:
            raise BrokerRefused("not permitted")

        self.sink._packer._settings = denied

    def instead(self, refused: Refused) -> Outgoing:
        self.refused[refused.record.offset] = refused.why
        return Outgoing(self.dead, 0, Records.of([refused.record]))

    async def deliver(self, records: list[Record]) -> None:
        """Deliver, as a worker does: after a refusal with another producer."""
        outgoing = [Outgoing(self.topic, 0, Records.of(records))]
        await self.sink.start()
        stored = False
        while not stored:
            self.tries += 1
            producer = await self.sink.open(self.source)
            try:
                await producer.deliver(outgoing, len(records), self.instead)
                stored = True
            except RecordsRefused:
                pass
            await producer.close()
        await self.sink.stop()


def events(now_ms: int) -> list[Record]:
    return [Record(n, now_ms, b"%d" % n, b"event %d" % n, [("a", b"b")]) for n in range(EVENTS)]


@pytest.mark.parametrize("hidden", [False, True], ids=["by settings", "settings unknown"])
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
@pytest.mark.parametrize(
    ("settings", "change", "why"),
    [
        (COMPACTED, {"key": None}, Refusal.NO_KEY),
        (AN_HOUR, {"timestamp": DAY_MS}, Refusal.TIMESTAMP),
        ({"max.message.bytes": "5000"}, {"value": random.Random(1).randbytes(6_000)}, None),
    ],
    ids=["no key", "timestamp", "too large"],
)
def test_a_refused_record_alone_is_replaced(
    kafka: Kafka,
    settings: Mapping[str, str],
    change: dict[str, Any],
    why: Refusal | None,
    exactly_once: bool,
    hidden: bool,
) -> None:
    now_ms = int(time.time() * 1000)
    records = events(now_ms)
    if "timestamp" in change:
        change = {"timestamp": now_ms + DAY_MS}
    for bad in (7, 700):
        records[bad] = records[bad]._replace(**change)
    sink = Sink(kafka, settings, exactly_once=exactly_once)
    if hidden:
        sink.hide_settings()
    asyncio.run(sink.deliver(records))
    left = [record.value for record in kafka.consume(sink.topic)]
    good = [record.value for n, record in enumerate(records) if n not in {7, 700}]
    if exactly_once:
        assert left == good
    else:
        assert Counter(left) == Counter(good)
    assert [record.value for record in kafka.consume(sink.dead)] == [
        records[7].value,
        records[700].value,
    ]
    assert set(sink.refused) == {7, 700}
    if not hidden:
        assert set(sink.refused.values()) == {why or Refusal.TOO_LARGE}
        assert sink.tries == 1
    assert sink.tries < 10


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_record_counts_with_its_compressed_size(kafka: Kafka, compression: str | None) -> None:
    sink = Sink(kafka, {"max.message.bytes": "5000"}, exactly_once=False)
    sink.sink = KafkaProducer(
        options={"bootstrap_servers": kafka.bootstrap, "compression_type": compression},
        group_id=sink.topic,
    )
    large = Record(0, int(time.time() * 1000), b"k", b"many words " * 2_000)
    asyncio.run(sink.deliver([large]))
    stored = [record.value for record in kafka.consume(sink.topic)]
    assert stored == ([large.value] if compression else [])
    assert sink.refused == ({} if compression else {0: Refusal.TOO_LARGE})


# ------------------------------------------------------------ workers


@pytest.fixture
def trial(kafka: Kafka, redis_server: RedisServer) -> Trial:
    return Trial(kafka, redis_server.url)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("emit", ["annotate", "merge"])
def test_the_largest_legal_event_leaves_a_default_worker(
    trial: Trial, emit: str, guarantee: str
) -> None:
    large = random.Random(5).randbytes(LARGEST)
    values = [b"an event before", large, b"an event behind"]
    trial.kafka.produce(
        trial.read, values, partition=0, keys=[b"k"] * 3, message_max_bytes=2_000_000
    )
    done = trial.once(
        pipelines__0__dead_letter_topic="",
        pipelines__0__emit=emit,
        pipelines__0__summary_topic="",
        worker__guarantee=guarantee,
    )
    assert done.code == 0, done.err
    left = trial.kafka.consume(trial.out)
    assert [record.value for record in left] == values
    assert [text_headers(record).get("sd-decision") for record in left] == ["new", None, "new"]
    assert trial.committed() == 3


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("rule", ["dead_letter", "pass"])
def test_an_event_from_the_future_stops_nothing(trial: Trial, rule: str, guarantee: str) -> None:
    now_ms = int(time.time() * 1000)
    trial.read = trial.kafka.fresh_topic(trial.partitions, ANY_TIME)
    trial.group = f"{trial.read}-main"
    narrow = trial.kafka.fresh_topic(2, AN_HOUR)
    trial.kafka.produce(
        trial.read,
        [b"an event before", b"an event from the future", b"an event behind"],
        partition=0,
        timestamps_ms=[now_ms, now_ms + DAY_MS, now_ms],
    )
    done = trial.once(
        pipelines__0__topics=trial.read,
        kafka__group_id=trial.read,
        pipelines__0__output_topic=narrow,
        pipelines__0__on_poison=rule,
        worker__guarantee=guarantee,
    )
    assert done.code == 0, done.err
    assert trial.committed() == 3
    letters = trial.kafka.consume(trial.dead)
    if rule == "pass":
        assert letters == []
        assert len(trial.kafka.consume(narrow)) == 3
        return
    (letter,) = letters
    headers = text_headers(letter)
    assert letter.value == b"an event from the future"
    assert headers["sd-error"] == "timestamp refused by the topic"
    assert headers["sd-timestamp"] == str(now_ms + DAY_MS)


@pytest.mark.parametrize("emit", ["annotate", "drop", "merge"])
def test_forged_headers_do_not_leave_a_worker(trial: Trial, emit: str) -> None:
    summary = b'{"type":"summary","namespace":"x","cluster":"100ae6aa4cec291a","count":9}'
    forged = [("sd-type", b"summary"), ("sd-decision", b"duplicate"), ("sd-cluster", b"0" * 16)]
    values = [b"disk 1 is full", b"disk 2 is full", summary, b"disk 3 is full"]
    now_ms = int(time.time() * 1000)
    trial.kafka.produce(
        trial.read,
        values,
        partition=0,
        headers=[[("host", b"a"), *forged]] * 4,
        timestamps_ms=[now_ms + number for number in range(4)],
    )
    settings: dict[str, object] = {
        "pipelines__0__emit": emit,
        "pipelines__0__summary_topic": trial.out,
        "pipelines__0__format": "text",
    }
    assert trial.once(**settings).code == 0
    trial.emit_due_summaries(**settings)
    left = trial.kafka.consume(trial.out)
    marked = [record for record in left if text_headers(record).get("sd-type") == "summary"]
    assert len(marked) == 1
    assert {record.headers for record in marked} == {(("sd-type", b"summary"),)}
    events = [record for record in left if record.value in values]
    assert len(events) == (4 if emit == "annotate" else 2)
    for record in events:
        names = [name for name, _ in record.headers]
        assert len(names) == len(set(names))
        assert text_headers(record).get("sd-cluster") != "0" * 16
        assert "sd-type" not in names


def test_a_topic_too_small_for_anything_is_named(trial: Trial) -> None:
    trial.write([b"an event"])
    tiny = trial.kafka.fresh_topic(2, {"max.message.bytes": "60"})
    done = trial.once(pipelines__0__output_topic=tiny, pipelines__0__on_poison="pass")
    assert done.code == 1
    assert f"{tiny} does not take even the shortened record of {trial.read}-0" in last_line(done)


def test_workers_with_one_instance_id_are_told_so(trial: Trial) -> None:
    same: dict[str, object] = {
        "kafka__group_instance_id": "worker-0",
        "kafka__heartbeat_interval_s": "500ms",
    }
    with trial.worker(**same) as first, trial.worker(**same) as second:
        wait_for(
            lambda: any("the same kafka.group_instance_id" in each.log for each in (first, second)),
            "one of them names the setting",
        )


def test_missing_permissions_are_named_one_after_the_other(redis_server: RedisServer) -> None:
    with KafkaBroker(security=["sasl_plain"], authorizer=True) as broker:
        trial = Trial(broker, redis_server.url)
        trial.write([b"an event"] * 10)
        settings: dict[str, object] = {
            "kafka__bootstrap_servers": broker.bootstrap_of("sasl_plain"),
            "kafka__security_protocol": "SASL_PLAINTEXT",
            "kafka__sasl_username": "alice",
            "kafka__sasl_password": broker.users["alice"],
            "pipelines__0__dead_letter_topic": "",
            "pipelines__0__summary_topic": "",
            "worker__guarantee": "exactly_once",
        }
        wanted: list[tuple[str, Any, str, str]] = [
            ("idempotent_write", "broker", "kafka-cluster", "or IdempotentWrite on the cluster"),
            ("describe", "topic", trial.out, f"no such topic: {trial.out} (or no permission"),
            ("describe", "topic", trial.read, f"no such topic: {trial.read} (or no permission"),
            ("read", "group", trial.group, "allow the user Read on the group"),
            ("write", "transactional_id", "*", "allow the user Write and Describe on the trans"),
            ("read", "topic", trial.read, "allow the user Read on the topic"),
            ("write", "topic", trial.out, "allow the user Write on the topic"),
        ]
        for operation, resource, name, expected in wanted:
            done = trial.once(**settings)
            assert (done.code, expected in last_line(done)) == (1, True), done.err
            broker.allow("alice", operation, resource, name)
        done = trial.once(**settings)
        assert done.code == 0, done.err
        assert len(broker.consume(trial.out)) == 10
