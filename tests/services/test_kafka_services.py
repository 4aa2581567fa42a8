"""The Kafka brokers that other tests lean on start, answer, refuse, break and come back."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.services.kafka import (
    KAFKA_VARIABLE,
    DockerKafka,
    ExistingKafka,
    Kafka,
    KafkaBroker,
    named_kafka,
)
from tests.services.processes import REPOSITORY, ServiceError, wait_until
from tests.services.toxiproxy import Toxiproxy

MakeKafka = Callable[..., KafkaBroker]

DIES_WITH_ITS_PARENT = """
import os, signal
from tests.services.kafka import KafkaBroker
with KafkaBroker() as broker:
    print(broker.pid, broker.directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_topics_are_made_and_deleted_and_do_not_come_from_use(kafka: Kafka) -> None:
    topic = kafka.fresh_topic(3, {"cleanup.policy": "compact"})
    assert topic in kafka.topics()
    assert kafka.end_offsets(topic) == {0: 0, 1: 0, 2: 0}
    assert kafka.consume(topic) == []
    with pytest.raises(ServiceError, match="TOPIC_ALREADY_EXISTS"):
        kafka.create_topic(topic)
    kafka.delete_topic(topic)
    assert topic not in kafka.topics()
    with pytest.raises(ServiceError, match="there is no topic"):
        kafka.end_offsets(topic)
    with pytest.raises(ServiceError, match="1 of 1 records not stored"):
        kafka.produce(topic, [b"a"], message_timeout_ms=500)
    assert topic not in kafka.topics()


def test_records_come_back_whole(kafka: Kafka) -> None:
    topic = kafka.fresh_topic(2)
    stored = kafka.produce(
        topic,
        [b"a\x00\xff", b"", None],
        partition=1,
        keys=[b"k", None, b"gone"],
        headers=[[("name", b"value"), ("name", None)], None, []],
        timestamps_ms=[1, 1_700_000_000_000, 2],
        compression_type="zstd",
    )
    assert stored == [(1, 0), (1, 1), (1, 2)]
    records = kafka.consume(topic)
    assert [record.topic for record in records] == [topic] * 3
    assert [(record.partition, record.offset) for record in records] == stored
    assert [record.value for record in records] == [b"a\x00\xff", b"", None]
    assert [record.key for record in records] == [b"k", None, b"gone"]
    assert [each.headers for each in records] == [(("name", b"value"), ("name", None)), (), ()]
    assert [record.timestamp_ms for record in records] == [1, 1_700_000_000_000, 2]


def test_many_records_are_read_in_order_and_deleted(kafka: Kafka) -> None:
    topic = kafka.fresh_topic(2)
    values = [b"%d" % number for number in range(20_000)]
    kafka.produce(topic, values, partition=1)
    assert kafka.end_offsets(topic) == {0: 0, 1: 20_000}
    assert [record.value for record in kafka.consume(topic)] == values
    kafka.delete_records(topic, 1, 19_998)
    assert kafka.start_offsets(topic) == {0: 0, 1: 19_998}
    assert values[19_998:] == [record.value for record in kafka.consume(topic)]


def test_transactions_are_seen_when_they_commit(kafka: Kafka) -> None:
    topic = kafka.fresh_topic()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(10)
    for end, value in ((producer.abort_transaction, b"a"), (producer.commit_transaction, b"b")):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(10)
        seen = [record.value for record in kafka.consume(topic, read_committed=False)]
        assert seen[-1] == value
        assert kafka.consume(topic) == []
        end(10)
    assert [record.value for record in kafka.consume(topic)] == [b"b"]
    # Each end of a transaction takes an offset.
    assert kafka.end_offsets(topic) == {0: 4}


def test_a_group_is_described_with_its_committed_offsets(kafka: Kafka) -> None:
    topic = kafka.fresh_topic(2)
    kafka.produce(topic, [b"a", b"b"], partition=1)
    assert kafka.committed(topic) == {}
    assert (kafka.describe_group(topic).state, kafka.describe_group(topic).members) == ("DEAD", ())
    with closing(kafka.consumer(topic, client_id="reader")) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(10).value() == b"a"
        consumer.commit(asynchronous=False)
        group = kafka.describe_group(topic)
        assert group.state == "STABLE"
        assert [member.client_id for member in group.members] == ["reader"]
        assert group.members[0].partitions == ((topic, 0), (topic, 1))
    assert kafka.describe_group(topic).state == "EMPTY"
    assert kafka.committed(topic) == {(topic, 1): 1}


def test_the_driver_of_the_product_commits_offsets_in_a_transaction(kafka: Kafka) -> None:
    source, target = kafka.fresh_topic(), kafka.fresh_topic()
    kafka.produce(source, [b"a", b"b"])
    asyncio.run(_copy(kafka.bootstrap, source, target))
    assert [record.value for record in kafka.consume(target)] == [b"a", b"b"]
    assert kafka.committed(source) == {(source, 0): 2}


def test_a_restart_and_a_crash_keep_data(make_kafka: MakeKafka) -> None:
    broker = make_kafka(extra={"broker.session.timeout.ms": "1000"})
    bootstrap, first_pid = broker.bootstrap, broker.pid
    topic = broker.fresh_topic()
    broker.produce(topic, [b"a"])
    broker.restart()
    assert bootstrap == broker.bootstrap
    assert first_pid != broker.pid
    broker.produce(topic, [b"b"])
    broker.kill()
    assert not broker.running
    broker.start()
    assert [record.value for record in broker.consume(topic)] == [b"a", b"b"]


def test_a_paused_broker_answers_when_it_is_resumed(make_kafka: MakeKafka) -> None:
    broker = make_kafka()
    topic = broker.fresh_topic()
    client = AdminClient(broker.client_config())
    broker.pause()
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
        client.list_topics(timeout=0.5)
    broker.resume()
    assert broker.produce(topic, [b"a"]) == [(0, 0)]


def test_a_cut_link_parts_clients_and_not_tests(
    make_kafka: MakeKafka, toxiproxy: Toxiproxy
) -> None:
    broker = make_kafka(proxied=toxiproxy)
    topic = broker.fresh_topic()
    assert broker.bootstrap == f"127.0.0.1:{broker.link.port}"
    assert broker.link.port != broker.port
    producer = Producer({**broker.client_config(), "log_level": 0, "reconnect.backoff.max.ms": 100})
    producer.produce(topic, b"a")
    assert producer.flush(10) == 0
    broker.link.disable()
    producer.produce(topic, b"b")
    assert producer.flush(0.5) == 1
    assert [record.value for record in broker.consume(topic)] == [b"a"]
    broker.link.enable()
    assert producer.flush(10) == 0
    assert [record.value for record in broker.consume(topic)] == [b"a", b"b"]


def test_a_broker_that_cannot_start_shows_its_log(make_kafka: MakeKafka) -> None:
    with pytest.raises(ServiceError, match=r"(?s)not be formatted.*no-such-compression"):
        make_kafka(extra={"compression.type": "no-such-compression"})


def test_nothing_of_a_broker_outlives_a_killed_test_run() -> None:
    command = [sys.executable, "-c", DIES_WITH_ITS_PARENT]
    killed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pid, directory = killed.stdout.split()
    wait_until(lambda: not _is_alive(int(pid)), what="the broker ends", seconds=5)
    wait_until(lambda: not Path(directory).parent.exists(), what="its files go", seconds=5)


def test_the_environment_names_a_broker(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KAFKA_VARIABLE, raising=False)
    assert named_kafka() is None
    monkeypatch.setenv(KAFKA_VARIABLE, "docker")
    assert isinstance(named_kafka(), DockerKafka)
    monkeypatch.setenv(KAFKA_VARIABLE, kafka.bootstrap)
    named = named_kafka()
    assert isinstance(named, ExistingKafka)
    with named:
        topic = named.fresh_topic()
        assert named.produce(topic, [b"a"]) == [(0, 0)]
    assert [record.value for record in kafka.consume(topic)] == [b"a"]


async def _copy(bootstrap: str, source: str, target: str) -> None:
    """Copy two records, with the commit of the group `source` in the same transaction."""
    first = {"group_id": source, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with (
        AIOKafkaConsumer(source, bootstrap_servers=bootstrap, **first) as consumer,
        AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=target) as producer,
        producer.transaction(),
    ):
        for _ in range(2):
            record = await consumer.getone()
            await producer.send_and_wait(target, record.value)
            offsets = {TopicPartition(source, record.partition): record.offset + 1}
            await producer.send_offsets_to_transaction(offsets, source)


def _is_alive(pid: int) -> bool:
    try:
        # A process that nobody waits for is a zombie, which is dead too.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
