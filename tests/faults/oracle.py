"""The oracle: checks a worker's promises from the records in Kafka alone.

It shares no code with stream_dedup; it knows only what the documentation says of records, headers
and summaries. It needs unique ids as keys of the input, `emit = "annotate"`, a dead-letter topic,
and time for the final summaries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tests.services.kafka_records import Record

SHOWN = 5
"""Violations of one kind that are listed."""

PROVISIONAL = {"counts", "cluster counts", "not final", "no summary", "merged"}
"""Violations that may disappear with summaries that are still to be sent."""

ROUTED_MS = 60_000
"""An event that comes so long before or after a topic gets a partition may wait for its delivery
until then, while a broker is away for a moment."""

DECISIONS = {b"new", b"duplicate", b"passed"}
DEAD = ("sd-error", "sd-error-message", "sd-topic", "sd-partition", "sd-offset")


class Place(NamedTuple):
    """The place of an input."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Verdict:
    """The result of a check.

    Attributes:
        violations: broken promises with their records; a few of each kind.
        broken: the number of violations of each kind.
        figures: counts of records.
    """

    violations: list[str] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether all promises were kept."""
        return not self.broken

    @property
    def conclusive(self) -> bool:
        """Whether waiting longer cannot change the result."""
        return self.good or not self.broken.keys() <= PROVISIONAL

    def found(self, kind: str, text: str) -> None:
        """Note a violation."""
        self.broken[kind] += 1
        if self.broken[kind] <= SHOWN:
            self.violations.append(f"{kind}: {text}")

    def __str__(self) -> str:
        if self.good:
            return "all promises were kept"
        counts = ", ".join(f"{kind} ({count})" for kind, count in self.broken.items())
        return "\n".join([f"NOT KEPT: {counts}", *self.violations])


class Copy(NamedTuple):
    """A record as a reader sees it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def judge(
    inputs: Sequence[Record],
    outputs: Sequence[Record],
    summaries: Sequence[Record],
    dead: Sequence[Record],
    *,
    exactly_once: bool,
    partitions_kept: bool = True,
    grown_ms: Sequence[int] = (),
    outage_ms: int = 0,
    index_was_reset: bool = False,
) -> Verdict:
    """Compare output with input.

    Args:
        inputs: all records of the input topics.
        outputs: the output topic, ordered by partition and offset; with exactly-once delivery only
            committed records. Those of a topic that was deleted come before those of its successor.
        summaries: the summary topic.
        dead: the dead-letter topic, like `outputs`.
        exactly_once: whether copies are a violation.
        partitions_kept: whether input and output always had equally many partitions; else the
            output's partition may be another one than the input's.
        grown_ms: when a topic got a partition. With at-least-once delivery an event of that time
            may be sent again to another partition than at first, after later ones.
        outage_ms: for how long a broker was away at most: events wait longer for their delivery.
        index_was_reset: whether the index lost its data: then clusters start again, and counts do
            not add up.
    """
    verdict = Verdict()
    came = _by_id(inputs, verdict)
    routes = _Routes(() if exactly_once else grown_ms, ROUTED_MS + outage_ms)
    copies = _first_copies(came, outputs, verdict, "output", once=exactly_once, routes=routes)
    letters = _first_copies(
        came, dead, verdict, "dead letter", once=exactly_once, routes=_Routes((), 0)
    )
    for key, record in came.items():
        if (key in copies) == (key in letters):
            how = "left as an event and as a dead letter" if key in copies else "did not leave"
            kind = "left both ways" if key in copies else "lost"
            verdict.found(kind, f"{_place(record)}, key {key!r}, {how}")
        elif key in copies:
            _compare(record, copies[key], verdict, partition_kept=partitions_kept)
        else:
            _compare_letter(record, letters[key], verdict)
    members, news, joined, passed = _decided(came, copies, verdict, strict=not index_was_reset)
    revisions = _revisions(summaries, verdict)
    if not index_was_reset:
        counted = _counts(revisions, members, news, joined, verdict)
        _merges(revisions, verdict)
        if counted + passed + len(letters) != len(came):
            verdict.found(
                "counts",
                f"{counted} counted in summaries + {passed} passed + {len(letters)} dead letters "
                f"= {counted + passed + len(letters)}, of {len(came)} inputs",
            )
    verdict.figures |= {
        "inputs": len(came),
        "input partitions": len({record.partition for record in came.values()}),
        "outputs": len(outputs),
        "outputs re-sent": len(outputs) - len(copies),
        "dead letters": len(letters),
        "dead letters re-sent": len(dead) - len(letters),
        "passed": passed,
        "clusters": len(members),
        "clusters merged": sum(_last(known)["closing"] == "merged" for known in revisions.values()),
        "summaries": sum(map(len, revisions.values())),
        "summaries re-sent": len(summaries) - sum(map(len, revisions.values())),
    }
    return verdict


