"""The driver's errors become ours, with the remedy where one is known."""

from __future__ import annotations

import socket
import ssl

import pytest
from aiokafka import errors

from stream_dedup.errors import BrokerRefused, BrokerUnavailable, ProducerFenced, StreamDedupError
from stream_dedup.kafka.errors import check, fail, translated

LISTENER = "check host and port, and that security_protocol is the listener's"
CASES: list[tuple[BaseException, type[StreamDedupError], str]] = [
    (errors.RequestTimedOutError(), BrokerUnavailable, "RequestTimedOutError"),
    (errors.KafkaConnectionError("reset"), BrokerUnavailable, LISTENER),
    (ConnectionRefusedError("refused"), BrokerUnavailable, f"refused; {LISTENER}"),
    (socket.gaierror(-2, "unknown"), BrokerUnavailable, "unknown; check the host's name"),
    (errors.IllegalSaslStateError("<conn>"), BrokerRefused, "t: the listener takes no user; set"),
    (TimeoutError(), BrokerUnavailable, f"TimeoutError; {LISTENER}"),
    (ssl.SSLCertVerificationError("unknown authority"), BrokerRefused, "check kafka.ssl_ca_file"),
    (ssl.SSLError("wrong version"), BrokerRefused, "that security_protocol is the listener's"),
    (errors.AuthenticationFailedError("no"), BrokerRefused, "check sasl_username, sasl_password"),
    (errors.UnsupportedSaslMechanismError(), BrokerRefused, "set kafka.sasl_mechanism"),
    (
        errors.TopicAuthorizationFailedError("t"),
        BrokerRefused,
        "t; allow the user Read on the topic",
    ),
    (errors.GroupAuthorizationFailedError("g"), BrokerRefused, "allow the user Read on the group"),
    (
        errors.TransactionalIdAuthorizationFailed("i"),
        BrokerRefused,
        "i; allow the user Write and Describe on the transactional id",
    ),
    (
        errors.ClusterAuthorizationFailedError(),
        BrokerRefused,
        "allow the user Write on the topics that are written, or IdempotentWrite on the cluster",
    ),
    (
        errors.KafkaError(f"Unexpected exception in heartbeat task: {errors.for_code(82)()!r}"),
        BrokerRefused,
        "another worker has joined the group with the same kafka.group_instance_id; give every",
    ),
    (errors.InvalidTopicError("t"), BrokerRefused, "InvalidTopicError: t"),
    (errors.ProducerFenced(), ProducerFenced, "ProducerFenced: "),
    (errors.InvalidProducerEpoch(), ProducerFenced, "InvalidProducerEpoch: "),
    (NotImplementedError("v0"), BrokerRefused, "too old to be asked (v0); Kafka 2.3 is the oldest"),
]


@pytest.mark.parametrize(("error", "kind", "text"), CASES)
def test_an_error_is_translated_with_its_remedy(
    error: BaseException, kind: type[StreamDedupError], text: str
) -> None:
    with pytest.raises(StreamDedupError) as raised, translated("topic t"):
        raise error
    assert type(raised.value) is kind
    assert str(raised.value).startswith("topic t: ")
    assert text in str(raised.value)
    assert raised.value.__cause__ is error


def test_the_cause_of_an_error_decides_whether_a_retry_helps() -> None:
    cause = errors.SaslAuthenticationFailed("wrong password")
    outer = errors.KafkaConnectionError("no broker")
    outer.__cause__ = cause
    with pytest.raises(BrokerRefused, match="wrong password; check sasl_username"):
        fail("Kafka", outer)


def test_an_error_code_in_a_response_raises_unless_it_is_zero() -> None:
    check(0, "group g")
    with pytest.raises(BrokerUnavailable, match="group g: "):
        check(errors.GroupCoordinatorNotAvailableError.errno, "group g")
    with pytest.raises(BrokerRefused, match="not allowed; allow the user Read on the group"):
        check(errors.GroupAuthorizationFailedError.errno, "group g", "not allowed")
