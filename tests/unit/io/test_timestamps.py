"""Event times: formats, what is completed, and what is not a time."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.errors import InputError
from stream_dedup.io.timestamps import _DIRECTIVES, TimeFormat, field_time
from tests.strategies import raw_bytes


def us(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // datetime.resolution


NOW = us("2026-03-10T12:00:00+00:00")
NEW_YEAR = us("2026-01-01T00:00:05+00:00")
NEW_YEARS_EVE = us("2025-12-31T23:59:55+00:00")

FOUND = [
    # format, line, its time
    ("iso", b"2024-02-29T10:11:12Z leap day", "2024-02-29T10:11:12+00:00"),
    ("iso", b"2026-03-01 10:11:12 no zone is UTC", "2026-03-01T10:11:12+00:00"),
    ("iso", b"2026-03-01 10:11 no seconds", "2026-03-01T10:11:00+00:00"),
    ("iso", b"2026-03-01T10:11:12.5Z", "2026-03-01T10:11:12.500000+00:00"),
    ("iso", b"2026-03-01 10:11:12,123 INFO", "2026-03-01T10:11:12.123000+00:00"),
    ("iso", b"2026-03-01T10:11:12.123456789Z", "2026-03-01T10:11:12.123456+00:00"),
    ("iso", b"2026-03-01T10:11:12+05:30", "2026-03-01T04:41:12+00:00"),
    ("iso", b"2026-03-01T10:11:12 -0800", "2026-03-01T18:11:12+00:00"),
    ("iso", b"INFO [2026-03-01T10:11:12Z] in the middle", "2026-03-01T10:11:12+00:00"),
    ("iso", b"2026-02-31T10:00:00Z then 2026-03-01T10:00:00Z", "2026-03-01T10:00:00+00:00"),
    ("iso", b"2016-12-31T23:59:60Z leap second", "2016-12-31T23:59:59+00:00"),
    ("syslog", b"Mar  9 08:43:00 host sshd[1]: x", "2026-03-09T08:43:00+00:00"),
    ("syslog", b"Mar 09 08:43:00 host", "2026-03-09T08:43:00+00:00"),
    ("syslog", b"Dec 31 23:59:59 host", "2025-12-31T23:59:59+00:00"),
    ("syslog", b"Mar 11 11:00:00 a clock ahead", "2026-03-11T11:00:00+00:00"),
    ("syslog", b"Mar 12 12:00:00 two days ahead", "2025-03-12T12:00:00+00:00"),
    ("syslog", b"Feb 29 10:00:00 the last leap day", "2024-02-29T10:00:00+00:00"),
    ("epoch", b"1700000000 seconds", "2023-11-14T22:13:20+00:00"),
    ("epoch", b"1700000000.25 seconds", "2023-11-14T22:13:20.250000+00:00"),
    ("epoch", b"1700000000123 millis", "2023-11-14T22:13:20.123000+00:00"),
    ("epoch", b"1700000000123456 micros", "2023-11-14T22:13:20.123456+00:00"),
    ("epoch", b"1700000000123456999 nanos", "2023-11-14T22:13:20.123456+00:00"),
    ("epoch", b"id 12345678901234567890123 at 1700000000", "2023-11-14T22:13:20+00:00"),
    ("%d/%b/%Y:%H:%M:%S %z", b"- [29/Feb/2024:10:11:12 +0530] GET", "2024-02-29T04:41:12+00:00"),
    ("%y%m%d %H%M%S", b"081109 203615 148 INFO", "2008-11-09T20:36:15+00:00"),
    ("%y%m%d %H%M%S", b"690101 000000", "1969-01-01T00:00:00+00:00"),
    ("%m/%d/%Y %I:%M:%S %p", b"03/01/2026 12:00:01 AM", "2026-03-01T00:00:01+00:00"),
    ("%m/%d/%Y %I:%M:%S %p", b"03/01/2026 12:00:01 pm", "2026-03-01T12:00:01+00:00"),
    ("%m/%d/%Y %I:%M:%S %p", b"3/1/2026 1:00:01 PM", "2026-03-01T13:00:01+00:00"),
    ("%a %b %d %H:%M:%S %Y", b"[Sun Dec 04 04:47:44 2005] [notice]", "2005-12-04T04:47:44+00:00"),
    ("%A %d %B %Y %H:%M", b"Sunday 01 March 2026 10:00", "2026-03-01T10:00:00+00:00"),
    ("%H:%M:%S.%f", b"11:59:59.5 today", "2026-03-10T11:59:59.500000+00:00"),
    ("%H:%M:%S", b"12:05:00 a clock a little ahead", "2026-03-10T12:05:00+00:00"),
    ("%H:%M:%S", b"23:59:59 was yesterday", "2026-03-09T23:59:59+00:00"),
    ("%d %H:%M", b"28 10:00", "2026-02-28T10:00:00+00:00"),
    ("%d %H:%M", b"31 10:00", "2026-01-31T10:00:00+00:00"),
    ("t=%s", b"t=1700000000", "2023-11-14T22:13:20+00:00"),
    ("100%% %H:%M", b"100% 10:00", "2026-03-10T10:00:00+00:00"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "expected"), FOUND)
def test_a_time_is_found(text: str, line: bytes, expected: str) -> None:
    assert us(expected) == TimeFormat(text).find(line, NOW)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("iso", b""),
        ("iso", b"no time at all"),
        ("iso", b"2026-02-31T10:00:00Z"),
        ("iso", b"2025-02-29T10:00:00Z"),
        ("iso", b"2026-13-01T10:00:00Z"),
        ("iso", b"2026-03-01T24:00:00Z"),
        ("iso", b"2026-03-01T10:00:00+99:99"),
        ("iso", b"0000-01-01T00:00:00Z"),
        ("iso", b"0001-01-01T00:00:00+14:00"),
        ("iso", b"9999-12-31T23:59:59-14:00"),
        ("iso", b"12026-03-01T10:00:00Z"),
        ("iso", b"x" * 600 + b"2026-03-01T10:00:00Z"),
        ("syslog", b"Foo 10 10:00:00"),
        ("syslog", b"Feb 30 10:00:00"),
        ("syslog", b"Apr 31 10:00:00"),
        ("epoch", b"12345678"),
        ("epoch", b"12345678901234567890123"),
        ("%H:%M:%S", b"24:00:00"),
        ("%H:%M:%S", b"1234:00:00"),
    ],
)
def test_an_invalid_time_is_skipped(text: str, line: bytes) -> None:
    assert TimeFormat(text).find(line, NOW) is None


@pytest.mark.parametrize(
    ("now", "line", "expected"),
    [
        (NEW_YEAR, b"Dec 31 23:59:59 x", "2025-12-31T23:59:59+00:00"),
        (NEW_YEAR, b"Jan  1 00:00:00 x", "2026-01-01T00:00:00+00:00"),
        (NEW_YEARS_EVE, b"Jan  1 00:00:03 x", "2026-01-01T00:00:03+00:00"),
        (NEW_YEARS_EVE, b"Dec 31 23:59:54 x", "2025-12-31T23:59:54+00:00"),
        (NEW_YEARS_EVE, b"Jan  2 00:00:00 x", "2025-01-02T00:00:00+00:00"),
    ],
)
def test_times_without_a_year_keep_their_order_at_new_year(
    now: int, line: bytes, expected: str
) -> None:
    assert us(expected) == TimeFormat("syslog").find(line, now)


def test_times_without_a_date_keep_their_order_at_midnight() -> None:
    found = [TimeFormat("%H:%M:%S").find(line, NEW_YEAR) for line in (b"23:59:59", b"00:00:01")]
    assert [us("2025-12-31T23:59:59+00:00"), us("2026-01-01T00:00:01+00:00")] == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("%Y-%m-%d", "no time of day"),
        ("nonsense", "no time of day"),
        ("%H:%M %q", "%q is not known"),
        ("%H:%M %", "% is not known"),
        ("%H:%M %H", "is there twice"),
        ("%H:%M %d %e", "is there twice"),
    ],
)
def test_a_wrong_format_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(InputError, match="time format") as caught:
        TimeFormat(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1700000000, "2023-11-14T22:13:20+00:00"),
        (1700000000.25, "2023-11-14T22:13:20.250000+00:00"),
        (1700000000123, "2023-11-14T22:13:20.123000+00:00"),
        (1700000000123456999, "2023-11-14T22:13:20.123456+00:00"),
        ("2026-03-01T10:11:12Z", "2026-03-01T10:11:12+00:00"),
        ("1700000000", "2023-11-14T22:13:20+00:00"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00"),
        (0, "1970-01-01T00:00:00+00:00"),
        (None, None),
        (True, None),
        (-1, None),
        (1e300, None),
        (2**70, None),
        ("soon", None),
        ("\ud800", None),
        ([1700000000], None),
        ({}, None),
    ],
)
def test_a_json_value_is_a_time_or_none(value: object, expected: str | None) -> None:
    assert (None if expected is None else us(expected)) == field_time(value, None, NOW)


def test_a_json_value_is_read_in_the_format_given() -> None:
    value = "01/Mar/2026 10:11:12"
    form = TimeFormat("%d/%b/%Y %H:%M:%S")
    assert us("2026-03-01T10:11:12+00:00") == field_time(value, form, NOW)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2026-03-01T10:11:12Z up", "2026-03-01T10:11:12+00:00"),
        ("Mar  1 10:11:12 host up since 2020-01-01T00:00:00Z", "2026-03-01T10:11:12+00:00"),
        (
            '::1 - - [01/Mar/2026:10:11:12 +0100] "GET /Jan 01 00:00:00"',
            "2026-03-01T09:11:12+00:00",
        ),
        ("2026-02-31T10:11:12Z and 01/Mar/2026:10:11:12 +0000", "2026-03-01T10:11:12+00:00"),
        ("1770000000 requests", None),
        ("", None),
    ],
)
def test_the_first_time_of_a_common_format_is_found(line: str, expected: str | None) -> None:
    found = TimeFormat("auto").find(line.encode(), NOW)
    assert found == (None if expected is None else us(expected))


def test_a_guessed_format_takes_any_time_of_a_json_field() -> None:
    form = TimeFormat("auto")
    for value in (1_772_359_872, "1772359872000000", "2026-03-01T10:11:12Z", "Mar  1 10:11:12"):
        assert us("2026-03-01T10:11:12+00:00") == field_time(value, form, NOW)


_formats = st.sampled_from(["iso", "syslog", "epoch", "auto"]) | st.lists(
    st.sampled_from([f"%{name}" for name in _DIRECTIVES] + [" ", ":", "-", "T", "["]), max_size=8
).map("".join)
_digits = st.text("0123456789:-. TZ+,JanFebDec", max_size=80).map(str.encode)


@given(_formats, st.one_of(raw_bytes, _digits), st.datetimes().map(lambda d: d.replace(tzinfo=UTC)))
def test_no_bytes_raise_and_every_time_can_be_shown(text: str, line: bytes, now: datetime) -> None:
    try:
        form = TimeFormat(text)
    except InputError:
        return
    found = form.find(line, us("2026-01-01T00:00:00+00:00") if now.year < 1900 else NOW)
    if found is not None:
        assert isinstance(datetime.fromtimestamp(found // 1_000_000, UTC), datetime)


@given(
    st.datetimes(datetime(1973, 3, 4), datetime(2286, 1, 1), timezones=st.timezones())  # noqa: DTZ001
)
def test_any_iso_time_is_read_back(moment: datetime) -> None:
    expected = us(moment.isoformat())
    text = moment.isoformat(timespec="microseconds")
    assert TimeFormat("iso").find(text.encode(), NOW) == expected
    assert field_time(expected, None, NOW) == expected


@pytest.mark.parametrize(
    "text", ["iso", "syslog", "epoch", "auto", "%d/%b/%Y:%H:%M:%S %z", "%s%f%Y"]
)
@pytest.mark.parametrize(
    "line", [b"1" * 10**6, b"2026-01-0" * 10**5, b"Jan " * 10**5, b" " * 10**6]
)
def test_hostile_lines_take_bounded_time(text: str, line: bytes) -> None:
    form = TimeFormat(text)
    start = time.perf_counter()
    form.find(line, NOW)
    assert time.perf_counter() - start < 0.1
