"""``stream-dedup run`` with a real Kafka and a real Redis, run like a user does."""

from __future__ import annotations

import json
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.integration.worker.running import (
    Trial,
    command,
    flags,
    last_line,
    real_lines,
    text_headers,
    wait_for,
)
from tests.services.kafka import Kafka, KafkaBroker
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Toxiproxy

LINES = real_lines(2_000)
PASSWORD = "hunter2-s3cret"  # noqa: S105 -- must never be shown
SHORT_SESSION: dict[str, object] = {
    "kafka__session_timeout_s": "2s",
    "kafka__heartbeat_interval_s": "500ms",
}
"""The group soon notices that a worker was killed."""


@pytest.fixture
def trial(kafka: Kafka, redis_server: RedisServer) -> Trial:
    return Trial(kafka, redis_server.url)


# ------------------------------------------------------------ output


def test_config_check_finds_no_problem(trial: Trial) -> None:
    settings = trial.settings | {"worker__guarantee": "exactly_once"}
    done = command("config", "check", "--format", "json", *flags(settings))
    assert done.code == 0, done.err
    found = [each for each in json.loads(done.out) if each["level"] != "ok"]
    assert {"redis"} >= {each["subject"].split()[0] for each in found}, (
        found
    )  # this one keeps no file


def test_annotate_keeps_each_event_and_adds_its_decision(trial: Trial) -> None:
    trial.write(LINES)
    done = trial.once()
    assert (done.code, done.out) == (0, b""), done.err
    came, left = trial.kafka.consume(trial.read), trial.kafka.consume(trial.out)
    for was, now in zip(came, left, strict=True):
        assert (now.partition, now.key, now.value) == (was.partition, was.key, was.value)
        assert now.timestamp_ms == was.timestamp_ms
        assert now.headers[: len(was.headers)] == was.headers
    decided = Counter(text_headers(record)["sd-decision"] for record in left)
    assert decided["new"] + decided["duplicate"] == len(LINES)
    assert decided["duplicate"] > 0.5 * len(LINES)
    counts = Counter(text_headers(record)["sd-cluster"] for record in left)
    assert trial.committed() == len(LINES)
    trial.emit_due_summaries()
    assert trial.counts() == {cluster: count for cluster, count in counts.items() if count > 1}


def test_drop_leaves_first_events_unchanged(trial: Trial) -> None:
    trial.write(LINES)
    assert trial.once(pipelines__0__emit="drop").code == 0
    left = trial.kafka.consume(trial.out)
    trial.emit_due_summaries()
    counts = trial.counts()
    assert len(counts) < len(left) < 0.5 * len(LINES)
    assert sum(counts.values()) + len(left) - len(counts) == len(LINES)
    assert {record.headers for record in left} == {(("host", b"a"),)}
    assert {record.value for record in left} <= set(LINES)


def test_merge_first_events_and_counts_add_up_to_the_input(trial: Trial) -> None:
    trial.write(LINES)
    both = {"pipelines__0__emit": "merge", "pipelines__0__summary_topic": trial.out}
    done = trial.once(**both)
    assert done.code == 0, done.err
    firsts = [
        text_headers(record)
        for record in trial.kafka.consume(trial.out)
        if "sd-decision" in text_headers(record)  # no summary
    ]
    trial.emit_due_summaries(**both)
    counts = trial.counts(trial.out)
    assert {headers["sd-decision"] for headers in firsts} == {"new"}
    assert {headers["sd-cluster"] for headers in firsts} > set(counts)
    assert sum(counts.values()) + len(firsts) - len(counts) == len(LINES)


def test_another_run_continues_where_the_last_one_stopped(trial: Trial) -> None:
    trial.write(LINES[:1_000])
    assert trial.once().code == 0
    trial.write(LINES[:1_000])
    assert trial.once().code == 0
    left = trial.kafka.consume(trial.out)
    assert len(left) == trial.committed() == 2_000
    again = [text_headers(r)["sd-decision"] for r in left if r.offset >= 500]
    assert set(again) == {"duplicate"}


