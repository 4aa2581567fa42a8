from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.columnar import take
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.engine.engine import REFUSALS_WARNED, Engine, OwnedPartition
from stream_dedup.engine.hashing import HashedBatch
from stream_dedup.engine.near_cache import CachedCluster
from stream_dedup.engine.segment import NO_TOKENS, REPLAYED, Segment
from stream_dedup.errors import IndexUnavailable, PartitionUnclaimed, RecipeError, StaleFence
from stream_dedup.features.recipe import load_recipe
from stream_dedup.index.base import (
    DELTA_BYTES,
    MAX_DELTAS,
    Commit,
    Limits,
    Ownership,
    Query,
    Resolution,
)
from stream_dedup.index.memory import MemoryIndex, run
from stream_dedup.model import Batch, Closing, Decision, Kind, Partition, Summary
from stream_dedup.testing import assert_counts_add_up, clusters_of, decisions_of

S = 1_000_000
HOUR_US = 3600 * S
NOW_US = 1_700_000_000 * S
HERE, THERE = Partition("topic", 0), Partition("topic", 1)
WIDE = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)

LINES = [
    "disk sda1 is 91% full",
    "disk sdb7 is 64% full",
    "out of memory: killed process 4711",
    "connection from 10.0.0.1 closed by peer after 17 ms",
    "connection from 10.0.0.9 closed by host after 3 ms",
    "connection from 10.0.0.9 refused by host after 3 ms",
    "user alice logged in from terminal",
    "user bob logged in from terminal",
    "user carol logged out from terminal",
    "ok",
    "12345",
    "",
]
lines = st.sampled_from(LINES)
far_times = st.one_of(st.integers(0, 3 * 3600), st.integers(-(10**6), 10**6))


def word(number: int) -> str:
    """A word of letters, another for every number."""
    return "".join(chr(97 + int(digit)) for digit in f"{number:06d}")


def use_engine(dedup: Deduplicator, **options: Any) -> None:
    """Give a deduplicator another engine, with these options of it."""
    engine = dedup.engine
    context = engine._context
    dedup.engine = Engine(
        engine.recipe,
        engine.index,
        windows=context.windows,
        summaries=context.summaries,
        clock=engine.clock,
        **options,
    )


def test_only_new_events_name_templates_where_duplicates_do_not_leave() -> None:
    dedup = Deduplicator(windows=WIDE, templates=True)
    use_engine(dedup, duplicates_leave=False)
    lines = [f"session closed for user {word(number)}" for number in range(8)]
    found = [dedup.process_one(line) for line in lines for _ in range(2)]
    asked = dedup.engine.counts.asked
    found += dedup.process(lines[5:])
    assert [each.kind is Kind.NEW for each in found] == [True, False] * 4 + [False] * 11
    assert [each.template is None for each in found] == [False, True] * 4 + [True] * 11
    assert dedup.engine.counts.asked == asked  # the near cache knows the duplicates
    assert_counts_add_up(collected(dedup), dedup.engine.counts)


def collected(dedup: Deduplicator) -> list[Summary]:
    return list(dedup.close())


# ---------------------------------------------------------------- the promise


@given(
    batches=st.lists(
        st.lists(st.tuples(lines, far_times, st.sampled_from(["", "a", "b"])), max_size=30),
        max_size=8,
    ),
    max_clusters=st.integers(1, 4),
    near_size=st.integers(1, 4),
    idle_s=st.sampled_from([1, 60, 3600]),
    every_s=st.sampled_from([None, 1, 600]),
    waits=st.lists(st.integers(0, 4000), min_size=8, max_size=8),
)
def test_final_and_passed_counts_add_up_for_any_stream(
    *,
    batches: list[list[tuple[str, int, str]]],
    max_clusters: int,
    near_size: int,
    idle_s: int,
    every_s: int | None,
    waits: list[int],
) -> None:
    clock = ManualClock(NOW_US)
    windows = Windows(idle_us=idle_s * S, max_age_us=5000 * S)
    dedup = Deduplicator(
        clock=clock,
        windows=windows,
        summaries=Summaries(every_us=every_s and every_s * S),
        limits=Limits(max_clusters=max_clusters),
    )
    use_engine(dedup, near_cache_size=near_size)
    summaries: list[Summary] = []
    opened: Counter[int | None] = Counter()
    events = 0
    for batch, wait in zip(batches, waits, strict=False):
        decisions = dedup.process(
            [line for line, _, _ in batch],
            times_us=[NOW_US + at_s * S for _, at_s, _ in batch],
            groups=[group for _, _, group in batch],
        )
        events += len(batch)
        assert len(decisions) == len(batch)
        for decision in decisions:
            if decision.kind is Kind.NEW:
                opened[decision.cluster] += 1
            elif decision.kind is Kind.DUPLICATE:
                assert decision.cluster in opened  # its first event came first
        clock.advance(wait)
        summaries += dedup.due()
    summaries += dedup.close()
    assert dedup.counts.events == events
    assert_counts_add_up(summaries, dedup.counts)
    assert set(opened.values()) <= {1}
    assert dedup.counts.new == len(opened)
    finals = [summary for summary in summaries if summary.final]
    assert {summary.cluster for summary in finals} == set(opened)
    assert sum(s.count for s in finals) == events - sum(dedup.counts.passed.values())


@given(
    stream=st.lists(st.tuples(lines, st.integers(0, 500), st.sampled_from(["", "a"])), max_size=60),
    splits=st.lists(st.integers(0, 60), max_size=6),
)
def test_decisions_do_not_depend_on_the_batches(
    stream: list[tuple[str, int, str]], splits: list[int]
) -> None:
    def decided(bounds: Sequence[int]) -> list[Decision]:
        dedup = Deduplicator(clock=ManualClock(NOW_US), windows=WIDE)
        decisions: list[Decision] = []
        for start, end in zip([0, *bounds], [*bounds, len(stream)], strict=True):
            part = stream[start:end]
            decisions += dedup.process(
                [line for line, _, _ in part],
                times_us=[at_s * S for _, at_s, _ in part],
                groups=[group for _, _, group in part],
            )
        return decisions

    assert decided([]) == decided(sorted(min(split, len(stream)) for split in splits))


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_any_bytes_at_all_get_a_decision(values: list[bytes]) -> None:
    dedup = Deduplicator("json")
    assert len(dedup.process(values)) == len(values)
    assert_counts_add_up(dedup.close(), dedup.counts)


