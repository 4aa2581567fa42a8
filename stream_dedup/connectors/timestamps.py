"""Event times: found in a line by a format, or read from a JSON field.

A format is written as for `datetime.strptime` (``%d/%b/%Y:%H:%M:%S %z``) or named: ``iso`` (ISO
8601), ``syslog`` (``Nov 21 08:43:00``), ``epoch`` (seconds, milli-, micro- or nanoseconds since
1970, told by their size). It is turned into one pattern of bounded length, looked for in the
first bytes of each line. Times without a zone are taken as UTC; without a year, as the latest
year that does not put them in the future.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType

from stream_dedup.clock import US_PER_S
from stream_dedup.errors import InputError

SEARCHED_BYTES = 512
"""A line's time stands in its first bytes."""

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DIRECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "Y": r"(?P<Y>[0-9]{4})",
        "y": r"(?P<y>[0-9]{2})",
        "m": r"(?P<m>1[0-2]|0?[1-9])",
        "d": r"(?P<d>3[01]|[12][0-9]|[0 ]?[1-9])",
        "e": r"(?P<d>3[01]|[12][0-9]|[0 ]?[1-9])",
        "b": r"(?P<b>[A-Za-z]{3})",
        "B": r"(?P<b>[A-Za-z]{3,9})",
        "a": r"[A-Za-z]{3}",
        "A": r"[A-Za-z]{6,9}",
        "H": r"(?P<H>2[0-3]|[01]?[0-9])",
        "I": r"(?P<H>1[0-2]|0?[1-9])",
        "p": r"(?P<p>[AaPp])[Mm]",
        "M": r"(?P<M>[0-5]?[0-9])",
        "S": r"(?P<S>6[01]|[0-5]?[0-9])",
        "f": r"(?P<f>[0-9]{1,9})",
        "z": r"(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})",
        "Z": r"[A-Za-z]{1,5}",
        "s": r"(?P<s>[0-9]{9,19}(?:\.[0-9]{1,9})?)",
        "%": "%",
    }
)
_NAMED: Mapping[str, str] = MappingProxyType(
    {
        "iso": (
            r"(?P<Y>[0-9]{4})-(?P<m>[01][0-9])-(?P<d>[0-3][0-9])[T ](?P<H>[0-2][0-9]):"
            r"(?P<M>[0-5][0-9])(?::(?P<S>[0-6][0-9])(?:[.,](?P<f>[0-9]{1,9}))?)?"
            r" ?(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})?"
        ),
        "syslog": (
            r"(?P<b>[A-Z][a-z]{2}) (?P<d>[ 0-3]?[0-9]) (?P<H>[0-2][0-9]):(?P<M>[0-5][0-9])"
            r":(?P<S>[0-6][0-9])"
        ),
        "epoch": r"(?P<s>[0-9]{9,19}(?:\.[0-9]{1,9})?)",
    }
)


class TimeFormat:
    """A format of event times.

    Raises:
        InputError: the format has a directive that is not known, or tells no time.
    """

    def __init__(self, text: str) -> None:
        self._pattern = re.compile(_NAMED.get(text) or _pattern_of(text), re.ASCII)
        groups = self._pattern.groupindex
        if "s" not in groups and not {"H", "M"} <= groups.keys():
            raise InputError(
                f"time format {text!r} has no time of day; give one such as "
                "'%Y-%m-%d %H:%M:%S', or iso, syslog or epoch"
            )

    def find(self, line: bytes, now_us: int) -> int | None:
        """The time a line tells, in microseconds since 1970-01-01 UTC; None if it tells none.

        Args:
            line: any bytes.
            now_us: what a missing year or date is completed by.
        """
        head = line[:SEARCHED_BYTES].decode("latin-1")
        for match in self._pattern.finditer(head):
            try:
                return _time_of(match.groupdict(), now_us)
            except (ValueError, OverflowError):
                continue  # reads like a time and is none: the 31st of February
        return None


def field_time(value: object, time_format: TimeFormat | None, now_us: int) -> int | None:
    """The time a JSON value tells: a number since 1970, or text in the format (or ISO 8601)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _scaled(str(value)) if 0 <= value < 1e19 else None
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        if time_format is not None:
            return time_format.find(text, now_us)
        return _ISO.find(text, now_us) or _EPOCH.find(text, now_us)
    return None


def _pattern_of(text: str) -> str:
    out = []
    seen: set[str] = set()
    for literal, directive in re.findall(r"([^%]+)|%(.?)", text):
        if literal:
            out.append(re.escape(literal))
            continue
        pattern = _DIRECTIVES.get(directive)
        if pattern is None:
            known = " ".join(f"%{d}" for d in _DIRECTIVES)
            raise InputError(f"time format {text!r}: %{directive} is not known; use {known}")
        name = re.match(r"\(\?P<(\w)>", pattern)
        if name and name[1] in seen:
            raise InputError(f"time format {text!r}: %{directive} stands there twice")
        seen.update(name[1] if name else "")
        out.append(pattern)
    return "".join(out)


def _time_of(parts: Mapping[str, str | None], now_us: int) -> int:
    epoch = parts.get("s")
    if epoch is not None:
        return _scaled(epoch)
    now = datetime.fromtimestamp(now_us / US_PER_S, UTC)
    month_name = parts.get("b")
    if month_name is not None:
        month = _MONTHS.index(month_name[:3].lower()) + 1
    else:
        month = int(parts.get("m") or now.month)
    hour = int(parts.get("H") or 0)
    if parts.get("p") is not None:
        hour = hour % 12 + (12 if str(parts["p"]).lower() == "p" else 0)
    year = parts.get("Y")
    short = parts.get("y")
    if year is None and short is not None:
        year = ("20" if int(short) < 69 else "19") + short
    has_date = month_name is not None or parts.get("m") is not None
    day = int(parts.get("d") or (1 if has_date else now.day))
    minute, second = int(parts.get("M") or 0), min(59, int(parts.get("S") or 0))
    micros = int((parts.get("f") or "0").ljust(6, "0")[:6])
    zone = _zone(parts.get("z"))
    moment = datetime(
        int(year or now.year), month, day, hour, minute, second, micros, tzinfo=zone
    )
    if year is None and moment > now + timedelta(days=1):
        moment = moment.replace(year=moment.year - 1)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _scaled(text: str) -> int:
    """A number since 1970 as microseconds: its size tells the unit, for years 1973 to 5138."""
    value = float(text)
    for limit, unit_us in ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0)):
        if value < limit:
            # Whole units stay exact: a double holds microseconds until the year 2255.
            return round(value * unit_us)
    return int(value // 1000)


_ISO = TimeFormat("iso")
_EPOCH = TimeFormat("epoch")
