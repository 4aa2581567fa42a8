"""What brokers know: topics and their settings, groups, and what we are permitted to do with them.

`KafkaAdmin` creates and changes nothing, with one exception: `KafkaAdmin.try_transactions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from stream_dedup.errors import BrokerUnavailable
from stream_dedup.kafka._fastpath import self_check
from stream_dedup.kafka.errors import check, fail, translated
from stream_dedup.model import Partition

T = TypeVar("T")

COORDINATOR_PAUSE_S = 0.2
"""Pause before a group's coordinator is asked again: on the first request of a cluster's life it
creates the topic of its state, which takes a broker some tenths of a second."""

TRY_TRANSACTION_TIMEOUT_MS = 10_000
"""Timeout of transactions under the id that `try_transactions` opens. None is begun, so any value
does that brokers accept (their maximum is 15 minutes by default)."""

CLIENT = {
    "bootstrap_servers", "client_id", "request_timeout_ms", "security_protocol", "ssl_context",
    "sasl_mechanism", "sasl_plain_username", "sasl_plain_password",
}  # fmt: skip
"""The options that every client of the driver takes: those of `KafkaConfig.client_options`."""

_OPERATIONS = {
    2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    10: "describe_configs", 11: "alter_configs", 12: "idempotent_write",
}  # fmt: skip
"""Bits of the protocol's sets of permitted operations (KIP-430)."""

_UNKNOWN = -(1 << 31)
"""The value of such a set if the broker does not report it."""


class Topic(NamedTuple):
    """A topic, as far as we are allowed to see it.

    Attributes:
        name: its name.
        partitions: how many it has.
        leaderless: how many of them have no leader at present.
        allowed: the operations we are permitted; None if unknown.
        identity: changes when the topic is deleted and created again; "" if unknown.
    """

    name: str
    partitions: int
    leaderless: int
    allowed: frozenset[str] | None
    identity: str = ""


class Group(NamedTuple):
    """A consumer group.

    Attributes:
        state: as the broker calls it, as in "Stable"; "Dead" if it does not exist.
        members: how many it has.
        allowed: as in `Topic`.
    """

    state: str
    members: int
    allowed: frozenset[str] | None