# ---------------------------------------------------------------- decisions


def test_the_first_event_is_new_and_similar_ones_are_duplicates() -> None:
    first, second, other, few = decisions_of([*LINES[:3], ""])
    assert (first.kind, first.distance) == (Kind.NEW, 0)
    assert (second.kind, second.cluster, second.distance) == (Kind.DUPLICATE, first.cluster, 0)
    assert (other.kind, other.cluster != first.cluster) == (Kind.NEW, True)
    assert few == Decision(Kind.PASSED, reason="nothing to fingerprint")


def test_equal_events_of_one_batch_are_decided_one_after_the_other() -> None:
    at_once = decisions_of(["a b c", "a b c", "a b c"])
    assert [d.kind for d in at_once] == [Kind.NEW, Kind.DUPLICATE, Kind.DUPLICATE]
    assert len({d.cluster for d in at_once}) == 1


def test_one_word_events_match_only_their_equals() -> None:
    assert clusters_of(["alpha", "alphb", "alpha"]) == [[0, 2], [1]]


def test_events_of_other_groups_are_not_compared() -> None:
    decisions = decisions_of(["disk 1 full"] * 3, groups=["a", "b", "a"])
    assert [d.kind for d in decisions] == [Kind.NEW, Kind.NEW, Kind.DUPLICATE]


def test_an_equal_event_after_the_window_is_new() -> None:
    times = [0, HOUR_US, 3 * HOUR_US, 3 * HOUR_US + 1]
    kinds = [Kind.NEW, Kind.DUPLICATE, Kind.NEW, Kind.DUPLICATE]
    assert [d.kind for d in decisions_of(["disk 1 full"] * 4, times_us=times)] == kinds
    dedup = Deduplicator(clock=ManualClock(NOW_US))
    one_by_one = [dedup.process_one("disk 1 full", time_us=at_us) for at_us in times]
    assert [d.kind for d in one_by_one] == kinds


def test_the_recipe_json_takes_documents_decoded_or_as_text() -> None:
    dedup = Deduplicator("json", clock=ManualClock(NOW_US))
    event: dict[str, Any] = {"msg": "user logged in from terminal", "level": "info", "id": 17}
    decisions = dedup.process(
        [
            event,
            '{"id": 18, "level": "info", "msg": "user logged in from terminal"}',
            b'{"msg":"user logged in from terminal","level":"info","id":99}',
            {"msg": "disk full", "level": "error", "device": "sda"},
            "{not json",
        ]
    )
    assert [d.kind for d in decisions] == [
        Kind.NEW,
        Kind.DUPLICATE,
        Kind.DUPLICATE,
        Kind.NEW,
        Kind.PASSED,
    ]
    assert dedup.counts.passed == {"not JSON": 1}
    assert_counts_add_up(dedup.close(), dedup.counts)


@pytest.mark.parametrize("recipe", ["logs", "json"])
@pytest.mark.parametrize("value", ["\ud800 half a pair", "\udcff a raw byte", {"a": "b \ud800 c"}])
def test_invalid_unicode_does_not_stop_the_stream(recipe: str, value: str | dict[str, Any]) -> None:
    dedup = Deduplicator(recipe)
    assert len(dedup.process(["some good text", value, "more good text"])) == 3
    assert_counts_add_up(dedup.close(), dedup.counts)


def test_an_empty_batch_has_no_decisions() -> None:
    dedup = Deduplicator()
    assert dedup.process([]) == []
    assert collected(dedup) == []
    assert dedup.counts.events == 0
    assert dedup.counts.removed == 0.0


@pytest.mark.parametrize("given", [{"times_us": [1]}, {"groups": ["a", "b", "c"]}])
def test_columns_of_other_lengths_are_refused(given: dict[str, Any]) -> None:
    dedup = Deduplicator()
    with pytest.raises(ValueError, match="entries for 2 values"):
        dedup.process(["a b", "c d"], **given)
    assert dedup.counts.events == 0
    assert dedup.process_one("a b").kind == Kind.NEW


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(RecipeError):
        Deduplicator("nonsense")


def test_times_too_far_in_the_future_are_set_back_and_counted() -> None:
    dedup = Deduplicator(clock=ManualClock(NOW_US))
    far = NOW_US + 1000 * HOUR_US
    dedup.process(["disk 1 full", "out of memory", "disk 2 full"], times_us=[far, NOW_US, far])
    assert dedup.counts.clamped == 2
    latest = NOW_US + 600 * S
    assert max(summary.last_time_us for summary in dedup.close()) == latest


def test_without_times_events_happen_when_they_arrive() -> None:
    clock = ManualClock(NOW_US)
    dedup = Deduplicator(clock=clock)
    dedup.process_one("disk 1 full")
    clock.advance(30)
    dedup.process_one("disk 2 full")
    (summary,) = dedup.close()
    assert (summary.first_time_us, summary.last_time_us) == (NOW_US, NOW_US + 30 * S)


# ---------------------------------------------------------------- summaries


def test_summaries_are_due_with_news_and_when_clusters_close() -> None:
    clock = ManualClock(NOW_US)
    dedup = Deduplicator(clock=clock, summaries=Summaries(every_us=60 * S))
    dedup.process(["disk 1 full", "disk 2 full"])
    assert dedup.due() == []
    clock.advance(61)
    dedup.process(["disk 3 full"])
    (news,) = dedup.due()
    assert (
        news.revision,
        news.count,
        news.closing,
        news.pattern,
    ) == (1, 3, None, "disk <number> full")
    clock.advance(3700)
    (final,) = dedup.due()
    assert (
        final.revision,
        final.count,
        final.new_count,
        final.closing,
    ) == (2, 3, 0, Closing.EXPIRED)
    assert collected(dedup) == []


