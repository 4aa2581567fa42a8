"""What Kafka says of itself: topics, their settings, groups, and what we may do with them.

Nothing is made or changed, with one exception that is told of at `KafkaAdmin.begin_transactions`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from stream_dedup.errors import BrokerRefused, BrokerUnavailable, StreamDedupError
from stream_dedup.kafka._fastpath.requests import GroupsRequest, MetadataRequest

TOPIC_RESOURCE = 2

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""

_OPERATIONS = {
    2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    10: "describe_configs", 11: "alter_configs", 12: "idempotent_write",
}  # fmt: skip
"""Bits of the protocol's sets of permitted operations."""

_UNKNOWN = -(1 << 31)
"""That set where a broker does not tell."""

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

_PAUSE_S = 0.2


class Topic(NamedTuple):
    """A topic, as far as we may see it.

    Attributes:
        name: its name.
        partitions: how many it has.
        leaderless: partitions that have no leader now.
        allowed: what we may do with it; None where the broker does not tell.
    """

    name: str
    partitions: int
    leaderless: int
    allowed: frozenset[str] | None


class Group(NamedTuple):
    """A consumer group.

    Attributes:
        state: as the broker calls it, as in "Stable"; "Dead" for one that never was.
        members: how many it has.
        allowed: as for `Topic`.
    """

    state: str
    members: int
    allowed: frozenset[str] | None


class KafkaAdmin:
    """Asks brokers. Make one with `connected`.

    Every method raises `BrokerUnavailable` if no answer is had, and `BrokerRefused` if we may not
    know it.
    """

    def __init__(self, client: AIOKafkaClient, within_s: float) -> None:
        self._client = client
        self._within_s = within_s

    async def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Those of some topics that there are and that we may see."""
        if not names:
            return {}
        answer = await self._ask(MetadataRequest(names), f"topics {', '.join(names)}")
        found = {}
        for topic in answer.to_object()["topics"]:
            code = topic["error_code"]
            if code in {errors.UnknownTopicOrPartitionError.errno, errors.InvalidTopicError.errno}:
                continue
            if code == errors.TopicAuthorizationFailedError.errno:
                found[topic["topic"]] = Topic(topic["topic"], 0, 0, frozenset())
                continue
            partitions = topic["partitions"]
            found[topic["topic"]] = Topic(
                topic["topic"],
                len(partitions),
                sum(partition["leader"] < 0 for partition in partitions),
                _allowed(topic["allowed"]),
            )
        return found

    async def settings(self, topic: str) -> Mapping[str, str]:
        """A topic's settings, defaults included."""
        request = DescribeConfigsRequest([(TOPIC_RESOURCE, topic, None)])
        answer = await self._ask(request, f"settings of topic {topic}")
        ((code, message, _, _, entries),) = answer.resources
        _check(code, f"settings of topic {topic}", message)
        return {entry[0]: entry[1] for entry in entries}

    async def group(self, name: str) -> Group:
        """A consumer group."""
        what = f"group {name}"
        answer = await self._coordinated(GROUP, name, GroupsRequest(name), what)
        (group,) = answer.to_object()["groups"]
        return Group(group["state"], len(group["members"]), _allowed(group["allowed"]))

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed: (topic, partition) → next offset."""
        what = f"offsets of group {group}"
        answer = await self._coordinated(GROUP, group, OffsetFetchRequest(group, None), what)
        return {
            (topic, partition): offset
            for topic, partitions in answer.topics
            for partition, offset, _, code in partitions
            if code == 0 and offset >= 0
        }

    async def begin_transactions(self, identity: str) -> None:
        """Try whether a transactional id may be used.

        It is: whoever uses it now is shut out, and the broker remembers it for a week (see
        ``transactional.id.expiration.ms``). So name one that is nobody's.
        """
        request = InitProducerIdRequest(identity, 10_000)
        await self._coordinated(TRANSACTION, identity, request, f"transactional id {identity}")

    async def _coordinated(self, kind: int, name: str, request: Request[Any], what: str) -> Any:  # noqa: ANN401 -- the driver's
        """The answer of the broker that looks after a group or a transactional id.

        Coordinators move, and the first to ask has the topic made in which they keep their state:
        what passes is tried again.
        """
        until = asyncio.get_running_loop().time() + self._within_s
        while True:
            try:
                found = await self._ask(FindCoordinatorRequest(name, kind), what)
                _check(found.error_code, what)
                answer = await self._ask(request, what, found.coordinator_id)
                groups = getattr(answer, "groups", None)  # of one group each
                _check(groups[0][0] if groups else answer.error_code, what)
            except BrokerUnavailable:
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return answer

    async def _ask(self, request: Request[Any], what: str, node: int | None = None) -> Any:  # noqa: ANN401 -- the driver's
        if node is None:
            node = self._client.get_random_node()
        try:
            return await self._client.send(node, request)
        except NotImplementedError as error:
            raise BrokerRefused(
                f"{what}: the broker is too old to be asked ({error}); Kafka 2.3 is the oldest "
                "that serves"
            ) from error
        except (errors.KafkaError, OSError) as error:
            raise ours(error, what) from error


@asynccontextmanager
async def connected(
    options: Mapping[str, Any], within_s: float = 10.0
) -> AsyncIterator[KafkaAdmin]:
    """Brokers, connected to.

    Args:
        options: as `kafka_options.client_options` makes them.
        within_s: how long an answer may take.

    Raises:
        BrokerUnavailable: none can be reached.
        BrokerRefused: they do not let us in, or we do not trust them.
    """
    options = {**options, "request_timeout_ms": max(1, round(within_s * 1000))}
    await _try_hosts(options)
    client = AIOKafkaClient(**options)
    try:
        try:
            await client.bootstrap()
        except (errors.KafkaError, OSError) as error:
            raise ours(error, "Kafka") from error
        yield KafkaAdmin(client, within_s)
    finally:
        await client.close()


async def _try_hosts(options: Mapping[str, Any]) -> None:
    """Connect to one host after the other; the driver's own attempt does not say why it fails."""
    told: list[StreamDedupError] = []
    more = {
        name: value
        for name, value in options.items()
        if name not in {"bootstrap_servers", "request_timeout_ms"}
    }
    timeout_ms = options["request_timeout_ms"]
    for host, port, _ in collect_hosts(options["bootstrap_servers"]):
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await create_conn(host, port, request_timeout_ms=timeout_ms, **more)
        except (errors.KafkaError, OSError) as error:  # the second: timeouts and TLS too
            failed = ours(error, f"{host}:{port}")
            failed.__cause__ = error
            told.append(failed)
        else:
            await connection.close()
            return
    refused = [error for error in told if isinstance(error, BrokerRefused)]
    first, *others = refused or told
    if others:
        first.add_note("\n".join(map(str, others)))
    raise first


