"""Annotate: every event leaves, with what was decided of it."""

from __future__ import annotations

from stream_dedup.model import Decision, Kind

PASSED = b"%b\t-\t-\t" % Kind.PASSED.value.encode()
"""What stands before an event that was passed through."""


def annotated_text(raw: bytes, decision: Decision) -> bytes:
    """An event as text: decision, cluster and distance before it, parted by tabs."""
    if decision.cluster is None or decision.distance is None:
        return b"%b%b\n" % (PASSED, raw)
    return b"%b\t%016x\t%d\t%b\n" % (
        decision.kind.value.encode(),
        decision.cluster,
        decision.distance,
        raw,
    )
