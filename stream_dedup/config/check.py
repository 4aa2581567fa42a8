"""Whether the services are as the configuration takes them to be."""

from __future__ import annotations

from collections.abc import AsyncIterator

from stream_dedup.config.check_kafka import check_kafka
from stream_dedup.config.check_otel import check_otel
from stream_dedup.config.check_redis import check_redis
from stream_dedup.config.findings import Finding, warning
from stream_dedup.config.model import Config


async def check(config: Config, within_s: float) -> AsyncIterator[Finding]:
    """Look at all that a worker needs, one after the other.

    Args:
        config: what is to hold.
        within_s: how long an answer may take.
    """
    for sentence in config.warnings():
        yield warning("configuration", sentence)
    async for found in check_kafka(config, within_s):
        yield found
    if config.index.kind == "redis":
        async for found in check_redis(config, within_s):
            yield found
    if config.otel.enabled:
        async for found in check_otel(config.otel, within_s):
            yield found
