"""Requests that the driver has in too old versions: these tell permissions too (KIP-430).

The driver's own would also make the topics that they ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

_string = String("utf-8")


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


class MetadataRequest(Request[_MetadataStruct]):  # type: ignore[misc] # the driver has no types
    """Asks for topics, without making them, and for what we may do with them."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        make, tell_cluster, tell_topics = False, False, True
        return request_struct_class(self._topics, make, tell_cluster, tell_topics)


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
    """Asks for a group, and for what we may do with it."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        return request_struct_class([self._group], True)