def test_summaries_carry_the_representative_and_samples() -> None:
    dedup = Deduplicator(summaries=Summaries(samples=2))
    dedup.process([f"disk {number} full" for number in range(5)])
    dedup.process(["disk 99 full"])
    (summary,) = dedup.close()
    assert (
        summary.representative,
        summary.samples,
    ) == (b"disk 0 full", (b"disk 1 full", b"disk 2 full"))


def test_decisions_have_patterns() -> None:
    dedup = Deduplicator()
    decisions = dedup.process(["disk 1 full", "", "disk 2 full"])
    assert dedup.patterns(decisions) == ["disk <number> full", None, "disk <number> full"]
    gone = [Decision(Kind.DUPLICATE, 12345, 0, 0)]
    assert dedup.patterns(gone) == [None]


def test_after_closing_the_stream_may_go_on() -> None:
    dedup = Deduplicator()
    dedup.process_one("disk 1 full")
    summaries = collected(dedup)
    assert dedup.process_one("disk 2 full").kind == Kind.NEW
    summaries += dedup.close()
    assert [summary.count for summary in summaries] == [1, 1]


# ---------------------------------------------------------------- clusters closed meanwhile


def test_events_of_clusters_closed_meanwhile_are_resolved_again() -> None:
    dedup = Deduplicator(limits=Limits(max_clusters=1), clock=ManualClock(NOW_US))
    first = dedup.process_one("disk 1 full")
    dedup.process_one("out of memory")  # evicts it
    again = dedup.process(["disk 2 full", "disk 3 full", "out of memory"])
    assert [d.kind for d in again] == [Kind.NEW, Kind.DUPLICATE, Kind.DUPLICATE]
    assert first.cluster != again[0].cluster
    assert_counts_add_up(dedup.close(), dedup.counts)


@pytest.mark.parametrize("near_size", [1, 2, 3])
def test_entries_of_both_cache_generations_are_forgotten(
    near_size: int,
) -> None:
    dedup = Deduplicator(limits=Limits(max_clusters=1), clock=ManualClock(NOW_US))
    use_engine(dedup, near_cache_size=near_size)
    for _ in range(5):
        for text in ("disk 1 full", "out of memory", "user logged in"):
            dedup.process([text, text])
    assert dedup.counts.events == 30
    assert_counts_add_up(dedup.close(), dedup.counts)


class Failing(MemoryIndex):
    """An index whose next record fails, as one far away may."""

    failure: Exception | None = None

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return await super().record(record, now_us)


def engine_over(
    index: MemoryIndex, clock: ManualClock, near_cache_size: int = 1_000, samples: int = 3
) -> Engine:
    return Engine(
        index.recipe,
        index,
        windows=Windows(),
        summaries=Summaries(samples=samples),
        clock=clock,
        near_cache_size=near_cache_size,
    )


def test_a_batch_that_failed_is_decided_the_same_on_a_retry() -> None:
    index = Failing(load_recipe("logs"))
    engine = engine_over(index, ManualClock(NOW_US))
    batch = Batch(HERE, range(3), [b"disk 1 full", b"disk 2 full", b"out of memory"])
    index.failure = ConnectionError()
    with pytest.raises(ConnectionError):
        run(engine.process(batch))
    decisions = run(engine.process(batch))
    assert [d.kind for d in decisions] == [Kind.NEW, Kind.DUPLICATE, Kind.NEW]
    run(index.finish(NOW_US))
    summaries = run(engine.claim_summaries())
    assert [(s.count, s.representative) for s in summaries] == [
        (2, b"disk 1 full"),
        (1, b"out of memory"),
    ]


def test_a_dropped_batch_does_not_change_the_following_counts() -> None:
    index = Failing(load_recipe("logs"))
    engine = engine_over(index, ManualClock(NOW_US))
    run(engine.process(Batch(HERE, range(1), [b"disk 1 full"])))
    index.failure = StaleFence()
    with pytest.raises(StaleFence):
        run(engine.process(Batch(HERE, range(1, 3), [b"disk 1 full"] * 2)))
    run(engine.process(Batch(HERE, range(3, 6), [b"disk 1 full"] * 3)))
    run(index.finish(NOW_US))
    assert [s.count for s in run(engine.claim_summaries())] == [4]


class ConfirmsMeanwhile(MemoryIndex):
    """An index of which another task confirms a final summary while a batch is resolved."""

    engine: Engine
    once = True

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        answers = await super().resolve(queries, now_us)
        if queries[0].position.offset and self.once:
            self.once = False
            await self.finish(now_us)
            await self.engine.confirm_summaries(await self.engine.claim_summaries())
        return answers


def test_events_count_though_their_cluster_is_confirmed_meanwhile() -> None:
    index = ConfirmsMeanwhile(load_recipe("logs"))
    engine = index.engine = engine_over(index, ManualClock(NOW_US))
    run(engine.process(Batch(HERE, range(1), [b"disk 1 full"])))
    values = [b"disk 1 full", b"out of memory", b"disk 1 full"]
    decisions = run(engine.process(Batch(HERE, range(1, 4), values)))
    assert [d.kind for d in decisions] == [Kind.NEW, Kind.NEW, Kind.DUPLICATE]
    run(index.finish(NOW_US))
    assert sorted((s.count for s in run(engine.claim_summaries())), reverse=True) == [
        2,
        1,
    ]


