"""Events about patterns, from the summaries of their clusters.

A pattern is not a cluster: when a cluster has expired, similar events open another one, and the
pattern is not new; and while the words of a variable are still learned, several clusters may be one
pattern. So a pattern is known by the id of the first cluster that had it, and later ones are
recognised by template, variant and group. A cluster whose template changes because a variable was
learned stays the same pattern; one that merges becomes part of the pattern that it merged into.

A summary may be given again, as one is that was claimed and not confirmed: it is recognised by its
cluster, revision and time, and not counted twice.

A summary of a stream that was not looked at for a while counts events of many bins. They are spread
evenly over the time from the first of these events to the last: as one bin they would be a spike.
(Over the time since the summary before, a burst after a silence would be no spike.)

What is known of a pattern can be taken out (`Known`), stored, and given to another object.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import msgspec

from stream_dedup.changes.detector import Change, Detector, PatternEvent, Rate
from stream_dedup.emit.summaries import SHORTENED, iso_time
from stream_dedup.model import Summary

MAX_PATTERN = 512
"""Characters kept of a pattern."""

MAX_GROUP = 2048
"""A longer group is left out of events: they have to stay small."""

MAX_NAMES = 16
"""Clusters and templates by which a pattern is recognised: those that came last."""

MAX_SPREAD_BINS = 24 * 60
"""Events of a longer time are spread over its last bins."""

DECIMALS = 2


class Name(NamedTuple):
    """What a cluster or a template leads to; may be stored.

    Attributes:
        pattern: the pattern.
        revision: of the cluster's summary that was counted last.
        last_us: the latest event time in it.
    """

    pattern: int
    revision: int = 0
    last_us: int = 0

    def includes(self, summary: Summary) -> bool:
        """Whether a summary of the cluster was counted before.

        Revisions alone would not say so: a topic that is created again may bring the same cluster,
        from revision 1 on; but with later events.
        """
        return summary.revision <= self.revision and summary.last_time_us <= self.last_us

    def packed(self) -> bytes:
        """It as bytes, which begin with the pattern's id."""
        return _NAME.pack(*self)

    @staticmethod
    def unpacked(packed: bytes) -> Name | None:
        """The name that was packed; None if the bytes are damaged."""
        return Name(*_NAME.unpack(packed)) if len(packed) == _NAME.size else None


_NAME = struct.Struct(">QQq")


class Known(msgspec.Struct, array_like=True):
    """What is known of a pattern; may be stored.

    Attributes:
        names: of clusters and templates that lead to it, the one used last at the end.
        shown: what its events show of it, as JSON.
        muted: whether a rule mutes it.
        bin_us: the length of a bin.
        rate: its counts.
    """

    names: list[bytes]
    shown: bytes
    muted: bool = False
    bin_us: int = 0
    rate: Rate | None = None

    def packed(self) -> bytes:
        """It as bytes."""
        return _PACKED + msgspec.msgpack.encode(self)

    @staticmethod
    def unpacked(packed: bytes) -> Known:
        """What was packed; without names and counts if the bytes are of another version."""
        if packed.startswith(_PACKED):
            with suppress(msgspec.MsgspecError):
                return _KNOWN.decode(memoryview(packed)[len(_PACKED) :])
        return Known([], b"{}")


_PACKED = b"\x01"
"""Version of what is packed."""

_KNOWN = msgspec.msgpack.Decoder(Known)


