"""``stream-dedup produce`` against a real broker, alone and with a worker behind it."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.command import COMMAND, Done
from tests.integration.worker.running import (
    LOGS,
    Trial,
    command,
    last_line,
    real_lines,
    text_headers,
    wait_for,
)
from tests.services.kafka import Kafka, KafkaBroker
from tests.services.processes import free_port
from tests.services.redis import RedisServer

POSTGRESQL = str(LOGS / "postgresql.log.gz")
PASSWORD = "hunter2-s3cret"  # noqa: S105 -- looked for in all that is shown


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.fresh_topic(3)


def produce(kafka: Kafka, topic: str, *args: str) -> Done:
    broker = f"kafka.bootstrap_servers={kafka.bootstrap}"
    return command("produce", "--topic", topic, "--set", broker, *args)


def test_as_many_events_as_were_asked_for_spread_evenly(kafka: Kafka, topic: str) -> None:
    done = produce(kafka, topic, POSTGRESQL, "--count", "3000", "--rate", "0")
    assert (done.code, done.out) == (0, b""), done.err
    assert last_line(done).startswith("3,000 events, ")
    assert f"to {topic} in " in last_line(done)
    assert kafka.end_offsets(topic) == {0: 1_000, 1: 1_000, 2: 1_000}
    assert {record.key for record in kafka.consume(topic)} == {None}


def test_the_same_seed_makes_the_same_events(kafka: Kafka) -> None:
    topics = [kafka.fresh_topic(1) for _ in range(3)]
    for name, seed in zip(topics, "001", strict=True):
        done = produce(kafka, name, POSTGRESQL, "--count", "200", "--rate", "0", "--seed", seed)
        assert done.code == 0, done.err
    first, second, other = ([r.value for r in kafka.consume(name)] for name in topics)
    assert first == second != other


def test_without_a_count_there_are_as_many_as_the_files_have_lines(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_text("disk 1 is full\n\ndisk 2 is full\n")
    (tmp_path / "b.log").write_text("all is well in here\n")
    done = produce(kafka, topic, str(tmp_path / "*.log"), "-q")
    assert (done.code, done.err) == (0, "")
    assert len(kafka.consume(topic)) == 3


def test_lines_of_standard_input_as_objects_by_key(kafka: Kafka, topic: str) -> None:
    lines = b'{"service":"shop","msg":"cart 7 was declined"}\nall is well in here\n'
    args = ["--format", "json", "--partitions", "key", "--count", "100", "--rate", "0"]
    done = subprocess.run(
        [COMMAND, "produce", "-t", topic, "--set", f"kafka.bootstrap_servers={kafka.bootstrap}",
         *args],
        input=lines, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = kafka.consume(topic)
    objects = [json.loads(record.value or b"") for record in records]
    assert {each["service"] for each in objects} == {"shop", "stdin"}
    assert {record.key for record in records} == {b"shop", b"stdin"}
    assert all("msg" in each or "message" in each for each in objects)
    places = {(record.key, record.partition) for record in records}
    assert len(places) == 2
    assert len(records) == 100


def test_the_rate_is_kept_and_a_signal_ends_it_well(kafka: Kafka, topic: str) -> None:
    process = subprocess.Popen(
        [COMMAND, "produce", POSTGRESQL, "-t", topic, "--loop", "--rate", "400", "--set",
         f"kafka.bootstrap_servers={kafka.bootstrap}"],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: sum(kafka.end_offsets(topic).values()) > 0, "it begins")
        began, before = time.monotonic(), sum(kafka.end_offsets(topic).values())
        wait_for(lambda: sum(kafka.end_offsets(topic).values()) >= before + 1_200, "it goes on")
        assert time.monotonic() - began > 1.0
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in err
    sent = int(err.split()[0].replace(",", ""))
    assert sum(kafka.end_offsets(topic).values()) == sent


def test_a_worker_finds_the_share_of_duplicates(kafka: Kafka, redis_server: RedisServer) -> None:
    trial = Trial(kafka, redis_server.url)
    args = ["--count", "20000", "--rate", "0", "--duplicates", "0.9"]
    assert produce(kafka, trial.read, POSTGRESQL, *args).code == 0
    done = trial.once()
    assert done.code == 0, done.err
    decided = Counter(text_headers(record)["sd-decision"] for record in kafka.consume(trial.out))
    assert decided["duplicate"] / 20_000 == pytest.approx(0.9, abs=0.02)


# ------------------------------------------------------------ what keeps it from writing


def test_a_topic_that_is_not_there_is_named_at_once(kafka: Kafka) -> None:
    began = time.monotonic()
    done = produce(kafka, "no-such-topic", POSTGRESQL)
    assert done.code == 1
    assert "stream-dedup: no such topic: no-such-topic; create it" in done.err
    assert len(done.err.splitlines()) == 1
    assert time.monotonic() - began < 20


def test_a_broker_that_is_away_is_named() -> None:
    broker = f"kafka.bootstrap_servers=127.0.0.1:{free_port()}"
    done = command("produce", POSTGRESQL, "-t", "a", "--set", broker)
    assert done.code == 1
    assert "check host and port" in done.err


def test_a_wrong_password_is_refused_and_not_shown(
    make_kafka: Callable[..., KafkaBroker],
) -> None:
    broker = make_kafka(security="scram-256", users={"app": PASSWORD})
    broker.create_topic("a")
    settings = [
        "kafka.security_protocol=SASL_PLAINTEXT",
        "kafka.sasl_mechanism=SCRAM-SHA-256",
        "kafka.sasl_username=app",
    ]
    flags = [part for each in settings for part in ("--set", each)]
    right = ["--set", f"kafka.sasl_password={PASSWORD}", "--count", "10"]
    assert produce(broker, "a", POSTGRESQL, *flags, *right).code == 0
    done = produce(broker, "a", POSTGRESQL, *flags, "--set", f"kafka.sasl_password=x{PASSWORD}")
    assert done.code == 1
    assert PASSWORD not in done.err
    assert len(broker.consume("a")) == 10


def test_what_it_is_not_given_it_asks_for(tmp_path: Path) -> None:
    done = command("produce", "-t", "a")  # standard input holds nothing
    assert (done.code, "there is no line to write" in done.err) == (1, True)
    done = command("produce", str(tmp_path / "nowhere"), "-t", "a")
    assert (done.code, "nowhere: cannot be opened" in done.err) == (1, True)
    done = command("produce", POSTGRESQL, "-t", "a", "--loop", "--count", "5")
    assert (done.code, "leave out --count, or --loop" in done.err) == (2, True)
    done = command("produce", POSTGRESQL, "-t", "a", "--set", "kafka.acks=1")
    assert (done.code, "kafka.acks: unknown key" in done.err) == (2, True)
    done = command("produce", POSTGRESQL)
    assert (done.code, "--topic" in done.err) == (2, True)


def test_a_file_that_is_not_a_log_does_no_harm(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(range(256)) * 200))
    lines = b"\n".join([b"\xff\xfe broken", b"7" * 70_000, *real_lines(3)])
    (tmp_path / "y").write_bytes(lines)
    args = [str(tmp_path / "x.gz"), str(tmp_path / "y"), "--count", "500", "--format", "json"]
    done = produce(kafka, topic, *args, "--rate", "0")
    assert done.code == 0, done.err
    assert len([json.loads(record.value or b"") for record in kafka.consume(topic)]) == 500