def test_the_check_of_counts_reports_what_is_missing() -> None:
    dedup = Deduplicator()
    dedup.process(["disk 1 full", "disk 2 full", "out of memory", ""])
    first, second = dedup.close()
    assert_counts_add_up([first, second, first], dedup.counts)
    with pytest.raises(AssertionError, match="count 2 events and 1 were passed: 3 of 4"):
        assert_counts_add_up([first], dedup.counts)
    dedup.counts.new += 1
    with pytest.raises(AssertionError, match="3 new"):
        assert_counts_add_up([first, second], dedup.counts)


# ---------------------------------------------------------------- partitions


def test_partitions_are_deduplicated_together() -> None:
    dedup = Deduplicator()
    (here,) = dedup.process_batch(Batch(HERE, [10], [b"disk 1 full"]))
    (there,) = dedup.process_batch(Batch(THERE, [7], [b"disk 2 full"]))
    assert (there.kind, there.cluster) == (Kind.DUPLICATE, here.cluster)


def test_a_released_partition_no_longer_holds_windows_open() -> None:
    dedup = Deduplicator(clock=ManualClock(NOW_US))
    dedup.process_batch(Batch(HERE, [0], [b"disk 1 full"], times_us=[0]))
    late = Batch(THERE, [0], [b"out of memory"], times_us=[9 * HOUR_US])
    dedup.process_batch(late)
    assert dedup.due() == []
    dedup.release(HERE)
    assert [summary.representative for summary in dedup.due()] == [b"disk 1 full"]
    dedup.process_batch(Batch(HERE, [1], [b"disk 1 full"], times_us=[9 * HOUR_US]))
    assert [summary.count for summary in dedup.close()] == [1, 1]


def test_a_batch_delivered_again_counts_once_in_the_summaries() -> None:
    dedup = Deduplicator()
    batch = Batch(HERE, range(2), [b"disk 1 full", b"disk 2 full"])
    for _ in range(3):
        dedup.process_batch(batch)
    assert [summary.count for summary in dedup.close()] == [2]


def test_of_a_batch_recorded_in_part_the_rest_is_counted() -> None:
    dedup = Deduplicator()
    dedup.process_batch(Batch(HERE, range(2), [b"disk 1 full"] * 2))
    decisions = dedup.process_batch(Batch(HERE, range(1, 3), [b"disk 1 full"] * 2))
    assert [decision.reason for decision in decisions] == [REPLAYED, ""]
    assert (dedup.counts.events, dedup.counts.replayed) == (3, 1)
    assert [summary.count for summary in dedup.close()] == [3]


FIVE = [b"disk 1 full", b"out of memory", b"", b"disk 2 full", b"user 7 logged in"]


@pytest.mark.parametrize("near_size", [0, 1, 1_000])
def test_redelivered_events_are_decided_as_before_and_count_once(near_size: int) -> None:
    index = MemoryIndex(load_recipe("logs"))
    engine = engine_over(index, ManualClock(NOW_US), near_cache_size=near_size)
    batch = Batch(HERE, range(5), FIVE)
    first = run(engine.process(batch, committed=0))
    again = run(engine.process(batch, committed=5))
    assert [d[:4] for d in first] == [d[:4] for d in again]
    assert (engine.counts.events, engine.counts.new, engine.counts.duplicates) == (5, 3, 1)


def test_the_next_owner_decides_as_the_journal_says() -> None:
    index = MemoryIndex(load_recipe("logs"))
    batch = Batch(HERE, range(5), FIVE, passed={1: "too long"})
    first = run(engine_over(index, ManualClock(NOW_US)).process(batch, committed=0))
    heir = engine_over(index, ManualClock(NOW_US + 1))
    # It reads on beyond, and has its own idea of what is too long.
    more = Batch(HERE, range(7), [*FIVE, b"disk 9 full", b"bye"])
    assert run(heir.process(more, committed=0))[:5] == first
    assert (heir.counts.redelivered, heir.counts.replayed, heir.counts.events) == (5, 0, 2)


def test_events_missing_in_the_journal_are_replayed_uncounted() -> None:
    index = MemoryIndex(load_recipe("logs"))
    batch = Batch(HERE, range(5), FIVE)
    run(engine_over(index, ManualClock(NOW_US)).process(batch, committed=5))
    rewound = engine_over(index, ManualClock(NOW_US))
    decisions = run(rewound.process(batch))
    assert [decision.reason for decision in decisions] == [
        REPLAYED,
        REPLAYED,
        NO_TOKENS.reason,
        REPLAYED,
        REPLAYED,
    ]
    assert (
        rewound.counts.events,
        rewound.counts.replayed,
        rewound.counts.redelivered,
    ) == (0, 4, 1)
    run(index.finish(NOW_US))
    assert sum(summary.count for summary in run(rewound.claim_summaries())) == 4


class Watched(Failing):
    """An index that keeps what was recorded, and may fail at one of its records."""

    def __init__(self) -> None:
        super().__init__(load_recipe("logs"))
        self.records: list[Commit] = []
        self.fails_at = -1

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        self.records.append(record)
        assert self.weight(record) <= MAX_DELTAS
        if len(self.records) == self.fails_at:
            self.failure = IndexUnavailable("away")
        return await super().record(record, now_us)

    @staticmethod
    def weight(record: Commit) -> float:
        """Deltas, and the weight of their values."""
        values = [v for t in record.deltas for v in (t.representative or b"", *t.samples)]
        most = Summaries().max_value_bytes
        return len(record.deltas) + sum(min(most, len(value)) for value in values) / DELTA_BYTES


def different(count: int) -> list[bytes]:
    """Lines of which none is like another."""
    return [" ".join(word(n) + letter for letter in "wxyz").encode() for n in range(count)]


