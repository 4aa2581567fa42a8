"""Event times: found in a line by a format, or read from a JSON field.

A format is written as for `datetime.strptime` (``%d/%b/%Y:%H:%M:%S %z``) or named: ``iso`` (ISO
8601), ``syslog`` (``Nov 21 08:43:00``), ``epoch`` (seconds, milli-, micro- or nanoseconds since
1970, distinguished by their size), or ``auto``, whichever comes first of ``iso``, ``syslog`` and
the format of access logs. A format becomes one pattern of bounded length, which is searched in the
first bytes of each line, but not in the middle of a number. Times without a zone are UTC. A missing
year or date is the latest that does not put the time in the future.

JSON events of common tools have their time in a field of a known name (`known_time`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from types import MappingProxyType

from stream_dedup.clock import US_PER_S
from stream_dedup.errors import InputError

SEARCHED_BYTES = 512
"""The first bytes of a line, in which its time is searched."""

TIME_FIELDS = (
    "time",  # Docker, slog
    "timestamp",
    "@timestamp",  # Logstash, Elastic
    "ts",  # zap
    "__REALTIME_TIMESTAMP",  # journald; microseconds, as text
    "_SOURCE_REALTIME_TIMESTAMP",
    "@t",  # Serilog
    "datetime",
    "eventTime",  # CloudTrail
)
"""Fields of a JSON event that may hold its time."""

_LEAST_KNOWN_S = 10**9
"""A smaller number in one of these fields may be a duration."""

_1970 = datetime(1970, 1, 1, tzinfo=UTC)

_AHEAD = timedelta(days=1)
"""How far a time without a year may be in the future, as clocks and zones differ."""

_AHEAD_TODAY = timedelta(minutes=10)
"""How far a time without a date may be in the future; beyond it, it is yesterday's."""

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
        "epoch": r"(?P<s>[0-9]{9,19}(?:\.[0-9]{1,9})?)(?![0-9])",
    }
)

GUESSED = "auto"
_GUESSES = ("iso", "syslog", "%d/%b/%Y:%H:%M:%S %z")

_NOT_IN_A_NUMBER = r"(?<![0-9](?=[0-9]))"


class TimeFormat:
    """A format of event times.

    Raises:
        InputError: the format has an unknown directive, or no time of day.
    """

    def __init__(self, text: str) -> None:
        self.guessed = text == GUESSED
        patterns = [
            _NAMED.get(each) or _pattern_of(each)
            for each in (_GUESSES if self.guessed else (text,))
        ]
        self._patterns = [re.compile(_NOT_IN_A_NUMBER + each, re.ASCII) for each in patterns]
        groups = self._patterns[0].groupindex
        if "s" not in groups and not {"H", "M"} <= groups.keys():
            raise InputError(
                f"time format {text!r} has no time of day; give one such as "
                "'%Y-%m-%d %H:%M:%S', or iso, syslog or epoch"
            )

    def find(self, line: bytes, now_us: int) -> int | None:
        """Return the time in a line, in microseconds since 1970-01-01 UTC; None if there is none.

        Args:
            line: any bytes.
            now_us: the current time, which completes a missing year or date.
        """
        head = line[:SEARCHED_BYTES].decode("latin-1")
        found: tuple[int, int] | None = None  # where it is, and the time
        for pattern in self._patterns:
            for match in pattern.finditer(head):
                if found is not None and found[0] <= match.start():
                    break
                try:
                    found = match.start(), _time_of(match.groupdict(), now_us)
                except (ValueError, OverflowError):
                    continue  # not a valid time: the 31st of February
                break
        return None if found is None else found[1]


def field_time(value: object, time_format: TimeFormat | None, now_us: int) -> int | None:
    """Return the time in a JSON value: a number since 1970, or text in the format (or ISO 8601)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _scaled(str(value)) if 0 <= value < 1e19 else None
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        if time_format is not None and not time_format.guessed:
            return time_format.find(text, now_us)
        time_us = (time_format or _ISO).find(text, now_us)
        return _EPOCH.find(text, now_us) if time_us is None else time_us
    return None


def known_time(
    document: Mapping[str, object], time_format: TimeFormat | None, now_us: int
) -> int | None:
    """Return the time in the first of `TIME_FIELDS` that holds one; None if none does."""
    for name in TIME_FIELDS:
        value = document.get(name)
        if value is None or (isinstance(value, int | float) and value < _LEAST_KNOWN_S):
            continue
        time_us = field_time(value, time_format, now_us)
        if time_us is not None:
            return time_us
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
            raise InputError(f"time format {text!r}: %{directive} is there twice")
        seen.update(name[1] if name else "")
        out.append(pattern)
    return "".join(out)


def _time_of(parts: Mapping[str, str | None], now_us: int) -> int:
    epoch = parts.get("s")
    if epoch is not None:
        return _scaled(epoch)
    hour = int(parts.get("H") or 0)
    if parts.get("p") is not None:
        hour = hour % 12 + (12 if str(parts["p"]).lower() == "p" else 0)
    minute, second = int(parts.get("M") or 0), min(59, int(parts.get("S") or 0))
    micros = int((parts.get("f") or "0").ljust(6, "0")[:6])
    clock = time(hour, minute, second, micros, _zone(parts.get("z")))
    # A time beyond the calendar's years in UTC is not valid: it could not be shown.
    moment = _dated(parts, clock, datetime.fromtimestamp(now_us / US_PER_S, UTC)).astimezone(UTC)
    return (moment - _1970) // timedelta(microseconds=1)


def _dated(parts: Mapping[str, str | None], clock: time, now: datetime) -> datetime:
    """Combine a time of day with the date in the parts, completed backwards from `now`."""
    year, month, day = parts.get("Y"), parts.get("m"), parts.get("d")
    if parts.get("b") is not None:
        month = str(_MONTHS.index(str(parts["b"])[:3].lower()) + 1)
    if year is None and parts.get("y") is not None:
        year = ("20" if int(str(parts["y"])) < 69 else "19") + str(parts["y"])
    if year is not None:
        return datetime.combine(date(int(year), int(month or 1), int(day or 1)), clock)
    if month is None and day is None:
        today = datetime.combine(now.astimezone(clock.tzinfo).date(), clock)
        return today - timedelta(days=1) if today > now + _AHEAD_TODAY else today
    # Go back by years, or by months where there is only a day, to the latest that has that day.
    months = 12 * now.year + now.month - 1 if month is None else 12 * now.year + int(month) - 1
    step = 1 if month is None else 12
    for number in range(months + step, months - 9 * step, -step):
        try:
            found = datetime.combine(date(number // 12, number % 12 + 1, int(day or 1)), clock)
        except ValueError:
            continue  # the 29th of February, in another year
        if found <= now + _AHEAD:
            return found
    raise ValueError("no such date")


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _scaled(text: str) -> int:
    """Return a number since 1970 as microseconds; its size gives the unit (years 1973 to 5138)."""
    value = int(text) if text.isdecimal() else float(text)
    for limit, unit_us in ((10**11, 10**6), (10**14, 10**3), (10**17, 1)):
        if value < limit:
            # Whole numbers stay exact; a double holds microseconds until the year 2255.
            return round(value * unit_us)
    return int(value // 1000)


_ISO = TimeFormat("iso")
_EPOCH = TimeFormat("epoch")
