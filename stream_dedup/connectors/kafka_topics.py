"""What Kafka's topics are set to take."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

log = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's own default of `max.message.bytes`."""

CLIENT_OPTIONS = frozenset(
    "bootstrap_servers client_id request_timeout_ms retry_backoff_ms metadata_max_age_ms "
    "security_protocol ssl_context connections_max_idle_ms sasl_mechanism sasl_plain_username "
    "sasl_plain_password".split()
)
"""Options that every kind of client takes."""


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of some options those that every kind of client takes."""
    return {name: value for name, value in options.items() if name in CLIENT_OPTIONS}


async def max_message_bytes(options: Mapping[str, Any], topic: str) -> int:
    """The largest batch of records that a topic takes; Kafka's default where nobody tells."""
    admin = AIOKafkaAdminClient(**client_options(options))
    try:
        await admin.start()
        name = "max.message.bytes"
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})
        for response in await admin.describe_configs([asked]):
            for code, _, _, _, entries in response.resources:
                for entry in entries if code == 0 else ():
                    if entry[0] == name:
                        return int(entry[1])
    except (errors.KafkaError, OSError) as error:
        log.debug("settings of topic %s are not to be had: %r", topic, error)
    finally:
        await admin.close()
    return DEFAULT_MAX_BYTES
