"""Events about patterns, from the summaries of their clusters.

A pattern is not a cluster: when a cluster has expired, similar events open another one, and the
pattern is not new; and while the words of a variable are still learned, several clusters may be one
pattern. So a pattern is known by the id of the first cluster that had it, and later ones are
recognised by template, variant and group. A cluster whose template changes because a variable was
learned stays the same pattern; one that merges becomes part of the pattern that it merged into.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import msgspec

from stream_dedup.changes.detector import Change, Detector, PatternEvent
from stream_dedup.emit.summaries import iso_time
from stream_dedup.model import Summary

MAX_PATTERN = 512
"""Characters kept of a pattern."""

NAMES_A_PATTERN = 4
"""Clusters and templates remembered for each pattern, on average."""

DECIMALS = 2

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """A dictionary that keeps the entries used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)


class PatternEvents:
    """Tells what happens to patterns, given all summaries of a stream in order.

    The same summary given again counts again: give each revision once.

    Args:
        detector: notices it.
        max_patterns: patterns that it remembers.
    """

    def __init__(self, detector: Detector, max_patterns: int) -> None:
        self._detector = detector
        self._names: _Recent[Hashable, int] = _Recent(NAMES_A_PATTERN * max_patterns)
        self._shown: _Recent[int, dict[str, object]] = _Recent(max_patterns)

    def add(self, summaries: Sequence[Summary]) -> list[bytes]:
        """Count described summaries; return what they show, as JSON lines.

        Stream time goes on to the earliest of their latest events.
        """
        events: list[PatternEvent] = []
        for summary in summaries:
            if summary.merged_into is not None:
                self._merge(summary, summary.merged_into)
                continue
            pattern = self._pattern(summary)
            self._shown.put(pattern, _described(summary))
            if summary.new_count > 0:
                event = self._detector.observe(pattern, summary.last_time_us, summary.new_count)
                if event is not None and event.change is Change.NEW:
                    event = replace(event, time_us=summary.first_time_us)
                if event is not None:
                    events.append(event)
        current = [each.last_time_us for each in summaries if not each.final]
        if current:
            events += self._detector.advance(min(current))
        return [self._line(event) for event in events]

    def _pattern(self, summary: Summary) -> int:
        """The pattern of a cluster."""
        kind = _kind(summary)
        pattern = self._names.get(summary.cluster)
        if pattern is None:
            pattern = self._names.get(kind)
        if pattern is None:
            pattern = summary.cluster
        self._names.put(summary.cluster, pattern)
        self._names.put(kind, pattern)
        return pattern

    def _merge(self, summary: Summary, into: int) -> None:
        """Take a cluster's pattern as part of the one that it has merged into.

        The few events that it had counted belong to neither's rate.
        """
        pattern, root = self._names.get(summary.cluster), self._names.get(into)
        if root is None:
            root = into if pattern is None else pattern
            self._names.put(into, root)
        elif pattern is not None and pattern != root:
            self._detector.forget(pattern)
        self._names.put(summary.cluster, root)
        self._names.put(_kind(summary), root)

    def _line(self, event: PatternEvent) -> bytes:
        fields: dict[str, object] = {
            "type": "pattern",
            "change": event.change.value,
            "time": iso_time(event.time_us),
            "pattern_id": f"{event.pattern:016x}",
        }
        if event.change is not Change.NEW:
            fields |= {
                "expected": round(event.expected, DECIMALS),
                "last_time": iso_time(event.last_us),
            }
        fields["count"] = event.count
        return msgspec.json.encode(fields | (self._shown.get(event.pattern) or {})) + b"\n"


def _kind(summary: Summary) -> tuple[int | None, tuple[str, ...], str]:
    """What clusters of one pattern have in common."""
    return summary.template, summary.variant, summary.group


def _described(summary: Summary) -> dict[str, object]:
    return {
        "cluster": summary.cluster_hex,
        "template": summary.template_hex,
        "variant": summary.variant,
        "group": msgspec.Raw(summary.group.encode() if summary.group else b"{}"),
        "pattern": summary.pattern[:MAX_PATTERN],
    }
