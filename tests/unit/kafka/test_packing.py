"""Which records a topic does not take: by its settings, and as learned from refused batches."""

from __future__ import annotations

import random

import pytest

from stream_dedup.io.base import Record, Records, Refusal
from stream_dedup.kafka.packing import SPLIT, Suspects, TopicLimits

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def record(offset: int, time_ms: int = NOW_MS, key: bytes | None = b"k") -> Record:
    return Record(offset, time_ms, key, b"value")


def test_limits_are_read_from_the_settings_of_a_topic() -> None:
    assert TopicLimits.of({}) == TopicLimits()
    settings = {
        "max.message.bytes": "2000",
        "cleanup.policy": "compact,delete",
        "message.timestamp.before.max.ms": "9000",
        "message.timestamp.after.max.ms": "1000",
        "message.timestamp.type": "CreateTime",
    }
    assert TopicLimits.of(settings) == TopicLimits(2_000, True, 9_000, 1_000)
    older = {"message.timestamp.difference.max.ms": "500"}
    assert TopicLimits.of(older) == TopicLimits(before_ms=500, after_ms=500)
    own_time = settings | {"message.timestamp.type": "LogAppendTime"}
    assert TopicLimits.of(own_time) == TopicLimits(2_000, needs_key=True)


def test_records_outside_of_the_limits_are_found() -> None:
    limits = TopicLimits(needs_key=True, before_ms=2 * HOUR_MS, after_ms=HOUR_MS)
    times = [0, HOUR_MS, HOUR_MS + 1, -2 * HOUR_MS, -2 * HOUR_MS - 1]
    rows = [record(offset, NOW_MS + time_ms) for offset, time_ms in enumerate(times)]
    rows += [record(5, -1), record(6, key=None), record(7, key=b"")]
    assert limits.refused(Records.of(rows), NOW_MS) == {
        2: Refusal.TIMESTAMP,
        4: Refusal.TIMESTAMP,
        6: Refusal.NO_KEY,
    }
    assert TopicLimits().refused(Records.of(rows), NOW_MS) == {}
    assert limits.refused(Records.of([]), NOW_MS) == {}


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (record(0, NOW_MS + HOUR_MS), Refusal.TIMESTAMP),
        (record(0, NOW_MS - HOUR_MS), Refusal.TIMESTAMP),
        (record(0, key=None), Refusal.OTHER),
    ],
)
def test_what_was_refused_alone_is_found_the_next_time(refused: Record, why: Refusal) -> None:
    limits = TopicLimits().learn(refused, why, NOW_MS)
    assert set(limits.refused(Records.of([refused]), NOW_MS)) == {0}
    assert limits.refused(Records.of([record(1)]), NOW_MS) == {}


def sent(records: Records, suspects: Suspects, refuses: set[int]) -> tuple[int, set[int]]:
    """Send all records once: how many batches, and the offsets found to be refused alone."""
    found = {r.offset for r in records if suspects.of("out", r)}
    left = records.rows([row for row, each in enumerate(records.offsets) if each not in found])
    batches, refused = 0, []
    while left:
        batch = suspects.together("out", left)
        batches += 1
        if refuses & set(batch.offsets):
            refused.append(("out", batch, Refusal.OTHER))
        left = left.part(len(batch), len(left))
    suspects.learn(refused)
    return batches, found


@pytest.mark.parametrize("seed", range(5))
def test_refused_records_are_found_within_few_deliveries(seed: int) -> None:
    rng = random.Random(seed)
    offsets = sorted(rng.sample(range(9_000), 4_000))
    records = Records.of([record(offset) for offset in offsets])
    refuses = set(rng.sample(offsets, rng.randint(1, 3)))
    suspects = Suspects()
    batches, found = zip(*(sent(records, suspects, refuses) for _ in range(4)), strict=True)
    assert found[3] == refuses
    assert batches[0] == batches[3] == 1
    assert batches[1] <= SPLIT


def test_summaries_differ_by_their_keys() -> None:
    suspects = Suspects()
    suspects.learn([("out", Records.of([record(-1, key=b"a")]), Refusal.OTHER)])
    assert list(suspects.of("out", record(-1, key=b"a"))) == [Refusal.OTHER]
    assert list(suspects.of("out", record(-1, key=b"b"))) == []
    assert list(suspects.of("other", record(-1, key=b"a"))) == []