def test_exactly_once_survives_a_killed_worker(trial: Trial) -> None:
    lines = LINES * 10
    trial.write(lines)
    settings: dict[str, object] = {
        "worker__guarantee": "exactly_once",
        "worker__max_batch_events": 100,
        **SHORT_SESSION,
    }
    with trial.worker(**settings) as worker:
        wait_for(lambda: trial.committed() > len(lines) / 5, "some commits")
        worker.signal(signal.SIGKILL)
    done = trial.once(**settings)
    assert done.code == 0, done.err
    left = trial.kafka.consume(trial.out)
    keys = sorted((record.key or b"" for record in left), key=int)
    assert keys == [b"%d" % n for n in range(len(lines))]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_nothing_is_sent_again_when_the_group_has_lost_its_offsets(
    trial: Trial, guarantee: str
) -> None:
    trial.write(LINES[:100])
    assert trial.once(worker__guarantee=guarantee).code == 0
    trial.kafka.delete_group(trial.group)
    done = trial.once(worker__guarantee=guarantee)
    assert done.code == 0, done.err
    assert "the index has: all events before 50 were delivered" in done.err
    assert len(trial.kafka.consume(trial.out)) == 100


# ------------------------------------------------------------ stopping


def test_a_signal_lets_batches_in_progress_finish(trial: Trial) -> None:
    with trial.worker() as worker:
        wait_for(worker.ready, "it is ready")
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                trial.write(LINES[:400])

        writing = threading.Thread(target=write)
        writing.start()
        try:
            wait_for(lambda: trial.committed() > 1_000, "events go through")
            worker.signal(signal.SIGTERM)
            assert worker.end() == 0, worker.log
        finally:
            stop.set()
            writing.join()
    assert trial.committed() == len(trial.kafka.consume(trial.out))
    assert trial.committed() < sum(trial.kafka.end_offsets(trial.read).values())
    assert "SIGTERM: finishing the batches in progress; a second signal ends at once" in worker.log
    assert "was not delivered within" not in worker.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_end_a_worker_as_well(trial: Trial, number: signal.Signals) -> None:
    with trial.worker() as worker:
        wait_for(worker.ready, "it is ready")
        worker.signal(number)
        assert worker.end() == 0, worker.log
    assert f"{number.name}: finishing the batches in progress" in worker.log
    wait_for(lambda: not trial.members(), "it has left the group")


def test_a_second_signal_ends_the_worker_at_once(
    kafka: Kafka, make_redis: Callable[..., RedisServer]
) -> None:
    redis = make_redis()
    trial = Trial(kafka, redis.url)
    trial.settings |= {"index__within_s": "1s", "index__timeout_s": "500ms", **SHORT_SESSION}
    with trial.worker(worker__drain_s="200s") as worker:
        wait_for(worker.ready, "it is ready")
        trial.write(LINES[:2])
        wait_for(lambda: trial.committed() == 2, "the first events are through")
        redis.pause()
        try:
            trial.write(LINES[2:10])
            wait_for(lambda: not worker.ready(), "it waits for Redis")
            worker.signal(signal.SIGTERM)
            wait_for(lambda: "SIGTERM: finishing" in worker.log, "it handles the signal")
            time.sleep(0.3)
            assert worker.process.poll() is None
            worker.signal(signal.SIGTERM)
            assert worker.end() == 128 + signal.SIGTERM
            assert "SIGTERM again: ending at once" in worker.log
        finally:
            redis.resume()
    assert trial.once().code == 0  # nothing was lost
    assert len(trial.kafka.consume(trial.out)) == trial.committed() == 10


# ------------------------------------------------------------ groups


def test_two_workers_share_the_partitions(kafka: Kafka, redis_server: RedisServer) -> None:
    trial = Trial(kafka, redis_server.url, partitions=4)
    with trial.worker() as first, trial.worker() as second:

        def shared() -> bool:
            return [len(member.partitions) for member in trial.members()] == [2, 2]

        wait_for(shared, "each has two partitions")
        wait_for(lambda: first.ready() and second.ready(), "both are ready")
        trial.write(LINES)
        wait_for(lambda: trial.committed() == len(LINES), "all is through")

        def counted() -> list[float]:
            return [each.metric("events_total", pipeline="main") for each in (first, second)]

        wait_for(lambda: sum(counted()) == len(LINES), "all is counted")
        assert min(counted()) > 0
        first.signal(signal.SIGTERM)
        assert first.end() == 0
        trial.write(LINES[:40])
        wait_for(lambda: trial.committed() == len(LINES) + 40, "the other has taken over")
    left = trial.kafka.consume(trial.out)
    news = Counter(
        text_headers(r)["sd-cluster"] for r in left if text_headers(r)["sd-decision"] == "new"
    )
    assert set(news.values()) == {1}  # both use one index
    assert len(left) == len(LINES) + 40