class KafkaAdmin:
    """Asks brokers. Make one with `connected`.

    Every method raises `BrokerUnavailable` if it gets no answer, and `BrokerRefused` if we are not
    permitted to know. Permissions are known on the fast path only: aiokafka's own client does not
    ask for them.
    """

    def __init__(
        self, client: AIOKafkaAdminClient, options: Mapping[str, Any], timeout_s: float
    ) -> None:
        self._client = client
        self._options = options
        self._timeout_s = timeout_s

    async def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Return those of some topics that exist and that we are allowed to see."""
        if not names:
            return {}
        with translated(f"topics {', '.join(names)}"):
            if self_check.usable("client"):
                from stream_dedup.kafka._fastpath import client  # noqa: PLC0415 -- after the check

                found = await client.describe_topics(self._client, names)
            else:
                # All of them: to ask for one by name would create it, where brokers do so.
                found = await self._client.describe_topics()
        return {
            topic["topic"]: _topic(topic)
            for topic in found
            if topic["topic"] in names
            and topic["error_code"]
            not in {errors.UnknownTopicOrPartitionError.errno, errors.InvalidTopicError.errno}
        }

    async def settings(self, topic: str) -> Mapping[str, str]:
        """Return a topic's settings, including those at their default."""
        what, operation = f"settings of topic {topic}", "DescribeConfigs"
        with translated(what, operation):
            (response,) = await self._client.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic)]
            )
        ((code, message, _, _, entries),) = response.resources
        check(code, what, message, operation)
        return {entry[0]: entry[1] for entry in entries}

    async def group(self, name: str) -> Group:
        """Return a consumer group."""
        return await self._retried(self._group, name)

    async def _group(self, name: str) -> Group:
        what = f"group {name}"
        with translated(what):
            node = await self._coordinator(name)
            if self_check.usable("client"):
                from stream_dedup.kafka._fastpath import client  # noqa: PLC0415 -- after the check

                response = await client.describe_group(self._client, name, node)
            else:
                (response,) = await self._client.describe_consumer_groups([name], node)
        (group,) = response.to_object()["groups"]
        check(group["error_code"], what)
        allowed = _allowed(group.get("allowed", _UNKNOWN))
        return Group(group["state"], len(group["members"]), allowed)

    async def committed(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the next offsets that a group has committed, of those partitions that have one."""
        return await self._retried(partial(self._committed, partitions), group)

    async def _committed(self, partitions: Sequence[Partition], group: str) -> dict[Partition, int]:
        if not partitions:
            return {}
        what = f"offsets of group {group}"
        places = [TopicPartition(*partition) for partition in partitions]
        with translated(what):
            node = await self._coordinator(group)
            found = await self._client.list_consumer_group_offsets(group, node, places)
        # aiokafka drops an error of the whole answer. Then it holds no partition, while one without
        # an offset is answered with -1.
        if not all(place in found for place in places):
            raise BrokerUnavailable(f"{what}: the group's coordinator does not know them yet")
        return {Partition(*place): each.offset for place, each in found.items() if each.offset >= 0}

    async def _coordinator(self, group: str) -> int:
        try:
            node: int = await self._client.find_coordinator(group)
        except errors.GroupAuthorizationFailedError as error:
            raise type(error) from error  # without the group's name, which the message has already
        return node

    async def _retried(self, ask: Callable[[str], Awaitable[T]], group: str) -> T:
        """Ask a group's coordinator, again while it is moved or created."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(BrokerUnavailable),
            wait=wait_fixed(COORDINATOR_PAUSE_S),
            stop=stop_after_delay(self._timeout_s),
            reraise=True,
        ):
            with attempt:
                found = await ask(group)
        return found

    async def try_transactions(self, transactional_id: str) -> None:
        """Open a transactional id, to see whether we are permitted to use it.

        This fences whoever uses the id, and the broker remembers it for a week (its setting
        ``transactional.id.expiration.ms``). So give an id that nobody uses.
        """
        producer = AIOKafkaProducer(
            **self._options,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRY_TRANSACTION_TIMEOUT_MS,
        )
        what = f"transactional id {transactional_id}"
        try:
            async with asyncio.timeout(self._timeout_s):
                await producer.start()
        except errors.TransactionalIdAuthorizationFailed as error:
            fail(what, type(error)())  # without the id, which the message has already
        except (errors.KafkaError, OSError) as error:
            fail(what, error)
        finally:
            await producer.stop()


@asynccontextmanager
async def connected(
    options: Mapping[str, Any], timeout_s: float = 10.0
) -> AsyncIterator[KafkaAdmin]:
    """Connect to brokers.

    Args:
        options: as `KafkaConfig.client_options` makes them.
        timeout_s: how long to wait for each answer.

    Raises:
        BrokerUnavailable: none can be reached.
        BrokerRefused: they do not accept us, or we do not trust them.
    """
    options = {**options, "request_timeout_ms": max(1, round(timeout_s * 1000))}
    if self_check.usable("client"):
        from stream_dedup.kafka._fastpath.client import try_hosts  # noqa: PLC0415 -- after the check

        await try_hosts(options)
    client = AIOKafkaAdminClient(**options)
    try:
        with translated("Kafka"):
            await client.start()
        yield KafkaAdmin(client, options, timeout_s)
    finally:
        await client.close()


def connected_as(options: Mapping[str, Any]) -> AbstractAsyncContextManager[KafkaAdmin]:
    """Connect to brokers as a consumer or a producer of these options does; see `connected`."""
    given = {name: options[name] for name in CLIENT & options.keys()}
    return connected(given, options.get("request_timeout_ms", 40_000) / 1_000)


def _topic(found: Mapping[str, Any]) -> Topic:
    """Make a `Topic` of one in a response."""
    if found["error_code"] == errors.TopicAuthorizationFailedError.errno:
        return Topic(found["topic"], 0, 0, frozenset())
    partitions = found["partitions"]
    leaderless = sum(partition["leader"] < 0 for partition in partitions)
    allowed = _allowed(found.get("allowed", _UNKNOWN))
    identity: bytes = found.get("identity", b"")
    return Topic(found["topic"], len(partitions), leaderless, allowed, identity.hex())


def _allowed(bits: int) -> frozenset[str] | None:
    if bits == _UNKNOWN:
        return None
    return frozenset(name for bit, name in _OPERATIONS.items() if bits >> bit & 1)
