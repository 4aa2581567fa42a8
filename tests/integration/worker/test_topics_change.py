"""Partitions are added, and topics deleted and created again, while workers run."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

import pytest

from tests.integration.worker.running import Trial, text_headers, wait_for
from tests.services.kafka import Kafka
from tests.services.redis import RedisServer

QUICK: dict[str, object] = {
    "kafka__metadata_max_age_s": "1s",
    "kafka__request_timeout_s": "10s",
    "kafka__session_timeout_s": "10s",
}

both_guarantees = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])


@pytest.fixture
def trial(kafka: Kafka, redis_server: RedisServer) -> Trial:
    trial = Trial(kafka, redis_server.url)
    trial.settings |= QUICK
    return trial


def delivered(trial: Trial) -> list[bytes]:
    """The values in the output topic."""
    return [record.value or b"" for record in trial.kafka.consume(trial.out)]


class Feed:
    """Writes events with ten keys into partitions of the input topic; all values differ."""

    def __init__(self, trial: Trial) -> None:
        self.written: list[bytes] = []
        self._trial = trial
        self._numbers = count()

    def write(self, *partitions: int, events: int = 50) -> None:
        """Write events into each of some partitions."""
        for partition in partitions:
            numbers = [next(self._numbers) for _ in range(events)]
            values = [b"words of an event, number %d" % number for number in numbers]
            keys = [b"key %d" % (number % 10) for number in numbers]
            self._trial.kafka.produce(self._trial.read, values, partition, keys)
            self.written += values

    def all_delivered(self) -> bool:
        """Whether each event is in the output topic."""
        return set(delivered(self._trial)) >= set(self.written)


@both_guarantees
@pytest.mark.parametrize("partition_by", ["auto", "key", "cluster"])
def test_added_partitions_are_read_and_written(
    trial: Trial, guarantee: str, partition_by: str
) -> None:
    settings = {"worker__guarantee": guarantee, "pipelines__0__partition_by": partition_by}
    feed = Feed(trial)
    with trial.worker(**settings) as worker:
        feed.write(0, 1)
        wait_for(feed.all_delivered, "events before")
        trial.kafka.add_partitions(trial.out, 3)
        feed.write(0, 1)
        wait_for(feed.all_delivered, "events after partitions were added to the output")
        trial.kafka.add_partitions(trial.read, 3)
        feed.write(0, 1, 2)
        wait_for(feed.all_delivered, "events of the new partition")
        if partition_by != "cluster":  # where one partition may get all of them

            def third_is_used() -> bool:
                feed.write(0, 1, 2, events=10)
                return trial.kafka.end_offsets(trial.out)[2] > 0

            wait_for(third_is_used, "the output's new partition is used")
            wait_for(feed.all_delivered, "all events")
        wait_for(worker.ready, "the worker is ready")
        assert "Traceback" not in worker.log
    if guarantee == "exactly_once":
        assert sorted(delivered(trial)) == sorted(feed.written)


@both_guarantees
def test_old_and_new_workers_route_a_key_alike(trial: Trial, guarantee: str) -> None:
    settings = {
        "worker__guarantee": guarantee,
        "pipelines__0__partition_by": "key",
        # Only a rebalance makes the first one ask within the test.
        "kafka__metadata_max_age_s": "1h",
    }
    feed = Feed(trial)
    with trial.worker(**settings) as first:
        feed.write(0, 1)
        wait_for(feed.all_delivered, "events before")
        trial.kafka.add_partitions(trial.out, 7)
        with trial.worker(**settings) as second:
            for worker in (first, second):
                wait_for(
                    lambda worker=worker: worker.metric("assigned_partitions") == 1,  # type: ignore[misc]
                    "each has a partition",
                )
            before = len(feed.written)
            feed.write(0, 1)
            wait_for(feed.all_delivered, "events of both")
    after = set(feed.written[before:])
    places = defaultdict[bytes | None, set[int]](set)
    for record in trial.kafka.consume(trial.out):
        if record.value in after:
            places[record.key].add(record.partition)
    assert {key: len(some) for key, some in places.items()} == {
        b"key %d" % number: 1 for number in range(10)
    }
    assert max(max(some) for some in places.values()) > 1, "new partitions are used"


@both_guarantees
def test_an_input_topic_created_again_is_read_from_its_start(trial: Trial, guarantee: str) -> None:
    feed = Feed(trial)
    with trial.worker(worker__guarantee=guarantee) as worker:
        feed.write(0, 1)
        wait_for(feed.all_delivered, "events before")
        trial.kafka.delete_topic(trial.read)
        trial.kafka.create_topic(trial.read, 2)
        feed.write(0, 1, events=200)  # more than before: the old position exists
        wait_for(feed.all_delivered, "all events of the new topic")
        wait_for(lambda: worker.metric("topics_reset_total") >= 2, "both partitions are reset")
        feed.write(0, 1)
        wait_for(feed.all_delivered, "later events")
        assert worker.metric("replayed_total") == 0
        assert "Traceback" not in worker.log
    last = trial.kafka.consume(trial.out)[-1]
    assert text_headers(last)["sd-decision"] == "duplicate"


@both_guarantees
@pytest.mark.parametrize("partitions", [1, 3])
def test_output_goes_on_into_a_topic_created_again(
    trial: Trial, guarantee: str, partitions: int
) -> None:
    feed = Feed(trial)
    # A transaction with events for a partition that is gone is given up after that time.
    trial.settings["worker__delivery_timeout_s"] = "15s"
    with trial.worker(worker__guarantee=guarantee, pipelines__0__partition_by="key") as worker:
        feed.write(0, 1)
        wait_for(feed.all_delivered, "events before")
        trial.kafka.delete_topic(trial.out)
        feed.written.clear()  # they went with it
        feed.write(0, 1)
        trial.kafka.create_topic(trial.out, partitions)
        feed.write(0, 1)
        wait_for(feed.all_delivered, "events after it")
        wait_for(worker.ready, "the worker is ready")
        assert "Traceback" not in worker.log


def test_a_latest_start_survives_an_idle_stop(trial: Trial) -> None:
    trial.settings["kafka__start"] = "latest"
    feed = Feed(trial)
    feed.write(0, 1)
    with trial.worker() as worker:
        wait_for(lambda: worker.metric("assigned_partitions") == 2, "the partitions are open")
    assert trial.committed() == len(feed.written)
    feed.written.clear()
    feed.write(0, 1, events=10)  # nobody runs
    assert trial.once().code == 0
    assert sorted(delivered(trial)) == sorted(feed.written)
