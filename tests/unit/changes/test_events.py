"""Events about patterns, from the summaries of an engine."""

from __future__ import annotations

from typing import Any

import msgspec

from stream_dedup.changes.detector import Detector
from stream_dedup.changes.events import PatternEvents
from stream_dedup.clustering.windows import Windows
from stream_dedup.deduplicator import Deduplicator

MINUTE_US = 60_000_000


class Stream:
    """An engine in memory, its summaries, and what they show."""

    def __init__(self) -> None:
        self._dedup = Deduplicator(windows=Windows(idle_us=10 * MINUTE_US))
        self._events = PatternEvents(Detector(), 1000)

    def minute(self, minute: int, *lines: str) -> list[dict[str, Any]]:
        """Give the lines of a minute; gives the events."""
        self._dedup.process(lines, times_us=[minute * MINUTE_US] * len(lines))
        return self._shown(self._events.add(self._dedup.due()))

    def end(self) -> list[dict[str, Any]]:
        return self._shown(self._events.add(self._dedup.close()))

    @staticmethod
    def _shown(lines: list[bytes]) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in lines]


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["change"], event["pattern"]) for event in events]


def test_a_pattern_whose_cluster_expired_is_not_new_again() -> None:
    stream, found = Stream(), []
    for minute in (0, 1, 2, 40, 41, 42, 90, 91):
        found += stream.minute(minute, "disk sda is full")
    assert kinds(found + stream.end()) == [("new", "disk sda is full")]
    assert found[0]["time"] == "1970-01-01T00:00:00Z"


def test_a_pattern_with_a_learned_word_is_not_new_again() -> None:
    stream, found = Stream(), []
    for minute in range(60):
        found += stream.minute(minute, f"session opened for user {'abcdefgh'[minute % 8]}xyz")
    names = kinds(found + stream.end())
    assert all(change == "new" for change, _ in names)
    assert len(names) == len(set(names)) <= 5  # until a fifth name shows that names vary


def test_clusters_that_merge_at_once_are_one_new_pattern() -> None:
    stream = Stream()
    names = ["ann", "bob", "cid", "dan", "eve", "fay"]
    found = stream.minute(0, *(f"session opened for user {name}" for name in names))
    assert kinds(found + stream.end()) == [("new", "session opened for user <*>")]


def test_a_spike_names_its_pattern_and_what_was_expected() -> None:
    stream, found = Stream(), []
    for minute in range(61):
        found += stream.minute(minute, *["queue 7 grows"] * (100 if minute == 58 else 4))
    spike = found[-1]
    assert kinds(found) == [("new", "queue <number> grows"), ("spike", "queue <number> grows")]
    assert spike["pattern_id"] == found[0]["pattern_id"]
    assert (spike["count"], spike["time"]) == (100, "1970-01-01T00:58:00Z")
    assert 3.9 < spike["expected"] < 4.1
