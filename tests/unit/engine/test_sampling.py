"""Which events are offered to the samples of their clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from stream_dedup import Deduplicator, Summaries
from stream_dedup.clustering.summaries import MAX_VALUE_LINE
from stream_dedup.engine import sampling
from stream_dedup.engine.sampling import Sampler
from stream_dedup.index.base import ClusterDelta
from stream_dedup.index.memory import clusters
from stream_dedup.model import Decision, Kind, Partition, Summary, Variables

HERE = Partition("topic", 0)
ALL = Summaries(every_us=None, values=64, values_every=1)
USERS = ("ann", "bob", "cid", "dan", "eve", "fay")


def lines(count: int) -> list[str]:
    return [
        f"session {n} closed for user {USERS[n // 2 % 6 if n % 2 else 0]}" for n in range(count)
    ]


def root(dedup: Deduplicator) -> Summary:
    (summary,) = [each for each in dedup.close() if each.merged_into is None]
    return summary


def variables(dedup: Deduplicator) -> Variables:
    found = root(dedup).variables
    assert found is not None
    return found


def joined(cluster: int, events: int) -> list[Decision]:
    return [Decision(Kind.DUPLICATE, cluster)] * events


def offered(sampler: Sampler, offsets: range, cluster: int = 1) -> Sequence[tuple[int, bytes]]:
    delta = ClusterDelta(cluster, len(offsets), 0, 0)
    values = [b"%d" % offset for offset in offsets]
    sampler.add([delta], HERE, offsets, joined(cluster, len(offsets)), values)
    return delta.sampled


def test_a_small_cluster_is_sampled_whole() -> None:
    dedup = Deduplicator(summaries=ALL)
    dedup.process(lines(40))
    found = variables(dedup)
    assert (found.sampled, found.error) == (40, 0)
    user = found.slots[-1]
    assert (user.slot, user.distinct) == ("<*>", 6)
    expected = Counter(line.rsplit(" ", 1)[1] for line in lines(40)).most_common(1)
    assert [(name, round(share * 40)) for name, share in user.values[:1]] == expected


@pytest.mark.parametrize("part", [1, 7, 1000])
def test_the_sample_does_not_depend_on_how_events_are_batched(part: int) -> None:
    dedup, events = Deduplicator(summaries=ALL), lines(300)
    for start in range(0, 300, part):
        dedup.process(events[start : start + part])
    found, whole = root(dedup), Deduplicator(summaries=ALL)
    whole.process(events)
    assert found.sampled == root(whole).sampled
    assert len(found.sampled) == 64


def test_single_events_are_sampled_as_batches_are() -> None:
    one, many = Deduplicator(summaries=ALL), Deduplicator(summaries=ALL)
    for line in lines(300):
        one.process_one(line)
    many.process(lines(300))
    assert root(one).sampled == root(many).sampled


def test_one_event_in_so_many_is_offered() -> None:
    sampler = Sampler(Summaries(values=255, values_every=16))
    found = [each for n in range(40) for each in offered(sampler, range(250 * n, 250 * n + 250), n)]
    assert 500 < len(found) < 750  # of 10,000


def test_events_are_offered_again_but_not_those_that_others_exclude() -> None:
    sampler = Sampler(Summaries(values=4, values_every=1))
    first = offered(sampler, range(100))
    assert len(first) == 4
    assert offered(sampler, range(100)) == first
    assert max(priority for priority, _ in first) < 2**60
    assert len(offered(sampler, range(100, 120))) <= 4


def test_a_commit_offers_so_many_bytes_of_all_clusters_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "MAX_OFFERED_BYTES", 100)
    sampler = Sampler(Summaries(values=8, values_every=1))
    deltas = [ClusterDelta(cluster, 20, 0, 0) for cluster in (0, 1)]
    sampler.add(deltas, HERE, range(40), joined(0, 20) + joined(1, 20), [b"x" * 10] * 40)
    priorities = [sorted(p for p, _ in delta.sampled) for delta in deltas]
    assert sum(map(len, priorities)) == 10
    assert all(priorities)
    sampler.add(deltas, HERE, range(40, 80), joined(0, 20) + joined(1, 20), [b""] * 40)
    assert [len(delta.sampled) for delta in deltas] == [8, 8]  # those left out exclude none


def test_what_a_full_commit_has_offered_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_OFFERED_BYTES", 100)
    sampler, sizes = Sampler(Summaries(values=8, values_every=1)), list[int]()
    for start in range(0, 2000, 100):
        delta, offsets = ClusterDelta(1, 100, 0, 0), range(start, start + 100)
        sampler.add([delta], HERE, offsets, joined(1, 100), [b"x" * 10] * 100)
        sizes.append(len(delta.sampled))
    assert sizes[0] == 8
    assert sum(sizes[10:]) < 20  # of 8 a commit, if it were forgotten


def test_a_cluster_that_is_opened_again_is_offered_events_again() -> None:
    sampler = Sampler(Summaries(values=4, values_every=1))
    offered(sampler, range(10_000))
    assert not offered(sampler, range(10_000, 10_050))
    opened = ClusterDelta(1, 50, 0, 0, b"first")
    offsets = range(10_000, 10_050)
    sampler.add([opened], HERE, offsets, joined(1, 50), [b"x"] * 50)
    assert len(opened.sampled) == 4
    offered(sampler, range(10_000))
    sampler.clear()
    assert len(offered(sampler, offsets)) == 4


def test_partitions_choose_apart() -> None:
    found = []
    for number in range(2):
        delta = ClusterDelta(1, 99, 0, 0)
        sampler = Sampler(Summaries(values=4, values_every=1))
        sampler.add([delta], Partition("topic", number), range(99), joined(1, 99), [b""] * 99)
        found.append(delta.sampled)
    assert found[0] != found[1]


def test_of_an_event_the_beginning_of_its_first_line_is_kept() -> None:
    dedup = Deduplicator(summaries=ALL)
    dedup.process(["disk 7 failed\n  at once", "disk 8 " + "x" * 999])
    kept = {value for each in dedup.close() for _, value in each.sampled}
    assert kept == {b"disk 7 failed", (b"disk 8 " + b"x" * 999)[:MAX_VALUE_LINE]}


def test_no_values_are_kept_if_none_are_wanted() -> None:
    dedup = Deduplicator(summaries=Summaries(values=0, values_every=1))
    dedup.process(lines(20))
    found = root(dedup)
    assert (found.sampled, found.variables) == ((), None)


def test_all_samples_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "MAX_SAMPLED_BYTES", 1000)
    dedup = Deduplicator(summaries=ALL)
    for word in ("one", "two", "three"):
        dedup.process([f"{word} of the disks {n} is full" for n in range(20)])
    assert [len(each.sampled) for each in dedup.close()] == [20, 0, 0]