@pytest.mark.parametrize("fails_at", [-1, 1, 2, 4])
def test_a_batch_of_many_clusters_is_recorded_in_segments(fails_at: int) -> None:
    index = Watched()
    engine = engine_over(index, ManualClock(NOW_US))
    batch = Batch(HERE, range(1_000), [line + b" " * 2_000 for line in different(1_000)])
    index.fails_at = fails_at
    expected = Deduplicator(clock=ManualClock(NOW_US)).process(batch.values)
    try:
        decisions = run(engine.process(batch))
    except IndexUnavailable:
        decisions = run(engine.process(batch))
    assert [d.kind for d in decisions] == [d.kind for d in expected]
    assert len(index.records) >= 4
    assert max(len(record.deltas) for record in index.records) <= MAX_DELTAS
    failed = index.records[fails_at - 1].deltas if fails_at > 0 else ()
    assert sum(len(r.deltas) for r in index.records) - len(failed) == 1_000
    run(index.finish(NOW_US))
    assert sum(summary.count for summary in run(engine.claim_summaries())) == 1_000
    assert engine.counts.events == 1_000


class LosesAnswers(Watched):
    """An index whose answers to some records are lost."""

    losses = 1

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        closed = await super().record(record, now_us)
        if self.losses:
            self.losses -= 1
            raise IndexUnavailable("the answer was lost")
        return closed


@pytest.mark.parametrize("losses", [1, 2, 3])
@pytest.mark.parametrize(("samples", "alike"), [(0, 1), (3, 4)])
def test_after_a_lost_answer_commits_stay_in_their_bounds(
    samples: int, alike: int, losses: int
) -> None:
    index = LosesAnswers()
    index.losses = losses
    engine = engine_over(index, ManualClock(NOW_US), samples=samples)
    values = [line + b" " * 1_000 for line in different(900) for _ in range(alike)]
    batch = Batch(HERE, range(len(values)), values)
    for _ in range(losses):
        with suppress(IndexUnavailable):  # each call gets further: what was recorded stays so
            run(engine.process(batch))
    decisions = run(engine.process(batch))
    assert not index.losses
    assert engine.counts.events == len(values)
    assert [d.kind is Kind.NEW for d in decisions] == [n % alike == 0 for n in range(len(values))]
    run(index.finish(NOW_US))
    assert sum(summary.count for summary in run(engine.claim_summaries())) == len(values)


def test_segments_end_at_the_last_offset_counted_and_at_boundaries() -> None:
    owned = OwnedPartition(1, -1, {}, (125,), counted=109)
    assert [owned.segment_end(range(100, 130), start) for start in (0, 10, 26)] == [10, 26, 30]


class Late(Watched):
    """An index that carries out a commit only after another one was asked for."""

    late: Commit | None = None
    reads = 0

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        if self.late is None:
            self.late = record
            raise IndexUnavailable("the connection was lost")
        if self.reads == 1:
            await super().record(self.late, now_us)
        return await super().record(record, now_us)

    async def read_partition(self, partition: Partition, fence: int) -> Ownership:
        self.reads += 1
        return await super().read_partition(partition, fence)


def test_a_commit_that_arrives_late_decides_and_counts_once() -> None:
    index = Late()
    engine = engine_over(index, ManualClock(NOW_US))
    batch = Batch(HERE, range(5), FIVE)
    with pytest.raises(IndexUnavailable):
        run(engine.process(batch))
    decisions = run(engine.process(batch))
    kinds = [Kind.NEW, Kind.NEW, Kind.PASSED, Kind.DUPLICATE, Kind.NEW]
    assert [d.kind for d in decisions] == kinds
    assert index.reads == 2
    assert (engine.counts.events, engine.counts.new, engine.counts.redelivered) == (5, 3, 0)
    run(index.finish(NOW_US))
    assert sum(summary.count for summary in run(engine.claim_summaries())) == 4


class Half(Late):
    """An index of which one shard records a commit while another names clusters as closed."""

    halves = 1

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        if self.halves:
            self.halves -= 1
            return frozenset(delta.cluster for delta in record.deltas)
        return await MemoryIndex.record(self, record, now_us)

    async def resolve(self, queries: Sequence[Query], now_us: int) -> list[Resolution]:
        if not self.halves and not self.reads:
            raise IndexUnavailable("away")
        return await super().resolve(queries, now_us)


def test_a_commit_that_may_be_half_recorded_is_in_doubt() -> None:
    index = Half()
    engine = engine_over(index, ManualClock(NOW_US))
    batch = Batch(HERE, range(5), FIVE)
    with pytest.raises(IndexUnavailable):
        run(engine.process(batch))
    run(engine.process(batch))
    assert index.reads == 1
    assert engine.counts.events == 5


