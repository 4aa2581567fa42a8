"""What every output shares: how decisions and summaries read as JSON, and times as text.

Pure functions of what they are given: the same decision always gives the same bytes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from stream_dedup.clock import US_PER_S
from stream_dedup.model import Decision, Kind, Summary


def decision_object(decision: Decision, pattern: str | None, width: int) -> dict[str, Any]:
    """The ``dedup`` object of an event.

    Args:
        decision: what was decided.
        pattern: its cluster's pattern.
        width: bits of a fingerprint; sets the hex digits.
    """
    fingerprint = decision.fingerprint
    shaped: dict[str, Any] = {
        "decision": decision.kind.value,
        "cluster": decision.cluster_hex,
        "distance": decision.distance,
        "fingerprint": None if fingerprint is None else f"{fingerprint:0{width // 4}x}",
        "pattern": pattern,
    }
    if decision.kind is Kind.PASSED:
        shaped["reason"] = decision.reason
    return shaped


def event_json(
    line: int, raw: bytes, document: dict[str, Any] | None, dedup: dict[str, Any]
) -> bytes:
    """An event as one JSON line.

    A JSON object keeps its bytes, numbers and order; ``dedup`` is added at its end (or put in
    the place of one it had). Text becomes ``{"line": …, "text": …, "dedup": …}``, with bytes that
    are not UTF-8 written as ``\\xff``.
    """
    if document is None:
        text = raw.decode("utf-8", "backslashreplace")
        return msgspec.json.encode({"line": line, "text": text, "dedup": dedup}) + b"\n"
    if "dedup" in document:
        values = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({**values, "dedup": dedup}) + b"\n"
    body = raw.strip()[:-1].rstrip()
    comma = b"," if document else b""
    return body.replace(b"\n", b" ") + comma + b'"dedup":' + msgspec.json.encode(dedup) + b"}\n"


def summary_json(summary: Summary, namespace: str) -> bytes:
    """A summary as one JSON line."""
    shaped = {
        "type": "summary",
        "namespace": namespace,
        "cluster": summary.cluster_hex,
        "revision": summary.revision,
        "final": summary.final,
        "closing": summary.closing and summary.closing.value,
        "count": summary.count,
        "new_count": summary.new_count,
        "first_time": iso_time(summary.first_time_us),
        "last_time": iso_time(summary.last_time_us),
        "pattern": summary.pattern,
        "representative": summary.representative.decode("utf-8", "backslashreplace"),
        "samples": [s.decode("utf-8", "backslashreplace") for s in summary.samples],
        "group": msgspec.Raw(summary.group.encode() if summary.group else b"{}"),
        "position": {
            "source": summary.position.source.encode("utf-8", "replace").decode(),
            "partition": summary.position.partition,
            "offset": summary.position.offset,
        },
    }
    return msgspec.json.encode(shaped) + b"\n"


def iso_time(time_us: int) -> str:
    """A time as ISO 8601 in UTC, with as many decimals as it needs.

    >>> iso_time(1_700_000_000_250_000)
    '2023-11-14T22:13:20.250Z'
    """
    seconds, micros = divmod(time_us, US_PER_S)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    if not micros:
        return moment + "Z"
    return moment + (f".{micros // 1000:03d}Z" if micros % 1000 == 0 else f".{micros:06d}Z")
