"""Masks: named patterns for the variable parts of a text.

The token classes (see `tokens`) decide what is variable; masks give it a *name*. They are used in
two places: in the patterns that people read (``<ipv4>`` says more than ``<*>``), which are made for
a cluster's representative only; and in recipes that ask for masks, where they run over each event
before features are extracted.

All patterns run in RE2, which takes linear time for any pattern, as texts and patterns of users may
be hostile. Patterns are tried in order at each position; the first that matches wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import MappingProxyType

import re2

from stream_dedup.features.tokens import SUBSTITUTE, TIME_ZONES

_HEX = "[0-9A-Fa-f]"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_CLOCK = "[0-2]?[0-9]:[0-5][0-9](?::[0-6][0-9](?:[.,][0-9]{1,9})?)?"
_ZONE = "(?:Z|[+-][0-2][0-9]:?[0-5][0-9])"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = (
    "(?:[0-9]{4}[-/.][01]?[0-9][-/.][0-3]?[0-9]|[0-3]?[0-9][-/.][01]?[0-9][-/.][0-9]{4}"
    "|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +)?"
    f"(?:[0-3]?[0-9][ /-])?{_MONTH}[a-z]*"
    "(?:[ /-]+[0-9]{1,4})?)"
)

NAMED: Mapping[str, str] = MappingProxyType(
    {
        "url": r"\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'<>|]+",
        "email": r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b",
        "uuid": rf"\b{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}\b",
        "mac": rf"\b{_HEX}{{2}}(?::{_HEX}{{2}}){{5}}\b|\b{_HEX}{{2}}(?:-{_HEX}{{2}}){{5}}\b",
        "timestamp": (
            rf"\b{_DATE}(?:[T ,:/]+{_CLOCK})(?: ?{_ZONE})?(?: [12][0-9]{{3}}\b)?"
            rf"|\b[0-9]{{4}}-[01][0-9]-[0-3][0-9]\b|\b[0-2]?[0-9]:[0-5][0-9]:[0-6][0-9]"
            r"(?:[.,][0-9]{1,9})?\b"
        ),
        "ipv4": rf"\b{_OCTET}(?:\.{_OCTET}){{3}}(?:/[0-9]{{1,2}})?\b",
        "ipv6": (
            rf"\b(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}\b"
            rf"|\b(?:{_HEX}{{1,4}}:){{1,6}}(?::{_HEX}{{1,4}}){{1,6}}\b"
            rf"|::(?:{_HEX}{{1,4}}:){{0,5}}{_HEX}{{1,4}}\b"
        ),
        "path": r"(?:\b[A-Za-z]:\\|\\\\|\B~?/)[A-Za-z0-9._%+@$~#/\\-]+",
        "hex": rf"\b0[xX]{_HEX}+\b|\b{_HEX}{{8,}}\b",
        "number": r"[+-]?\b[0-9]+(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?(?:%|\b)",
    }
)
"""The named masks, in the order in which they are tried."""

_SHORT_DATE = (
    "(?:(?:[0-9]{2}[-/])?[01][0-9][-/][0-3][0-9]|[0-9]{2}[01][0-9][0-3][0-9])"  # with a year or not
)

_OTHER_DATE = (
    "(?:[01]?[0-9]/[0-3]?[0-9]/[12][0-9]{3}|[12][0-9]{3}[01][0-9][0-3][0-9]"
    "|[0-3]?[0-9]-(?:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)-(?:[12][0-9])?[0-9]{2}"
    f"|[0-3]?[0-9]{_MONTH}[12][0-9]{{3}})"
)
_SECONDS = "[0-2]?[0-9]:[0-5][0-9]:[0-6][0-9](?:[.,][0-9]{1,9})?"
_ZONES = "|".join(sorted(zone.decode() for zone in TIME_ZONES))
_BEHIND = rf"(?: [AP]M\b)?(?: ?{_ZONE}| (?:{_ZONES}))?\b"

SHOWN: Mapping[str, str] = MappingProxyType(
    {
        **NAMED,
        "timestamp": (
            rf"\b(?:{_SHORT_DATE}|{_OTHER_DATE}),?[ -]{{1,2}}{_SECONDS}{_BEHIND}"
            rf"|\b{_MONTH}[a-z]* {{1,2}}[0-3]?[0-9], ?[12][0-9]{{3}},? {_CLOCK}{_BEHIND}"
            rf"|\b{_MONTH}[a-z]* {{1,2}}[0-3]?[0-9] [12][0-9]{{3}} {_CLOCK}{_BEHIND}"
            rf"|(?:{NAMED['timestamp']})(?: [AP]M\b)?(?: (?:{_ZONES})\b(?: [12][0-9]{{3}}\b)?)?"
        ),
    }
)
"""The masks of the patterns that people read. They name more forms of times than those that recipes
ask for: ``11-24 16:00:00``, ``25/11/24 16:00:00``, ``11/24/2026 04:00:00 PM``. What a recipe's mask
matches is part of fingerprints, so it stays."""


def compile_pattern(pattern: str, *, max_mem: int = 16 << 20) -> re2._Regexp:
    """Compile a mask's pattern for bytes.

    Args:
        pattern: in RE2 syntax.
        max_mem: bytes that the compiled pattern and its matching may take.

    Raises:
        re2.error: the pattern is not RE2 syntax, which has no look-around or back-references.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = max_mem
    return re2.compile(pattern.encode(), options)


class Masker:
    """Replaces matches of masks by a substitute that names the mask.

    Args:
        masks: (name, pattern) pairs; the earlier wins where two match at one position.
    """

    def __init__(self, masks: Sequence[tuple[str, str]]) -> None:
        self._names = [name.encode() for name, _ in masks]
        # Every mask is one group of the whole pattern; its own groups follow it directly.
        self._first_group = []
        groups = 1
        for _, pattern in masks:
            self._first_group.append(groups)
            groups += 1 + compile_pattern(pattern).groups
        self._pattern = compile_pattern("|".join(f"({pattern})" for _, pattern in masks))

    def substitute(self, text: bytes) -> bytes:
        """Replace every match by a substitute token between spaces."""
        replaced: bytes = self._pattern.sub(
            lambda match: b" %c%b " % (SUBSTITUTE, self._name_of(match)), text
        )
        return replaced

    def rename(self, text: bytes) -> bytes:
        """Replace every match by ``<name>``, for people to read."""
        replaced: bytes = self._pattern.sub(lambda match: b"<%b>" % self._name_of(match), text)
        return replaced

    def spans(self, text: bytes) -> list[tuple[int, int]]:
        """Return where the masks match, in order."""
        return [match.span() for match in self._pattern.finditer(text)]

    def _name_of(self, match: re2._Match) -> bytes:
        return self._names[bisect_right(self._first_group, match.lastindex) - 1]


def without_time(text: bytes) -> bytes:
    """Return a text without a time at its beginning, and without what is between both.

    >>> without_time(b"Nov 24 16:00:00 atlas"), without_time(b"atlas")
    (b'atlas', b'atlas')
    """
    found = _timestamp().match(text)
    return text[found.end() :].lstrip(b" \t,:;|)]}") if found else text


@cache
def _timestamp() -> re2._Regexp:
    return compile_pattern(SHOWN["timestamp"])


def named(names: Collection[str]) -> list[tuple[str, str]]:
    """Return (name, pattern) of the named masks asked for, in their fixed order."""
    return [(name, pattern) for name, pattern in NAMED.items() if name in names]
