"""A Faust app that sends on the first event of each kind, and counts of the others.

    faust -A app worker --without-web -l info

Without --without-web only one worker of a machine can use Faust's port 6066; others end at once.

Settings come from the environment: BROKER, REDIS (empty: this process's memory), INPUT, OUTPUT,
COUNTS (topics), RECIPE, NAMESPACE.
"""

from __future__ import annotations

import os

import faust

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.contrib.faust import FaustDedup
from stream_dedup.emit.summaries import summary_json
from stream_dedup.model import Summary

NAMESPACE = os.environ.get("NAMESPACE", "faust-example")

app = faust.App(
    os.environ.get("APP_ID", "stream-dedup-example"),
    broker=os.environ.get("BROKER", "kafka://localhost:9092"),
    broker_commit_interval=0.5,
    broker_session_timeout=10.0,
    broker_heartbeat_interval=2.0,
    topic_disable_leader=True,
    topic_allow_declare=False,
)
messages = app.topic(os.environ.get("INPUT", "messages"), value_serializer="raw")
clean = app.topic(os.environ.get("OUTPUT", "messages-clean"), value_serializer="raw")
counts = app.topic(os.environ.get("COUNTS", "messages-counts"), value_serializer="raw")

dedup = FaustDedup(
    app,
    recipe=os.environ.get("RECIPE", "logs"),
    index=os.environ.get("REDIS", "redis://localhost") or None,
    namespace=NAMESPACE,
    # Short times, for a trial: counts every second, and soon after the last event.
    windows=Windows(quiet_after_us=5_000_000),
    summaries=Summaries(every_us=1_000_000, lease_us=5_000_000),
)


@app.agent(messages)
async def merge(stream: faust.StreamT[bytes]) -> None:
    """Send on new events, with their cluster and their place in headers."""
    async for batch in dedup.batches(stream):
        for event, decision in batch:
            if decision.kind != "duplicate":
                place = f"{event.message.partition}:{event.message.offset}"
                await clean.send(
                    key=event.message.key,
                    value=event.message.value,
                    partition=event.message.partition,
                    headers={
                        "sd-decision": decision.kind.value.encode(),
                        "sd-cluster": (decision.cluster_hex or "").encode(),
                        "place": place.encode(),
                    },
                )


async def send_count(summary: Summary) -> None:
    """Send a summary under its cluster's id, and wait until it is stored."""
    sent = await counts.send(
        key=summary.cluster_hex.encode(), value=summary_json(summary, NAMESPACE)
    )
    await sent


dedup.emit_summaries(send_count)
