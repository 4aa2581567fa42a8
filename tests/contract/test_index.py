"""What every index does: the sentences of ``index/base.py``, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.errors import AlreadyRecorded, IndexFull, PartitionUnclaimed, StaleFence
from stream_dedup.features.recipe import Match, Recipe
from stream_dedup.index.base import ClusterDelta, Commit, Limits, Ownership, Representative
from stream_dedup.model import Closing, Decision, Kind, Partition, Position
from tests.contract.driver import (
    HERE,
    START_US,
    THERE,
    VERIFIED,
    WIDE,
    A,
    B,
    C,
    Driver,
    S,
    Text,
    apart,
    delta,
    query,
)

Start = Callable[..., Driver]
HOUR_S = 3600
FINAL_ONLY = Summaries(every_us=None)

# ---------------------------------------------------------------- resolve


def test_the_first_event_opens_a_cluster_and_an_equal_one_joins_it(start: Start) -> None:
    index = start()
    first, second = index.resolve(query(0), query(1, at_s=5))
    assert (first.new, first.distance, *first[3:5]) == (True, 0, START_US, START_US)
    assert (second.cluster, second.distance, second.new) == (first.cluster, 0, False)
    assert (second.opened_us, second.last_us) == (START_US, START_US + 5 * S)


def test_each_query_of_a_batch_sees_those_before_it(start: Start) -> None:
    index = start()
    answers = index.resolve(query(0), query(1, apart(A, 3, 0xA1)), query(2, B), query(3, B))
    assert [answer.new for answer in answers] == [True, False, True, False]
    assert [answer.distance for answer in answers] == [0, 3, 0, 0]


@pytest.mark.simhash
@pytest.mark.parametrize("bits", range(7))
def test_everything_within_k_bits_is_found_and_nothing_beyond(start: Start, bits: int) -> None:
    index = start()
    index.resolve(query(0, A))
    (answer,) = index.resolve(query(1, apart(A, bits, 0xA1)))
    assert (bits > 3) == answer.new


@pytest.mark.simhash
def test_the_distance_is_to_the_representative_not_to_the_alias(start: Start) -> None:
    index = start(recipe=VERIFIED)
    alias = apart(A, 4, 0xA1)
    far = Text(0xA2, alias.fingerprint ^ (0b111 << 60), A.words)
    first, second, third, again = index.resolve(
        query(0, A), query(1, alias), query(2, far), query(3, far)
    )
    expected = (A.fingerprint ^ far.fingerprint).bit_count()
    assert expected == 7  # out of the representative's reach: the alias led there
    assert [first.cluster] * 3 == [second.cluster, third.cluster, again.cluster]
    assert [third.distance, again.distance] == [expected] * 2


def test_without_verification_similarity_does_not_drift(start: Start) -> None:
    index = start()
    near = apart(A, 3, 0xA1)
    beyond = Text(0xA2, near.fingerprint ^ (1 << 60), ())
    answers = index.resolve(query(0, A), query(1, near), query(2, beyond))
    assert [answer.new for answer in answers] == [True, False, True]


def test_verification_refuses_events_with_too_little_in_common(start: Start) -> None:
    index = start(recipe=VERIFIED)
    words = tuple(range(1, 11))
    text = Text(1, A.fingerprint, words)
    seven = Text(2, A.fingerprint, words[:7])  # 7 of 10
    six = Text(3, A.fingerprint, words[:6])  # 6 of 10
    answers = index.resolve(query(0, text), query(1, seven), query(2, six))
    assert [answer.new for answer in answers] == [True, False, True]


def test_an_equal_exact_hash_needs_no_verification(start: Start) -> None:
    index = start(recipe=VERIFIED)
    first, second = index.resolve(query(0, A), query(1, A._replace(words=(7, 8, 9))))
    assert first.cluster == second.cluster


@pytest.mark.simhash
def test_the_most_similar_cluster_wins_though_another_is_nearer(start: Start) -> None:
    index = start(recipe=VERIFIED)
    ten = tuple(range(10))
    nearer = Text(1, 0b1, (*ten[:8], 50))  # 8 of 11 in common with what is asked
    alike = Text(2, 0b11_1110, (*ten, 60))  # 10 of 11; and 8 of 12 with the other
    nearer_one, alike_one = index.resolve(query(0, nearer), query(1, alike))
    assert nearer_one.cluster != alike_one.cluster
    (answer,) = index.resolve(query(2, Text(3, 0, ten)))
    assert (answer.cluster, answer.distance) == (alike_one.cluster, 5)


@pytest.mark.simhash
def test_of_equally_similar_clusters_the_nearest_wins(start: Start) -> None:
    index = start()
    far, near = Text(1, 0b111_0000), Text(2, 0b11)
    first, second = index.resolve(query(0, far), query(1, near))
    (answer,) = index.resolve(query(2, Text(3, 0)))
    assert first.cluster != second.cluster
    assert (answer.cluster, answer.distance) == (second.cluster, 2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_equally_near_clusters_the_oldest_wins(start: Start, order: tuple[int, int]) -> None:
    index = start()
    texts = [(Text(1, 0b111_0000), 10), (Text(2, 0b111), 20)]
    opened = [
        index.resolve(query(at_s, texts[i][0], at_s))[0].cluster
        for i in order
        for at_s in [texts[i][1]]
    ]
    (answer,) = index.resolve(query(99, Text(3, 0), 30))
    assert opened[order.index(0)] == answer.cluster


def test_groups_keep_events_apart(start: Start) -> None:
    index = start()
    near = apart(A, 1, 0xA1)
    answers = index.resolve(
        query(0, A, group='{"s":"a"}'),
        query(1, A, group='{"s":"b"}'),
        query(2, near, group='{"s":"b"}'),
        query(3, near, group='{"s":"a"}'),
        query(4, near, group=""),
    )
    assert [answer.new for answer in answers] == [True, True, False, False, True]
    assert answers[0].cluster == answers[3].cluster != answers[1].cluster == answers[2].cluster


@pytest.mark.one_shard
def test_groups_may_come_and_go(start: Start) -> None:
    index = start(limits=Limits(max_clusters=3))
    for offset in range(50):
        index.add(offset, A, offset, group=f"group {offset % 7}")
    (answer,) = index.resolve(query(99, A, 50, group="group 0"))
    assert not answer.new
    (other,) = index.resolve(query(100, A, 50, group="group 3"))
    assert other.new


@pytest.mark.one_shard
def test_events_that_are_only_decided_keep_to_the_cap_too(start: Start) -> None:
    index = start(limits=Limits(max_clusters=3))
    queries = [query(number, apart(A, number, 0xA0 + number), near=False) for number in range(10)]
    assert len({answer.cluster for answer in index.resolve(*queries)}) == 10
    index.expire()
    assert index.size().clusters == 3


def test_events_with_few_features_match_by_exact_hash_alone(start: Start) -> None:
    index = start()
    few = [
        query(0, A, near=False),
        query(1, apart(A, 1, 0xA1), near=False),
        query(2, A, near=False),
        query(3, apart(A, 2, 0xA2)),
    ]
    assert [answer.new for answer in index.resolve(*few)] == [True, True, False, True]
    assert index.size().fingerprints == 1


@pytest.mark.simhash
def test_aliases_are_capped(start: Start) -> None:
    index = start(recipe=Recipe(match=Match(k=6, jaccard=0.7, aliases=2)))
    index.resolve(query(0, A), *(query(n, apart(A, n, 0xA0 + n)) for n in range(1, 6)))
    size = index.size()
    assert (size.clusters, size.fingerprints) == (1, 3)


def test_an_alias_of_an_equal_fingerprint_takes_no_room_in_the_tables(start: Start) -> None:
    index = start(recipe=VERIFIED)
    index.resolve(query(0, A), *(query(n, A._replace(exact=0xA0 + n)) for n in range(1, 6)))
    assert index.size().fingerprints == 1


def test_resolving_again_gives_the_same_answers(start: Start) -> None:
    index = start(recipe=VERIFIED)
    queries = [
        query(0, A),
        query(1, apart(A, 2, 0xA1)),
        query(2, B),
        query(3, A, 1),
        query(4, A, 3 * HOUR_S),
        query(5, B, 30),
    ]
    first = index.resolve(*queries)
    again = index.resolve(*queries)
    assert [(a.cluster, a.new) for a in first[::2]] == [(a.cluster, a.new) for a in again[::2]]
    assert [(n, answer.new) for n, answer in enumerate(again) if answer.new] == [
        (0, True),
        (2, True),
        (4, True),
    ]
    assert index.resolve(*queries) == again
    assert index.size().clusters == 3


def test_a_representative_finds_its_own_cluster_before_a_newer_one(
    start: Start,
) -> None:
    index = start()
    old, new = index.resolve(query(0, A, 0), query(1, A, 10 * HOUR_S))
    assert old.cluster != new.cluster
    assert [(a.cluster, a.new) for a in index.resolve(query(0, A, 0))] == [(old.cluster, True)]


@pytest.mark.one_shard
def test_the_cluster_id_depends_on_the_position_only(start: Start) -> None:
    (first,) = start().resolve(query(7, A))
    there = start()  # an empty one
    there.resolve(query(6, B))
    (second,) = there.resolve(query(7, C, 99))
    assert first.cluster == second.cluster


def test_resolving_counts_nothing_and_unrecorded_clusters_vanish(start: Start) -> None:
    index = start()
    index.resolve(query(0, A), query(1, B))
    index.finish()
    assert index.claim() == []
    size = index.size()
    assert (size.clusters, size.fingerprints, size.waiting, size.expired) == (0, 0, 0, 0)


def test_no_commit_counts_before_that_of_the_representative(start: Start) -> None:
    index = start()
    (opened,) = index.resolve(query(0, A))
    (joined,) = index.resolve(query(5, A, partition=THERE))
    assert (joined.cluster, joined.new, joined.recorded) == (opened.cluster, False, False)
    # The opener may have died: its cluster is closed, and the event opens its own.
    assert index.count(5, delta(joined), partition=THERE) == frozenset([opened.cluster])
    own = index.add(5, A, partition=THERE)
    assert own.new
    assert own.cluster != opened.cluster
    # If the opener lives, it learns that its cluster is closed, and its event joins.
    assert index.count(0, delta(opened)) == frozenset([opened.cluster])
    late = index.add(0, A)
    assert (late.cluster, late.new, late.recorded) == (own.cluster, False, True)
    index.finish()
    (final,) = index.confirm_all()
    assert (final.cluster, final.count, final.representative) == (own.cluster, 2, b"value 5")


def test_events_join_in_the_commit_of_the_representative(start: Start) -> None:
    index = start()
    opened, joined = index.resolve(query(0, A), query(1, apart(A, 1, 0xA1)))
    assert joined.recorded is False
    assert index.count(1, delta(opened, 2), first_offset=0) == frozenset()
    assert index.resolve(query(2, A))[0].recorded


@pytest.mark.parametrize("buried", [False, True])
def test_a_former_owner_does_not_bring_a_closed_cluster_back(start: Start, buried: bool) -> None:
    index = start()
    old = index.add(0, A)
    index.finish()
    if buried:
        index.confirm_all()
    (again,) = index.resolve(query(0, A))  # by one whose commit will be refused
    assert (again.cluster, again.new, again.recorded) == (old.cluster, True, False)
    (joined,) = index.resolve(query(1, A))
    assert joined.cluster == old.cluster
    assert index.count(1, delta(joined)) == frozenset([old.cluster])
    own = index.add(1, A)
    assert own.new
    index.finish()
    finals = {s.cluster: (s.revision, s.count) for s in index.confirm_all()}
    assert finals == ({} if buried else {old.cluster: (1, 1)}) | {own.cluster: (1, 1)}


def test_an_unrecorded_opening_keeps_the_earlier_text(start: Start) -> None:
    index = start()
    old = index.add(0, A, value=b"old text")
    index.resolve(query(0, B, 1))
    index.finish()
    (final,) = index.confirm_all()
    assert (final.cluster, final.representative) == (old.cluster, b"old text")


@pytest.mark.simhash
def test_a_truncated_search_for_candidates_is_counted(start: Start) -> None:
    index = start(recipe=VERIFIED, limits=Limits(max_candidates=2))
    others = [Text(n, 0, (n * 10, n * 10 + 1)) for n in range(1, 6)]
    index.resolve(*(query(n, text) for n, text in enumerate(others)))
    assert 0 < index.size().truncated <= 4


@pytest.mark.simhash
def test_a_cap_on_clusters_verified_keeps_the_nearest_and_is_counted(start: Start) -> None:
    like = Text(1, 0b11_1111, (1, 2, 3, 4))  # within k of what is asked, but further off
    near = Text(2, 1 << 60, (5, 6, 7, 8))
    asked = Text(3, 0, (1, 2, 3, 4))
    index = start(recipe=VERIFIED)
    first, _ = index.resolve(query(0, like), query(1, near))
    assert [answer.cluster for answer in index.resolve(query(2, asked))] == [first.cluster]
    assert index.size().truncated == 0

    capped = start(recipe=VERIFIED, limits=Limits(max_verified=1))
    capped.resolve(query(0, like), query(1, near))
    (answer,) = capped.resolve(query(2, asked))
    # A mirror knows the sketches of what its process has opened, and has compared them all.
    left_out = not capped.index.mirrored
    assert (answer.new, capped.size().truncated) == (left_out, left_out)


@pytest.mark.simhash
@pytest.mark.parametrize("bit", [0, 63])
def test_a_cluster_is_as_near_as_its_nearest_alias(start: Start, bit: int) -> None:
    words = tuple(range(10))
    far = Text(1, 0b1_1111 << 30, words)  # its alias is the nearest to what is asked
    alias = Text(2, 1 << bit, words)
    nearer = Text(3, 0b111 << 25, (50, 51, 52))
    index = start(recipe=VERIFIED, limits=Limits(max_clusters=1000, max_verified=1))
    first, joined, other = index.resolve(query(0, far), query(1, alias), query(2, nearer))
    assert first.cluster == joined.cluster != other.cluster
    (answer,) = index.resolve(query(3, Text(4, 0, words)))
    assert (answer.cluster, answer.distance) == (first.cluster, 5)


@pytest.mark.simhash
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
@pytest.mark.one_node
def test_of_too_many_equally_near_clusters_the_oldest_are_verified(
    start: Start, order: tuple[int, ...]
) -> None:
    texts = [Text(n, 0b11, (n * 10, n * 10 + 1)) for n in range(1, 5)]
    for text, at_s in zip(texts, order, strict=True):
        index = start(recipe=VERIFIED, limits=Limits(max_verified=2))
        for other in range(4):
            index.resolve(query(other, texts[other], order[other]))
        (answer,) = index.resolve(query(10, text._replace(exact=90, fingerprint=0), 10))
        # A mirror has compared them all.
        assert (at_s >= 2 and not index.index.mirrored) == answer.new


@pytest.mark.one_node
def test_closed_or_expired_clusters_do_not_truncate_a_search(start: Start) -> None:
    index = start(recipe=VERIFIED, limits=Limits(max_verified=1))
    later = 3 * HOUR_S
    index.resolve(query(0, Text(1, 0b11, (1, 2)), 0))
    (live,) = index.resolve(query(1, Text(2, 0b1, (3, 4)), later))
    (answer,) = index.resolve(query(2, Text(3, 0, (3, 4)), later))
    assert (answer.cluster, index.size().truncated) == (live.cluster, 0)


def test_an_empty_batch_is_answered_with_nothing(start: Start) -> None:
    assert start().resolve() == []


# ---------------------------------------------------------------- windows


def test_a_cluster_is_live_until_idle_after_its_last_event(start: Start) -> None:
    index = start()
    answers = index.resolve(
        query(0, A, 0), query(1, A, HOUR_S), query(2, A, 2 * HOUR_S), query(3, A, 3 * HOUR_S + 1e-6)
    )
    assert [answer.new for answer in answers] == [True, False, False, True]


def test_a_cluster_is_live_until_max_age_after_it_was_opened(start: Start) -> None:
    index = start(windows=Windows(idle_us=100 * S, max_age_us=150 * S))
    answers = index.resolve(*(query(n, A, at_s) for n, at_s in enumerate([0, 90, 150, 151])))
    assert [answer.new for answer in answers] == [True, False, False, True]


def test_windows_hold_for_near_matches_too(start: Start) -> None:
    index = start()
    near = [apart(A, n, 0xA0 + n) for n in (1, 2)]
    answers = index.resolve(
        query(0, A, 0), query(1, near[0], HOUR_S), query(2, near[1], 2 * HOUR_S + 1)
    )
    assert [answer.new for answer in answers] == [True, False, True]


def test_a_late_event_joins_and_lowers_the_first_time(start: Start) -> None:
    index = start()
    index.add(0, A, 0)
    late = index.add(1, A, -30 * HOUR_S)
    assert (late.opened_us, late.last_us) == (START_US, START_US)
    index.finish()
    (summary,) = index.claim()
    assert (summary.first_time_us, summary.last_time_us) == (START_US - 30 * HOUR_S * S, START_US)


def test_events_out_of_order_do_not_open_clusters_in_turns(start: Start) -> None:
    index = start()
    times = [5 * HOUR_S, 0, 5 * HOUR_S, 1, 5 * HOUR_S + 7, 2]
    answers = index.resolve(*(query(n, A, at_s) for n, at_s in enumerate(times)))
    assert [answer.new for answer in answers] == [True] + [False] * 5


def test_the_latest_time_a_query_asks_for_keeps_its_cluster_live(start: Start) -> None:
    index = start()
    first, second = index.resolve(
        query(0, A, 0, until_s=HOUR_S), query(1, apart(A, 1, 0xA1), 2 * HOUR_S)
    )
    assert first.last_us == START_US + HOUR_S * S
    assert first.cluster == second.cluster


# ---------------------------------------------------------------- record


def test_recorded_events_are_in_the_summary(start: Start) -> None:
    index = start(summaries=Summaries(samples=2, max_value_bytes=8))
    (answer,) = index.resolve(query(4, A, 10, group="g"))
    counted = ClusterDelta(
        answer.cluster, 5, START_US + 3 * S, START_US + 40 * S, b"the first", [b"a", b"b" * 9, b"c"]
    )
    assert index.count(9, counted, first_offset=4, at_s=40) == frozenset()
    index.finish()
    (summary,) = index.claim()
    assert (
        summary.cluster,
        summary.revision,
        summary.closing,
        summary.final,
    ) == (answer.cluster, 1, Closing.ENDED, True)
    assert (summary.count, summary.new_count) == (5, 5)
    assert (summary.first_time_us, summary.last_time_us) == (START_US + 3 * S, START_US + 40 * S)
    assert (summary.position, summary.group) == (Position("topic", 0, 4), "g")
    assert (summary.representative, summary.samples) == (b"the firs", (b"a", b"b" * 8))


def test_counts_without_values_widen_the_times_of_a_cluster(
    start: Start,
) -> None:
    index = start(windows=WIDE)
    answer = index.add(0, A, 30)
    for offset, (first_s, last_s) in enumerate([(35, 90), (10, 20), (40, 50)], 1):
        times = START_US + first_s * S, START_US + last_s * S
        assert index.count(offset, ClusterDelta(answer.cluster, 2, *times), at_s=90) == frozenset()
    index.finish()
    (summary,) = index.claim()
    assert summary.count == 7
    assert (summary.first_time_us, summary.last_time_us) == (START_US + 10 * S, START_US + 90 * S)


def test_samples_are_kept_up_to_their_cap_over_many_batches(start: Start) -> None:
    index = start(summaries=Summaries(samples=3))
    for offset in range(6):
        index.add(offset, A, offset)
    index.finish()
    assert index.claim()[0].samples == (b"value 1", b"value 2", b"value 3")


def test_record_writes_nothing_when_a_named_cluster_is_closed(start: Start) -> None:
    index = start()
    old = index.add(0, A, 0)
    index.add(1, B, 3 * HOUR_S)
    assert index.size().waiting == 1
    (other,) = index.resolve(query(3, C, 3 * HOUR_S))
    closed = index.count(5, delta(old), delta(other), first_offset=2, at_s=99 * HOUR_S)
    assert frozenset([old.cluster]) == closed
    # Nothing was counted; the high water and stream time are unchanged.
    assert index.claim_partition(HERE).high_water == 1
    assert index.size().clusters == 2
    assert index.count(5, delta(other), first_offset=2, at_s=3 * HOUR_S) == frozenset()
    index.finish()
    counts = {summary.cluster: summary.count for summary in index.claim()}
    assert (counts[old.cluster], counts[other.cluster]) == (1, 1)


@pytest.mark.one_shard
def test_all_that_refuse_a_commit_are_named_at_once(start: Start) -> None:
    """One is gone, and one is provisional for an event that nobody records."""
    index = start()
    index.add(0, A)
    index.claim_partition(HERE, 0)  # the topic was created again: the position has another text
    (reopened,) = index.resolve(query(0, B))
    gone = ClusterDelta(12345, 1, START_US, START_US)
    joined = ClusterDelta(reopened.cluster, 1, START_US, START_US)
    closed = index.count(0, gone, joined, partition=THERE)
    assert closed == frozenset([12345, reopened.cluster])


@pytest.mark.one_shard
def test_an_unknown_cluster_counts_as_closed(start: Start) -> None:
    index = start()
    assert index.count(0, ClusterDelta(12345, 1, START_US, START_US)) == frozenset([12345])
    assert index.claim_partition(HERE).high_water == -1


def test_a_stale_fence_is_refused_and_writes_nothing(start: Start) -> None:
    index = start()
    stale = index.claim_partition(HERE).fence
    (answer,) = index.resolve(query(0, A))
    fresh = index.claim_partition(HERE).fence
    assert fresh > stale
    record = Commit(HERE, stale, 0, 0, 0, START_US, [delta(answer)], [0], [Decision(Kind.NEW)])
    with pytest.raises(StaleFence):
        index.record(record)
    owned = index.claim_partition(HERE)
    assert (owned.high_water, owned.journal) == (-1, {})
    index.finish()
    assert index.claim() == []


def test_a_stale_fence_is_refused_even_for_offsets_recorded_before(start: Start) -> None:
    index = start()
    index.add(0, A)
    stale = index.fences[HERE]
    index.claim_partition(HERE)
    with pytest.raises(StaleFence):
        index.record(Commit(HERE, stale, 0, 0, 1, START_US, []))


def test_an_unclaimed_partition_is_refused(start: Start) -> None:
    index = start()
    with pytest.raises(PartitionUnclaimed):
        index.record(Commit(HERE, 0, 0, 0, 1, START_US, []))
    assert index.index.resets == 0


def test_each_partition_has_its_own_fence(start: Start) -> None:
    index = start()
    index.claim_partition(HERE)
    for _ in range(3):
        index.claim_partition(THERE)
    index.add(0, A, partition=HERE)
    index.add(0, A, partition=THERE)
    assert [index.claim_partition(p).high_water for p in (HERE, THERE)] == [0, 0]


def test_a_commit_recorded_again_counts_once(start: Start) -> None:
    index = start()
    (answer,) = index.resolve(query(0, A))
    assert index.count(4, delta(answer, 5), first_offset=0) == frozenset()
    for _ in range(2):
        with pytest.raises(AlreadyRecorded):
            index.count(4, delta(answer, 5), first_offset=0)
    index.finish()
    assert [summary.count for summary in index.claim()] == [5]


def test_a_commit_below_the_high_water_writes_nothing(
    start: Start,
) -> None:
    index = start()
    answer = index.add(3, A)
    index.finish()
    with pytest.raises(AlreadyRecorded):
        index.count(2, delta(answer, 7), first_offset=0)
    assert [summary.count for summary in index.claim()] == [1]


def test_of_two_commits_of_the_same_events_the_first_decides(start: Start) -> None:
    index = start()
    one, other = index.add(0, A), index.add(1, B)
    answers = [Decision(Kind.DUPLICATE, answer.cluster, 0, 7) for answer in (one, other)]
    kept = {2: answers[0]}
    assert not index.count(2, delta(one), committed=2, decisions=kept)
    with pytest.raises(AlreadyRecorded):
        index.count(2, delta(other), committed=2, decisions={2: answers[1]})
    owned = index.read_partition()
    assert (owned.fence, owned.high_water, owned.journal) == (index.fences[HERE], 2, kept)
    assert not owned.reset
    index.finish()
    assert {s.cluster: s.count for s in index.claim()} == {one.cluster: 2, other.cluster: 1}


def test_only_the_owner_reads_what_a_partition_holds(start: Start) -> None:
    index = start()
    index.fences[HERE] = 1
    with pytest.raises(PartitionUnclaimed):
        index.read_partition()
    stale = index.claim_partition().fence
    assert index.read_partition() == Ownership(stale, -1, {})
    index.claim_partition()
    index.fences[HERE] = stale
    with pytest.raises(StaleFence):
        index.read_partition()


def test_a_commit_across_the_high_water_is_refused(start: Start) -> None:
    index = start()
    answer = index.add(3, A)
    with pytest.raises(AlreadyRecorded):
        index.count(5, delta(answer), first_offset=3)
    assert index.claim_partition(HERE).high_water == 3


def test_an_empty_commit_raises_the_high_water(start: Start) -> None:
    index = start()
    assert index.count(41) == frozenset()
    assert index.claim_partition(HERE).high_water == 41


# ---------------------------------------------------------------- partitions


def test_an_unknown_partition_has_no_state(start: Start) -> None:
    owned = start().claim_partition(Partition("new", 7), 100)
    assert (owned.high_water, owned.journal, owned.reset) == (-1, {}, False)
    assert owned.committed is None


def test_the_last_committed_offset_outlives_its_writer(start: Start) -> None:
    index = start()
    index.count(12, first_offset=10, committed=10)
    assert index.claim_partition(HERE, 13).committed == 10
    index.count(13, committed=12)
    assert index.claim_partition(HERE, 14).committed == 12
    assert index.claim_partition(HERE, 5).committed is None


def test_what_is_committed_can_be_noted_without_a_batch(start: Start) -> None:
    index = start()
    decisions = {offset: Decision(Kind.PASSED, reason="no") for offset in (10, 11, 12)}
    for offset, decision in decisions.items():
        index.count(offset, first_offset=offset, committed=10, decisions={offset: decision})
    for _ in range(2):
        index.note_committed(12)
        owned = index.read_partition(HERE)
        assert (owned.committed, owned.journal) == (12, {12: decisions[12]})
    index.note_committed(11)
    assert index.read_partition(HERE).committed == 12
    stale = index.fences[HERE]
    assert index.claim_partition(HERE, 13).committed == 12
    index.note_committed(13, fence=stale)
    assert index.read_partition(HERE).committed == 12
    index.note_committed(50)  # beyond what was counted
    assert (index.claim_partition(HERE, 13).committed, index.read_partition(HERE).journal) == (
        13,
        {},
    )


def test_the_journal_outlives_its_writer_up_to_the_committed_offset(start: Start) -> None:
    index = start()
    decisions = {
        10: Decision(Kind.NEW, 2**64 - 1, 0, 2**64 - 1),
        11: Decision(Kind.DUPLICATE, 2**64 - 1, 3, 0),
        12: Decision(Kind.PASSED, reason="nothing to fingerprint"),
    }
    index.count(12, first_offset=10, committed=10, decisions=decisions)
    owned = index.claim_partition(HERE, 13)
    assert (owned.high_water, owned.journal, owned.reset) == (12, decisions, False)
    index.count(13, committed=12, decisions={13: decisions[11]})
    assert {12: decisions[12], 13: decisions[11]} == index.claim_partition(HERE).journal
    index.count(14, committed=15)
    assert index.claim_partition(HERE).journal == {}


def test_decisions_below_the_committed_offset_are_not_kept(start: Start) -> None:
    index = start()
    passed = Decision(Kind.PASSED, reason="no")
    index.count(2, first_offset=0, committed=2, decisions=dict.fromkeys(range(3), passed))
    assert index.claim_partition(HERE).journal == {2: passed}


@pytest.mark.parametrize(("end", "reset"), [(None, False), (10, False), (9, True), (0, True)])
def test_a_high_water_at_or_beyond_the_end_is_reset(
    start: Start, end: int | None, reset: bool
) -> None:
    index = start()
    passed = Decision(Kind.PASSED, reason="no")
    index.count(9, committed=9, decisions={9: passed})
    owned = index.claim_partition(HERE, end)
    assert reset == owned.reset
    assert (-1 if reset else 9) == owned.high_water
    assert ({} if reset else {9: passed}) == owned.journal
    if reset:
        index.add(0, A)
        assert index.claim_partition(HERE).high_water == 0


def test_another_identity_of_the_topic_resets_the_high_water(start: Start) -> None:
    index = start()
    passed = Decision(Kind.PASSED, reason="no")
    index.claim_partition(HERE, 0, "first")
    index.count(9, committed=9, decisions={9: passed})
    for identity in ("first", "", "first"):  # an unknown one changes nothing
        owned = index.claim_partition(HERE, 100, identity)
        assert (owned.high_water, owned.reset, owned.created_again) == (9, False, False)
    owned = index.claim_partition(HERE, 100, "second")
    assert (owned.high_water, owned.journal) == (-1, {})
    assert (owned.reset, owned.created_again) == (True, True)
    owned = index.claim_partition(HERE, 100, "second")
    assert (owned.reset, owned.created_again) == (False, False)


def test_a_first_identity_of_a_known_partition_resets_nothing(start: Start) -> None:
    index = start()
    index.add(0, A)
    owned = index.claim_partition(HERE, 100, "first")
    assert (owned.high_water, owned.reset, owned.created_again) == (0, False, False)


def test_releasing_an_unknown_partition_or_twice_does_nothing(start: Start) -> None:
    index = start()
    index.add(0, A)
    for partition in (THERE, HERE, HERE):
        index.release(partition)
    assert index.size().clusters == 1


# ---------------------------------------------------------------- stream time


def test_a_cluster_closes_when_stream_time_has_passed_its_window(start: Start) -> None:
    index = start(summaries=FINAL_ONLY)
    old = index.add(0, A, 0)
    index.add(1, B, HOUR_S)
    assert index.size().expired == 0
    index.add(2, B, HOUR_S + 1)
    size = index.size()
    assert (size.expired, size.waiting, size.clusters) == (1, 1, 1)
    (summary,) = index.claim()
    assert (summary.cluster, summary.closing) == (old.cluster, Closing.EXPIRED)


def test_the_slowest_active_partition_holds_stream_time_back(start: Start) -> None:
    index = start()
    index.add(0, A, 0, partition=HERE)
    index.add(0, B, 0, partition=THERE)
    index.add(1, B, 9 * HOUR_S, partition=THERE)
    assert index.size().expired == 0
    index.add(1, C, 2 * HOUR_S, partition=HERE)
    size = index.size()
    assert (size.expired, size.clusters) == (2, 2)  # A and B; not B of nine hours, nor C


def test_a_released_partition_no_longer_holds_stream_time_back(start: Start) -> None:
    index = start()
    index.add(0, A, 0, partition=HERE)
    index.add(0, B, 9 * HOUR_S, partition=THERE)
    index.release(HERE)
    index.expire()
    assert index.size().expired == 1


def test_a_quiet_partition_no_longer_holds_stream_time_back(start: Start) -> None:
    index = start()
    index.add(0, A, 0, partition=HERE)
    index.wait(61)
    index.add(0, B, 9 * HOUR_S, partition=THERE)
    assert index.size().expired == 1


def test_when_all_are_quiet_stream_time_moves_with_the_clock(start: Start) -> None:
    index = start()
    index.add(0, A, 0)
    index.wait(60)
    index.expire()
    for _ in range(59):
        index.wait(60)
        index.expire()
    assert index.size().expired == 0
    index.wait(61)
    index.expire()
    assert index.size().expired == 1
    assert [summary.closing for summary in index.claim()] == [Closing.EXPIRED]


def test_a_partition_that_catches_up_keeps_its_clusters(start: Start) -> None:
    index = start()
    index.add(0, B, 0, partition=HERE)
    backlog = [index.add(0, A, -9 * HOUR_S, partition=THERE)]
    for offset in range(1, 5):
        index.add(offset, B, offset, partition=HERE)
        backlog.append(index.add(offset, A, -9 * HOUR_S + offset * 1000, partition=THERE))
    assert [answer.new for answer in backlog] == [True] + [False] * 4
    assert index.size().expired == 0
    index.add(5, C, 0, partition=THERE)  # it has caught up
    assert index.size().expired == 1


def test_a_partition_far_behind_records_on_its_second_attempt(
    start: Start,
) -> None:
    index = start()
    index.add(0, B, 0, partition=HERE)
    late = query(0, A, -9 * HOUR_S, partition=THERE)

    def resolve_while_others_record(offset: int) -> frozenset[int]:
        (answer,) = index.resolve(late)
        index.add(offset, B, offset, partition=HERE)
        return index.count(0, delta(answer, 1, -9 * HOUR_S), at_s=-9 * HOUR_S, partition=THERE)

    assert len(resolve_while_others_record(1)) == 1
    assert index.claim_partition(THERE).high_water == -1
    assert resolve_while_others_record(2) == frozenset()
    assert index.claim_partition(THERE).high_water == 0


def test_while_stream_time_is_back_summaries_wait_and_none_is_lost(
    start: Start,
) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 100)
    assert [(s.revision, s.count) for s in index.confirm_all()] == [(1, 2)]
    index.add(2, A, 200)
    index.add(0, B, -HOUR_S, partition=THERE)
    index.add(3, A, 300)
    assert index.confirm_all() == []
    index.add(1, B, -1, partition=THERE)
    assert [s for s in index.confirm_all() if s.position.partition == 0] == []
    index.add(2, C, 301, partition=THERE)
    assert [
        (s.revision, s.count, s.new_count) for s in index.confirm_all() if s.position.partition == 0
    ] == [(2, 4, 2)]
    index.finish()
    finals = {s.position: s.new_count for s in index.confirm_all()}
    assert finals[Position("topic", 0, 0)] == 0


def test_expiring_before_the_first_event_does_nothing(start: Start) -> None:
    index = start()
    index.expire()
    index.wait(99 * HOUR_S)
    index.expire()
    index.add(0, A, 0)
    assert index.size().clusters == 1


def test_max_age_closes_a_cluster_that_is_still_seen(start: Start) -> None:
    index = start(windows=Windows(idle_us=100 * S, max_age_us=150 * S), summaries=FINAL_ONLY)
    for offset, at_s in enumerate([0, 90, 150]):
        index.add(offset, A, at_s)
    assert index.size().expired == 0
    index.add(3, B, 151)
    assert [(s.count, s.closing) for s in index.claim()] == [(3, Closing.EXPIRED)]


@pytest.mark.one_shard
def test_the_least_recently_seen_are_evicted_above_the_cap(start: Start) -> None:
    index = start(limits=Limits(max_clusters=2))
    first = index.add(0, A, 0)
    second = index.add(1, B, 1)
    index.add(2, A, 2)
    index.add(3, C, 3)
    size = index.size()
    assert (size.clusters, size.evicted, size.waiting, size.fingerprints) == (2, 1, 1, 2)
    finals = [summary for summary in index.claim() if summary.final]
    assert [(s.cluster, s.closing, s.count) for s in finals] == [
        (second.cluster, Closing.EVICTED, 1)
    ]
    assert [a.new for a in index.resolve(query(8, A, 4), query(9, B, 4))] == [False, True]
    assert first.cluster == index.resolve(query(8, A, 4))[0].cluster


# ---------------------------------------------------------------- summaries

MINUTE = Summaries(every_us=60 * S, lease_us=30 * S)


def test_a_summary_is_due_each_period_while_there_is_news(start: Start) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 59)
    assert index.claim() == []
    index.add(2, A, 60)
    (summary,) = index.claim()
    assert (
        summary.revision,
        summary.count,
        summary.new_count,
        summary.closing,
    ) == (1, 3, 3, None)
    index.confirm([summary])
    index.add(3, B, 500)
    assert index.claim() == []  # no news of A
    index.add(4, A, 501)
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(2, 4, 1)]


def test_a_single_event_needs_no_summary_until_its_cluster_closes(start: Start) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, B, 1000)
    assert index.claim() == []
    index.finish()
    assert [(s.count, s.final) for s in index.confirm_all()] == [(1, True), (1, True)]


def test_a_single_event_has_a_summary_where_that_is_wanted(start: Start) -> None:
    index = start(summaries=replace(MINUTE, of_single=True))
    index.add(0, A, 0)
    index.add(1, B, 59)
    assert index.claim() == []
    index.add(2, B, 60)
    assert [(s.revision, s.count, s.closing) for s in index.confirm_all()] == [(1, 1, None)]
    index.add(3, B, 118)
    assert index.claim() == []  # no news of A
    index.add(4, B, 119)
    assert [(s.revision, s.count) for s in index.confirm_all()] == [(1, 4)]


def test_without_a_period_there_are_only_final_summaries(start: Start) -> None:
    index = start(summaries=FINAL_ONLY)
    for offset in range(5):
        index.add(offset, A, offset * 1000)
    assert index.claim() == []
    index.finish()
    assert [(s.revision, s.count, s.new_count) for s in index.claim()] == [(1, 5, 5)]


def test_a_claimed_summary_is_leased(start: Start) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 61)
    (summary,) = index.claim()
    assert index.claim() == []
    index.wait(29)
    assert index.claim() == []
    index.wait(1)
    assert index.claim() == [summary]
    assert index.claim() == []


def test_after_the_lease_the_same_snapshot_is_claimed(
    start: Start,
) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 61)
    (summary,) = index.claim()
    for offset in range(2, 6):
        index.add(offset, A, 100 * offset)
    index.wait(31)
    assert index.claim() == [summary]
    index.confirm([summary])
    index.finish()
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(2, 6, 4)]


def test_events_counted_after_a_claim_are_in_the_next_summary(start: Start) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 61)
    (summary,) = index.claim()
    index.add(2, A, 62)
    index.confirm([summary])
    assert index.claim() == []
    index.add(3, B, 130)
    assert [(s.revision, s.count, s.new_count) for s in index.claim()] == [(2, 3, 1)]


def test_a_summary_says_since_when_its_new_events_came(start: Start) -> None:
    index = start(windows=WIDE, summaries=MINUTE)
    answer = index.add(0, A, 10)
    index.count(1, delta(answer, 1, 40), at_s=40)
    index.add(2, A, 71)
    (first,) = index.claim()
    index.count(3, delta(answer, 1, 75), at_s=75)  # while the first is leased
    index.wait(31)
    assert index.claim() == [first]
    index.confirm([first])
    index.count(4, delta(answer, 1, 500), at_s=500)
    late_us = START_US + 72 * S
    index.count(5, ClusterDelta(answer.cluster, 1, late_us, late_us), at_s=500)
    (second,) = index.confirm_all()
    index.add(6, A, 900)
    index.add(7, A, 905)
    (third,) = index.confirm_all()
    index.finish()
    (final,) = index.claim()
    assert [
        (s.new_count, (s.since_us or 0) - START_US, s.last_time_us - START_US)
        for s in (first, second, third, final)
    ] == [(3, 10 * S, 71 * S), (3, 72 * S, 500 * S), (2, 900 * S, 905 * S), (0, 905 * S, 905 * S)]


@pytest.mark.one_shard
def test_confirming_another_revision_or_twice_does_nothing(start: Start) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 61)
    (summary,) = index.claim()
    index.confirm([replace(summary, revision=2), replace(summary, cluster=99)])
    index.wait(31)
    assert index.claim() == [summary]
    index.confirm([summary, summary])
    index.confirm([summary])
    index.wait(31)
    assert index.claim() == []
    index.finish()
    (final,) = index.claim()
    assert (final.revision, final.new_count) == (2, 0)
    index.confirm([summary])  # late, and no longer the claimed one
    index.wait(31)
    assert index.claim() == [final]


def test_a_final_summary_follows_the_one_that_is_claimed(
    start: Start,
) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 61)
    (summary,) = index.claim()
    index.add(2, A, 62)
    index.finish()
    assert index.claim() == []
    index.confirm([summary])
    (final,) = index.claim()
    assert (
        final.revision,
        final.closing,
        final.count,
        final.new_count,
    ) == (2, Closing.ENDED, 3, 1)


def test_claims_keep_to_their_limit(start: Start) -> None:
    index = start()
    for offset in range(7):
        index.add(offset, Text(offset, 0x1111 * offset << 8, (offset,)), offset)
    index.finish()
    pages = [index.claim(3) for _ in range(4)]
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert len({summary.cluster for page in pages for summary in page}) == 7


def test_each_due_summary_is_claimed_once_whatever_else_is_due(start: Start) -> None:
    index = start(summaries=MINUTE)
    for offset in range(6):
        index.add(offset, (A, B, C)[offset % 3], offset * 40)
    claimed = index.claim()
    assert len(claimed) == len({summary.cluster for summary in claimed})
    index.finish()
    index.wait(31)
    again = index.claim()
    assert len(again) == len({summary.cluster for summary in again})
    assert {s.cluster: s for s in claimed}.items() <= {s.cluster: s for s in again}.items()


def test_a_confirmed_final_summary_deletes_its_cluster(start: Start) -> None:
    index = start()
    answer = index.add(0, A)
    index.finish()
    index.confirm_all()
    size = index.size()
    assert (size.clusters, size.waiting, size.fingerprints) == (0, 0, 0)
    assert index.representatives(answer.cluster) == [None]


def test_finish_closes_every_cluster_and_may_be_called_again(start: Start) -> None:
    index = start()
    index.add(0, A)
    index.add(1, B)
    for _ in range(2):
        index.finish()
    assert (index.size().clusters, index.size().waiting) == (0, 2)
    assert len(index.confirm_all()) == 2
    index.finish()
    assert index.confirm_all() == []


# ---------------------------------------------------------------- closed and opened again


def test_a_representative_delivered_late_continues_from_its_tombstone(start: Start) -> None:
    index = start()
    old = index.add(0, A, 0)
    index.add(1, A, 1)
    index.finish()
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(1, 2, 2)]
    (again,) = index.resolve(query(0, A, 0))
    assert (again.cluster, again.new) == (old.cluster, True)
    index.count(2, delta(again))
    index.finish()
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(2, 3, 1)]


def test_a_tombstone_outlives_an_unrecorded_opening(start: Start) -> None:
    index = start()
    index.add(0, A, 0)
    index.finish()
    index.confirm_all()
    for _ in range(2):
        index.resolve(query(0, A, 0))
        index.finish()
        assert index.confirm_all() == []
    (again,) = index.resolve(query(0, A, 0))
    index.count(1, delta(again))
    index.finish()
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(2, 2, 1)]


def test_a_tombstone_is_forgotten_after_the_retention_time(start: Start) -> None:
    index = start(summaries=Summaries(retention_us=100 * S))
    index.add(0, A, 0)
    index.finish()
    index.confirm_all()
    index.wait(101)
    (again,) = index.resolve(query(0, A, 0))
    index.count(1, delta(again))
    index.finish()
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(1, 1, 1)]


def test_a_cluster_reopened_before_its_final_summary_takes_events(start: Start) -> None:
    index = start()
    old = index.add(0, A, 0)
    index.finish()
    (again,) = index.resolve(query(0, A, 0))
    assert (again.cluster, again.new) == (old.cluster, True)
    assert (index.size().clusters, index.size().waiting) == (1, 0)
    assert index.claim() == []
    index.count(1, delta(again))
    index.finish()
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(1, 2, 2)]


def test_a_cluster_closed_again_reports_the_rest(
    start: Start,
) -> None:
    index = start()
    index.add(0, A, 0)
    index.finish()
    (sent,) = index.claim()
    (again,) = index.resolve(query(0, A, 0))
    index.count(1, delta(again))
    index.finish()
    index.confirm([sent])
    assert [(s.revision, s.count, s.new_count, s.final) for s in index.confirm_all()] == [
        (2, 2, 1, True)
    ]


def test_a_reopened_cluster_with_a_leased_summary_is_not_claimed(
    start: Start,
) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.finish()
    (sent,) = index.claim()
    (again,) = index.resolve(query(0, A, 0))
    index.count(1, delta(again, 1, 100), at_s=100)
    index.add(2, A, 200)
    assert index.claim() == []
    index.confirm([sent])
    index.add(3, A, 300)
    assert [(s.revision, s.count, s.new_count) for s in index.claim()] == [(2, 4, 3)]


def test_a_reopened_cluster_is_due_again(start: Start) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0)
    index.add(1, A, 1)  # due at one minute
    index.finish()
    index.add(2, B, 100)
    assert index.claim(0) == []  # nothing is taken with a limit of none
    (again,) = index.resolve(query(0, A, 100))
    index.count(3, delta(again, 1, 101), at_s=101)
    index.add(4, B, 300)
    due = [s for s in index.claim() if not s.final and s.position.offset == 0]
    assert [(s.count, s.new_count) for s in due] == [(3, 3)]


def test_a_representative_reopened_in_another_group_is_found_there(start: Start) -> None:
    index = start()
    index.add(0, A, 0, group="old")
    index.finish()
    (again,) = index.resolve(query(0, A, 0, group="new"))
    index.count(1, delta(again))
    (joins,) = index.resolve(query(1, A, 0, group="new"))
    assert again.cluster == joins.cluster
    index.finish()
    index.confirm_all()
    assert index.size().clusters == 0


@pytest.mark.one_shard
def test_another_text_at_an_old_position_does_not_join_its_cluster(start: Start) -> None:
    index = start(recipe=VERIFIED)
    old = index.add(0, A, 0, value=b"old text")
    index.add(1, apart(A, 2, 0xA1), 1, value=b"like it")
    owned = index.claim_partition(HERE, 0)
    assert owned.reset
    (taken,) = index.resolve(query(0, B, 2))
    assert (taken.cluster, taken.new, taken.opened_us) == (old.cluster, True, START_US + 2 * S)
    # What led there does so no more.
    before, alias, like = index.resolve(
        query(7, A, 3), query(8, apart(A, 2, 0xA1), 3), query(9, B, 3)
    )
    assert [before.new, alias.new, like.new] == [True, False, False]
    assert (before.cluster, old.cluster) == (alias.cluster, like.cluster)
    first = delta(taken)
    first.representative = b"new text"
    index.count(0, first)
    assert index.representatives(old.cluster) == [Representative(b"new text")]
    index.finish()
    (final,) = [s for s in index.confirm_all() if s.cluster == old.cluster]
    assert (final.revision, final.count, final.representative, final.samples) == (
        1,
        3,
        b"new text",
        (),
    )


@pytest.mark.one_shard
def test_a_claimed_summary_keeps_its_text_when_another_replaces_it(
    start: Start,
) -> None:
    index = start(summaries=MINUTE)
    index.add(0, A, 0, group="old", value=b"old text")
    index.add(1, A, 61, group="old")
    (sent,) = index.claim()
    index.claim_partition(HERE, 0)
    index.add(0, B, 62, group="new", value=b"new text")
    index.wait(31)
    assert index.claim() == [sent]
    index.confirm([sent])
    index.finish()
    assert [(s.revision, s.count, s.new_count, s.group) for s in index.confirm_all()] == [
        (2, 3, 1, "new")
    ]


@pytest.mark.one_shard
def test_no_cluster_is_opened_while_too_many_closed_ones_wait(start: Start) -> None:
    index = start(limits=Limits(max_clusters=10))
    kept = index.add(0, A, 99, value=b"seen last")

    def batch(first: int) -> None:
        offsets = range(first, first + 200)
        texts = [
            Text(offset, offset * 0x9E37_79B9_7F4A_7C15 % 2**64, (offset,)) for offset in offsets
        ]
        answers = index.resolve(*(query(n, t) for n, t in zip(offsets, texts, strict=True)))
        assert (
            index.count(offsets[-1], *map(delta, answers), first_offset=offsets[0]) == frozenset()
        )

    first = 1
    while index.size().waiting <= 1000:
        batch(first)
        first += 200
    with pytest.raises(IndexFull, match="closed clusters wait for their final summary: claim"):
        batch(first)
    size = index.size()
    assert size.clusters == 10
    assert 1000 < size.waiting <= 1200
    # What is open takes events all the same.
    assert kept.cluster == index.resolve(query(99_999, A, 99))[0].cluster
    index.confirm_all()
    assert index.size().waiting == 0
    batch(10_000)


# ---------------------------------------------------------------- looking


def test_representatives_come_in_order_and_none_for_the_unknown(start: Start) -> None:
    index = start()
    first = index.add(0, A, value=b"first")
    second = index.add(1, B, value=b"second")
    asked = (second.cluster, 1, first.cluster)
    expected = [Representative(b"second"), None, Representative(b"first")]
    assert index.representatives(*asked) == expected


@pytest.mark.simhash
def test_size_counts_clusters_fingerprints_and_memory(start: Start) -> None:
    index = start(recipe=VERIFIED, windows=WIDE)
    empty = index.size()
    assert empty[:6] == (0,) * 6
    for n in range(5):
        index.add(n, apart(A, n, 0xA0 + n))
    index.add(5, B)
    size = index.size()
    assert size[:6] == (2, 6, 0, 0, 0, 0)
    assert size.table_bytes > 0


def test_a_count_without_values_keeps_its_cluster_open(start: Start) -> None:
    index = start()  # of an hour
    answer = index.add(0, A, 0)
    late_us = START_US + 3000 * S
    assert (
        index.count(1, ClusterDelta(answer.cluster, 1, late_us, late_us), at_s=3000) == frozenset()
    )
    (again,) = index.resolve(query(2, A, 6000))
    assert (again.cluster, again.new) == (answer.cluster, False)
    (new,) = index.resolve(query(3, A, 6000 + 3601))
    assert new.cluster != answer.cluster


def test_counts_without_values_are_news_once(start: Start) -> None:
    index = start(summaries=Summaries(every_us=60 * S, lease_us=30 * S))
    answer = index.add(0, A, 0)
    assert index.count(1, delta(answer, 1, 59), at_s=59) == frozenset()
    assert index.claim() == []
    assert index.count(2, delta(answer, 1, 60), at_s=60) == frozenset()
    (summary,) = index.claim()
    assert (summary.revision, summary.count, summary.new_count) == (1, 3, 3)
    assert index.count(3, delta(answer, 1, 200), at_s=200) == frozenset()
    assert index.claim() == []  # one is on its way
    index.confirm([summary])
    assert index.confirm_all() == []  # reported at 200, due at 260
    assert index.count(4, delta(answer, 1, 260), at_s=260) == frozenset()
    assert [(s.revision, s.count, s.new_count) for s in index.confirm_all()] == [(2, 5, 2)]
