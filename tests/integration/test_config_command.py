"""``stream-dedup config`` against real services: what it finds and reports."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.blocks import ROOT
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.config import checks, load
from stream_dedup.config.checks import Finding
from stream_dedup.config.document import template
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.store import LIMITS, RedisIndex
from tests.integration.command import Done, run
from tests.services.kafka import Kafka, KafkaBroker
from tests.services.redis import RedisServer

SECRET = "hunter2-s3cret"  # noqa: S105 -- looked for in all that is shown


def config(*args: str | Path, **env: str) -> Done:
    return run("config", *args, env={"STREAM_DEDUP_REDIS": "", **env})


def flags(**settings: object) -> list[str]:
    """Settings as flags; two underscores stand for a dot."""
    return [
        part
        for key, value in settings.items()
        for part in ("--set", f"{key.replace('__', '.')}={value}")
    ]


class Checked:
    """What a check found."""

    def __init__(self, found: list[Finding]) -> None:
        self.found = found

    def of(self, subject: str) -> list[tuple[str, str]]:
        """(level, text) of what was found of a subject."""
        return [(each.level, each.text) for each in self.found if each.subject == subject]

    @property
    def problems(self) -> list[tuple[str, str]]:
        """(level, subject) of warnings and errors."""
        return [(each.level, each.subject) for each in self.found if each.level != "ok"]


def check(settings: dict[str, object], *, within_s: float = 10.0, **more: object) -> Checked:
    """Check in this process, so that nothing is left open."""
    loaded = load(settings=flags(**settings, **more)[1::2])

    async def all_of_it() -> list[Finding]:
        return [found async for found in checks.check(loaded.config, within_s)]

    return Checked(asyncio.run(all_of_it()))


class Topics:
    """Topics of a test's own."""

    def __init__(self, kafka: Kafka) -> None:
        self.read, self.written = kafka.fresh_topic(2), kafka.fresh_topic(2)

    def settings(self, bootstrap: str, url: str, **more: object) -> dict[str, object]:
        return {
            "kafka__bootstrap_servers": bootstrap,
            "index__url": url,
            "kafka__group_id": self.read,
            "pipelines__0__namespace": self.read,
            "pipelines__0__topics": self.read,
            "pipelines__0__output_topic": self.written,
            **more,
        }


@pytest.fixture
def topics(kafka: Kafka) -> Topics:
    return Topics(kafka)


@pytest.fixture
def durable(make_redis: Callable[..., RedisServer]) -> RedisServer:
    """A server without warnings."""
    return make_redis(appendonly=True)


# ------------------------------------------------------------ init, show


