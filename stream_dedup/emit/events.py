"""Events as output: as JSON, as text, and as Kafka headers.

The same event and decision always give the same bytes, so an event that is sent again after a crash
equals the first copy.

An event leaves unchanged, with its decision in headers, in a ``dedup`` object of its JSON
value, or in front of its text. A dead letter is the unchanged event with headers that say why and
where it was read.

Names of headers that begin with ``sd-`` are reserved: an event's own are removed or renamed, so a
reader can rely on those that it finds.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

import msgspec

from stream_dedup.columnar import dictionary_encode, take
from stream_dedup.model import Decision, Kind, Position

Header = tuple[str, bytes | None]

PASSED = b"%b\t-\t-\t" % Kind.PASSED.value.encode()
"""Text in front of an event that was passed."""

MAX_MESSAGE = 1_000
"""Characters of an error's message in a header."""

MAX_CACHED = 50_000
"""Decisions whose headers are cached; some 500 bytes each."""

RESERVED = "sd-"
"""Begins the names of headers that only we write, in upper case too: some readers ignore case."""

RENAMED = "original-"
"""Begins the names of reserved headers of input that are kept under another name."""

_NEW = Kind.NEW  # an attribute of an enumeration costs as much as a call
_KINDS: dict[Kind, Header] = {kind: ("sd-decision", kind.value.encode()) for kind in Kind}


def kept(decisions: Sequence[Decision]) -> list[bool]:
    """For each event, whether it leaves when duplicates are dropped."""
    distinct, codes = dictionary_encode(decisions)
    duplicate = Kind.DUPLICATE
    return take([decision.kind is not duplicate for decision in distinct], codes)


# ---------------------------------------------------------------- text and JSON


def annotated_text(raw: bytes, decision: Decision) -> bytes:
    """An event as a line of text: decision, cluster, distance and the event, between tabs."""
    if decision.cluster is None or decision.distance is None:
        return b"%b%b\n" % (PASSED, raw)
    return b"%b\t%016x\t%d\t%b\n" % (
        decision.kind.value.encode(),
        decision.cluster,
        decision.distance,
        raw,
    )


def kept_text(raws: Sequence[bytes], decisions: Sequence[Decision]) -> bytes:
    """The events that are not duplicates, a line each."""
    lines = list(compress(raws, kept(decisions)))
    return b"\n".join(lines) + b"\n" if lines else b""


