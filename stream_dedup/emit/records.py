"""Records: what leaves for a topic, as key, value, time and headers.

An event leaves as it came, with what was decided of it in four headers, or in a ``dedup`` object
inside its JSON value. A summary leaves under its cluster's id as key, so that a compacted topic
keeps the latest revision of each. A dead letter is the event untouched, with headers that say why
and where it stood.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stream_dedup.columnar import dictionary_encode, take
from stream_dedup.emit.shape import decision_object, summary_json
from stream_dedup.model import Decision, Kind, Position, Summary

Header = tuple[str, bytes | None]

MAX_MESSAGE = 1_000
"""Characters of an error's message in a header."""

KEPT = 50_000
"""Decisions whose headers are kept; some 500 bytes each."""

_KINDS: dict[Kind, Header] = {kind: ("sd-decision", kind.value.encode()) for kind in Kind}


class DecisionHeaders:
    """The headers of decisions. Events that read alike share a decision, so they are kept.

    Args:
        width: bits of a fingerprint.
    """

    def __init__(self, width: int) -> None:
        self._digits = width // 4
        self._kept: dict[int, list[Header]] = {}
        self._held: dict[int, Decision] = {}  # so that an id stays its decision's own

    def of_all(self, decisions: Sequence[Decision]) -> list[Sequence[Header]]:
        """The headers of decisions, in order; not to be changed."""
        different, places = dictionary_encode(decisions)
        kept = self._kept.get
        headers: list[Sequence[Header]] = [kept(id(each)) or self._make(each) for each in different]
        return take(headers, places)

    def _keep(self, decision: Decision, headers: list[Header]) -> None:
        if len(self._kept) >= KEPT:
            self._kept.clear()
            self._held.clear()
        self._kept[id(decision)] = headers
        self._held[id(decision)] = decision

    def _make(self, decision: Decision) -> list[Header]:
        kind, cluster, distance, fingerprint, reason = decision
        headers = [_KINDS[kind]]
        if cluster is not None:
            headers += [
                ("sd-cluster", b"%016x" % cluster),
                ("sd-distance", b"%d" % (distance or 0)),
                ("sd-fingerprint", b"%0*x" % (self._digits, fingerprint or 0)),
            ]
        if reason:
            headers.append(("sd-reason", reason.encode()))
        if kind is not Kind.NEW:  # else nobody shares it
            self._keep(decision, headers)
        return headers


def json_with_decision(value: bytes, decision: Decision, width: int) -> bytes | None:
    """A JSON object with a ``dedup`` object at its end; None if it is no JSON object."""
    try:
        fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    dedup = decision_object(decision, None, width)
    del dedup["pattern"]  # it is the cluster's, and may not be known when the event comes again
    if "dedup" in fields:
        return msgspec.json.encode({**fields, "dedup": dedup})
    body = value.strip()[:-1].rstrip()
    return body + (b"," if fields else b"") + b'"dedup":' + msgspec.json.encode(dedup) + b"}"


def dead_letter_headers(
    headers: Sequence[Header], position: Position, error: str, message: str
) -> list[Header]:
    """The headers of a dead letter: its own, and why it is one."""
    return [
        *headers,
        ("sd-error", error.encode()),
        ("sd-error-message", message[:MAX_MESSAGE].encode("utf-8", "replace")),
        ("sd-topic", position.source.encode()),
        ("sd-partition", b"%d" % position.partition),
        ("sd-offset", b"%d" % position.offset),
    ]


def summary_record(summary: Summary, namespace: str) -> tuple[bytes, bytes, int]:
    """A summary's key, value, and time in milliseconds."""
    return (
        summary.cluster_hex.encode(),
        summary_json(summary, namespace).rstrip(b"\n"),
        summary.last_time_us // 1_000,
    )