def test_a_static_member_returns_without_a_rebalance(trial: Trial) -> None:
    names: list[dict[str, object]] = [{"kafka__group_instance_id": name} for name in "ab"]
    with trial.worker(**names[0]) as other:
        wait_for(other.ready, "the first is ready")
        with trial.worker(**names[1]) as worker:
            wait_for(lambda: len(trial.members()) == 2, "two")
            wait_for(lambda: other.ready() and worker.ready(), "both are ready")
            before = _shares(trial)
            rebalances = other.metric("rebalances_total")
            worker.signal(signal.SIGTERM)
            assert worker.end() == 0
        with trial.worker(**names[1]) as worker:
            wait_for(worker.ready, "it is back")
            trial.write(LINES[:100])
            wait_for(lambda: trial.committed() == 100, "all is through")
            assert _shares(trial) == before
            assert other.metric("rebalances_total") == rebalances


def _shares(trial: Trial) -> dict[str | None, tuple[tuple[str, int], ...]]:
    return {member.instance_id: member.partitions for member in trial.members()}


# ------------------------------------------------------------ health


def test_health_shows_why_the_worker_is_not_ready(
    kafka: Kafka, make_redis: Callable[..., RedisServer], toxiproxy: Toxiproxy
) -> None:
    redis = make_redis()
    with toxiproxy.proxy(redis.port) as link:
        trial = Trial(kafka, f"redis://127.0.0.1:{link.port}")
        with trial.worker(index__within_s="1s") as worker:
            wait_for(worker.ready, "it is ready")
            trial.write(LINES[:100])
            wait_for(lambda: trial.committed() == 100, "all is through")
            assert worker.get("/healthz")[0] == 200
            for counter, labels in (
                ("events_total", {"topic": trial.read}),
                ("decisions_total", {}),
                ("outputs_total", {"kind": "event"}),
            ):
                wait_for(
                    lambda name=counter, labels=labels: worker.metric(name, **labels) == 100,  # type: ignore[misc]
                    f"{counter} counts all",
                )
            wait_for(lambda: worker.metric("ready") == 1, "the metric shows that it is ready")
            for measured in ("redis_seconds", "kernel_seconds", "stage_seconds"):
                assert worker.metric(f"{measured}_count") > 0
            link.disable()
            wait_for(
                lambda: "main: index" in worker.reasons(),
                "it notices without events that Redis is away",
            )
            trial.write(LINES[100:200])
            assert f"127.0.0.1:{link.port}" in worker.reasons()["main: index"]
            assert (worker.get("/healthz")[0], worker.metric("ready")) == (200, 0)
            link.enable()
            wait_for(worker.ready, "it is ready again")
            wait_for(lambda: trial.committed() == 200, "nothing was lost")
            worker.signal(signal.SIGINT)
            assert worker.end() == 0


def test_a_worker_waits_for_redis_at_its_start(
    kafka: Kafka, make_redis: Callable[..., RedisServer], toxiproxy: Toxiproxy
) -> None:
    redis = make_redis()
    with toxiproxy.proxy(redis.port) as link:
        link.disable()
        trial = Trial(kafka, f"redis://127.0.0.1:{link.port}")
        trial.write(LINES[:100])
        with trial.worker(index__within_s="1s") as worker:
            wait_for(lambda: worker.get("/readyz")[0] == 503, "it listens")
            wait_for(lambda: "main: index" in worker.reasons(), "it says what it waits for")
            link.enable()
            wait_for(lambda: trial.committed() == 100, "all is through")


# ------------------------------------------------------------ other ways to run it


def test_an_index_in_memory_emits_all_summaries_at_the_end(trial: Trial) -> None:
    trial.write(LINES)
    done = trial.once(
        index__kind="memory",
        index__url="redis://127.0.0.1:1",
        pipelines__0__emit="merge",
        pipelines__0__summary_every_s="1h",
    )
    assert done.code == 0, done.err
    final = [s for revisions in trial.summaries().values() for s in revisions.values()]
    assert {summary["final"] for summary in final} == {True}
    assert sum(summary["count"] for summary in final) == len(LINES)


