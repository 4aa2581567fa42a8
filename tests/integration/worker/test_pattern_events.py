"""Events about patterns from real workers, with a real Kafka and a real Redis."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stream_dedup.index.redis.keys import ShardKeys
from tests.integration.worker.running import Trial, command, flags, wait_for
from tests.services.kafka import Kafka
from tests.services.redis import RedisServer

CRASHING = Path(__file__).parents[2] / "faults" / "crashing_worker.py"
QUICK: dict[str, object] = {
    "kafka__session_timeout_s": "2s",
    "kafka__heartbeat_interval_s": "500ms",
    "pipelines__0__lease_s": "2s",
    "pipelines__0__summary_every_s": "60s",
    "pipelines__0__idle_s": "off",
    "pipelines__0__quiet_after_s": "off",
}
STEADY = b"queue mail has room for more"
OTHERS = [b"disk sda is full again", b"the user has left the office", b"a cat sits on the roof"]
MINUTES = 24


class Watched(Trial):
    """A trial with a topic for events about patterns, and a stream that is given by minutes."""

    def __init__(self, kafka: Kafka, server: RedisServer) -> None:
        super().__init__(kafka, server.url)
        self._server = server
        self.pattern_topic = kafka.fresh_topic(2)
        self.settings |= QUICK | {"pipelines__0__pattern_topic": self.pattern_topic}
        self.written = 0
        self._begin_ms = int(time.time() - 60 * (MINUTES + 5)) * 1000

    def minute(self, minute: int, lines: Sequence[bytes]) -> None:
        """Write a minute's lines, to each partition, so that none holds back stream time."""
        for partition in range(self.partitions):
            self.kafka.produce(
                self.read,
                lines,
                partition=partition,
                timestamps_ms=[self._begin_ms + 60_000 * minute + n for n in range(len(lines))],
            )
            self.written += len(lines)

    def has_counted(self, events: int) -> bool:
        """Whether confirmed summaries count so many events.

        A summary that is confirmed after stream time has moved on puts off the next one.
        """
        leases = ShardKeys(self.read, 0).leases
        return sum(self.counts().values()) >= events and self._server.command("ZCARD", leases) == 0

    def events(self) -> list[dict[str, Any]]:
        """The events, each once; copies are equal."""
        found: dict[str, bytes] = {}
        for record in self.kafka.consume(self.pattern_topic):
            event = json.loads(record.value or b"")
            assert record.key == event["pattern_id"].encode()
            assert found.setdefault(event["id"], record.value or b"") == record.value
        return [json.loads(value) for value in found.values()]

    def changes(self) -> Counter[tuple[str, str]]:
        return Counter((event["change"], event["pattern"]) for event in self.events())


@pytest.fixture
def trial(kafka: Kafka, redis_server: RedisServer) -> Watched:
    return Watched(kafka, redis_server)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_burst_is_found_and_each_pattern_new_once(trial: Watched, guarantee: str) -> None:
    trial.settings["worker__guarantee"] = guarantee
    with ExitStack() as stack:
        workers = [stack.enter_context(trial.worker()) for _ in range(2)]
        for minute in range(MINUTES):
            before = trial.written
            trial.minute(minute, [STEADY] * (90 if minute == 20 else 3) + OTHERS[: minute // 4])
            # The minute before is in summaries, so that this one is another bin.
            wait_for(partial(trial.has_counted, before), f"minute {minute} is counted")
            if minute == 10:
                workers.pop(0).signal(signal.SIGKILL)
                workers.append(stack.enter_context(trial.worker()))
        expected = {("new", each.decode()): 1 for each in (STEADY, *OTHERS)}
        expected["spike", STEADY.decode()] = 1
        wait_for(lambda: trial.changes() == expected, "all events")
        sent = sum(worker.metric("pattern_events_total", change="spike") for worker in workers)
        assert sent == 1
    (spike,) = [event for event in trial.events() if event["change"] == "spike"]
    # Six a minute are usual. Where a machine is slow, minutes may share a summary.
    assert spike["count"] >= 90
    assert spike["expected"] < 15
    assert spike["log10_p"] < -8


@pytest.mark.parametrize("step", ["claimed", "remembered", "emitted", "deleted", "confirmed"])
def test_a_killed_worker_loses_no_event_and_adds_none(trial: Watched, step: str) -> None:
    for minute in range(3):
        trial.minute(minute, [STEADY, *OTHERS])
    crashing = [sys.executable, str(CRASHING), step, "1", *flags(trial.settings)]
    died = subprocess.run(crashing, stdin=subprocess.DEVNULL, timeout=180, check=False)
    assert died.returncode == -signal.SIGKILL
    expected = {("new", each.decode()): 1 for each in (STEADY, *OTHERS)}
    with trial.worker() as second:
        wait_for(lambda: trial.changes() == expected, "all events", 120)
        trial.minute(3, [STEADY, *OTHERS])
        wait_for(partial(trial.has_counted, trial.written - 8), "the last summaries")
        assert second.metric("pattern_events_total", change="spike") == 0
    assert trial.changes() == expected


def test_config_check_asks_about_the_topic(trial: Watched) -> None:
    settings = trial.settings | {"pipelines__0__pattern_topic": "not-there"}
    done = command("config", "check", "--format", "json", *flags(settings))
    assert done.code == 1, done.err
    (wrong,) = [each for each in json.loads(done.out) if each["level"] == "error"]
    assert wrong["subject"] == "topic not-there"
    assert "pattern_topic" in wrong["text"]