class PatternEvents:
    """Finds what happens to patterns, given the summaries of a stream in order.

    Args:
        detector: notices it.
        max_patterns: patterns that are remembered; the one not seen for longest is forgotten.
        namespace: of the clusters, for the events; empty to leave it out.
    """

    def __init__(self, detector: Detector, max_patterns: int, namespace: str = "") -> None:
        self._detector = detector
        self._max_patterns = max_patterns
        self._namespace = namespace
        self._names: dict[bytes, Name] = {}
        # The one that was used longest ago first.
        self._known: OrderedDict[int, Known] = OrderedDict()

    def add(self, summaries: Sequence[Summary]) -> list[bytes]:
        """Count described summaries; return what they show, as JSON lines.

        Stream time goes on to the earliest of their latest events.
        """
        events = self.observe(summaries)
        current = [each.last_time_us for each in summaries if not each.final]
        if current:
            events += self.advance(min(current))
        return [self.line(event) for event in events]

    def observe(self, summaries: Sequence[Summary]) -> list[PatternEvent]:
        """Count described summaries; return what they show."""
        events: list[PatternEvent] = []
        for summary in summaries:
            before = self._names.get(cluster_name(summary.cluster))
            if before is not None and before.includes(summary):
                continue
            if summary.merged_into is not None:
                self._merge(summary, summary.merged_into)
                continue
            pattern = self._pattern(summary)
            known = self._known.get(pattern)
            self._describe(pattern, summary)
            if summary.new_count <= 0:
                continue
            counts = [(summary.last_time_us, summary.new_count)]
            if known is not None and summary.since_us is not None:
                counts = list(self._spread(summary, summary.since_us))
            for time_us, count in counts:
                event = self._detector.observe(pattern, time_us, count)
                if event is None or summary.muted:
                    continue
                if event.change is Change.NEW:
                    if known is not None:  # only its counts are not
                        continue
                    event = replace(event, time_us=summary.first_time_us)
                events.append(event)
        return events

    def advance(self, time_us: int) -> list[PatternEvent]:
        """Return the patterns that have vanished by this time of the stream."""
        return [
            event
            for event in self._detector.advance(time_us)
            if (known := self._known.get(event.pattern)) is None or not known.muted
        ]

    def line(self, event: PatternEvent) -> bytes:
        """An event as a JSON line."""
        fields: dict[str, object] = {
            "type": "pattern",
            "change": event.change.value,
            "id": self._id(event),
        }
        if self._namespace:
            fields["namespace"] = self._namespace
        fields |= {"time": iso_time(event.time_us), "pattern_id": f"{event.pattern:016x}"}
        if event.change is not Change.NEW:
            fields |= {
                "expected": round(event.expected, DECIMALS),
                "log10_p": round(event.log10_p, DECIMALS),
                "last_time": iso_time(event.last_us),
            }
        fields |= {"count": event.count, "bin_s": self._detector.bin_us / 1_000_000}
        known = self._known.get(event.pattern)
        shown: dict[str, object] = {} if known is None else _SHOWN.decode(known.shown)
        return msgspec.json.encode(fields | shown) + b"\n"

    def _id(self, event: PatternEvent) -> str:
        """Name an event: another copy of it has the same name."""
        name = f"{event.pattern:016x}-{event.change.value}"
        if event.change is Change.NEW:
            return name
        return f"{name}-{event.bin * self._detector.bin_us // 1_000_000}"

    # ------------------------------------------------------------ what is known

    def restore(self, names: Mapping[bytes, Name], known: Mapping[int, Known]) -> None:
        """Go on with what another object knew; see `names` and `known`."""
        self._names.update(names)
        for pattern, each in known.items():
            self._known[pattern] = each
            # The number of a bin depends on its length.
            if each.rate is not None and each.bin_us == self._detector.bin_us:
                self._detector.restore(pattern, each.rate)

    def names(self) -> dict[bytes, Name]:
        """Return what leads to the patterns."""
        return dict(self._names)

    def known(self) -> dict[int, Known]:
        """Return what is known of the patterns."""
        return {
            pattern: Known(
                *(list(each.names), each.shown, each.muted, self._detector.bin_us),
                self._detector.rate(pattern),
            )
            for pattern, each in self._known.items()
        }

    def forget(self, pattern: int) -> None:
        """Forget a pattern; it would be new again."""
        self._detector.forget(pattern)
        known = self._known.pop(pattern, None)
        for name in known.names if known is not None else ():
            self._drop_name(name, pattern)

    def _drop_name(self, name: bytes, pattern: int) -> None:
        found = self._names.get(name)
        if found is not None and found.pattern == pattern:
            del self._names[name]

    def _pattern(self, summary: Summary) -> int:
        """The pattern of a cluster."""
        name = self._names.get(cluster_name(summary.cluster)) or self._names.get(kind_name(summary))
        return summary.cluster if name is None else name.pattern

    def _describe(self, pattern: int, summary: Summary) -> None:
        """Keep what a summary says of its pattern, and by what it is recognised."""
        known = self._known.get(pattern)
        if known is None:
            known = self._known[pattern] = Known([], b"")
        self._known.move_to_end(pattern)
        known.shown, known.muted = _described(summary), summary.muted
        cluster, kind = cluster_name(summary.cluster), kind_name(summary)
        self._name(known, cluster, Name(pattern, summary.revision, summary.last_time_us))
        self._name(known, kind, Name(pattern))
        if len(self._known) > self._max_patterns:
            self.forget(next(iter(self._known)))

    def _name(self, known: Known, key: bytes, name: Name) -> None:
        if key in known.names:
            known.names.remove(key)
        known.names.append(key)
        self._names[key] = name
        for old in known.names[:-MAX_NAMES]:
            self._drop_name(old, name.pattern)
        del known.names[:-MAX_NAMES]

    def _merge(self, summary: Summary, into: int) -> None:
        """Take a cluster's pattern as part of the one that it has merged into.

        The few events that it had counted belong to neither's rate.
        """
        own = self._names.get(cluster_name(summary.cluster))
        other = self._names.get(cluster_name(into))
        if other is not None:
            root = other.pattern
            if own is not None and own.pattern != root:
                self.forget(own.pattern)
        elif own is not None:
            root = own.pattern
            self._lead(cluster_name(into), Name(root))
        else:
            return
        name = Name(root, summary.revision, summary.last_time_us)
        self._lead(cluster_name(summary.cluster), name)
        self._lead(kind_name(summary), Name(root))

    def _lead(self, key: bytes, name: Name) -> None:
        """Have a cluster or template lead to a pattern, if that is still known."""
        known = self._known.get(name.pattern)
        if known is not None:
            self._name(known, key, name)

    def _spread(self, summary: Summary, since_us: int) -> Iterator[tuple[int, int]]:
        """Yield times and counts: a summary's new events, over the bins from the first one on."""
        bin_us, end_us = self._detector.bin_us, summary.last_time_us
        bins = min((end_us - since_us) // bin_us, MAX_SPREAD_BINS)
        if bins < 2:
            yield end_us, summary.new_count
            return
        given = 0
        for number in range(1, bins + 1):
            part = summary.new_count * number // bins - given
            if part:
                yield end_us - (bins - number) * bin_us, part
            given += part


def cluster_name(cluster: int) -> bytes:
    """By what a pattern is recognised: one of its clusters."""
    return b"c" + cluster.to_bytes(8, "big")


def kind_name(summary: Summary) -> bytes:
    """By what a pattern is recognised: what its clusters have in common."""
    kind = msgspec.msgpack.encode((summary.template, summary.variant, summary.group))
    return b"k" + hashlib.blake2b(kind, digest_size=16).digest()


def shortened_line(line: bytes) -> bytes:
    """An event with the beginning of its pattern only, for a topic of small records."""
    fields = _SHOWN.decode(line)
    fields["pattern"] = str(fields.get("pattern", ""))[:SHORTENED]
    return msgspec.json.encode(fields | {"group": {}})


_SHOWN = msgspec.json.Decoder(dict[str, object])


def _described(summary: Summary) -> bytes:
    group = summary.group if len(summary.group) <= MAX_GROUP else ""
    fields = {
        "cluster": summary.cluster_hex,
        "template": summary.template_hex,
        "variant": summary.variant,
        "group": msgspec.Raw(group.encode() if group else b"{}"),
        "pattern": summary.pattern[:MAX_PATTERN],
    }
    if summary.name:
        fields["name"] = summary.name
    return msgspec.json.encode(fields)
