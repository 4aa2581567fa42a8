"""From lines to events: whatever a line holds, it becomes an event, and none is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.errors import InputError
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.io.decoder import (
    PREFIX_LINES,
    Decoder,
    DecoderOptions,
    Events,
    Times,
)
from stream_dedup.io.files import Lines
from stream_dedup.model import Partition
from tests.strategies import texts

LOGS = load_recipe("logs")
PARTITION = Partition("f", 0)
NOW_US = 1_800_000_000_000_000
lines_of_text = st.lists(texts.map(lambda text: text.replace(b"\n", b" ")), max_size=12)


def decoder(**reading: object) -> Decoder:
    return Decoder(DecoderOptions(**reading), PARTITION, LOGS)  # type: ignore[arg-type]


def decode(coder: Decoder, batches: Sequence[Sequence[bytes]]) -> list[Events]:
    first = 1
    events = []
    for values in batches:
        events.append(coder.decode(Lines(list(values), first), NOW_US))
        first += len(values)
    return [*events, coder.flush(NOW_US)]


def groups(lines: Sequence[bytes], **reading: object) -> list[object]:
    (first, _) = decode(decoder(**reading), [lines])
    found = first.batch.groups or [""] * len(lines)
    return [msgspec.json.decode(group) if group else None for group in found]


def raws(events: Sequence[Events]) -> list[bytes]:
    return [raw for part in events for raw in part.raws]


def one(line: bytes, **reading: object) -> Events:
    return decode(decoder(**reading), [[line]])[0]


@st.composite
def split(draw: st.DrawFn, lines: Sequence[bytes]) -> list[Sequence[bytes]]:
    boundaries = sorted(draw(st.lists(st.integers(0, len(lines)), max_size=4)))
    return [lines[a:b] for a, b in zip([0, *boundaries], [*boundaries, len(lines)], strict=True)]


@given(st.data(), lines_of_text, st.sampled_from(["auto", "text", "jsonl"]))
def test_every_line_becomes_one_event_as_it_came(
    data: st.DataObject, lines: list[bytes], form: str
) -> None:
    events = decode(decoder(format=form), data.draw(split(lines)))
    assert raws(events) == lines
    assert list(range(1, len(lines) + 1)) == [n for part in events for n in part.numbers]
    assert len(lines) == sum(part.lines for part in events)


@given(st.data(), st.lists(st.sampled_from([b"", b"  ", b'{"msg":"a"}', b"text", b"[1]"])))
def test_the_format_found_in_the_first_line_ignores_batch_bounds(
    data: st.DataObject, lines: list[bytes]
) -> None:
    coder = decoder()
    decode(coder, data.draw(split(lines)))
    first = next((line for line in lines if line.strip()), b"")
    assert first.startswith(b"{") == coder.json


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":', "not JSON"),
        (b"plain text", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"message":"\xff"}', "not JSON"),
        (b"\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
        (b"[1,2]", "not a JSON object"),
        (b"17", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "field missing"),
        (b'{"other":"x"}', "field missing"),
        (b'{"message":null}', "field missing"),
    ],
)
def test_a_line_of_another_format_is_passed_with_the_reason(line: bytes, reason: str) -> None:
    events = one(line, format="jsonl")
    assert {0: reason} == events.batch.passed
    assert [line] == events.raws


@pytest.mark.parametrize(
    ("line", "reading", "text"),
    [
        (b'{"message":"a b"}', {}, b"a b"),
        (b'{"level":"x","msg":"a b"}', {}, b"a b"),
        (b'{"log":"a","message":"b"}', {}, b"b"),
        (b'{"a":{"b":"c d"}}', {"text_field": "a.b"}, b"c d"),
        (b'{"a.b":"c d"}', {"text_field": "/a.b"}, b"c d"),
        (b'{"a":[{"b":17}]}', {"text_field": "a.0.b"}, b"17"),
        (b'{"message":"\\u00e9"}\r', {}, "é".encode()),
        (b'{"textPayload":"a b","severity":"DEFAULT"}', {}, b"a b"),
        (b'{"@message":"a b","@module":"c"}', {}, b"a b"),
        (b'{"fields":{"message":"a b","n":1},"target":"c"}', {}, b"a b"),
        (b'{"jsonPayload":{"message":"a b"}}', {}, b"a b"),
        (b'{"fields":{"message":7},"body":{"stringValue":"a b"}}', {}, b"a b"),
        (b'{"version":"1.1","short_message":"a b","full_message":"a b c"}', {}, b"a b"),
        (b'{"@t":"2026-01-01","@m":"a 1","@mt":"a {n}"}', {}, b"a 1"),
        (b'{"MESSAGE":[27,91,97,255]}', {}, b"\x1b[a\xff"),
        (b'{"MESSAGE":[1,"x"],"log":"a b"}', {}, b"a b"),
    ],
)
def test_the_text_of_a_json_line_is_found(
    line: bytes, reading: dict[str, object], text: bytes
) -> None:
    assert one(line, format="jsonl", **reading).batch.values == [text]


@pytest.mark.parametrize(
    ("line", "reading", "compared"),
    [
        (b'{"level":"error","msg":"a b"}', {}, "‹error› a b".encode()),
        (b'{"MESSAGE":[27,91,97,255],"PRIORITY":"6"}', {}, "‹info› ".encode() + b"\x1b[a\xff"),
        (b'{"a":{"b":"c d"},"status":503}', {"text_field": "a.b"}, "‹status=5xx› c d".encode()),
        (b'{"level":"error","msg":""}', {}, b""),
        (
            b'{"level":"ERROR","fields":{"message":"a b","code":404}}',
            {},
            "‹error code=4xx› a b".encode(),
        ),
    ],
)
def test_what_else_a_json_line_says_is_before_its_text(
    line: bytes, reading: dict[str, object], compared: bytes
) -> None:
    events = one(line, format="jsonl", **reading)
    assert events.batch.values == [compared]
    assert events.raws == [line]


@pytest.mark.parametrize("recipe", [None, load_recipe("logs-1"), load_recipe("text")])
def test_a_recipe_without_variants_takes_the_text_alone(recipe: Recipe | None) -> None:
    coder = Decoder(DecoderOptions(format="jsonl"), PARTITION, recipe)
    (events, _) = decode(coder, [[b'{"level":"error","msg":"a b"}']])
    assert events.batch.values == [b"a b"]


def test_lines_without_a_time_are_as_old_as_the_one_before() -> None:
    lines = [b"head", b"2026-01-01T00:00:00Z a", b"  at x", b"2026-01-01T00:00:05Z b"]
    events = decode(decoder(time_format="iso"), [lines, [b"tail"]])
    assert [
        [time - 1_767_225_600_000_000 for time in part.batch.times_us or ()] for part in events[:2]
    ] == [[0, 0, 0, 5_000_000], [5_000_000]]


@pytest.mark.parametrize(
    ("line", "reading", "second"),
    [
        (b'{"log":"a","time":"2026-01-01T00:00:07.123Z"}', {"time_field": "auto"}, 7),
        (b'{"MESSAGE":"a","__REALTIME_TIMESTAMP":"1767225607123456"}', {"time_field": "auto"}, 7),
        (b'{"@m":"a","@t":"2026-01-01T00:00:07Z"}', {"time_field": "auto"}, 7),
        (b'{"msg":"a","ts":1767225607.5}', {"time_field": "auto"}, 7),
        (b'{"msg":"a","time":0.25,"ts":1767225607}', {"time_field": "auto"}, 7),  # a duration
        (b'{"msg":"2026-01-01T00:00:07Z a"}', {"time_field": "auto"}, 0),  # none by its name
        (b'{"log":"' + b"a" * 600 + b'","time":"2026-01-01T00:00:07Z"}', {"time_format": "iso"}, 7),
        (b'{"log":"at 2026-01-01T00:00:09Z","time":"2026-01-01T00:00:07Z"}',
         {"time_format": "iso"}, 7),
        (b'{"log":"at 2026-01-01T00:00:09Z"}', {"time_format": "iso"}, 9),
    ],
)  # fmt: skip
def test_the_times_that_common_tools_write_are_known(
    line: bytes, reading: dict[str, object], second: int
) -> None:
    (time_us,) = one(line, format="jsonl", **reading).batch.times_us or [0]
    assert time_us // 1_000_000 == (1_767_225_600 + second if second else 0)


@pytest.mark.parametrize(
    ("line", "reading", "group"),
    [
        (b'{"s":"a","n":1}', {"group_fields": ("s",), "format": "jsonl"}, '{"s":"a"}'),
        (b'{"s":"a","n":1}', {"group_fields": ("s", "n"), "format": "jsonl"}, '{"n":"1","s":"a"}'),
        (b'{"m":"a"}', {"group_fields": ("s",), "format": "jsonl"}, ""),
        (b'{"s":null}', {"group_fields": ("s",), "format": "jsonl"}, ""),
        (b"broken", {"group_fields": ("s",), "format": "jsonl"}, ""),
        (b"api: x", {"group_pattern": "(?P<app>[a-z]+):"}, '{"app":"api"}'),
        (b"none", {"group_pattern": "(?P<app>[a-z]+):"}, ""),
        (b"\xff: x", {"group_pattern": "(?P<app>[^:]+):"}, ""),
        (b"b: x", {"group_pattern": "(?P<a>a)?(?P<b>b)"}, '{"b":"b"}'),
    ],
)
def test_groups_are_found(line: bytes, reading: dict[str, object], group: str) -> None:
    assert one(line, **reading).batch.groups == [group]


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        ({"start_pattern": "("}, "start pattern '(' is not RE2 syntax: missing )"),
        ({"group_pattern": "(?=x)"}, "is not RE2 syntax"),
        ({"group_pattern": "(x)"}, "has no named group; write one as"),
        ({"start_pattern": "\udcff"}, "is not UTF-8; type it"),
        ({"time_format": "%Q"}, "%Q is not known; use"),
    ],
)
def test_a_wrong_option_is_refused_with_the_remedy(reading: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        decoder(**reading)


def test_a_line_too_long_is_passed_and_counted_once() -> None:
    coder = decoder(format="text")
    parts = [
        coder.decode(Lines([b"a", b"beg"], 1, pieces={1}), NOW_US),
        coder.decode(Lines([b"mid"], 2, pieces={0}, goes_on=True), NOW_US),
        coder.decode(Lines([b"end", b"c"], 2, tails={0}, goes_on=True), NOW_US),
    ]
    assert [part.raws for part in parts] == [[b"a"], [], [b"end", b"c"]]
    assert [part.piece for part in parts] == [b"beg", b"mid", b""]
    assert [part.piece_number for part in parts if part.piece] == [2, 2]
    assert [part.goes_on for part in parts] == [False, True, True]
    assert sum(part.lines for part in parts) == 3
    assert parts[2].batch.passed == {0: "line too long"}


POD = b"[pod/api-7d9c9f6b4-x2x8p/app] "


@pytest.mark.parametrize(
    ("prefix", "source", "service"),
    [
        (POD, {"pod": "api-7d9c9f6b4-x2x8p", "container": "app"},
         {"workload": "api", "container": "app"}),
        (b"[pod/db-0/postgres] ", {"pod": "db-0", "container": "postgres"},
         {"workload": "db", "container": "postgres"}),
        (b"[pod/agent-k8zwl/agent] ", {"pod": "agent-k8zwl", "container": "agent"},
         {"workload": "agent", "container": "agent"}),
        (b"[pod/my-redis/main] ", {"pod": "my-redis", "container": "main"},
         {"workload": "my-redis", "container": "main"}),
        (b"web-1  | ", {"container": "web-1"}, {"service": "web"}),
        (b"database-1      | ", {"container": "database-1"}, {"service": "database"}),
    ],
)  # fmt: skip
def test_prefixes_of_pods_and_containers_are_groups(
    prefix: bytes, source: object, service: object
) -> None:
    lines = [prefix + b"ready", b"no prefix", prefix + b"done"]
    assert groups(lines, group_prefix="source") == [source, None, source]
    assert groups(lines, group_prefix="service") == [service, None, service]
    assert groups(lines) == [None, None, None]


def test_a_prefix_is_looked_for_in_the_first_lines_only() -> None:
    near = [b"Attaching to web-1"] * (PREFIX_LINES - 1) + [b"web-1  | ready"]
    assert groups(near, group_prefix="source")[-1] == {"container": "web-1"}
    assert groups([b"far", *near], group_prefix="source") == [None] * (PREFIX_LINES + 1)


def test_a_level_before_a_bar_is_no_prefix() -> None:
    assert groups([b"INFO  | ready", b"web-1 | ready"], group_prefix="source") == [None, None]


def test_groups_that_are_asked_for_win_over_prefixes() -> None:
    lines = [b"web-1  | level=info ready"]
    found = groups(lines, group_prefix="source", group_pattern="level=(?P<level>[a-z]+)")
    assert found == [{"level": "info"}]


@given(st.data(), st.lists(st.sampled_from([b"", b"text", b"web-1  | a", POD + b"b"]), max_size=15))
def test_prefixes_do_not_depend_on_batches(data: st.DataObject, lines: list[bytes]) -> None:
    whole = decode(decoder(group_prefix="source"), [lines])
    parts = decode(decoder(group_prefix="source"), data.draw(split(lines)))
    assert [groups_of(each) for each in (whole, parts)] == [groups_of(whole)] * 2


def groups_of(events: Sequence[Events]) -> list[str]:
    return [group for part in events for group in part.batch.groups or [""] * len(part.raws)]


def test_only_events_of_the_wanted_times_are_taken() -> None:
    lines = [b"before any time", b"1970-01-01T00:00:10Z a", b"  at b", b"1970-01-01T00:00:20Z c",
             b"1970-01-01T00:00:30Z d", b"1970-01-01T00:00:15Z late"]  # fmt: skip
    events = decode(decoder(time_format="iso"), [lines])[0]
    chosen = Times(since_us=15_000_000, until_us=30_000_000).chosen(events)
    assert chosen.raws == chosen.batch.values == [lines[3], lines[5]]
    assert (list(chosen.numbers), list(chosen.batch.offsets)) == ([4, 6], [4, 6])
    assert chosen.lines == 6
    assert Times(until_us=15_000_000).chosen(events).raws == lines[:3]
    assert Times().chosen(events) is events


def test_a_line_too_long_that_was_begun_is_taken_to_its_end() -> None:
    coder = decoder(time_format="iso")
    begun = Lines([b"1970-01-01T00:00:10Z long"], 1, pieces={0})
    end = Lines([b" end", b"1970-01-01T00:00:10Z b"], 1, tails={0}, goes_on=True)
    late = Times(since_us=20_000_000)
    assert late.chosen(coder.decode(begun, NOW_US)).piece == b"1970-01-01T00:00:10Z long"
    chosen = late.chosen(coder.decode(end, NOW_US))
    assert (chosen.raws, chosen.batch.passed) == ([b" end"], {0: "line too long"})