class Hasty(Watched):
    """An index whose clusters close again and again before they are counted."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.times_us: list[int] = []

    async def record(self, record: Commit, now_us: int) -> frozenset[int]:
        self.times_us.append(now_us)
        self.clock.advance(1)
        if len(self.times_us) <= 2 * REFUSALS_WARNED:
            return frozenset(delta.cluster for delta in record.deltas)
        return await super().record(record, now_us)


def test_clusters_that_close_too_soon_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW_US)
    engine = engine_over(index := Hasty(clock), clock)
    run(engine.process(Batch(HERE, range(5), FIVE)))
    assert (engine.counts.events, engine.refused_commits) == (5, 2 * REFUSALS_WARNED)
    # Asked again and again about events whose clusters closed, it counts them once.
    assert engine.counts.asked == sum(engine.counts.rules.values()) == 3
    # Each commit says that the partition is active now, not when its batch began.
    assert index.times_us == [NOW_US + n * 1_000_000 for n in range(2 * REFUSALS_WARNED + 1)]
    first, second = caplog.messages
    assert first.startswith(f"{HERE.source}-{HERE.number}: ")
    assert f" {REFUSALS_WARNED} times " in first
    assert f" {2 * REFUSALS_WARNED} times " in second


DAY_US = 24 * 3600 * 1_000_000
PATTERNS = [line + b" " * 4_000 for line in different(500)]  # each as large as what is kept of it


def test_commits_of_patterns_that_return_late_stay_in_bounds() -> None:
    index = Watched()
    engine = engine_over(index, ManualClock(NOW_US), samples=0)
    for day in (9, 5):
        times = [NOW_US - day * DAY_US] * 500
        first = (9 - day) * 1_000
        batch = Batch(HERE, range(first, first + 500), PATTERNS, times_us=times)
        assert all(d.kind is Kind.NEW for d in run(engine.process(batch)))


def test_commits_of_confirmed_patterns_stay_in_bounds() -> None:
    index = Watched()
    engine = engine_over(index, ManualClock(NOW_US), samples=0)
    run(engine.process(Batch(HERE, range(500), PATTERNS)))
    run(index.finish(NOW_US))
    run(engine.confirm_summaries(run(engine.claim_summaries())))
    decisions = run(engine.process(Batch(HERE, range(500, 1_000), PATTERNS)))
    assert all(d.kind is Kind.NEW for d in decisions)


@pytest.mark.parametrize("days_apart", [0, 2])
def test_commits_of_equal_events_far_apart_stay_in_bounds(days_apart: int) -> None:
    index = Watched()
    engine = engine_over(index, ManualClock(NOW_US))
    times = [NOW_US - (1_000 - n) * days_apart * DAY_US for n in range(1_000)]
    batch = Batch(HERE, range(1_000), [b"disk full " + b" " * 4_000] * 1_000, times_us=times)
    decisions = run(engine.process(batch))
    assert sum(d.kind is Kind.NEW for d in decisions) == (1_000 if days_apart else 1)


def test_a_partition_whose_state_expired_is_claimed_again() -> None:
    index = Failing(load_recipe("logs"))
    engine = engine_over(index, ManualClock(NOW_US))
    run(engine.process(Batch(HERE, range(1), [b"disk 1 full"])))
    index.failure = PartitionUnclaimed("its state ran out")
    decisions = run(engine.process(Batch(HERE, range(1, 2), [b"disk 2 full"])))
    assert [decision.kind for decision in decisions] == [Kind.DUPLICATE]


def test_a_loss_found_by_another_engine_clears_the_cache() -> None:
    index = MemoryIndex(load_recipe("logs"))
    engine = engine_over(index, ManualClock(NOW_US))
    run(engine.process(Batch(HERE, range(1), [b"disk 1 full"])))
    vars(index).update(vars(MemoryIndex(load_recipe("logs"))), resets=1)  # as a reset leaves it
    decisions = run(engine.process(Batch(HERE, range(1, 2), [b"disk 2 full"])))
    assert [decision.kind for decision in decisions] == [Kind.NEW]


of = partial(example, step=1, high_water=-1, boundaries=[])


@of(keys=list(range(801)), bare_below=801, sizes=[0], samples=0)
@of(keys=list(range(801)), bare_below=400, sizes=[9], samples=0)
@of(keys=[7] * 1_800, bare_below=0, sizes=[5_000], samples=3)
# Two of each that is new; samples of what is new, and of what is known.
@of(keys=[n // 2 for n in range(1_600)], bare_below=0, sizes=[0], samples=0)
@of(keys=[n // 4 for n in range(1_600)], bare_below=0, sizes=[4_000], samples=3)
@of(keys=list(range(1, 801, 2)), bare_below=801, sizes=[4_000], samples=1)
# The large ones come last; then so few of them that they need not be looked at one by one.
@of(keys=list(range(1_100)), bare_below=0, sizes=[0] * 700 + [4_000] * 400, samples=0)
@of(keys=list(range(900)), bare_below=0, sizes=[0] * 700 + [4_000] * 200, samples=0)
@given(
    keys=st.lists(st.integers(0, 800), min_size=1, max_size=1_800),
    bare_below=st.integers(0, 801),
    sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=5),
    samples=st.integers(0, 3),
    step=st.integers(1, 3),
    high_water=st.integers(-1, 1_000),
    boundaries=st.lists(st.integers(0, 2_700), max_size=3).map(sorted),
)
def test_segments_end_at_boundaries_and_before_a_commit_is_too_large(
    keys: list[int],
    bare_below: int,
    sizes: list[int],
    samples: int,
    step: int,
    high_water: int,
    boundaries: list[int],
) -> None:
    recipe, summaries = load_recipe("logs"), Summaries(samples=samples)
    engine = engine_over(MemoryIndex(recipe), ManualClock(0), samples=samples)
    for key in range(bare_below):
        known(engine, key).samples_wanted = min(samples, key % 2)
    offsets = range(0, len(keys) * step, step)
    values = [b"x" * sizes[row % len(sizes)] for row in range(len(keys))]
    batch = Batch(HERE, offsets, values)
    owned = OwnedPartition(1, high_water, {}, tuple(boundaries))
    start, ends = 0, []
    while start < len(keys):
        segment = segment_of(engine, batch, keys, start, owned.segment_end(offsets, start))
        if offsets[start] > high_water:
            segment.limit_to_one_commit()
            cached = take(*segment._lookup)
            assert cached == list(map(engine._cache._recent.get, keys[start : segment.end]))
        end = segment.end
        assert start < end
        kept = dict.fromkeys(keys[start:end], 1 + samples)
        kept.update((key, min(samples, key % 2)) for key in kept if key < bare_below)
        again = {key for key, count in Counter(keys[start:end]).items() if count > 1}
        weight = DELTA_BYTES * (len(kept) + sum(key >= bare_below for key in again))
        for key, value in zip(keys[start:end], values[start:end], strict=True):
            if kept[key]:
                kept[key] -= 1
                weight += min(len(value), summaries.max_value_bytes)
        fits = weight <= MAX_DELTAS * DELTA_BYTES
        assert fits or offsets[end - 1] <= high_water or end == start + 1
        for last in (high_water, *(offset for offset in boundaries if offset > high_water)):
            assert not offsets[start] <= last < offsets[end - 1]
        start = end
        ends.append(end)
    assert ends[-1] == len(keys)


def test_a_batch_of_many_deltas_and_few_values_is_one_segment() -> None:
    engine = engine_over(MemoryIndex(load_recipe("logs")), ManualClock(0))
    for key in range(350):
        known(engine, key).samples_wanted = 0
    keys = [*range(350), *range(1_000, 1_200), *range(350)]
    batch = Batch(HERE, range(len(keys)), [b"x" * 150] * len(keys))
    segment = segment_of(engine, batch, keys, 0, len(keys))
    segment.limit_to_one_commit()
    assert segment.end == len(keys)


def known(engine: Engine, key: int) -> CachedCluster:
    """Have an engine's near cache know a cluster, under a key of the same number."""
    resolution = Resolution(key, 0, new=True, opened_us=0, last_us=0)
    return engine._cache.store(key, resolution, NO_TOKENS).cluster