def decision_object(
    decision: Decision,
    pattern: str | None,
    width: int,
    parameters: Sequence[tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """The ``dedup`` object of an event.

    Args:
        decision: the event's decision.
        pattern: its cluster's pattern.
        width: bits of a fingerprint; sets the number of hex digits.
        parameters: the values of its variables, each behind its placeholder; None: not wanted.
    """
    fingerprint = decision.fingerprint
    fields: dict[str, Any] = {
        "decision": decision.kind.value,
        "cluster": decision.cluster_hex,
        "template": decision.template_hex,
        "distance": decision.distance,
        "fingerprint": None if fingerprint is None else f"{fingerprint:0{width // 4}x}",
        "pattern": pattern,
    }
    if parameters is not None:
        fields["parameters"] = _parameter_objects(parameters)
    if decision.kind is Kind.PASSED:
        fields["reason"] = decision.reason
    return fields


def _parameter_objects(parameters: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"slot": slot, "value": value} for slot, value in parameters]


def parameters_header(parameters: Sequence[tuple[str, str]]) -> Header:
    """The values of an event's variables as a header: JSON, as in the ``dedup`` object."""
    return "sd-parameters", msgspec.json.encode(_parameter_objects(parameters))


def event_json(
    line: int, raw: bytes, document: dict[str, Any] | None, dedup: dict[str, Any]
) -> bytes:
    """An event as one JSON line.

    A JSON object keeps its bytes, numbers and order; ``dedup`` is added at its end, or replaces a
    field of that name. Text becomes ``{"line": …, "text": …, "dedup": …}``, with bytes that are
    not UTF-8 written as ``\\xff``.
    """
    if document is None:
        text = raw.decode("utf-8", "backslashreplace")
        return msgspec.json.encode({"line": line, "text": text, "dedup": dedup}) + b"\n"
    if "dedup" in document:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({**fields, "dedup": dedup}) + b"\n"
    return _appended(raw, dedup, empty=not document).replace(b"\n", b" ") + b"\n"


def json_with_decision(
    value: bytes,
    decision: Decision,
    width: int,
    parameters: Sequence[tuple[str, str]] | None = None,
) -> bytes | None:
    """A JSON object with a ``dedup`` object at its end; None if the value is not a JSON object.

    Args:
        value: the object.
        decision: the event's decision.
        width: bits of a fingerprint.
        parameters: as for `decision_object`.
    """
    try:
        fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    dedup = decision_object(decision, None, width, parameters)
    del dedup["pattern"]  # the cluster's: it may be unknown when the event is read again
    if decision.template is None:
        del dedup["template"]
    if "dedup" in fields:
        return msgspec.json.encode({**fields, "dedup": dedup})
    return _appended(value, dedup, empty=not fields)


def _appended(value: bytes, dedup: dict[str, Any], *, empty: bool) -> bytes:
    body = value.strip()[:-1].rstrip()
    return body + (b"" if empty else b",") + b'"dedup":' + msgspec.json.encode(dedup) + b"}"


# ---------------------------------------------------------------- Kafka headers


def reserved_names(headers: Iterable[Sequence[Header]]) -> frozenset[str]:
    """The names of headers, of all these events, that are reserved for our own."""
    names = {name for each in headers for name, _ in each}
    return frozenset(name for name in names if name[: len(RESERVED)].lower() == RESERVED)


def without_reserved(
    headers: Sequence[Header], reserved: frozenset[str], *, rename: bool
) -> Sequence[Header]:
    """An event's headers without reserved ones, or with those renamed.

    Args:
        headers: the event's headers.
        reserved: the names that are reserved, see `reserved_names`.
        rename: keep them, with `RENAMED` before their names.
    """
    if rename:
        return [(RENAMED + n if n in reserved else n, value) for n, value in headers]
    return [header for header in headers if header[0] not in reserved]


class DecisionHeaders:
    """Makes the headers of decisions. Equal events share a decision, so its headers are cached.

    Args:
        width: bits of a fingerprint.
    """

    def __init__(self, width: int) -> None:
        self._digits = width // 4
        self._bytes = width // 8 if width % 8 == 0 else 0
        self._cached: dict[int, list[Header]] = {}
        self._decisions: dict[int, Decision] = {}  # keeps cached decisions alive, so ids are unique

    def of_all(self, decisions: Sequence[Decision]) -> list[Sequence[Header]]:
        """The headers of decisions, in order; callers must not change them."""
        distinct, codes = dictionary_encode(decisions)
        cached = self._cached.get
        headers: list[Sequence[Header]] = [
            cached(id(each)) or self._make(each) for each in distinct
        ]
        return take(headers, codes)

    def _make(self, decision: Decision) -> list[Header]:
        kind, cluster, distance, fingerprint, reason, template, *_ = decision
        headers = [_KINDS[kind]]
        if cluster is not None:
            headers += [
                ("sd-cluster", hexlify(cluster.to_bytes(8, "big"))),
                ("sd-distance", b"%d" % (distance or 0)),
            ]
        if fingerprint is not None:
            if self._bytes:
                digits = hexlify(fingerprint.to_bytes(self._bytes, "big"))
            else:
                digits = b"%0*x" % (self._digits, fingerprint)
            headers.append(("sd-fingerprint", digits))
        if template is not None:
            headers.append(("sd-template", hexlify(template.to_bytes(8, "big"))))
        if reason:
            headers.append(("sd-reason", reason.encode()))
        if kind is not _NEW:  # a new event shares its decision with no other
            self._cache(decision, headers)
        return headers

    def _cache(self, decision: Decision, headers: list[Header]) -> None:
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
            self._decisions.clear()
        self._cached[id(decision)] = headers
        self._decisions[id(decision)] = decision


def passed_headers(reason: str) -> list[Header]:
    """The headers of an event that leaves without a decision."""
    return [_KINDS[Kind.PASSED], ("sd-reason", reason.encode())]


def dead_letter_headers(
    headers: Sequence[Header], position: Position, error: str, message: str
) -> list[Header]:
    """The headers of a dead letter: the event's own, the reason, and where it was read."""
    return [
        *headers,
        ("sd-error", error.encode()),
        ("sd-error-message", message[:MAX_MESSAGE].encode("utf-8", "replace")),
        ("sd-topic", position.source.encode()),
        ("sd-partition", b"%d" % position.partition),
        ("sd-offset", b"%d" % position.offset),
    ]
