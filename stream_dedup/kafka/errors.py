"""Translation of aiokafka's errors into ours.

Errors that a retry cannot cure become `BrokerRefused`, with the remedy in the message where one is
known; all others become `BrokerUnavailable`. The driver's error is the ``__cause__``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from aiokafka import errors

from stream_dedup.errors import (
    BrokerRefused,
    BrokerUnavailable,
    GroupLost,
    ProducerFenced,
    StreamDedupError,
)


class InvalidRecordError(errors.BrokerResponseError):  # type: ignore[misc] # the driver has no types
    """A record breaks a rule of its topic, as one without a key in a compacted topic does."""

    errno = 87
    message = "INVALID_RECORD"
    description = "A record breaks a rule of its topic."


class FencedInstanceIdError(errors.BrokerResponseError):  # type: ignore[misc] # as above
    """Another member of the group has joined with the same group_instance_id."""

    errno = 82
    message = "FENCED_INSTANCE_ID"
    description = "Another member of the group has the same group_instance_id."


for _kind in (InvalidRecordError, FencedInstanceIdError):  # the driver does not know them
    errors.kafka_errors.setdefault(_kind.errno, _kind)

PERMISSIONS = {
    errors.TopicAuthorizationFailedError: "{operation} on the topic",
    errors.GroupAuthorizationFailedError: "Read on the group",
    errors.TransactionalIdAuthorizationFailed: "Write and Describe on the transactional id",
    errors.ClusterAuthorizationFailedError: (
        "Write on the topics that are written, or IdempotentWrite on the cluster"
    ),
}
"""The permission that is missing where a broker says so."""

FENCED = (errors.ProducerFenced, errors.InvalidProducerEpoch, errors.TransactionCoordinatorFenced)
"""Another producer uses the transactional id."""

NOT_STARTED = (errors.KafkaError, OSError, AssertionError)
"""A client could not start. AssertionError: a broker that is starting itself named no brokers."""

LOST = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.RebalanceInProgressError,
    errors.IllegalStateError,
)
"""The group has reassigned its partitions, or is about to."""

_REFUSALS = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.ClusterAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.IllegalSaslStateError,
    errors.IncompatibleBrokerVersion,
    errors.InvalidGroupIdError,
    errors.InvalidSessionTimeoutError,
    errors.InvalidTopicError,
    errors.InvalidTransactionTimeout,
    errors.KafkaConfigurationError,
    errors.PolicyViolationError,
    errors.SaslAuthenticationFailed,
    errors.TopicAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
    errors.UnsupportedCodecError,
    errors.UnsupportedSaslMechanismError,
    errors.UnsupportedVersionError,
)


def fail(what: str, error: BaseException, operation: str = "Read") -> NoReturn:
    """Raise our error for one of the driver's.

    Args:
        what: what failed; begins the message.
        error: the driver's error.
        operation: what is done with topics; for the message where that is not permitted.
    """
    if isinstance(error, FENCED):
        raise ProducerFenced(f"{what}: {type(error).__name__}: {error}") from error
    raise translate(error, what, operation) from error


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Retrieve a future's exception, so that asyncio does not log it as never retrieved."""
    if not future.cancelled():
        future.exception()


def fail_lost(what: str, error: BaseException) -> NoReturn:
    """Raise `GroupLost` for one of `LOST`."""
    raise GroupLost(f"{what}: {type(error).__name__}: {error}") from error


@contextmanager
def translated(what: str, operation: str = "Read") -> Iterator[None]:
    """Raise our errors for those that the driver raises in the block; see `fail`."""
    try:
        yield
    except NotImplementedError as error:
        raise BrokerRefused(
            f"{what}: the broker is too old to be asked ({error}); Kafka 2.3 is the oldest "
            "that serves"
        ) from error
    except (errors.KafkaError, OSError) as error:
        fail(what, error, operation)


def check(code: int, what: str, message: str | None = None, operation: str = "Read") -> None:
    """Raise our error for an error code in a response; 0 means success."""
    if code:
        kind = errors.for_code(code)
        raise translate(kind(message) if message else kind(), what, operation)


def translate(error: BaseException, what: str, operation: str = "Read") -> StreamDedupError:
    """Return our error for one of the driver's, with the remedy where one is known.

    Args:
        error: the driver's error.
        what: what failed, or where; begins the message.
        operation: as in `fail`.
    """
    said = str(error) or type(error).__name__
    if FencedInstanceIdError.__name__ in said:  # the driver wraps it in an error without a type
        return BrokerRefused(
            f"{what}: another worker has joined the group with the same kafka.group_instance_id; "
            "give every worker a name of its own"
        )
    root = next((each for each in _chain(error) if isinstance(each, _REFUSALS)), None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerRefused(f"{what}: {said}; check kafka.ssl_ca_file and the host's name")
    if isinstance(error, ssl.SSLError):
        return BrokerRefused(
            f"{what}: {said}; check that security_protocol is the listener's, and the certificates"
        )
    if root is None:
        hint = ""
        if isinstance(error, socket.gaierror):
            hint = "; check the host's name"
        elif isinstance(error, errors.KafkaConnectionError | ConnectionError | TimeoutError):
            hint = "; check host and port, and that security_protocol is the listener's"
        return BrokerUnavailable(f"{what}: {said}{hint}")
    if isinstance(root, errors.IllegalSaslStateError):  # its text is the driver's connection
        return BrokerRefused(
            f"{what}: the listener takes no user; set kafka.security_protocol to PLAINTEXT or SSL, "
            "or give the port of a listener with SASL"
        )
    said = str(root)
    if isinstance(root, errors.SaslAuthenticationFailed | errors.AuthenticationFailedError):
        remedy = "check sasl_username, sasl_password and sasl_mechanism"
        return BrokerRefused(f"{what}: {said}; {remedy}")
    if isinstance(root, errors.UnsupportedSaslMechanismError):
        return BrokerRefused(f"{what}: {said}; set kafka.sasl_mechanism to one of the broker's")
    if type(root) in PERMISSIONS:
        permission = PERMISSIONS[type(root)].format(operation=operation)
        return BrokerRefused(f"{what}: {said}; allow the user {permission}")
    return BrokerRefused(f"{what}: {said}")


def _chain(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
