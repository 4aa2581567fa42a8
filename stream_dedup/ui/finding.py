"""Commands that find the events of a cluster, safe to paste into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from stream_dedup.features.outcome_fields import CLOSES, split
from stream_dedup.model import Summary
from stream_dedup.ui.patterns import parts

MAX_EXPRESSION = 600
"""Characters of a regular expression."""

_SPECIAL = re.compile(r"[][\\.^$*+?(){}|]")
_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt\\])|…")
"""What `readable` writes for bytes that are not printable, and where it cuts."""


def expression(pattern: str, first: bytes) -> str:
    r"""An extended regular expression that matches the lines of a pattern.

    Words are kept as they are, and slots match anything. Of an event of several lines it
    matches the first. What may be another field of a JSON event is left out.

    >>> expression("disk <*> is <number> full (95%)", b"disk a is 7 full (95%)")
    'disk.*is.*full \\(95%\\)'
    >>> expression("‹status=<5xx>› sync of <*>", "‹status=5xx› sync of a".encode())
    'sync of'

    Args:
        pattern: the pattern.
        first: the first event.
    """
    outcomes, text = split(first)
    pattern = pattern.partition(CLOSES)[2] if outcomes else pattern
    line = text.split(b"\n", 1)[0].decode("utf-8", "replace")
    gap = " " if line == " ".join(line.split()) else "[[:space:]]+"
    line = " ".join(line.split())
    words: list[str] = []
    for part in parts(pattern):
        if not part.kind:
            words += (" ".join(word.split()) for word in _ESCAPE.split(part.text))
    texts = (_SPECIAL.sub(r"\\\g<0>", word).replace(" ", gap) for word in words
             if word and word in line)  # fmt: skip
    out = ".*".join(texts)
    return out if len(out) <= MAX_EXPRESSION else out[:MAX_EXPRESSION].rpartition(".*")[0]


class InFiles:
    """Commands over files.

    Args:
        paths: the files; ``-`` for standard input.
        grows: whether other files may have their names by now, so that line numbers say nothing.
    """

    def __init__(self, paths: Sequence[str], *, grows: bool = False) -> None:
        self._paths = paths
        self._grows = grows

    def __call__(self, summary: Summary, expression: str) -> list[str]:
        """Return a command that prints the lines with their numbers."""
        if not expression:
            return []
        if self._grows:
            paths = [path for path in self._paths if path != "-"]
            names = " ".join(["", "--", *map(shlex.quote, paths)]) if paths else ""
            return [f"grep -aE -e {shlex.quote(expression)}{names}"]
        packed = any(path.endswith((".gz", ".zst", ".xz", ".bz2")) for path in self._paths)
        program = "zgrep" if packed else "grep"
        names = " ".join(shlex.quote(path) for path in self._paths)
        first = f"sed -n {summary.position.offset}p {shlex.quote(summary.position.source)}"
        found = [f"{program} -anE -e {shlex.quote(expression)} -- {names}"]
        return found if packed else [*found, first]


class InKafka:
    """Commands over the topic of a cluster's first event."""

    def __call__(self, summary: Summary, expression: str) -> list[str]:
        """Return commands that print the first event, and events like it; none without a topic."""
        source, partition, offset = summary.position
        if not source:
            return []
        topic = shlex.quote(source)
        read = f'kcat -b "$BROKERS" -C -q -t {topic}'
        out = [f"{read} -p {partition} -o {offset} -c 1"]
        if expression:
            out.append(f"{read} -e -o beginning | grep -aE -e {shlex.quote(expression)}")
        return out