def test_two_pipelines_in_one_worker_are_separate(trial: Trial, kafka: Kafka) -> None:
    other = Trial(kafka, "")
    trial.write(LINES[:500])
    other.write([b'{"message":"all is well on host %d"}' % number for number in range(500)])
    second = {
        key.replace("pipelines__0", "pipelines__1"): value
        for key, value in other.settings.items()
        if key.startswith("pipelines__0")
    }
    names: dict[str, object] = {
        "pipelines__0__name": "plain",
        "pipelines__1__name": "objects",
        "pipelines__1__recipe": "json",
        "pipelines__1__emit": "drop",
    }
    done = trial.once(**(second | names))
    assert done.code == 0, done.err
    assert len(kafka.consume(trial.out)) == 500
    assert len(kafka.consume(other.out)) == 1
    for name in ("plain", "objects"):
        assert sum(kafka.committed(f"{trial.read}-{name}").values()) == 500


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    """A broker with users and TLS."""
    with KafkaBroker(security="scram-512+ssl", users={"worker": PASSWORD}) as broker:
        yield broker


@pytest.fixture
def secured_trial(secured: KafkaBroker, redis_server: RedisServer) -> Trial:
    trial = Trial(secured, redis_server.url)
    trial.settings |= {
        "kafka__security_protocol": "SASL_SSL",
        "kafka__sasl_mechanism": "SCRAM-SHA-512",
        "kafka__sasl_username": "worker",
        "kafka__sasl_password": PASSWORD,
        "kafka__ssl_ca_file": secured.ca_file,
    }
    return trial


def test_a_broker_with_users_and_encryption(secured_trial: Trial) -> None:
    trial = secured_trial
    trial.write(LINES[:100])
    checked = command("config", "check", *flags(trial.settings))
    assert checked.code == 0, checked.out
    done = trial.once(worker__guarantee="exactly_once")
    assert (done.code, len(trial.kafka.consume(trial.out))) == (0, 100), done.err
    assert PASSWORD not in done.err + checked.out.decode()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kafka__sasl_password", f"not-{PASSWORD}", "authentication"),
        ("kafka__ssl_ca_file", "", "certificate"),
    ],
)
def test_a_broker_that_refuses_the_worker_ends_it(
    secured_trial: Trial, key: str, value: str, said: str
) -> None:
    done = command("run", "--once", *flags(secured_trial.settings | {key: value}))
    assert done.code == 1, done.err
    assert said in last_line(done).lower()
    assert PASSWORD not in done.err


# ------------------------------------------------------------ totals


def test_the_last_line_has_the_totals(trial: Trial) -> None:
    trial.write([*(b"disk %d is full" % number for number in range(4)), b"{}"])
    done = trial.once()
    assert done.code == 0, done.err
    expected = (
        r"pipeline main: ended after [0-9.]+ s: 5 events, 1 new cluster, 3 duplicates, "
        r"1 not compared; [0-9]+ summar(y|ies), 1 dead letter"
    )
    assert re.fullmatch(expected, last_line(done)), done.err
    with trial.worker() as worker:
        wait_for(worker.ready, "it is ready")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0
        assert ": 0 events, " in worker.log.splitlines()[-1]


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize("key", ["topics", "output_topic", "summary_topic", "dead_letter_topic"])
def test_a_missing_topic_is_named(trial: Trial, key: str) -> None:
    settings = {f"pipelines__0__{key}": "no-such-topic", "kafka__request_timeout_s": "2s"}
    done = trial.once(**settings)
    assert done.code == 1
    assert last_line(done).startswith("no such topic: no-such-topic")
    assert "create it" in last_line(done)
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert [line["level"] for line in lines].count("critical") == 1
    plain = trial.once(**settings, log__format="console")
    assert last_line(plain).startswith("stream-dedup: no such topic: no-such-topic")


def test_another_recipe_than_that_of_the_namespace_is_refused(trial: Trial) -> None:
    trial.write(LINES[:10])
    assert trial.once().code == 0
    done = trial.once(pipelines__0__recipe="text")
    assert done.code == 1
    assert "holds fingerprints of recipe logs" in last_line(done)
    assert "use the recipe it was made with, or another namespace" in last_line(done)


