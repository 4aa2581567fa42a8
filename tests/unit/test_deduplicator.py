"""`Deduplicator`: bounds, single events, and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clock import ManualClock
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import MAX_PART_EVENTS, Deduplicator
from stream_dedup.errors import IndexFull
from stream_dedup.features.recipe import load_recipe, replace
from stream_dedup.index.base import MIN_WAITING, Limits
from stream_dedup.model import Batch, Closing, Decision, FoundBy, Kind, Partition, Summary
from stream_dedup.testing import assert_counts_add_up

S = 1_000_000
NOW_US = 1_700_000_000 * S
WIDE = Windows(idle_us=FOREVER_US, max_age_us=FOREVER_US)
DIGITS = str.maketrans("0123456789", "abcdefghij")

LINES = [
    "disk sda1 is 91% full",
    "disk sdb7 is 64% full",
    "out of memory: killed process 4711",
    "user alice logged in from terminal",
    "user bob logged in from terminal",
    "ok",
    "",
]


def distinct(count: int) -> list[str]:
    """Lines that are not alike."""
    return [f"{n:06} x{n:06} {n * 7919:08}y z{n * 31:07}".translate(DIGITS) for n in range(count)]


def deduplicator(max_clusters: int = 100_000, **settings: Any) -> Deduplicator:
    settings.setdefault("clock", ManualClock(NOW_US))
    return Deduplicator(limits=Limits(max_clusters=max_clusters), **settings)


def processed(dedup: Deduplicator, lines: list[str]) -> tuple[list[Decision], list[Summary]]:
    """The decisions for all lines, and the summaries taken whenever too many waited."""
    decisions: list[Decision] = []
    summaries: list[Summary] = []
    while len(decisions) < len(lines):
        try:
            decisions += dedup.process(lines[len(decisions) :])
        except IndexFull as full:
            assert dedup.waiting <= MIN_WAITING + dedup.part_events
            decisions += full.decisions
            summaries += dedup.due(patterns=False)
    return decisions, summaries


# ---------------------------------------------------------------- bounds


def test_a_batch_that_closes_many_clusters_stops_and_goes_on() -> None:
    dedup = deduplicator(max_clusters=1000)
    decisions, summaries = processed(dedup, distinct(30_000))
    assert sum(decision.kind == Kind.NEW for decision in decisions) > 29_000
    assert dedup.counts.events == 30_000
    assert_counts_add_up([*summaries, *dedup.close(patterns=False)], dedup.counts)


def test_too_many_waiting_summaries_are_an_error_with_a_remedy() -> None:
    dedup = deduplicator(max_clusters=1)
    with pytest.raises(
        IndexFull, match=r"[0-9]+ closed clusters wait .*: call due\(\), or"
    ) as full:
        dedup.process(distinct(10_000))
    assert len(full.value.decisions) == dedup.counts.events == 2 * dedup.part_events
    with pytest.raises(IndexFull):
        dedup.process_one("out of memory")
    with pytest.raises(IndexFull):
        dedup.process_batch(Batch(Partition("other", 0), [0], [b"out of memory"]))
    dedup.due()
    assert dedup.process_one("out of memory").kind == Kind.NEW


def test_without_summaries_nothing_waits_and_decisions_are_the_same() -> None:
    lines = distinct(5_000)
    lines += lines[-900:] + lines[:900]
    ours, without = deduplicator(1000), deduplicator(1000, keep_summaries=False)
    decisions = without.process(lines)
    assert decisions == processed(ours, lines)[0]
    assert without.waiting <= without.part_events
    assert without.counts == ours.counts
    assert without.due() == []
    assert sum(summary.count for summary in without.close()) <= 2 * 1000


def test_a_batch_is_decided_in_short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    dedup = deduplicator()
    lengths: list[int] = []
    process = dedup.engine.process

    async def seen(batch: Batch, committed: int) -> list[Decision]:
        lengths.append(len(batch.values))
        return await process(batch, committed)

    monkeypatch.setattr(dedup.engine, "process", seen)
    decisions = dedup.process("disk 1 full" for _ in range(3 * MAX_PART_EVENTS + 1))
    assert len(decisions) == 3 * MAX_PART_EVENTS + 1
    assert lengths == [MAX_PART_EVENTS] * 3 + [1]


def test_a_value_that_is_no_event_is_refused_before_others_count() -> None:
    dedup = deduplicator()
    with pytest.raises(TypeError, match="int is not an event: give text, bytes or a dict"):
        dedup.process(["disk 1 full"] * 5000 + [17])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="NoneType is not an event"):
        dedup.process_one(None)  # type: ignore[arg-type]
    assert dedup.counts.events == 0


# ---------------------------------------------------------------- single events


@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 500), st.sampled_from(["", "a"]))),
    st.sampled_from(["logs", "minhash-n", "text"]),
)
def test_single_events_are_decided_as_a_batch(
    events: list[tuple[str, int, str]], recipe: str
) -> None:
    one, many = (
        Deduplicator(recipe, windows=WIDE, clock=ManualClock(NOW_US), key=b"sixteen secrets!")
        for _ in range(2)
    )
    times_us = [NOW_US + at_s * S for _, at_s, _ in events]
    expected = many.process(
        [line for line, _, _ in events], times_us=times_us, groups=[group for *_, group in events]
    )
    decisions = [
        one.process_one(line, time_us=time_us, group=group)
        for (line, _, group), time_us in zip(events, times_us, strict=True)
    ]
    assert decisions == expected
    assert one.counts.events == many.counts.events
    assert one.counts.duplicates == many.counts.duplicates
    assert [(s.cluster, s.count, s.first_time_us, s.last_time_us) for s in one.close()] == [
        (s.cluster, s.count, s.first_time_us, s.last_time_us) for s in many.close()
    ]


CALLS: dict[str, Callable[[Deduplicator, ManualClock], Any]] = {
    "batch": lambda dedup, _: dedup.process(LINES),
    "elsewhere": lambda dedup, clock: dedup.process_batch(
        Batch(Partition("b", 0), [clock.now_us() + dedup.counts.events], [b"disk sda1 is 9% full"])
    ),
    "due": lambda dedup, _: dedup.patterns([dedup.process_one("ok")]),
    "size": lambda dedup, _: dedup.size(),
    "wait": lambda _, clock: clock.advance(40),
}


@given(
    st.lists(st.sampled_from([*LINES, *CALLS]), max_size=60),
    st.sampled_from([1, 2, 1000]),
    st.sampled_from([60, 3600]),
)
def test_counts_add_up_whatever_is_called_between_events(
    calls: list[str], max_clusters: int, idle_s: int
) -> None:
    clock = ManualClock(NOW_US)
    dedup = deduplicator(max_clusters, clock=clock, windows=Windows(idle_us=idle_s * S))
    summaries: list[Summary] = []
    for call in calls:
        if call in CALLS:
            CALLS[call](dedup, clock)
        else:
            dedup.process_one(call)
        if call == "due":
            summaries += dedup.due()
    assert_counts_add_up([*summaries, *dedup.close()], dedup.counts)


def test_exact_hits_are_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    dedup = deduplicator()
    for number in range(10):
        dedup.process_one(f"disk {number} is full")
    commits: list[int] = []
    record = dedup.engine.index.record

    async def seen(commit: Any, now_us: int) -> frozenset[int]:
        commits.append(commit.last_offset - commit.first_offset + 1)
        return await record(commit, now_us)

    monkeypatch.setattr(dedup.engine.index, "record", seen)
    for number in range(2500):
        assert dedup.process_one(f"disk {number} is full").kind == Kind.DUPLICATE
    assert commits == [1000, 1000]
    assert dedup.counts.events == 2510
    assert [summary.count for summary in dedup.close()] == [2510]
    assert commits == [1000, 1000, 506]


def test_an_exact_hit_of_an_evicted_cluster_is_new_again() -> None:
    dedup = deduplicator(max_clusters=1, windows=WIDE)
    kinds = [
        dedup.process_one(line).kind for line in ["disk 1 full"] * 6 + ["ok"] + ["disk 1 full"]
    ]
    assert kinds == [Kind.NEW] + [Kind.DUPLICATE] * 5 + [Kind.NEW, Kind.NEW]
    assert_counts_add_up(dedup.close(), dedup.counts)


def test_the_time_of_waiting_commits_is_that_of_their_events() -> None:
    clock = ManualClock(NOW_US)
    dedup = deduplicator(clock=clock, windows=Windows(quiet_after_us=10 * S))
    for _ in range(6):
        dedup.process_one("disk 1 full")
    clock.advance(100)  # longer than a summary waits, and than an active input holds time back
    assert [summary.count for summary in dedup.due()] == [6]


def test_a_single_event_far_in_the_future_is_set_back_and_counted() -> None:
    dedup = deduplicator()
    for _ in range(6):
        dedup.process_one("disk 1 full", time_us=NOW_US + 10**12)
    assert dedup.counts.clamped == 6
    (summary,) = dedup.close()
    assert summary.last_time_us == NOW_US + Windows().max_future_us


# ---------------------------------------------------------------- threads


def test_threads_share_one_without_losing_a_count() -> None:
    dedup = deduplicator()
    summaries: list[Summary] = []
    start = threading.Barrier(4)

    def work(number: int) -> Iterator[Decision]:
        start.wait()
        for step in range(300):
            yield dedup.process_one(f"disk {number} is {step}% full")
            yield from dedup.process([f"user bob logged in {step} times", "ok", ""])
            if step % 50 == number:
                summaries.extend(dedup.due())

    with ThreadPoolExecutor(4) as pool:
        decisions = [d for part in pool.map(lambda n: list(work(n)), range(4)) for d in part]
    assert dedup.counts.events == len(decisions) == 4 * 300 * 4
    assert sum(decision.kind == Kind.NEW for decision in decisions) == dedup.counts.new == 3
    assert_counts_add_up([*summaries, *dedup.close()], dedup.counts)


class CallsBack(ManualClock):
    """A clock that calls its deduplicator, as a handler of signals or logs may."""

    dedup: Deduplicator | None = None

    def now_us(self) -> int:
        if self.dedup is not None:
            dedup, self.dedup = self.dedup, None
            dedup.process_one("the time was asked")
        return super().now_us()


def test_a_call_from_within_itself_is_an_error() -> None:
    clock = CallsBack(NOW_US)
    dedup = deduplicator(clock=clock)
    clock.dedup = dedup
    with pytest.raises(RuntimeError, match="called from within itself; call it afterwards"):
        dedup.process_one("disk 1 full")
    assert dedup.process_one("disk 1 full").kind == Kind.NEW
    assert_counts_add_up(dedup.close(), dedup.counts)


# ---------------------------------------------------------------- words that are learned


def learning(**settings: Any) -> Deduplicator:
    recipe = replace(load_recipe("logs"), match__learn=5, match__jaccard=0.9)
    return Deduplicator(recipe, clock=ManualClock(NOW_US), **settings)


USERS = ["alice", "bob", "carol", "dave", "erin", "frank"]
SESSIONS = [f"session closed for user {user}" for user in USERS]


def test_learned_words_merge_clusters_that_close_with_their_counts() -> None:
    dedup = learning()
    decisions = [dedup.process_one(line) for line in [*SESSIONS, *SESSIONS]]
    summaries = dedup.close()
    root = next(summary for summary in summaries if summary.merged)
    assert [decision.cluster for decision in decisions[4:]] == [root.cluster] * 8
    assert [summary.merged_into for summary in summaries].count(root.cluster) == 3
    assert {summary.pattern for summary in summaries} == {"session closed for user <*>"}
    assert sum(summary.count for summary in summaries) == 12


UPLOADS = [
    f"user {user} uploaded a file to {bucket}"
    for user, bucket in [
        ("nobody", "music"),
        *((user, "logs") for user in USERS),
        *((f"user{letter}", f"bucket{letter}") for letter in "abcdefghijklmn"),
    ]
]


@pytest.mark.parametrize("max_clusters", [100, 1])
def test_lines_from_before_their_words_varied_merge_in_the_end(max_clusters: int) -> None:
    dedup = learning(limits=Limits(max_clusters=max_clusters))
    decisions = [dedup.process_one(line) for line in UPLOADS[:1]]
    dedup.process(UPLOADS[1:])  # above the cap on clusters, the first one closes
    assert dedup.size().clusters == min(2, max_clusters)
    early, root = sorted(dedup.close(), key=lambda summary: summary.count)
    assert early.cluster == decisions[0].cluster
    assert (early.closing, early.merged_into) == (Closing.MERGED, root.cluster)
    assert root.merged == ((early.cluster, 1),)
    assert early.pattern == UPLOADS[0]
    assert early.count + root.count == len(UPLOADS)


def test_restored_clusters_close_as_they_are(tmp_path: Path) -> None:
    dedup = learning()
    dedup.process(UPLOADS)
    dedup.save(tmp_path / "state")
    loaded = Deduplicator.load(tmp_path / "state", dedup.recipe, clock=ManualClock(NOW_US))
    closings = [sorted(each.closing or "" for each in one.close()) for one in (dedup, loaded)]
    assert closings == [[Closing.ENDED, Closing.MERGED], [Closing.ENDED, Closing.ENDED]]


def test_a_batch_is_decided_with_what_is_learned_in_it() -> None:
    dedup = learning()
    decisions = dedup.process(SESSIONS)
    assert len({decision.cluster for decision in decisions}) == 1
    assert [(s.count, s.merged) for s in dedup.close()] == [(6, ())]


def test_outcomes_and_levels_are_never_learned() -> None:
    dedup = learning()
    lines = [
        f"job nightly of host {host} ended: {outcome}"
        for outcome in ("OK", "FAILED", "aborted", "not found", "denied", "valid")
        for host in ("alpha", "beta", "gamma", "delta", "eta", "zeta")
    ]
    decisions = dedup.process(lines)
    assert len({decision.cluster for decision in decisions}) == 6


def test_the_pattern_of_a_cluster_follows_what_it_has_learned() -> None:
    dedup = learning()
    first = dedup.process_one(SESSIONS[0])
    before = dedup.patterns([first])
    for line in SESSIONS[1:]:
        dedup.process_one(line)
    assert (before, dedup.patterns([first])) == ([SESSIONS[0]], ["session closed for user <*>"])


def test_patterns_that_were_not_known_are_counted_by_rule() -> None:
    dedup = learning()
    logins = [f"login from {host} was refused" for host in ("10.0.0.1", "localhost")]
    dedup.process([*SESSIONS, *logins, SESSIONS[0]])
    assert dedup.counts.rules == {FoundBy.NEW: 2, FoundBy.LEARNED: 5, FoundBy.WORDS: 1}


def test_parameters_are_the_values_of_an_events_variables() -> None:
    dedup = Deduplicator()
    lines = [*(f"session 7 closed for user {user}" for user in ("al", "bo", "cy", "di", "ed")), ""]
    decisions = dedup.process(lines)
    assert dedup.parameters(lines, decisions)[1:] == [
        *((("<number>", "7"), ("<*>", user)) for user in ("bo", "cy", "di", "ed")),
        None,
    ]
    (other,) = dedup.parameters(["something else"], decisions[:1])
    assert other == ()


def test_parameters_are_bounded_in_number_and_length() -> None:
    dedup = Deduplicator()
    line = " ".join(f"{word} {word * 99}7" for word in "abcdefghijklmnopqrstuvwxyz")
    (found,) = dedup.parameters([line], dedup.process([line]))
    assert found is not None
    assert len(found) == 16
    assert {len(value) for _, value in found} == {64}


def test_a_summary_can_be_read_without_being_sent() -> None:
    dedup = Deduplicator("logs")
    decisions = dedup.process(["disk sda1 is 91% full", "disk sdb7 is 64% full"])
    assert decisions[0].cluster is not None
    found = dedup.summary(decisions[0].cluster)
    assert found is not None
    assert (found.count, found.pattern, found.closing) == (2, "disk <*> is <number> full", None)
    (sent,) = dedup.close()
    assert (sent.revision, sent.new_count) == (found.revision, 2)
    assert dedup.summary(decisions[0].cluster) is None


def test_a_pattern_shows_where_lines_of_near_fingerprints_differ() -> None:
    line = (
        "the nightly import of the customer records from the remote warehouse into the local "
        "reporting system (begun by {}) was late because the last full run is far too old and must "
        "be done again before noon"
    )
    dedup = Deduplicator(recipe="logs")
    dedup.process([line.format("alice")])
    dedup.process([line.format("bob")])
    (summary,) = dedup.close()
    assert (summary.count, summary.pattern) == (2, line.format("<*>"))


LONG = (
    "{verb} Order{{id=7, tz=t2, note=(sent {courier} van), {state}}} of the customer in the second "
    "warehouse and told the accounts department that it has to write an invoice before noon or "
    "else call her about it at once and then wait until she has signed"
)


@pytest.mark.parametrize(
    ("other", "clusters"),
    [
        ({"verb": "Reserving"}, 2),
        ({"state": "last error"}, 2),  # an outcome
        ({"state": "SSLError"}, 2),  # names a kind
        ({"courier": "blue"}, 1),
    ],
)
def test_near_fingerprints_need_the_same_running_text(other: dict[str, str], clusters: int) -> None:
    line = {"verb": "Releasing", "state": "so far", "courier": "white"}
    dedup = Deduplicator("logs")
    found = dedup.process([LONG.format(**line), LONG.format(**line | other)])
    assert len({decision.cluster for decision in found}) == clusters
