"""Questions to a real broker, by the fast path and by the driver's public interface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from stream_dedup.errors import BrokerRefused, BrokerUnavailable
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.admin import Group, KafkaAdmin, Topic, connected
from stream_dedup.model import Partition
from tests.services.kafka import Kafka, KafkaBroker

T = TypeVar("T")


@pytest.fixture(params=["fast path", "public interface"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the driver is used."""
    if request.param != "fast path":
        monkeypatch.setattr(self_check, "usable", lambda _part: False)
    return str(request.param)


def ask(servers: str, question: Callable[[KafkaAdmin], Awaitable[T]], **options: Any) -> T:
    async def connect() -> T:
        async with connected({"bootstrap_servers": servers, **options}, timeout_s=20) as admin:
            return await question(admin)

    return asyncio.run(connect())


def test_topics_and_their_settings_are_described(kafka: Kafka, path: str) -> None:
    topic = kafka.fresh_topic(3, {"max.message.bytes": "12345"})
    found = ask(kafka.bootstrap, lambda admin: admin.topics([topic, "missing"]))
    assert found.keys() == {topic}
    assert found[topic]._replace(allowed=None, identity="") == Topic(topic, 3, 0, None)
    if path == "fast path":
        assert {"read", "write"} <= (found[topic].allowed or set())
    settings = ask(kafka.bootstrap, lambda admin: admin.settings(topic))
    assert settings["max.message.bytes"] == "12345"


@pytest.mark.usefixtures("path")
def test_settings_of_a_missing_topic_are_unavailable(kafka: Kafka) -> None:
    with pytest.raises(BrokerUnavailable, match="settings of topic missing: "):
        ask(kafka.bootstrap, lambda admin: admin.settings("missing"))


def test_a_group_and_its_offsets_are_described(kafka: Kafka, path: str) -> None:
    topic = group = kafka.fresh_topic(2)
    unknown = ask(kafka.bootstrap, lambda admin: admin.group(group))
    assert unknown._replace(allowed=None) == Group("Dead", 0, None)
    assert (unknown.allowed is None) == (path == "public interface")
    places = [Partition(topic, 0), Partition(topic, 1)]
    assert ask(kafka.bootstrap, lambda admin: admin.committed(group, places)) == {}

    kafka.produce(topic, [b"a", b"b"], partition=1)
    consumer = kafka.consumer(group)
    consumer.subscribe([topic])
    for _ in range(2):
        assert consumer.consume(1, 60)
    consumer.commit(asynchronous=False)
    member = ask(kafka.bootstrap, lambda admin: admin.group(group))
    assert (member.state, member.members) == ("Stable", 1)
    found = ask(kafka.bootstrap, lambda admin: admin.committed(group, places))
    assert found == {Partition(topic, 1): 2}
    assert ask(kafka.bootstrap, lambda admin: admin.committed(group, [])) == {}
    consumer.close()


@pytest.mark.usefixtures("path")
def test_a_question_creates_no_topics(make_kafka: Callable[..., KafkaBroker]) -> None:
    broker = make_kafka(extra={"auto.create.topics.enable": "true"})
    assert ask(broker.bootstrap, lambda admin: admin.topics(["missing"])) == {}
    assert broker.topics() == []


@pytest.mark.usefixtures("path")
def test_transactions_can_be_tried_again_and_again(kafka: Kafka) -> None:
    transactional_id = kafka.fresh_topic()
    for _ in range(2):
        ask(kafka.bootstrap, lambda admin: admin.try_transactions(transactional_id))


@pytest.mark.usefixtures("path")
def test_a_broker_that_nobody_runs_is_unavailable() -> None:
    with pytest.raises(BrokerUnavailable):
        ask("127.0.0.1:1", lambda admin: admin.topics(["t"]))


def test_permissions_are_asked_for_one_by_one() -> None:
    with KafkaBroker(security=["sasl_plain"], authorizer=True) as broker:
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": broker.users["alice"],
        }
        address = broker.bootstrap_of("sasl_plain")
        topic = group = broker.fresh_topic()

        with pytest.raises(BrokerRefused) as refused:
            ask(address, lambda admin: admin.group(group), **options)
        assert str(refused.value) == (
            f"group {group}: [Error 30] GroupAuthorizationFailedError; allow the user Read on the "
            "group"
        )
        with pytest.raises(BrokerRefused) as refused:
            ask(address, lambda admin: admin.try_transactions("id"), **options)
        assert str(refused.value) == (
            "transactional id id: [Error 53] TransactionalIdAuthorizationFailed; allow the user "
            "Write and Describe on the transactional id"
        )
        broker.allow("alice", "read", "topic", topic)
        found = ask(address, lambda admin: admin.topics([topic]), **options)
        assert found[topic].allowed == frozenset({"read", "describe"})


def test_an_answer_without_the_partitions_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver drops the error of a whole answer: here that of a missing permission."""

    async def only_broker(_: KafkaAdmin, __: str) -> int:
        return 1

    monkeypatch.setattr(KafkaAdmin, "_coordinator", only_broker)
    with KafkaBroker(security="sasl_plain", authorizer=True) as broker:
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": broker.users["alice"],
        }

        async def committed() -> dict[Partition, int]:
            given = {"bootstrap_servers": broker.bootstrap, **options}
            async with connected(given, timeout_s=1) as admin:
                return await admin.committed("group", [Partition("topic", 0)])

        with pytest.raises(BrokerUnavailable, match="coordinator does not know them yet"):
            asyncio.run(committed())
