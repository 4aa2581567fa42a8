"""The events of the fault tests: real log lines with changing variables, and their producer."""

from __future__ import annotations

import gzip
import random
import re
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message

from tests.services.kafka import Kafka

LOGS = Path(__file__).parents[2] / "examples" / "logs"
MAX_EVENT_BYTES = 8_000
"""Longer events are invalid; the worker gets the same setting."""

PARTITIONS = 4
INVALID_SHARE = 0.02
STATES = (b"begun", b"kept", b"refused")
"""Too few to be learned themselves."""
_NUMBER = re.compile(rb"\d+")


@cache
def templates() -> tuple[bytes, ...]:
    """Some real lines of every log."""
    found: list[bytes] = []
    for file in sorted(LOGS.glob("*.log.gz")):
        found += gzip.decompress(file.read_bytes()).splitlines()[:60]
    return tuple(found)


def line(rng: random.Random, number: int) -> bytes | None:
    """A line with new variables, or an invalid, an empty or a missing value."""
    chance = rng.random()
    if chance < INVALID_SHARE / 2:
        return b'{"level": %d}' % number  # no field of it holds a text
    if chance < INVALID_SHARE:
        return b"too large " * (MAX_EVENT_BYTES // 10 + 1)
    if chance < INVALID_SHARE + 0.02:
        return rng.choice((None, b"", b"  "))
    if chance < INVALID_SHARE + 0.06:
        words = (b"%08x" % rng.getrandbits(32) for _ in range(3))
        return b"rare " + b" ".join(word.translate(_LETTERS) for word in words)
    if chance < INVALID_SHARE + 0.10:  # words that are learned, so that clusters merge
        name = (b"%06x" % rng.getrandbits(24)).translate(_LETTERS)
        return b"session of user %s was %s on this host" % (name, rng.choice(STATES))
    known = templates()
    # Some kinds come often; others come seldom, so that their clusters close in between.
    place = min(int(rng.expovariate(1 / 30)), len(known) - 1)
    return _NUMBER.sub(lambda _number: b"%d" % rng.randrange(1_000_000), known[place])


_LETTERS = bytes.maketrans(b"0123456789", b"ghijklmnop")


class Producing(threading.Thread):
    """Writes lines at a rate until it is stopped, each once, even when the broker fails.

    Args:
        kafka: the broker.
        topic: its topic, of `PARTITIONS` partitions or more.
        rate: lines per second.
        seed: chooses the lines.
    """

    def __init__(self, kafka: Kafka, topic: str, *, rate: float, seed: str) -> None:
        super().__init__(name="producing", daemon=True)
        self._kafka = kafka
        self._topic = topic
        self._rate = rate
        self._rng = random.Random(seed)
        self._stopping = threading.Event()
        self._grown = threading.Event()
        self.written = 0
        self.failed: list[str] = []

    def run(self) -> None:
        # Idempotent: a record that is sent again after a crash of the broker is stored once.
        producer = self._kafka.producer(
            enable_idempotence=True, linger_ms=5, message_timeout_ms=0, request_timeout_ms=5_000
        )

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.failed.append(str(error))

        partitions = PARTITIONS
        started_s = time.monotonic()
        while not self._stopping.wait(0.02):
            if self._grown.is_set():
                self._grown.clear()
                with suppress(KafkaException):  # the broker is away: later
                    listed = producer.list_topics(self._topic, timeout=5).topics[self._topic]
                    partitions = max(partitions, len(listed.partitions))
            due = int((time.monotonic() - started_s) * self._rate)
            while self.written < due:
                value = line(self._rng, self.written)
                producer.produce(
                    self._topic,
                    value=value,
                    key=b"id-%07d" % self.written,
                    partition=self._rng.randrange(partitions),
                    headers=[("host", b"h%d" % self._rng.randrange(9))],
                    on_delivery=delivered,
                )
                self.written += 1
            producer.poll(0)
        left = producer.flush(180)
        if left:
            self.failed.append(f"{left} records were not stored")

    def grown(self) -> None:
        """Write to new partitions of the topic, too."""
        self._grown.set()

    def stop(self) -> None:
        """Stop writing; return once all records are stored."""
        self._stopping.set()
        self.join(240)
