"""The spread index over the nodes of a real Redis Cluster, with many callers at once.

Callers are killed, connections are cut, and nodes hang until requests are given up that they carry
out later. Afterwards all open clusters are compared with each other, and with all events.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from typing import NamedTuple

import msgspec
import pytest

from stream_dedup.index.redis import codec, layouts
from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.spread_store import SpreadIndex
from tests.integration.redis.helpers import STEADY, in_loop, keys_of
from tests.integration.redis.processes import begin, line_of, started
from tests.integration.redis.spread_worker import (
    BROKEN,
    NAMESPACE,
    RECIPE,
    SHARDS,
    WINDOWS,
    Answered,
    Job,
    event,
    events_of,
)
from tests.services.redis import RedisCluster

CALLERS = 6
KILLS = 2
RUNS = 10
"""At most, until a broken step is found."""
K = RECIPE.match.k


class Stored(NamedTuple):
    """An open cluster."""

    identity: int
    fingerprint: int
    exact: bytes


@pytest.fixture
def cluster(redis_cluster: RedisCluster) -> Iterator[RedisCluster]:
    """An empty cluster, which does not fail over while a node hangs for a moment."""
    redis_cluster.wait_ready()
    for node in redis_cluster.nodes:
        node.command("CONFIG", "SET", "cluster-replica-no-failover", "yes")
    for node in redis_cluster.masters():
        node.command("FLUSHALL")
    yield redis_cluster
    for node in redis_cluster.nodes:
        node.command("CONFIG", "SET", "cluster-replica-no-failover", "no")
    redis_cluster.wait_ready()


def resolve(job: Job, kills: int, start: threading.Barrier) -> list[Answered]:
    """Resolve the batches of a job, in a process that is killed now and then and starts again."""
    rng = random.Random(f"kills {job.number}")
    answered: list[Answered] = []
    for left in range(kills, -1, -1):
        job.begin = len(answered)
        with started("spread_worker", job) as process:
            assert line_of(process) == "ready"
            if left == kills:
                start.wait(60)
            begin(process)
            until = len(answered) + rng.randint(2, 6)
            while line := line_of(process):
                answered.append(msgspec.json.decode(line, type=Answered))
                if left and len(answered) >= until:
                    time.sleep(rng.random() * 0.05)  # it is killed within its next batch
                    break
    return answered


@contextmanager
def disturbed(cluster: RedisCluster) -> Iterator[None]:
    """Cut connections and let nodes hang, for longer than callers wait for an answer."""
    rng, masters, done = random.Random(0), cluster.masters(), threading.Event()

    def disturb() -> None:
        while not done.wait(rng.random() * 0.3):
            node = rng.choice(masters)
            if rng.random() < 0.7:
                node.command("CLIENT", "KILL", "TYPE", "normal")
                continue
            node.pause()
            time.sleep(0.4)
            node.resume()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def run(cluster: RedisCluster, kills: int, **options: object) -> dict[int, list[Answered]]:
    """Have all callers resolve their streams; the answers of each by batch."""
    numbered = (Job(cluster.url, number) for number in range(CALLERS))
    jobs = [msgspec.structs.replace(job, **options) for job in numbered]
    start = threading.Barrier(CALLERS)
    with ThreadPoolExecutor(CALLERS) as threads:
        found = threads.map(lambda job: resolve(job, kills, start), jobs)
        return {job.number: answers for job, answers in zip(jobs, found, strict=True)}


def open_clusters(cluster: RedisCluster) -> list[Stored]:
    stored = []
    for node in cluster.masters():
        for key in keys_of(node, f"sd:{{{NAMESPACE}:*}}:c:*"):
            packed = node.command("GET", key)
            assert isinstance(packed, bytes)
            texts = codec.unpack_texts(packed)
            exact = texts.name_list[layouts.SPREAD_NAMES.struct.size :][:8]  # they have no group
            assert codec.unpack_cluster(packed).open
            identity = int(key.rpartition(b":")[2], 16)
            stored.append(Stored(identity, int.from_bytes(texts.fingerprint, "big"), exact))
    return stored


def near_twins(stored: list[Stored]) -> list[tuple[Stored, Stored]]:
    return [
        (one, other)
        for one, other in combinations(stored, 2)
        if distance(one.fingerprint, other.fingerprint) <= K or one.exact == other.exact
    ]


def distance(one: int, other: int) -> int:
    return (one ^ other).bit_count()


@in_loop
async def test_no_near_twins_and_complete_recall_whoever_dies(cluster: RedisCluster) -> None:
    with disturbed(cluster):
        answered = run(cluster, KILLS)
    stored = open_clusters(cluster)
    by_id = {each.identity: each for each in stored}
    shards = {
        number: cluster.slot_of(ShardKeys(NAMESPACE, number).meta) for number in range(SHARDS)
    }
    assert len({cluster.master_of(slot).port for slot in shards.values()}) == 3
    assert {each.identity & 0xFF for each in stored} == set(range(SHARDS))
    assert near_twins(stored) == []

    assert sum(batch.retries for batches in answered.values() for batch in batches) > 0

    # Every event is in a cluster within k bits.
    events = {number: events_of(Job("", number)) for number in answered}
    every = []
    for number, batches in answered.items():
        answers = [answer for batch in batches for answer in batch.found]
        assert len(answers) == len(events[number])
        every += list(zip(events[number], answers, strict=True))
    for asked, (identity, _) in every:
        assert distance(by_id[identity].fingerprint, asked.fingerprint) <= K

    client = RedisClient(cluster.url, retry_policy=STEADY)
    try:
        index = await SpreadIndex.open(
            client, RECIPE, namespace=NAMESPACE, windows=WINDOWS, shards=SHARDS
        )
        clusters = index.clusters
        own = {clusters.identity(asked): opened for asked, (_, opened) in every}
        assert all(opened == (identity == clusters.identity(asked))
                   for asked, (identity, opened) in every)  # fmt: skip
        # What a caller opened before it died is found again, by the same event.
        assert {each.identity for each in stored} == {i for i, opened in own.items() if opened}

        # Delivered again: representatives find their own clusters.
        again = await clusters.resolve([asked for asked, _ in every], 1)
        for (asked, (identity, opened)), (found, opened_again, _) in zip(every, again, strict=True):
            assert opened_again == opened
            assert distance(by_id[found.entry.identity].fingerprint, asked.fingerprint) <= K
            if opened:
                assert found.entry.identity == identity

        # Other texts with these fingerprints: each finds the nearest of all open clusters.
        fresh = [event(a.fingerprint, n, 99, exact=n) for n, (a, _) in enumerate(every)]
        for asked, (found, opened, _) in zip(fresh, await clusters.resolve(fresh, 2), strict=True):
            assert not opened
            nearest = min(distance(each.fingerprint, asked.fingerprint) for each in stored)
            assert found.distance == nearest
            assert found.entry.identity in by_id
        assert len(open_clusters(cluster)) == len(stored)
    finally:
        await client.aclose()


@pytest.mark.parametrize("broken", sorted(BROKEN))
def test_broken_steps_are_found(cluster: RedisCluster, broken: str) -> None:
    """Callers have to meet in the broken step, so it may take several runs."""
    for _ in range(RUNS):
        run(cluster, 0, broken=broken, families=40)
        if near_twins(open_clusters(cluster)):
            return
        for node in cluster.masters():
            node.command("FLUSHALL")
    pytest.fail(f"{RUNS} runs without near twins")
