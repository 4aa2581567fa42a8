"""What the detector says of counts over time."""

from __future__ import annotations

import gzip
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.changes.detector import Change, Detector, PatternEvent
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator

LOGS = Path(__file__).parents[3] / "examples" / "logs"
MINUTE_US = 60_000_000

observations = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 300), st.integers(1, 1000)), max_size=80
)


def seen(detector: Detector, given: list[tuple[int, int, int]]) -> list[PatternEvent]:
    """Observe (pattern, minute, count), and advance after each."""
    found = []
    for pattern, minute, count in given:
        event = detector.observe(pattern, minute * MINUTE_US, count)
        found += [event] if event is not None else []
        found += detector.advance(minute * MINUTE_US)
    return found


def steady(minutes: int, count: int = 6, seed: int = 1) -> list[tuple[int, int, int]]:
    numbers = random.Random(seed)
    return [(1, minute, numbers.randint(count - 3, count + 3)) for minute in range(minutes)]


def changes(events: list[PatternEvent]) -> list[tuple[Change, int]]:
    return [(event.change, event.time_us // MINUTE_US) for event in events]


@given(observations)
def test_each_pattern_is_new_once(given: list[tuple[int, int, int]]) -> None:
    new = [event.pattern for event in seen(Detector(), given) if event.change is Change.NEW]
    assert new == list(dict.fromkeys(pattern for pattern, _, _ in given))


@given(observations, st.integers(1, 4))
def test_at_most_so_many_patterns_are_remembered(
    given: list[tuple[int, int, int]], most: int
) -> None:
    detector = Detector(max_patterns=most)
    new = [event for event in seen(detector, given) if event.change is Change.NEW]
    assert len(detector) == min(len(new), most)


@given(observations)
def test_counts_in_parts_leave_the_same_history(given: list[tuple[int, int, int]]) -> None:
    ordered = sorted(given, key=lambda each: each[1])
    parts = [(pattern, minute, 1) for pattern, minute, count in ordered for _ in range(count % 7)]
    whole = Counter((pattern, minute) for pattern, minute, _ in parts)
    one = seen(Detector(), parts)
    other = seen(Detector(), [(p, m, count) for (p, m), count in whole.items()])
    # Within a minute they come in the order of the counts, which is another one.
    assert sorted(changes(one)) == sorted(changes(other))


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(1, 30), st.integers(20, 400))
def test_a_constant_rate_is_nothing(count: int, every: int, bins: int) -> None:
    assert changes(seen(Detector(), [(1, every * each, count) for each in range(bins)])) == [
        (Change.NEW, 0)
    ]


def test_a_burst_is_one_spike_however_long() -> None:
    burst = [(1, 300 + minute, 90) for minute in range(20)]
    assert changes(seen(Detector(), [*steady(300), *burst])) == [
        (Change.NEW, 0),
        (Change.SPIKE, 300),
    ]


def test_a_second_burst_of_the_same_size_is_a_spike() -> None:
    given = [*steady(300), (1, 300, 90), *((p, m + 301, c) for p, m, c in steady(60)), (1, 361, 90)]
    assert changes(seen(Detector(), given))[1:] == [(Change.SPIKE, 300), (Change.SPIKE, 361)]


def test_what_comes_every_hour_is_soon_no_spike() -> None:
    given = [*steady(1440), *((1, 60 * hour, 500) for hour in range(1, 24))]
    found = seen(Detector(), sorted(given, key=lambda each: each[1]))
    assert 1 <= len(found[1:]) <= 4
    assert all(event.time_us < 6 * 60 * MINUTE_US for event in found)


def test_a_steady_pattern_that_stops_has_vanished_once() -> None:
    given = [*steady(120), *((2, minute, 1) for minute in range(120, 400))]
    assert changes(seen(Detector(), given)) == [
        (Change.NEW, 0),
        (Change.NEW, 120),
        (Change.VANISHED, 129),
    ]


def test_a_rare_pattern_that_stops_is_waited_for() -> None:
    rare = [(1, 20 * each, 1) for each in range(30)]
    others = [(2, minute, 1) for minute in range(581, 800)]
    assert changes(seen(Detector(), [*rare, *others]))[1:] == [(Change.NEW, 581)]


def test_counts_that_arrive_late_are_no_spike() -> None:
    given = [*steady(120), *((1, minute, 1000) for minute in range(100))]
    assert changes(seen(Detector(), given)) == [(Change.NEW, 0)]


@pytest.mark.parametrize(("bin_us", "most"), [(0, 1), (1, 0)])
def test_settings_out_of_range_are_refused(bin_us: int, most: int) -> None:
    with pytest.raises(ValueError, match="give"):
        Detector(bin_us, most)


# ---------------------------------------------------------------- a day of the example logs


@pytest.fixture(scope="module")
def day() -> dict[int, Counter[int]]:
    """Events of each pattern by minute: the logs again and again, with pauses, faster or slower."""
    numbers = random.Random(1)
    minutes: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for path in sorted(LOGS.glob("*.log.gz")):
        dedup = Deduplicator(windows=Windows(FOREVER_US, FOREVER_US))
        lines = gzip.decompress(path.read_bytes()).splitlines()
        clusters = [decision.cluster for decision in dedup.process(lines)]
        into = {summary.cluster: summary.merged_into for summary in dedup.close(patterns=False)}
        second = numbers.uniform(0, 600)
        while second < 24 * 3600:
            length = numbers.uniform(60, 240)
            for row, cluster in enumerate(clusters):
                root = cluster
                while root is not None and into.get(root) is not None:
                    root = into[root]
                if root is not None:
                    minutes[int(second + length * row / len(clusters)) // 60][root] += 1
            second += length + numbers.expovariate(1 / 1800)
    return dict(sorted(minutes.items()))


def replayed(day: dict[int, Counter[int]], bursts: set[tuple[int, int]]) -> list[PatternEvent]:
    """Replay it, with bursts of five times the busiest minute so far, but 30 events at least."""
    detector, found = Detector(), []
    busiest: Counter[int] = Counter()
    for minute, counts in day.items():
        for pattern in [pattern for at, pattern in bursts if at == minute and busiest[pattern]]:
            size = max(30, 5 * busiest[pattern])
            found.append(detector.observe(pattern, minute * MINUTE_US, size))
        for pattern, count in counts.items():
            found.append(detector.observe(pattern, minute * MINUTE_US, count))
            busiest[pattern] = max(busiest[pattern], count)
        found += detector.advance(minute * MINUTE_US)
    return [event for event in found if event is not None]


def test_a_day_of_logs_has_hardly_a_false_spike(day: dict[int, Counter[int]]) -> None:
    found = Counter(event.change for event in replayed(day, set()))
    assert found[Change.NEW] == len({pattern for counts in day.values() for pattern in counts})
    assert found[Change.SPIKE] <= 6  # an hour may have one
    assert found[Change.VANISHED] <= 6


def test_nearly_all_bursts_in_a_day_are_found(day: dict[int, Counter[int]]) -> None:
    numbers = random.Random(2)
    patterns = sorted({pattern for counts in day.values() for pattern in counts})
    late = [minute for minute in day if minute >= 240]
    bursts = {(numbers.choice(late), numbers.choice(patterns)) for _ in range(300)}
    events = replayed(day, bursts)
    found = {(e.time_us // MINUTE_US, e.pattern) for e in events if e.change is Change.SPIKE}
    assert len(bursts & found) >= 0.95 * len(bursts)