def ours(error: BaseException, what: str) -> StreamDedupError:
    """The driver's error as ours, with the remedy where there is one.

    Args:
        error: what the driver raised.
        what: what was asked for, or where.
    """
    said = str(error) or type(error).__name__
    root = next((each for each in _chain(error) if isinstance(each, _REFUSALS)), None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerRefused(f"{what}: {said}; check kafka.ssl_ca_file and the host's name")
    if isinstance(error, ssl.SSLError):
        return BrokerRefused(
            f"{what}: {said}; check that security_protocol is the listener's, and the certificates"
        )
    if root is None:
        hint = ""
        if isinstance(error, errors.KafkaConnectionError | ConnectionError | TimeoutError):
            hint = "; check host and port, and that security_protocol is the listener's"
        return BrokerUnavailable(f"{what}: {said}{hint}")
    said = str(root)
    if isinstance(root, errors.SaslAuthenticationFailed | errors.AuthenticationFailedError):
        remedy = "check sasl_username, sasl_password and sasl_mechanism"
        return BrokerRefused(f"{what}: {said}; {remedy}")
    if isinstance(root, errors.UnsupportedSaslMechanismError):
        return BrokerRefused(f"{what}: {said}; set kafka.sasl_mechanism to one of the broker's")
    if "Authorization" in type(root).__name__:
        return BrokerRefused(f"{what}: {said}; give the user the permission")
    return BrokerRefused(f"{what}: {said}")


def _chain(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _check(code: int, what: str, message: str | None = None) -> None:
    if code:
        kind = errors.for_code(code)
        raise ours(kind(message) if message else kind(), what)


def _allowed(bits: int) -> frozenset[str] | None:
    if bits == _UNKNOWN:
        return None
    return frozenset(name for bit, name in _OPERATIONS.items() if bits >> bit & 1)