def segment_of(engine: Engine, batch: Batch, keys: list[int], start: int, end: int) -> Segment:
    """A segment of a batch with hashes that are given."""
    fingerprinter = engine.hash(batch).fingerprinter
    hashed, times_us = HashedBatch(batch, fingerprinter, [], keys, keys), [0] * len(keys)
    return Segment(engine._context, hashed, times_us, [NO_TOKENS] * len(keys), 0, start, end)


def test_passed_events_keep_their_row() -> None:
    dedup = Deduplicator()
    batch = Batch(HERE, range(3), [b"disk 1 full", b"\0", b"disk 2 full"], passed={1: "too long"})
    decisions = dedup.process_batch(batch)
    assert [d.kind for d in decisions] == [Kind.NEW, Kind.PASSED, Kind.DUPLICATE]
    assert (decisions[1].reason, dedup.counts.passed) == ("too long", {"too long": 1})


# ---------------------------------------------------------------- asynchronous use


async def arriving(values: Sequence[str]) -> AsyncIterator[bytes | str | dict[str, Any]]:
    for value in values:
        await asyncio.sleep(0)
        yield value


def test_a_stream_is_decided_event_by_event_inside_a_running_loop() -> None:
    async def main() -> list[tuple[object, Kind]]:
        dedup = Deduplicator()
        return [(value, d.kind) async for value, d in dedup.stream(arriving(LINES[:3]))]

    kinds = [Kind.NEW, Kind.DUPLICATE, Kind.NEW]
    assert asyncio.run(main()) == list(zip(LINES, kinds, strict=False))


def test_run_refuses_a_coroutine_that_waits_for_something() -> None:
    with pytest.raises(RuntimeError, match="await the engine instead"):
        run(asyncio.sleep(0))


def test_run_returns_results_and_raises_errors() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise KeyError("gone")

    assert run(answer()) == 42
    with pytest.raises(KeyError, match="gone"):
        run(fail())


# ---------------------------------------------------------------- bounds and hostile input


def test_memory_is_bounded_by_the_cap_on_clusters() -> None:
    clock = ManualClock(NOW_US)
    cap, batch, events = 200, 200, 10_000
    dedup = Deduplicator(clock=clock, limits=Limits(max_clusters=cap))
    use_engine(dedup, near_cache_size=2 * cap)
    generator = random.Random(7)
    summaries: list[Summary] = []
    for start in range(0, events, batch):
        dedup.process(
            [
                f"{word(n)} {word(generator.randrange(10**6))} {word(n * 7)} of service failed"
                for n in range(start, start + batch)
            ]
        )
        summaries += dedup.due()
        clock.advance(1)
    size = dedup.size()
    assert size.clusters == cap
    assert events - cap <= size.evicted <= events
    assert size.waiting == 0
    assert size.fingerprints <= 2 * cap
    index: Any = dedup.engine.index
    clusters, lookup = index._clusters, index._clusters.lookup
    assert len(lookup._handles) <= 2 * cap + batch
    assert len(clusters._by_id) == cap
    assert len(lookup._by_exact) <= 2 * cap
    assert len(clusters._tombstones) <= cap
    queues = clusters._expiry, clusters._recency, clusters.pending._due
    assert max(map(len, queues)) <= 4 * cap + 2 * batch
    assert dedup.engine.near_cache_entries <= 2 * 2 * cap
    assert len(dedup.engine._cache._clusters) <= 2 * 2 * cap
    assert len(dedup.engine._names) <= cap
    assert size.table_bytes < 400_000
    summaries += dedup.close()
    assert_counts_add_up(summaries, dedup.counts)
    assert Closing.EVICTED in {summary.closing for summary in summaries}


def seconds_to_process(values: Sequence[str], times_us: Sequence[int], **settings: Any) -> float:
    dedup = Deduplicator(clock=ManualClock(10**17), **settings)
    summaries: list[Summary] = []
    start = time.process_time()
    for at in range(0, len(values), 1024):
        dedup.process(values[at : at + 1024], times_us=times_us[at : at + 1024])
        summaries += dedup.due(patterns=False)
    elapsed = time.process_time() - start
    assert_counts_add_up([*summaries, *dedup.close()], dedup.counts)
    return elapsed


SIMILAR = " ".join(word(n) for n in range(30))
HOSTILE_TIMES = {
    "two hours apart": [2 * HOUR_US * n for n in range(4096)],
    "backwards": [2 * HOUR_US * (4096 - n) for n in range(4096)],
    "to and fro": [(n % 2) * 50 * HOUR_US for n in range(4096)],
    "to and fro, wider and wider": [(-1) ** n * n * 2 * HOUR_US for n in range(4096)],
    "sawtooth": [(n % 64) * 2 * HOUR_US + n for n in range(4096)],
    "before 1970": [-2 * HOUR_US * (4096 - n) for n in range(4096)],
}


