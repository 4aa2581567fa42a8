"""Summaries as output: JSON and text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.emit.summaries import (
    iso_time,
    label,
    repeats,
    summary_json,
    summary_text,
    time_text,
)
from stream_dedup.model import Closing, Position, Summary


def summary(**changes: Any) -> Summary:
    given: dict[str, Any] = {
        "cluster": 0xAB, "revision": 1, "closing": None, "count": 4, "new_count": 4,
        "first_time_us": 1_700_000_000_000_000, "last_time_us": 1_700_000_000_250_000,
        "position": Position("app.log", 0, 7), "representative": b"a 10.0.0.7 \xff",
        "samples": (b"a 10.0.0.8",), "group": '{"app":"api"}', "pattern": "a <ipv4>",
        "template": 0xCD,
    }  # fmt: skip
    return Summary(**{**given, **changes})


def test_summary_json_has_the_documented_fields() -> None:
    named = {"variant": ("ERROR", "5xx")}
    assert msgspec.json.decode(
        summary_json(summary(revision=2, closing=Closing.ENDED, new_count=3, **named), "logs")
    ) == {
        "type": "summary", "namespace": "logs", "cluster": "00000000000000ab",
        "template": "00000000000000cd", "variant": ["ERROR", "5xx"], "revision": 2,
        "final": True, "closing": "ended", "count": 4, "new_count": 3,
        "first_time": "2023-11-14T22:13:20Z", "last_time": "2023-11-14T22:13:20.250Z",
        "pattern": "a <ipv4>", "representative": "a 10.0.0.7 \\xff", "samples": ["a 10.0.0.8"],
        "group": {"app": "api"},
        "position": {"source": "app.log", "partition": 0, "offset": 7},
    }  # fmt: skip
    odd = summary(group="", position=Position("\udcff", 0, 1))
    assert msgspec.json.decode(summary_json(odd, "logs"))["group"] == {}


def test_summary_text_counts_only_events_not_reported_before() -> None:
    text = "… repeated 3× until 10:32:11 [00000000000000ab] (app=api) a <ipv4>\n"
    assert summary_text(summary(), "10:32:11") == text.encode()
    later = summary(revision=2, count=9, new_count=5)
    assert repeats(later) == 5
    assert summary_text(summary(count=1, new_count=1), "10:32:11") == b""
    assert summary_text(summary(revision=2, new_count=0), "10:32:11") == b""


def test_the_mark_of_a_summarys_text_can_be_given() -> None:
    text = summary_text(summary(group=""), "line 8", "== 7f3a")
    assert text == b"== 7f3a repeated 3\xc3\x97 until line 8 [00000000000000ab] a <ipv4>\n"


def test_values_of_groups_are_shown_printable_and_short() -> None:
    group = msgspec.json.encode({"pod": "a\x9b1", "tenant": "x" * 99}).decode()
    assert label(summary(group=group)) == f" (pod=a\\x9b1, tenant={'x' * 59}…)"
    assert label(summary(group="")) == ""


def test_the_variant_is_named_behind_the_group() -> None:
    text = "… repeated 3× until 10:32:11 [00000000000000ab] (app=api, ERROR, 5xx) a <ipv4>\n"
    assert summary_text(summary(variant=("ERROR", "5xx")), "10:32:11") == text.encode()


def test_times_show_the_date_when_it_differs() -> None:
    at = round(datetime(2026, 11, 21, 0, 30, tzinfo=UTC).timestamp()) * 10**6
    assert time_text(at, at - 10**6) == "00:30:00"
    assert time_text(at, at - 3600 * 10**6) == "2026-11-21 00:30:00"
    assert time_text(at, at - 3600 * 10**6, timezone(timedelta(hours=1))) == "01:30:00"


@given(st.datetimes(datetime(1, 1, 2), timezones=st.just(UTC)))  # noqa: DTZ001
def test_iso_times_parse_back_to_the_same_moment(moment: datetime) -> None:
    us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    year, _, rest = iso_time(us).partition("-")
    assert datetime.fromisoformat(f"{year:>04}-{rest}") == moment


def test_a_merged_cluster_says_in_one_line_where_it_went() -> None:
    gone = {"closing": Closing.MERGED, "merged_into": 0xCD, "pattern": "closed for <*>"}
    once = summary(**gone, group="", count=1, new_count=1)
    more = summary(**gone, group="", count=4, new_count=4)
    assert summary_text(once, "10:32:11").decode() == (
        "… [00000000000000ab] is now part of [00000000000000cd] closed for <*>\n"
    )
    assert summary_text(more, "10:32:11").decode() == (
        "… repeated 3× until 10:32:11 [00000000000000ab] is now part of [00000000000000cd] "
        "closed for <*>\n"
    )


def test_json_names_where_clusters_went_and_what_they_took_over() -> None:
    gone = summary(closing=Closing.MERGED, merged_into=0xCD)
    root = summary(merged=((0xAB, 4), (0xEF, 1)))
    documents = [msgspec.json.decode(summary_json(each, "logs")) for each in (gone, root)]
    assert [(each.get("merged_into"), each.get("merged")) for each in documents] == [
        ("00000000000000cd", None),
        (
            None,
            [
                {"cluster": "00000000000000ab", "count": 4},
                {"cluster": "00000000000000ef", "count": 1},
            ],
        ),
    ]