def _by_id(inputs: Iterable[Record], verdict: Verdict) -> dict[bytes, Record]:
    came: dict[bytes, Record] = {}
    for record in inputs:
        key = record.key or b""
        if not key or key in came:
            verdict.found("the test itself", f"{_place(record)} has no unique id: {key!r}")
        came[key] = record
    return came


class _Routes(NamedTuple):
    """When the routes of events changed, and how far from that an event may be affected."""

    changed_ms: Sequence[int]
    within_ms: int

    def distance_ms(self, time_ms: int) -> float:
        """How long before or after the nearest change a time is."""
        return min((abs(time_ms - each) for each in self.changed_ms), default=math.inf)


def _first_copies(
    came: Mapping[bytes, Record],
    left: Iterable[Record],
    verdict: Verdict,
    what: str,
    *,
    once: bool,
    routes: _Routes,
) -> dict[bytes, Record]:
    """The first copy of each; all copies must be equal, and the first ones in order."""
    if routes.changed_ms:
        verdict.figures["outputs out of order as partitions were added"] = 0
    first: dict[bytes, Record] = {}
    reached: dict[tuple[Place, int], int] = {}
    for record in left:
        key = record.key or b""
        source = came.get(key)
        if source is None:
            verdict.found("from nowhere", f"{what} {_place(record)}, key {key!r}, has no input")
            continue
        known = first.get(key)
        if known is not None:
            if once:
                verdict.found("double", f"{what} {_place(known)} and {_place(record)}, {key!r}")
            if _copy(known) != _copy(record):
                verdict.found("copies differ", f"{what} {_copy(known)} and {_copy(record)}")
            continue
        first[key] = record
        way = (Place(source.topic, source.partition, 0), record.partition)
        away_ms = routes.distance_ms(source.timestamp_ms)
        if source.offset > reached.get(way, -1):
            reached[way] = source.offset
        elif away_ms < routes.within_ms:
            verdict.figures["outputs out of order as partitions were added"] += 1
        else:
            found = f"{what} {_place(record)} of {_place(source)} after {reached[way]}"
            verdict.found("order", f"{found}, {away_ms / 1000:.1f} s from a new partition")
    return first


def _compare(came: Record, left: Record, verdict: Verdict, *, partition_kept: bool) -> None:
    """Check that an annotated event is unchanged, in its partition, with added headers only."""
    if (came.value, came.timestamp_ms) != (left.value, left.timestamp_ms):
        verdict.found("changed", f"{_place(came)}: {_copy(came)} became {_copy(left)}")
    if partition_kept and came.partition != left.partition:
        verdict.found("changed", f"{_place(came)} went to {_place(left)}")
    own = len(came.headers)
    added = [name for name, _ in left.headers[own:]]
    if left.headers[:own] != came.headers or any(not name.startswith("sd-") for name in added):
        verdict.found("changed", f"{_place(came)}: headers {came.headers} became {left.headers}")


def _compare_letter(came: Record, left: Record, verdict: Verdict) -> None:
    """Check that a dead letter is unchanged and names its place."""
    own = len(came.headers)
    said = dict(left.headers[own:])
    place = [came.topic.encode(), b"%d" % came.partition, b"%d" % came.offset]
    if (
        (came.value, came.timestamp_ms) != (left.value, left.timestamp_ms)
        or left.headers[:own] != came.headers
        or tuple(said) != DEAD
        or [said[name] for name in DEAD[2:]] != place
    ):
        verdict.found(
            "changed", f"{_place(came)}: {_copy(came)} became the dead letter {_copy(left)}"
        )


