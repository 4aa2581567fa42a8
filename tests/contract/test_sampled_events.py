"""Events chosen by chance: every index keeps those of the least priorities, for its summaries."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from stream_dedup.clustering.summaries import Summaries
from stream_dedup.index.base import ClusterDelta, Resolution
from stream_dedup.model import Summary
from tests.contract.driver import A, Driver, S, delta, query
from tests.contract.test_learned_words import (
    EARLY,
    FINAL_ONLY,
    LEARNS,
    asked,
    both_learned,
    session,
)

Start = Callable[..., Driver]
FOUR = Summaries(every_us=60 * S, values=4)
Sampled = list[tuple[int, bytes]]


def events(*priorities: int) -> Sampled:
    return [(priority << 56, b"event %d" % priority) for priority in priorities]


def offer(index: Driver, offset: int, answer: Resolution, sampled: Sampled, at_s: float) -> None:
    given: ClusterDelta = delta(answer, 1, at_s)
    given.sampled = sampled
    assert index.count(offset, given, at_s=at_s) == frozenset()


def after(index: Driver, *offers: Sampled) -> Summary:
    for offset, sampled in enumerate(offers):
        (answer,) = index.resolve(query(offset, A, 40 * offset))
        offer(index, offset, answer, sampled, 40 * offset)
    (summary,) = index.claim()
    return summary


def test_a_summary_has_the_events_of_least_priority(start: Start) -> None:
    summary = after(start(summaries=FOUR), events(9, 3), events(7, 1, 200), events(5))
    assert list(summary.sampled) == events(1, 3, 5, 7)


def test_an_event_offered_again_is_kept_once(start: Start) -> None:
    summary = after(start(summaries=FOUR), events(3, 9), events(3), events(9, 3))
    assert list(summary.sampled) == events(3, 9)


def test_many_offers_keep_only_the_least(start: Start) -> None:
    offers = [events(*range(200 - 10 * n, 204 - 10 * n)) for n in range(20)]
    summary = after(start(summaries=FOUR), *offers)
    assert list(summary.sampled) == events(10, 11, 12, 13)


def test_a_summary_claimed_again_has_the_same_events(start: Start) -> None:
    index = start(summaries=FOUR)
    summary = after(index, events(50, 51), events(52, 53), events(60))
    for offset in range(3, 9):
        (answer,) = index.resolve(query(offset, A, 130))
        offer(index, offset, answer, events(*range(30 - 3 * offset, 33 - 3 * offset)), 130)
    index.wait(31)
    assert index.claim() == [summary]
    index.confirm([summary])
    index.finish()
    (final,) = index.confirm_all()
    assert list(final.sampled) == events(6, 7, 8, 9)


def test_a_cluster_opened_again_begins_its_sample_again(start: Start) -> None:
    index = start(summaries=Summaries(every_us=None, values=4))
    (answer,) = index.resolve(query(0, A))
    offer(index, 0, answer, events(1, 2), 0)
    index.claim_partition(end_offset=0)  # the topic was created again
    (again,) = index.resolve(query(0, A, 9 * 3600))
    offer(index, 0, again, events(8), 9 * 3600)
    index.finish()
    (final,) = [each for each in index.confirm_all() if each.last_time_us > 9 * 3600 * S]
    assert list(final.sampled) == events(8)


@pytest.mark.simhash
@pytest.mark.one_node
def test_a_merged_cluster_hands_its_events_to_the_other(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    for n, name in enumerate(("alice", "bob", "carol", "dave", "erin")):
        (answer,) = index.resolve(asked(n, session(name), n))
        offer(index, n, answer, events(9 - n), n)
    index.finish()
    found = {each.cluster: list(each.sampled) for each in index.confirm_all()}
    expected = [events(5, 6, 7, 8, 9), events(6), events(7), events(8)]
    assert sorted(found.values()) == expected


@pytest.mark.simhash
@pytest.mark.one_node
def test_a_closed_cluster_that_merges_hands_its_events_on(start: Start) -> None:
    index = start(recipe=LEARNS, summaries=FINAL_ONLY)
    (early,) = index.resolve(EARLY)
    offer(index, 0, early, events(4), 100)
    root = both_learned(index, offset := count(1), 1000)
    end = index.resolve(asked(next(offset), "something else", 3800))[0]
    offer(index, next(offset), end, events(5), 3800)
    claimed = {each.cluster: each for each in index.claim()}
    assert index.merge_fitting(EARLY) == [root.cluster]
    index.confirm([*claimed.values()])
    index.finish()
    (summary,) = [each for each in index.confirm_all() if each.cluster == root.cluster]
    assert list(claimed[early.cluster].sampled) == list(summary.sampled) == events(4)