def test_a_wrong_redis_password_is_refused_and_not_shown(
    trial: Trial, make_redis: Callable[..., RedisServer]
) -> None:
    redis = make_redis(acl=f"default off\nworker on >{PASSWORD} ~sd:* +@all")
    done = trial.once(index__url=redis.url_as("worker", f"not-{PASSWORD}"))
    assert done.code == 1
    assert "check user and password" in last_line(done)
    assert PASSWORD not in done.err


def test_a_wrong_configuration_ends_with_2(trial: Trial) -> None:
    done = trial.once(worker__guaranty="exactly_once")
    assert done.code == 2
    assert "worker.guaranty: unknown key; did you mean 'guarantee'?" in done.err


# ------------------------------------------------------------ invalid events


def test_events_that_are_too_large_are_dead_letters(trial: Trial, kafka: Kafka) -> None:
    narrow = kafka.fresh_topic(trial.partitions, {"max.message.bytes": "2000"})
    # What the topic takes is measured compressed, so these must not compress.
    noise = random.Random(0)
    large, larger = noise.randbytes(1_500).hex().encode(), noise.randbytes(3_000).hex().encode()
    trial.write([LINES[0], LINES[1], large, larger, LINES[2], LINES[3]])
    settings = {"pipelines__0__output_topic": narrow, "pipelines__0__max_event_bytes": 5_000}
    done = trial.once(**settings)
    assert done.code == 0, done.err
    assert sorted(record.value or b"" for record in kafka.consume(narrow)) == sorted(LINES[:4])
    letters = {record.value: text_headers(record) for record in kafka.consume(trial.dead)}
    assert set(letters) == {large, larger}
    assert letters[large]["sd-error"] == "too large for the topic"
    assert letters[larger]["sd-error"] == "too large"
    where = letters[large]
    assert (where["sd-topic"], where["sd-partition"], where["sd-offset"]) == (trial.read, "0", "1")
    assert where["host"] == "a"
    assert trial.committed() == 6


def test_events_that_are_no_json_are_unchanged_dead_letters(trial: Trial, kafka: Kafka) -> None:
    good = [b'{"msg":"cart %d was declined by the bank"}' % number for number in range(20)]
    bad = [b"Killed", b'{"msg":', b'{"no":"text in here"}', b"\xff\xfe"]
    trial.write([*good, *bad])
    done = trial.once(pipelines__0__format="json")
    assert done.code == 0, done.err
    assert sorted(record.value or b"" for record in kafka.consume(trial.out)) == sorted(good)
    letters = kafka.consume(trial.dead)
    assert sorted(record.value or b"" for record in letters) == sorted(bad)
    for letter in letters:
        headers = text_headers(letter)
        assert headers["sd-error"] in {"not JSON", "field missing"}
        place = int(headers["sd-partition"]), int(headers["sd-offset"])
        came = next(r for r in kafka.consume(trial.read) if (r.partition, r.offset) == place)
        assert (came.key, came.value) == (letter.key, letter.value)


def test_an_invalid_event_stops_the_worker_where_configured(trial: Trial) -> None:
    trial.write([b'{"msg":"cart 7 was declined"}', b"Killed"])
    settings = {"pipelines__0__format": "json", "pipelines__0__on_poison": "stop"}
    done = trial.once(**settings)
    assert done.code == 1
    assert trial.read in last_line(done)
    assert "not JSON" in last_line(done)


def test_a_worker_that_fails_commits_what_it_has_delivered(trial: Trial) -> None:
    """Else each start would write the events of the other partitions again."""
    trial.kafka.produce(trial.read, [b"no json"], partition=0)
    good = [b'{"msg":"cart %d was declined"}' % number for number in range(3_000)]
    trial.kafka.produce(trial.read, good, partition=1)
    settings: dict[str, object] = {
        "pipelines__0__format": "json",
        "pipelines__0__on_poison": "stop",
        "worker__max_batch_events": 100,
        "worker__commit_every_s": "60s",
    }
    for _ in range(3):
        done = trial.once(**settings)
        assert (done.code, "not JSON" in last_line(done)) == (1, True), done.err
        assert len(trial.kafka.consume(trial.out)) == trial.committed()
        assert "was not delivered within" not in done.err