def _decided(
    came: Mapping[bytes, Record], copies: Mapping[bytes, Record], verdict: Verdict, *, strict: bool
) -> tuple[Counter[str], dict[str, Place], dict[Place, str], int]:
    """Members of each cluster, its first event, each event's cluster, and the number passed."""
    members: Counter[str] = Counter()
    news: dict[str, Place] = {}
    joined: dict[Place, str] = {}
    passed = 0
    for key, record in copies.items():
        headers = record.headers[len(came[key].headers) :]
        said = dict(headers)
        decision = said.get("sd-decision")
        if len(said) != len(headers) or decision not in DECISIONS:
            verdict.found("decision", f"{_place(record)} has the headers {headers}")
            continue
        if decision == b"passed":
            passed += 1
            continue
        cluster = (said.get("sd-cluster") or b"").decode()
        if strict and "sd-reason" in said:
            verdict.found("decision", f"{_place(record)} was decided again: {said['sd-reason']!r}")
        members[cluster] += 1
        joined[_place(came[key])] = cluster
        if decision == b"new":
            if cluster in news and strict:
                verdict.found("new twice", f"{cluster}: {news[cluster]} and {_place(came[key])}")
            news[cluster] = _place(came[key])
    return members, news, joined, passed


def _revisions(
    summaries: Iterable[Record], verdict: Verdict
) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Summaries by cluster and revision; copies must be equal byte for byte."""
    seen: dict[tuple[str, int], Copy] = {}
    revisions: dict[str, dict[int, Mapping[str, Any]]] = {}
    for record in summaries:
        summary = msgspec.json.decode(record.value or b"{}", type=dict[str, Any])
        cluster, revision = summary["cluster"], summary["revision"]
        known = seen.setdefault((cluster, revision), _copy(record))
        if known != _copy(record):
            verdict.found(
                "summaries differ", f"{cluster} revision {revision}: {known} and {_copy(record)}"
            )
        if record.key != cluster.encode():
            verdict.found("summaries", f"{cluster} has the key {record.key!r}")
        revisions.setdefault(cluster, {}).setdefault(revision, summary)
    return revisions


def _counts(
    revisions: Mapping[str, Mapping[int, Mapping[str, Any]]],
    members: Mapping[str, int],
    news: Mapping[str, Place],
    joined: Mapping[Place, str],
    verdict: Verdict,
) -> int:
    """The events that summaries count; for each cluster as many as it has members.

    A cluster has a new event, unless that joined another cluster: a worker opened the cluster and
    died before it counted the event, and the cluster had closed when the event was read again.
    """
    counted = 0
    for cluster, known in revisions.items():
        total = sum(summary["new_count"] for summary in known.values())
        last = _last(known)
        counted += total
        if sorted(known) != list(range(1, len(known) + 1)):
            verdict.found("revisions", f"cluster {cluster} has {sorted(known)}")
        if not last["final"]:
            verdict.found("not final", f"cluster {cluster}: the last is {dict(last)}")
        if total != last["count"] or total != members.get(cluster, 0):
            verdict.found(
                "cluster counts",
                f"cluster {cluster} has {members.get(cluster, 0)} events; its summaries say "
                f"{last['count']}, add up to {total}, in {len(known)} revisions",
            )
        first = last["position"]
        place = Place(first["source"], first["partition"], first["offset"])
        if cluster in news and place != news[cluster]:
            verdict.found("representative", f"{cluster}: {place}, but new is {news[cluster]}")
        if cluster not in news and joined.get(place, cluster) == cluster:
            verdict.found(
                "no new", f"cluster {cluster} has {members.get(cluster)} events, none first"
            )
    for cluster in members.keys() - revisions.keys():
        verdict.found(
            "no summary", f"cluster {cluster} of {members[cluster]} events has no summary"
        )
    return counted


def _merges(revisions: Mapping[str, Mapping[int, Mapping[str, Any]]], verdict: Verdict) -> None:
    """Check that clusters which merged, and those that they merged into, name each other once."""
    said = {
        cluster: (last["merged_into"], last["count"])
        for cluster, last in ((name, _last(known)) for name, known in revisions.items())
        if last["closing"] == "merged"
    }
    named: dict[str, list[tuple[str, int]]] = {}
    for root, known in revisions.items():
        for summary in known.values():
            for each in summary.get("merged", ()):
                named.setdefault(each["cluster"], []).append((root, each["count"]))
    for cluster in sorted(said.keys() | named.keys()):
        if [said.get(cluster)] != named.get(cluster, []):
            verdict.found(
                "merged",
                f"cluster {cluster} says {said.get(cluster)}, and is named by {named.get(cluster)}",
            )


def _last(known: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    return known[max(known)]


def _place(record: Record) -> Place:
    return Place(record.topic, record.partition, record.offset)


def _copy(record: Record) -> Copy:
    return Copy(record.key, record.value, record.timestamp_ms, record.headers)
