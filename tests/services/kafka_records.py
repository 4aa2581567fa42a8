"""What tests learn of a Kafka, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Message
from confluent_kafka.admin import ConsumerGroupDescription

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """One record as the broker has it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One consumer of a group.

    Attributes:
        member_id: What the broker calls it.
        client_id: What it calls itself.
        instance_id: The name that a static member keeps over restarts.
        partitions: The topics and partitions that it was given, in order.
    """

    member_id: str
    client_id: str
    instance_id: str | None
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as its coordinator sees it.

    Attributes:
        state: `STABLE`, `PREPARING_REBALANCING`, `COMPLETING_REBALANCING`, `EMPTY`, or `DEAD`,
            which is also the state of a group that never was.
        assignor: The strategy that its members agreed on, or "".
        members: In the order of their `client_id`.
    """

    state: str
    assignor: str
    members: tuple[GroupMember, ...]


def record_of(message: Message) -> Record:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=message.topic() or "",
        partition=number(message.partition()),
        offset=number(message.offset()),
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in pairs),
        timestamp_ms=message.timestamp()[1],
    )


def group_of(described: ConsumerGroupDescription) -> Group:
    members = [
        GroupMember(
            member_id=each.member_id,
            client_id=each.client_id,
            instance_id=each.group_instance_id,
            partitions=tuple(
                sorted((part.topic, part.partition) for part in each.assignment.topic_partitions)
            ),
        )
        for each in described.members
    ]
    return Group(
        state=described.state.name,
        assignor=described.partition_assignor or "",
        members=tuple(sorted(members, key=lambda member: (member.client_id, member.member_id))),
    )


def number(given: int | None) -> int:
    assert given is not None
    return given


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
