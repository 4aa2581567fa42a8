"""Rules that change while workers are killed, with real Kafka and Redis."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from stream_dedup.index.redis.client import RedisClient
from stream_dedup.index.redis.rules import RedisRules
from stream_dedup.rules.model import PatternRule, RuleKind
from tests.faults.harness import GUARANTEES, Guarantee, Site, Stage
from tests.faults.lines import PARTITIONS
from tests.faults.rules_round import Editor, clusters_by_state, produce
from tests.faults.test_crash_points import CRASHING, QUICK

EVENTS = 2_000
EVERY_S = 0.4
MAX_WAIT_S = 240.0
MINUTE_MS = 60_000
KEPT = PatternRule(RuleKind.KEEP, ("beat <number> of unit x",), per_minute=7)
LONG = QUICK | {"pipelines.0.idle_s": 7_200, "pipelines.0.max_age_s": 7_200}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("step", "at"), [("resolved", 6), ("recorded", 5), ("sent", 4)])
def test_rules_change_while_a_worker_is_killed(
    site: Site, tmp_path: Path, guarantee: Guarantee, step: str, at: int
) -> None:
    stage = Stage(site, guarantee, tmp_path, QUICK)
    rng = random.Random(f"{guarantee} {step}")
    produce(stage, rng, 0, EVENTS)
    editor = Editor(site.redis_url, stage.name, EVERY_S)
    first = stage.worker(f"{stage.name}-first", [sys.executable, str(CRASHING), step, str(at)])
    try:
        code = first.wait(MAX_WAIT_S)
        first.close()
        second = stage.worker(f"{stage.name}-second")
        try:
            verdict = stage.verdict_in_the_end(seconds=MAX_WAIT_S)
        finally:
            second.close()
    finally:
        editor.end()
    log = first.last_lines() + "\n" + second.last_lines()

    assert code == -signal.SIGKILL
    assert verdict.good, f"{verdict}\n{log}"
    assert verdict.figures["inputs"] == EVENTS
    assert editor.edits > 3
    clusters = clusters_by_state(stage)
    assert len(clusters) == 2
    assert clusters["begun"] & clusters["kept"] == set()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(("step", "at"), [("recorded", 9), ("sent", 7)])
def test_what_a_rule_keeps_is_decided_once_though_a_worker_is_killed(
    site: Site, tmp_path: Path, guarantee: Guarantee, step: str, at: int
) -> None:
    stage = Stage(site, guarantee, tmp_path, LONG)
    now_ms = (time.time_ns() // 1_000_000 // MINUTE_MS - 60) * MINUTE_MS
    left: set[bytes] = set()
    for part in range(PARTITIONS):
        numbers = range(part, EVENTS, PARTITIONS)
        times_ms = [now_ms + number // PARTITIONS * 1_000 for number in numbers]
        keys = [b"id-%d" % number for number in numbers]
        beats = [place % 3 > 0 for place in range(len(keys))]
        lines = [
            b"beat %d of unit x" % number if beat else b"tick %d" % number
            for number, beat in zip(numbers, beats, strict=True)
        ]
        stage.site.broker.produce(
            stage.input, lines, partition=part, keys=keys, timestamps_ms=times_ms
        )
        counts: Counter[int] = Counter()
        for key, time_ms, beat in zip(keys, times_ms, beats, strict=True):
            counts[time_ms // MINUTE_MS] += beat
            if not beat or counts[time_ms // MINUTE_MS] <= KEPT.per_minute:
                left.add(key)
    asyncio.run(store_rule(site.redis_url, stage.name, KEPT))
    first = stage.worker(f"{stage.name}-first", [sys.executable, str(CRASHING), step, str(at)])
    code = first.wait(MAX_WAIT_S)
    first.close()
    second = stage.worker(f"{stage.name}-second")
    try:
        stage.read_to_the_end(seconds=MAX_WAIT_S)
    finally:
        second.close()
    once = guarantee == "exactly_once"
    outputs = stage.site.broker.consume(stage.topics["output"], read_committed=once, timeout_s=120)
    copies: dict[bytes, list[object]] = {}
    for record in outputs:
        copies.setdefault(record.key or b"", []).append((record.value, record.headers))

    assert code == -signal.SIGKILL
    assert copies.keys() == left
    assert all(each == records[0] for records in copies.values() for each in records)
    assert not once or {len(records) for records in copies.values()} == {1}


async def store_rule(url: str, namespace: str, rule: PatternRule) -> None:
    client = RedisClient(url)
    await RedisRules(client, namespace).change(lambda book: book.add(rule))
    await client.aclose()
