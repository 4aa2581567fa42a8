"""Kafka brokers let in whom they should, and nobody else."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.services.certificates import make_certificates
from tests.services.kafka import KafkaBroker, Security
from tests.services.processes import ServiceError

WITH_USERS: list[Security] = [
    *("sasl_plain", "scram-256", "scram-512"),
    *("sasl_plain+ssl", "scram-256+ssl", "scram-512+ssl"),
]
ENCRYPTED: list[Security] = ["ssl", "sasl_plain+ssl", "scram-256+ssl", "scram-512+ssl"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaBroker]:
    """A broker with every kind of security and an authorizer."""
    kinds: list[Security] = ["plaintext", "ssl", *WITH_USERS]
    with KafkaBroker(security=kinds, authorizer=True, client_certificates="requested") as broker:
        yield broker


@pytest.mark.parametrize("security", ["plaintext", "ssl", *WITH_USERS])
def test_only_the_right_credentials_are_let_in(guarded: KafkaBroker, security: Security) -> None:
    config = guarded.client_config(security)
    assert config["bootstrap.servers"] == guarded.bootstrap_of(security)
    assert _refusal(config) == ""
    if security in WITH_USERS:
        assert _refusal(guarded.client_config(security, user="bob")) == ""
        alices = guarded.users["alice"]
        for user in ("bob", "nobody"):
            wrong = guarded.client_config(security, user=user, password=alices)
            assert "_AUTHENTICATION" in _refusal(wrong)


@pytest.mark.parametrize("security", ENCRYPTED)
def test_an_encrypted_listener_proves_who_it_is(
    guarded: KafkaBroker, security: Security, tmp_path: Path
) -> None:
    config = guarded.client_config(security)
    stranger = make_certificates(tmp_path / "tls")
    assert "verify failed" in _refusal({**config, "ssl.ca.location": str(stranger.ca_file)})
    unencrypted = config["security.protocol"].replace("SSL", "PLAINTEXT")
    assert "brokers are down" in _refusal({**config, "security.protocol": unencrypted})


def test_a_client_may_show_a_certificate_of_the_same_authority(
    guarded: KafkaBroker, tmp_path: Path
) -> None:
    topic = guarded.fresh_topic()
    guarded.allow("CN=localhost", "write", "topic", topic)
    stranger = make_certificates(tmp_path / "tls")
    config = guarded.client_config("ssl")
    assert _write(config, topic) == "TOPIC_AUTHORIZATION_FAILED"
    assert "certificate unknown" in _refusal(_shown(config, stranger.cert_file, stranger.key_file))
    known = guarded.certificates
    assert _write(_shown(config, known.cert_file, known.key_file), topic) is None


def test_users_may_do_what_they_are_allowed(guarded: KafkaBroker) -> None:
    topic = guarded.fresh_topic()
    config = guarded.client_config("scram-256", user="bob")
    assert _write(config, topic) == "TOPIC_AUTHORIZATION_FAILED"
    guarded.allow("bob", "write", "topic", topic)
    assert _write(config, topic) is None
    assert _read(config, topic, group="tests-bob") == "GROUP_AUTHORIZATION_FAILED"
    guarded.allow("bob", "read", "group", "tests-bob")
    assert _read(config, topic, group="tests-bob") == "TOPIC_AUTHORIZATION_FAILED"
    guarded.allow("bob", "read", "topic", topic)
    assert _read(config, topic, group="tests-bob") is None
    assert _write(guarded.client_config("scram-512"), topic) == "TOPIC_AUTHORIZATION_FAILED"
    guarded.disallow("bob", "write", "topic", topic)
    assert _write(config, topic) == "TOPIC_AUTHORIZATION_FAILED"
    assert len(guarded.consume(topic)) == 1


def _shown(config: dict[str, str], cert_file: Path, key_file: Path) -> dict[str, str]:
    return {
        **config,
        "ssl.certificate.location": str(cert_file),
        "ssl.key.location": str(key_file),
    }


def _refusal(config: dict[str, str]) -> str:
    """The error of a client that does not find the broker; empty if it does."""
    errors: list[Any] = []
    # librdkafka does not report the errors of an admin client.
    client = Producer({**config, "log_level": 0, "error_cb": errors.append})
    for _attempt in range(50):
        try:
            client.list_topics(timeout=0.2)
        except KafkaException:
            client.poll(0)
        else:
            return ""
        if errors:
            return " ".join(f"{error.name()}: {error.str()}" for error in errors)
    raise ServiceError("neither let in nor refused")


def _write(config: dict[str, str], topic: str) -> str | None:
    """Write a record, and return the name of the error, if there is one."""
    errors: list[str | None] = []
    producer = Producer({**config, "log_level": 0})
    producer.produce(topic, b"a", on_delivery=functools.partial(_note, errors))
    producer.flush(10)
    return errors[0]


def _note(errors: list[str | None], error: Any, _message: Any) -> None:
    errors.append(None if error is None else error.name())


def _read(config: dict[str, str], topic: str, *, group: str) -> str | None:
    """Read a record as a group, and return the name of the error, if there is one."""
    first = {"group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    with closing(Consumer({**config, **first})) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(10)
        error = message.error()
        return None if error is None else str(error.name())