def test_init_writes_a_file_that_show_reads(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    assert config("init", "-o", file).code == 0
    assert template() == file.read_text("utf-8") == config("init").out.decode()
    file.write_text("mine")
    done = config("init", "-o", file)
    assert (done.code, file.read_text()) == (2, "mine")
    assert f"{file} is there already; give --force to write over it" in done.err
    assert config("init", "-o", file, "--force").code == 0
    assert config("show", "-c", file).code == 0
    done = config("init", "-o", tmp_path / "nowhere" / "x")
    assert (done.code, "cannot be written: No such file" in done.err) == (1, True)


def test_show_names_the_origin_of_values_and_no_secrets(tmp_path: Path) -> None:
    file, password = tmp_path / "worker.toml", tmp_path / "password"
    password.write_text(SECRET)
    file.write_text(
        '[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_username = "me"\n'
        f'sasl_password_file = "password"\n[index]\nurl = "redis://me:{SECRET}@h:1"\n'
        '[[pipelines]]\ntopics = ["a"]\noutput_topic = "b"\n'
    )
    env = {
        "STREAM_DEDUP_CONFIG": str(file),
        "STREAM_DEDUP__KAFKA__SSL_KEY_PASSWORD": SECRET,
        "STREAM_DEDUP__LOG__LEVEL": "DEBUG",
    }
    for shape in ("toml", "json"):
        done = config("show", "--format", shape, *flags(http__port=0), **env)
        assert done.code == 0, done.err
        assert SECRET not in done.out.decode()
    rows = msgspec.json.decode(done.out)
    assert rows["http.port"] == {"value": 0, "origin": "--set"}
    assert rows["log.level"] == {"value": "debug", "origin": "STREAM_DEDUP__LOG__LEVEL"}
    assert rows["kafka.sasl_password_file"] == {"value": str(password), "origin": str(file)}
    assert rows["index.url"] == {"value": "redis://h:1", "origin": str(file)}
    hidden = {"value": "**********", "origin": "STREAM_DEDUP__KAFKA__SSL_KEY_PASSWORD"}
    assert rows["kafka.ssl_key_password"] == hidden
    assert rows["kafka.start"] == {"value": "earliest", "origin": "default"}


def test_a_wrong_configuration_ends_with_2_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text(f"[kafka]\nsasl_pasword = '{SECRET}'\n")
    for command in ("show", "check"):
        done = config(command, "-c", file)
        assert (done.code, done.out) == (2, b"")
        assert f"stream-dedup: {file}: kafka.sasl_pasword: unknown key; did you mean" in done.err
        assert SECRET not in done.err


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError('no', name='pydantic')")
    code = "import sys; from stream_dedup.cli.main import main; main()"
    for command in ("init", "show", "check"):
        done = subprocess.run(
            [sys.executable, "-c", code, "config", command],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        expected = "stream-dedup: pydantic is not installed; pip install 'stream-dedup[worker]'\n"
        assert (done.returncode, done.stderr) == (2, expected)


# ------------------------------------------------------------ check


def test_a_configuration_that_fits_has_no_problems(
    topics: Topics, kafka: Kafka, durable: RedisServer
) -> None:
    settings = topics.settings(kafka.bootstrap, durable.url)
    found = check(settings, worker__guarantee="exactly_once")
    assert found.problems == []
    assert found.of(f"topic {topics.read}") == [("ok", "may be read, 2 partition(s)")]
    assert ("ok", "may be written, 2 partition(s)") in found.of(f"topic {topics.written}")
    (group,) = found.of(f"group {topics.read}-main")
    assert group == ("ok", "no members; begins at the earliest in 2 of 2 partitions")
    assert found.of(f"transactional ids {topics.read}-main*") == [("ok", "may be used")]
    (namespace,) = found.of(f"namespace {topics.read}")
    assert namespace[1].startswith("is new; the first worker makes it")
    table = config("check", *flags(**settings))
    assert (table.code, table.err) == (0, "")
    assert f"topic {topics.read}" in table.out.decode()
    objects = config("check", "--format", "json", *flags(**settings))
    shown = msgspec.json.decode(objects.out, type=list[dict[str, str]])
    levels = [(each["level"], each["subject"]) for each in shown]
    once = [(each.level, each.subject) for each in check(settings).found]
    assert levels == once


def test_it_creates_no_topics(make_kafka: Callable[..., KafkaBroker], durable: RedisServer) -> None:
    broker = make_kafka(extra={"auto.create.topics.enable": "true"})
    settings: dict[str, object] = {
        "kafka__bootstrap_servers": broker.bootstrap,
        "index__url": durable.url,
        "pipelines__0__topics": "a,b",
        "pipelines__0__output_topic": "c",
        "pipelines__0__dead_letter_topic": "d",
    }
    found = check(settings)
    assert found.problems == [("error", f"topic {name}") for name in "abcd"]
    ((_, text),) = found.of("topic d")
    assert "is not there; create it, correct dead_letter_topic, or let the user see" in text
    assert found.of("group stream-dedup-main") == [("ok", "no members")]
    assert broker.topics() == []


def test_what_does_not_fit_is_reported(topics: Topics, kafka: Kafka, durable: RedisServer) -> None:
    narrow = kafka.fresh_topic(1, {"max.message.bytes": "1000", "cleanup.policy": "compact"})
    wide, summaries = kafka.fresh_topic(5), kafka.fresh_topic(1)
    settings = topics.settings(kafka.bootstrap, durable.url)
    settings |= {"pipelines__0__output_topic": narrow, "pipelines__0__summary_topic": summaries}

    found = check(settings, pipelines__0__partition_by="same")
    levels, texts = zip(*found.of(f"topic {narrow}")[1:], strict=True)
    assert levels == ("warning", "warning", "warning", "error")
    large, compact, smaller, fewer = texts
    assert "takes records of 1,000 bytes, less than pipelines.main.max_event_bytes" in large
    assert "is compacted: it refuses events without a key" in compact
    assert (
        f"takes 1,000 bytes, and {topics.read} takes 1,048,588: a larger event is written"
        in smaller
    )
    assert f"has 1 partition(s), and {topics.read} has 2, but partition_by is same" in fewer
    (_, (level, hint)) = found.of(f"topic {summaries}")
    assert (level, "with cleanup.policy compact it keeps the last" in hint) == ("ok", True)

    assert {level for level, _ in check(settings).problems} == {"warning"}
    settings["pipelines__0__output_topic"] = wide
    found = check(settings, pipelines__0__partition_by="same")
    assert found.problems == [("warning", f"topic {wide}")]


def test_limits_of_the_topics_are_compared(
    topics: Topics, kafka: Kafka, durable: RedisServer
) -> None:
    day, hour = ({"message.timestamp.after.max.ms": str(h * 3_600_000)} for h in (24, 1))
    read, narrow, wide = (kafka.fresh_topic(2, config) for config in (day, hour, day))
    settings = topics.settings(kafka.bootstrap, durable.url, pipelines__0__topics=read)
    found = check(settings | {"pipelines__0__output_topic": narrow})
    assert found.problems == [("warning", f"topic {narrow}")]
    _, (_, times) = found.of(f"topic {narrow}")
    assert f"refuses timestamps that {read} takes (message.timestamp.after.max.ms)" in times
    assert "such an event is written undecided, shortened or with another timestamp" in times
    assert check(settings | {"pipelines__0__output_topic": wide}).problems == []


def test_a_group_without_offsets_fails_where_the_start_is_to_fail(
    topics: Topics, kafka: Kafka, durable: RedisServer
) -> None:
    settings = topics.settings(kafka.bootstrap, durable.url, kafka__start="fail")
    group = f"{topics.read}-main"
    assert check(settings).problems == [("error", f"group {group}")]
    kafka.produce(topics.read, [b"a"], partition=0)
    kafka.produce(topics.read, [b"b"], partition=1)
    consumer = kafka.consumer(group)
    consumer.subscribe([topics.read])
    seen = 0
    while seen < 2:
        seen += len(consumer.consume(2, 5.0))
    consumer.commit(asynchronous=False)
    consumer.close()
    found = check(settings)
    assert found.problems == []
    assert "goes on where it stopped in all 2 partitions" in found.of(f"group {group}")[0][1]


def test_redis_is_checked_although_the_broker_is_away(durable: RedisServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings: dict[str, object] = {
        "index__url": durable.url,
        "pipelines__0__topics": "a",
        "pipelines__0__output_topic": "b",
    }
    found = check(settings, kafka__bootstrap_servers=f"127.0.0.1:{port}")
    assert found.problems == [("error", f"kafka 127.0.0.1:{port}")]
    done = config("check", *flags(kafka__bootstrap_servers=f"127.0.0.1:{port}", **settings))
    assert (done.code, done.err) == (1, "")
    assert "check host and port" in found.of(f"kafka 127.0.0.1:{port}")[0][1]
    assert [level for level, _ in found.of(f"redis {durable.url.removesuffix('/0')}")] == ["ok"]


def test_redis_is_checked(
    topics: Topics, kafka: Kafka, make_redis: Callable[..., RedisServer]
) -> None:
    server = make_redis(acl=f"default off\nworker on >{SECRET} ~sd:* +@all")
    url = server.url_as("worker", SECRET)
    settings = topics.settings(kafka.bootstrap, url)

    async def make(recipe: str = "logs", namespace: str = topics.read) -> None:
        connection = RedisClient(url)
        try:
            await RedisIndex.open(
                connection,
                load_recipe(recipe),
                namespace=namespace,
                windows=Windows(),
                summaries=Summaries(),
                limits=LIMITS,
            )
        finally:
            await connection.aclose()

    asyncio.run(make())
    subject = f"namespace {topics.read}"
    found = check(settings)
    assert "was made with this recipe, logs" in found.of(subject)[0][1]
    assert "nothing is kept on disk" in str(found.found)  # the server's own advice
    assert "error" not in dict(found.problems)

    found = check(settings, pipelines__0__idle_s="5m")
    assert "windows.idle_us was 3600000000 and is 300000000" in found.of(subject)[1][1]

    found = check(settings, pipelines__0__recipe="text")
    ((level, text),) = found.of(subject)
    assert (level, "was made with another recipe (logs) than text" in text) == ("error", True)

    found = check(settings, index__shards=2)
    ((level, text),) = found.of(subject)
    assert (level, "was made with 1 shard(s), and index.shards is 2" in text) == ("error", True)

    # That of `logs` is refused before; another one was not made so.
    found = check(
        settings, pipelines__0__recipe="logs-1", index__shards=2, index__shard_by="fingerprint"
    )
    ((level, text),) = found.of(subject)
    expected = "was made with another recipe (logs) than logs-1, sharded by fingerprint"
    assert (level, expected in text) == ("error", True)

    asyncio.run(make("logs-1", "by-group"))
    found = check(
        settings | {"pipelines__0__namespace": "by-group"},
        pipelines__0__recipe="logs-1",
        index__shards=2,
        index__shard_by="fingerprint",
    )
    expected = "was made with index.shard_by group; give that, or another namespace"
    assert found.of("namespace by-group") == [("error", expected)]

    wrong = {**settings, "index__url": server.url_as("worker", f"not-{SECRET}")}
    found = check(wrong)
    assert "error" in dict(found.problems)
    assert "check user and password" in str(found.found)
    assert SECRET not in str(found.found)


@pytest.mark.parametrize("service", ["redis_cluster", "redis_sentinel"])
def test_cluster_and_sentinel_are_checked(
    topics: Topics, kafka: Kafka, service: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(service).url
    found = check(topics.settings(kafka.bootstrap, url, index__shards=3))
    assert "error" not in dict(found.problems), found.problems
    assert "connected, with the permissions" in str(found.found)
    assert "max_clusters is shared out evenly over 3 shards" in str(found.found)


def worker_of_the_page(name: str = "worker") -> str:
    """The user that the page about security proposes."""
    page = (ROOT / "docs" / "how-to" / "redis-security.md").read_text("utf-8")
    line = re.search(rf"^user {name} on >CHANGE-ME (.+)$", page, re.MULTILINE)
    assert line is not None
    return f"{name} on >{SECRET} {line[1]}"


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        ("", ""),
        (" -zadd -hset", "the user may not run HSET, ZADD; give the permissions that docs/how-to"),
        (" -evalsha", "no permissions to run the 'evalsha' command"),
        (" resetkeys ~other:*", "give the user the permissions that docs/how-to"),
    ],
)
def test_what_a_user_of_redis_may_not_do_is_reported(
    topics: Topics, kafka: Kafka, make_redis: Callable[..., RedisServer], rights: str, expected: str
) -> None:
    server = make_redis(acl=f"default off\n{worker_of_the_page()}{rights}", appendonly=True)
    url = server.url_as("worker", SECRET)
    found = check(topics.settings(kafka.bootstrap, url))
    ((level, text), *others) = found.of(f"redis {server.url.removesuffix('/0')}")
    if expected:
        assert (level, expected in text) == ("error", True), text
    else:
        assert level == "ok"
        assert [(each, "may not run INFO" in say) for each, say in others] == [("warning", True)]


# ------------------------------------------------------------ security


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaBroker]:
    """A broker that lets in alice and bob alone, and them only do what is permitted."""
    with KafkaBroker(security=["scram-512+ssl", "sasl_plain"], authorizer=True) as broker:
        yield broker


def secured(broker: KafkaBroker, **more: object) -> dict[str, object]:
    """How alice gets in."""
    return {
        "kafka__security_protocol": "SASL_SSL",
        "kafka__sasl_mechanism": "SCRAM-SHA-512",
        "kafka__sasl_username": "alice",
        "kafka__sasl_password": broker.users["alice"],
        "kafka__ssl_ca_file": broker.ca_file,
        **more,
    }


def test_missing_permissions_are_reported_one_by_one(
    guarded: KafkaBroker, durable: RedisServer
) -> None:
    topics = Topics(guarded)
    group = f"{topics.read}-main"
    settings = topics.settings(guarded.bootstrap, durable.url, **secured(guarded))
    settings["worker__guarantee"] = "exactly_once"
    wanted: list[tuple[str, Any, str, str]] = [
        ("read", "topic", topics.read, f"topic {topics.read}"),
        ("write", "topic", topics.written, f"topic {topics.written}"),
        ("read", "group", group, f"group {group}"),
        ("write", "transactional_id", f"{group}-config-check", f"transactional ids {group}*"),
    ]
    missing = [subject for *_, subject in wanted]
    for operation, resource, name, subject in wanted:
        found = check(settings)
        assert found.problems == [("error", each) for each in missing]
        assert [text for _, text in found.of(subject) if "; " not in text] == []
        guarded.allow("alice", operation, resource, name)
        missing.remove(subject)
    found = check(settings)
    assert found.problems == []
    assert "its settings may not be seen" in str(found.of(f"topic {topics.written}"))
    (about,) = found.of(f"kafka {guarded.bootstrap}")
    assert about == ("ok", "connected, as alice with SCRAM-SHA-512, SASL_SSL")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kafka__sasl_password": SECRET}, "check sasl_username, sasl_password and"),
        ({"kafka__sasl_username": "carol"}, "check sasl_username, sasl_password and"),
        ({"kafka__sasl_mechanism": "PLAIN"}, "set kafka.sasl_mechanism to one of the broker's"),
        ({"kafka__ssl_ca_file": ""}, "check kafka.ssl_ca_file"),
        ({"kafka__ssl_ca_file": "/nowhere"}, "kafka.ssl_ca_file: /nowhere cannot be read"),
        (
            {"kafka__security_protocol": "SASL_PLAINTEXT", "kafka__ssl_ca_file": ""},
            "that security_protocol is the listener's",
        ),
    ],
)
def test_a_refused_login_is_reported_with_its_reason(
    guarded: KafkaBroker, durable: RedisServer, change: dict[str, object], expected: str
) -> None:
    settings: dict[str, object] = {
        "kafka__bootstrap_servers": guarded.bootstrap,
        "index__url": durable.url,
        "pipelines__0__topics": "a",
        "pipelines__0__output_topic": "b",
        **secured(guarded, **change),
    }
    found = check(settings, within_s=3.0)
    ((level, text),) = found.of(f"kafka {guarded.bootstrap}")
    assert (level, expected in text) == ("error", True), text
    shown = str(found.found)
    assert [word for word in (SECRET, *guarded.users.values()) if word in shown] == []


def test_a_password_in_clear_is_warned_of(guarded: KafkaBroker, durable: RedisServer) -> None:
    settings: dict[str, object] = {
        "kafka__bootstrap_servers": guarded.bootstrap_of("sasl_plain"),
        "kafka__security_protocol": "SASL_PLAINTEXT",
        "kafka__sasl_username": "bob",
        "kafka__sasl_password": guarded.users["bob"],
        "index__url": durable.url,
        "pipelines__0__topics": "a",
        "pipelines__0__output_topic": "b",
    }
    found = check(settings)
    assert "the password goes over the network in clear" in found.of("configuration")[0][1]
    assert found.of(f"kafka {guarded.bootstrap_of('sasl_plain')}")[0][0] == "ok"
