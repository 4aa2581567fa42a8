"""Drop: duplicates do not leave; new and passed events leave as they came."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from stream_dedup.model import Decision, Kind


def kept(decisions: Sequence[Decision]) -> list[bool]:
    """For each event, whether it leaves."""
    duplicate = Kind.DUPLICATE
    return [decision.kind is not duplicate for decision in decisions]


def kept_text(raws: Sequence[bytes], decisions: Sequence[Decision]) -> bytes:
    """The events that leave, a line each."""
    lines = list(compress(raws, kept(decisions)))
    return b"\n".join(lines) + b"\n" if lines else b""
