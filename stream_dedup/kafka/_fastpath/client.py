"""What aiokafka's clients do not offer publicly: permissions, reasons, and failures nobody awaits.

The driver's own requests for topics and groups do not ask for our permissions (KIP-430), and the
one for topics creates those that do not exist. Its clients try the hosts of a cluster in turn and
do not say why each refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from aiokafka import AIOKafkaProducer, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

from stream_dedup.errors import BrokerRefused, StreamDedupError
from stream_dedup.kafka.errors import translate

_string, _compact = String("utf-8"), CompactString("utf-8")


async def describe_topics(admin: AIOKafkaAdminClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """Ask for topics and our permissions; topics that do not exist are not created."""
    response = await admin._send_request(MetadataRequest(names))
    topics: list[dict[str, Any]] = response.to_object()["topics"]
    return topics


async def describe_group(admin: AIOKafkaAdminClient, name: str, node: int) -> Any:
    """Ask a group's coordinator for the group and our permissions."""
    return await admin._send_request(GroupsRequest(name), node)


async def try_hosts(options: Mapping[str, Any]) -> None:
    """Connect to one host after the other until one accepts us.

    Args:
        options: keyword arguments of a client of the driver.

    Raises:
        BrokerUnavailable, BrokerRefused: none does; the reason of one host is the error, preferably
            a refusal, and those of the others are its notes.
    """
    failures: list[StreamDedupError] = []
    timeout_ms = options["request_timeout_ms"]
    others = {
        name: value
        for name, value in options.items()
        if name not in {"bootstrap_servers", "request_timeout_ms"}
    }
    for host, port, _ in collect_hosts(options["bootstrap_servers"]):
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await create_conn(host, port, request_timeout_ms=timeout_ms, **others)
        except (errors.KafkaError, OSError) as error:  # OSError: timeouts and TLS too
            failed = translate(error, f"{host}:{port}")
            failed.__cause__ = error
            failures.append(failed)
        else:
            await connection.close()
            return
    refused = [error for error in failures if isinstance(error, BrokerRefused)]
    first, *more = refused or failures
    if more:
        first.add_note("\n".join(map(str, more)))
    raise first


def abandon(producer: AIOKafkaProducer) -> None:
    """Have a producer send nothing more; batches that it has not sent fail with `ProducerClosed`.

    Its own `stop` sends all that waits. What is at the broker already ends as the broker answers.
    """

    def fail_waiting(_: object = None) -> None:
        accumulator = producer._message_accumulator
        error = errors.ProducerClosed()
        for batches in accumulator._batches.values():
            for batch in batches:
                # One that was sent before removes itself from there when it fails.
                accumulator._pending_batches.add(batch)
                batch.failure(error)
        accumulator._exception = error

    fail_waiting()
    task = producer._sender.sender_task
    if task is not None:  # it was started
        task.cancel()
        task.add_done_callback(fail_waiting)  # what the broker wanted to have again


def end(producer: AIOKafkaProducer) -> None:
    """End a producer whose client is closed: nothing of it goes on, and no failure is logged.

    While a broker is away, its sender waits without end for metadata that a closed client does not
    ask for, or goes on connecting. When a producer is fenced, aiokafka fails a future of each batch
    that waits to be sent, and that of the transaction; nobody can await them, and asyncio logs
    every exception that is never retrieved as an error.
    """
    with contextlib.suppress(AttributeError):  # it did not get so far as to have them
        task = producer._sender.sender_task
        if task is not None:
            task.cancel()
        manager, accumulator = producer._txn_manager, producer._message_accumulator
        waiting = [b._drain_waiter for batches in accumulator._batches.values() for b in batches]
        ending = manager.wait_for_transaction_end() if manager is not None else None
        for future in (*waiting, ending):
            if future is not None and future.done() and not future.cancelled():
                future.exception()


class _MetadataResponse(Response):  # type: ignore[misc] # the driver has no types
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node", Int32), ("host", _string), ("port", Int32), ("rack", _string))),
        ("cluster_id", _string),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", _string),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("allowed", Int32),
            ),
        ),
        ("cluster_allowed", Int32),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc] # the driver has no types
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(_string)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_allowed", Boolean),
        ("include_topic_allowed", Boolean),
    )


class _Identity:
    """The type of a topic's identity: 16 bytes."""

    @staticmethod
    def encode(value: bytes) -> bytes:
        return value

    @staticmethod
    def decode(data: BytesIO) -> bytes:
        return data.read(16)


_NO_IDENTITY = bytes(16)


class _MetadataResponseV10(Response):  # type: ignore[misc] # the driver has no types
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node", Int32),
                ("host", _compact),
                ("port", Int32),
                ("rack", _compact),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", _compact),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", _compact),
                ("identity", _Identity),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("allowed", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_allowed", Int32),
        ("tags", TaggedFields),
    )


class _MetadataStructV10(RequestStruct):  # type: ignore[misc] # the driver has no types
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponseV10
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("identity", _Identity), ("name", _compact), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_allowed", Boolean),
        ("include_topic_allowed", Boolean),
        ("tags", TaggedFields),
    )


class MetadataRequest(Request[_MetadataStruct | _MetadataStructV10]):  # type: ignore[misc] # no types
    """Topics, not created, and our permissions on them; since Kafka 2.8 their identities too."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(
        self, request_struct_class: type[_MetadataStruct | _MetadataStructV10]
    ) -> _MetadataStruct | _MetadataStructV10:
        create, cluster_allowed, topic_allowed = False, False, True
        flags = create, cluster_allowed, topic_allowed
        if request_struct_class is _MetadataStructV10:
            no_tags: dict[int, bytes] = {}
            names = [(_NO_IDENTITY, name, no_tags) for name in self._topics]
            return _MetadataStructV10(names, *flags, no_tags)
        return request_struct_class(self._topics, *flags)


class _GroupsResponse(Response):  # type: ignore[misc] # the driver has no types
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", _string),
                ("state", _string),
                ("protocol_type", _string),
                ("protocol", _string),
                (
                    "members",
                    Array(
                        ("member_id", _string),
                        ("client_id", _string),
                        ("client_host", _string),
                        ("metadata", Bytes),
                        ("assignment", Bytes),
                    ),
                ),
                ("allowed", Int32),
            ),
        ),
    )


class _GroupsStruct(RequestStruct):  # type: ignore[misc] # the driver has no types
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _GroupsResponse
    SCHEMA = Schema(("groups", Array(_string)), ("include_allowed", Boolean))


class GroupsRequest(Request[_GroupsStruct]):  # type: ignore[misc] # the driver has no types
    """Version 3: a group, and our permissions on it; the driver does not read them."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        return request_struct_class([self._group], True)