@pytest.mark.parametrize("times", HOSTILE_TIMES)
@pytest.mark.parametrize(
    ("values", "max_clusters"), [("equal", 1), ("near", 100_000), ("interleaved", 1)]
)
def test_hostile_times_cost_linear_time(times: str, values: str, max_clusters: int) -> None:
    texts = {
        "equal": [SIMILAR] * 4096,
        "near": [f"{SIMILAR} {word(n)}" for n in range(4096)],
        "interleaved": [f"{word(n % 50)} {word(n % 50 + 100)} failed" for n in range(4096)],
    }
    limits = Limits(max_clusters=max_clusters)
    # Processor time, some 3 seconds at most; quadratic time would be minutes.
    assert seconds_to_process(texts[values], HOSTILE_TIMES[times], limits=limits) < 30


def test_a_batch_larger_than_the_near_cache_is_processed() -> None:
    dedup = Deduplicator()
    use_engine(dedup, near_cache_size=1)
    values = [f"{word(n % 40)} {word(n % 40 + 50)} failed" for n in range(2000)]
    decisions = dedup.process(values)
    assert sum(d.kind is Kind.NEW for d in decisions) <= 40
    assert_counts_add_up(dedup.close(), dedup.counts)


def test_entries_of_the_older_cache_generation_are_used() -> None:
    dedup = Deduplicator()
    use_engine(dedup, near_cache_size=2)
    dedup.process(["alpha one", "beta two", "gamma three"])
    kinds = [d.kind for d in dedup.process(["beta two", "gamma three", "delta four", "alpha one"])]
    assert kinds == [Kind.DUPLICATE, Kind.DUPLICATE, Kind.NEW, Kind.DUPLICATE]
    assert dedup.counts.asked == 4


def test_a_waiting_event_joins_the_cluster_of_the_event_before_it() -> None:
    dedup = Deduplicator(windows=Windows(idle_us=S), clock=ManualClock(NOW_US))
    line = b"disk sda1 is full"
    first, waited, later = dedup.process(
        [line, line, line], times_us=[NOW_US, NOW_US, NOW_US + 2 * S]
    )

    assert [d.kind.value for d in (first, waited, later)] == ["new", "duplicate", "new"]
    assert first.cluster == waited.cluster != later.cluster


def windowed(times_us: list[int], idle_us: int) -> list[bool]:
    """Whether each of equal events, in order of time, is new: as windows are defined."""
    new, last = [], None
    for time_us in times_us:
        new.append(last is None or time_us > last + idle_us)
        last = time_us
    return new


@given(
    gaps=st.lists(st.integers(30, 110), min_size=5, max_size=60),
    splits=st.lists(st.integers(1, 9), min_size=60, max_size=60),
    every_s=st.sampled_from([None, 20]),
)
def test_windows_hold_however_the_stream_is_split(
    gaps: list[int], splits: list[int], every_s: int | None
) -> None:
    clock = ManualClock(NOW_US)
    times_us = [NOW_US + total * S for total in accumulate(gaps)]
    dedup = Deduplicator(
        windows=Windows(idle_us=100 * S, max_future_us=10**12),
        summaries=Summaries(every_us=every_s and every_s * S),
        clock=clock,
    )
    decisions = []
    rest = times_us
    for split in splits:
        part, rest = rest[:split], rest[split:]
        decisions += dedup.process([b"heartbeat came in"] * len(part), times_us=part)
        dedup.due()

    assert [d.kind is Kind.NEW for d in decisions] == windowed(times_us, 100 * S)


def test_a_single_event_in_place_of_many_is_refused() -> None:
    for one in ("abc", b"abc", {"a": 1}):
        with pytest.raises(TypeError, match="process_one"):
            Deduplicator().process(one)  # type: ignore[arg-type]


def test_a_value_that_is_not_an_event_is_refused() -> None:
    with pytest.raises(TypeError, match="NoneType is not an event"):
        Deduplicator().process([None])  # type: ignore[list-item]


def test_events_may_come_from_a_generator_and_as_any_bytes() -> None:
    values = (kind(b"disk is full") for kind in (bytes, bytearray, memoryview))

    assert [d.kind.value for d in Deduplicator().process(values)] == [
        "new",
        "duplicate",
        "duplicate",
    ]


def test_close_confirms_summaries_without_iteration() -> None:
    dedup = Deduplicator()
    dedup.process([b"disk is full", b"out of memory"])

    assert len(dedup.close()) == 2
    assert dedup.close() == []


def test_a_stream_may_have_times_and_groups() -> None:
    async def events() -> AsyncIterator[dict[str, Any]]:
        for service, second in (("a", 0), ("b", 0), ("a", 1), ("a", 9000)):
            yield {"msg": "disk is full", "service": service, "t": second}

    async def kinds() -> list[str]:
        dedup = Deduplicator(clock=ManualClock(NOW_US))
        pairs = dedup.stream(
            events(),
            time_us=lambda event: NOW_US - 10_000 * S + cast("dict[str, int]", event)["t"] * S,
            group=lambda event: cast("dict[str, str]", event)["service"],
        )
        return [decision.kind.value async for _, decision in pairs]

    assert asyncio.run(kinds()) == ["new", "new", "duplicate", "new"]


@pytest.mark.parametrize(
    ("recipe", "line"),
    [
        ("text", "a" + "\u0315\u0300" * 100_000),
        ("text", "1%" * 100_000),
        ("json", '{"' + "k" * 300_000 + '": {' + ", ".join(f'"{n}": 1' for n in range(900)) + "}}"),
    ],
    ids=["combining marks", "masks at every place", "a long key above many values"],
)
def test_a_hostile_line_costs_linear_time_and_little_memory(recipe: str, line: str) -> None:
    dedup = Deduplicator(recipe)
    started = time.process_time()
    dedup.process([line])
    dedup.close()

    assert time.process_time() - started < 10  # a tenth of it, on a quiet machine
    assert sum(map(len, dedup.engine._hasher._fingerprinter._salts)) < 1_000_000


def test_json_that_is_not_utf8_is_passed_and_others_are_decided() -> None:
    decisions = Deduplicator("json").process([b'{"a":"\xff"}', b'{"a":"disk is full"}'])

    assert [decision.kind.value for decision in decisions] == ["passed", "new"]
