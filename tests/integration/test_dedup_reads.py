"""``stream-dedup dedup`` over files and pipes of every sort, as an operator runs it."""

from __future__ import annotations

import gzip
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integration.command import Done, repeats, run, run_file, shell

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LOG = (
    b"disk sda1 is 91% full\n"
    b"user bob logged in from 10.0.0.7\n"
    b"disk sdb7 is 64% full\n"
    b"\n"
    b"user bob logged in from 10.0.0.9\n"
    b"disk sdc3 is 12% full\n"
)
FIRSTS = [b"disk sda1 is 91% full", b"user bob logged in from 10.0.0.7", b""]


def shown(done: Done) -> list[bytes]:
    """The lines that left as they came."""
    return [line for line in done.lines if not line.startswith("… ".encode())]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_bytes(LOG)
    return path


def test_the_first_line_is_written_as_it_is_and_repeats_as_counts(log: Path) -> None:
    done = run(log)
    assert done.code == 2  # there is no such command: the subcommand is needed
    done = run("dedup", log)
    assert done.code == 0
    assert done.err == ""
    assert shown(done) == FIRSTS
    repeated = [line.decode() for line in done.lines[3:]]
    assert len(repeated) == 2
    assert repeated[0].startswith("… repeated 2× until line 6 [")
    assert repeated[0].endswith("] disk <*> is <number> full")
    assert repeated[1].startswith("… repeated 1× until line 5 [")
    assert repeated[1].endswith("] user bob logged in from <ipv4>")


def test_event_times_say_until_when() -> None:
    body = b"".join(b"2025-11-21T10:%02d:11Z link down\n" % minute for minute in range(33))
    done = run("dedup", "--time-format", "iso", "--summary-every", "off", stdin=body)
    assert "… repeated 32× until 10:32:11 [" in done.out.decode()


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress, bytes])
def test_compressed_files_are_recognised_by_their_bytes(tmp_path: Path, pack: type[bytes]) -> None:
    path = tmp_path / "packed.whatever"
    path.write_bytes(pack(LOG))
    assert shown(run("dedup", path)) == FIRSTS


def test_globs_are_expanded_and_every_match_is_read(tmp_path: Path) -> None:
    for name in ("b.log", "a.log"):
        (tmp_path / name).write_bytes(b"from %b\n" % name.encode())
    done = run("dedup", "-e", "drop", f"{tmp_path}/*.log")
    assert done.lines == [b"from a.log", b"from b.log"]


def test_a_glob_without_a_match_is_reported(tmp_path: Path) -> None:
    done = run("dedup", f"{tmp_path}/*.log")
    assert done.code == 1
    assert f"stream-dedup: {tmp_path}/*.log: cannot be opened: No such file" in done.err


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_truncated_file_is_read_to_its_end_and_reported(
    tmp_path: Path, log: Path, pack: type[bytes]
) -> None:
    body = b"".join(b"line %x of a file\n" % (n * 2654435761 % 2**64) for n in range(30_000))
    path = tmp_path / "cut.packed"
    packed = pack(body)
    path.write_bytes(packed[: len(packed) // 2])
    done = run("dedup", "-e", "annotate", path, log)
    assert done.code == 1
    assert f"stream-dedup: {path}: cannot be read: " in done.err
    assert len(done.lines) > 10_000
    came = [line.split(b"\t", 3)[3] for line in done.lines]
    assert LOG.splitlines() == came[-6:]  # the next input is read all the same
    assert body.startswith(b"\n".join(came[:-6]))


@pytest.mark.parametrize(
    "body",
    [
        b"\x1f\x8b",
        b"\x1f\x8b\x08\x00garbage that is not a deflate stream at all",
        gzip.compress(b"a b c\n" * 1000, mtime=0)[:-6] + b"\0\0\0\0\0\0",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfdgarbage that is not a frame",
    ],
)
def test_a_corrupt_file_is_reported_and_the_others_are_read(
    tmp_path: Path, log: Path, body: bytes
) -> None:
    path = tmp_path / "corrupt.gz"
    path.write_bytes(body)
    done = run("dedup", path, log)
    assert done.code == 1
    assert f"stream-dedup: {path}: cannot be " in done.err
    assert shown(done)[-3:] == FIRSTS


@pytest.mark.parametrize("place", ["no/such/file", "/proc/self/mem", "/", "x" * 5000])
def test_an_unreadable_input_is_named_and_the_others_are_read(log: Path, place: str) -> None:
    done = run("dedup", place, log)
    assert done.code == 1
    assert f"stream-dedup: {place}: cannot be opened: " in done.err
    assert shown(done) == FIRSTS


def test_a_file_given_twice_counts_twice(log: Path) -> None:
    done = run("dedup", "--stats", log, log)
    assert done.code == 0
    assert shown(done) == [*FIRSTS, b""]
    assert len(shown(done)) + repeats(done) == 12
    assert done.stats["lines"] == "12"
    assert done.stats["clusters"] == "2"


def test_with_several_files_the_place_names_the_file(tmp_path: Path, log: Path) -> None:
    other = tmp_path / "other.log"
    other.write_bytes(b"disk sdz9 is 1% full\n")
    done = run("dedup", log, other)
    assert f"… repeated 3× until {other}:1 [" in done.out.decode()


@pytest.mark.parametrize("body", [b"", b"\n", b"\n\n\n", b"one line, no end", b"\r\n"])
def test_files_of_little_or_nothing_pass(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(body)
    for done in (run("dedup", path), run("dedup", stdin=body)):
        assert done.code == 0
        assert (body + b"\n" if body and not body.endswith(b"\n") else body) == done.out


def test_standard_input_is_read_from_a_file_a_pipe_or_for_a_dash(log: Path) -> None:
    with log.open("rb") as file:
        assert shown(run_file("dedup", stdin=file)) == FIRSTS
    assert shown(run("dedup", "-", stdin=LOG)) == FIRSTS
    assert run_file("dedup").out == b""


def test_the_first_line_decides_between_json_lines_and_text(tmp_path: Path) -> None:
    json = tmp_path / "a.jsonl"
    json.write_bytes(b'\n{"message":"disk 1 full"}\n{"message":"disk 2 full","n":1.0}\n')
    text = tmp_path / "b.log"
    text.write_bytes(b'disk three {"message":"is not json"}\n')
    done = run("dedup", "-e", "annotate", json, text)
    assert b'{"line":1,"text":"","dedup":{"decision":"passed"' in done.lines[0]
    assert done.lines[2].startswith(b'{"message":"disk 2 full","n":1.0,"dedup":{"decision":"dup')
    assert done.lines[3].startswith(b"new\t")
    forced = run("dedup", "-e", "annotate", "--input-format", "text", json)
    assert all(line.split(b"\t")[0] in {b"new", b"passed", b"duplicate"} for line in forced.lines)


JAVA = b"""2026-11-21 10:00:00 ERROR Request 17 failed
java.lang.IllegalStateException: no session
\tat com.acme.Web.handle(Web.java:17)
Caused by: java.io.IOException: closed
\t... 23 more
2026-11-21 10:00:01 ERROR Request 18 failed
java.lang.IllegalStateException: no session
\tat com.acme.Web.handle(Web.java:17)
Caused by: java.io.IOException: closed
\t... 23 more
2026-11-21 10:00:02 INFO done
"""


def test_a_stack_trace_belongs_to_its_first_line() -> None:
    done = run("dedup", "-e", "drop", "--start-regex", r"^\d{4}-", "--stats", stdin=JAVA)
    assert JAVA.splitlines()[:5] + JAVA.splitlines()[-1:] == done.lines
    assert done.stats["lines"] == "11"
    assert done.stats["events"] == "3"
    assert done.stats["clusters"] == "2"


def test_stack_traces_are_found_without_being_told_where_they_begin(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(JAVA)
    for args, place in ((("-",), ""), ((path,), "line 6 ")):
        done = run("dedup", "--stats", *args, stdin=JAVA)
        assert done.lines[:6] == JAVA.splitlines()[:5] + JAVA.splitlines()[-1:]
        (repeated,) = done.lines[6:]
        assert repeated.startswith(f"… repeated 1× until {place}".encode())
        assert repeated.endswith(
            b"<timestamp> ERROR Request <number> failed IllegalStateException: no session Caused "
            b"by: IOException: closed at com.acme.Web.handle"
        )
        assert (done.stats["lines"], done.stats["events"]) == ("11", "3")


def test_every_line_is_an_event_where_joining_is_off() -> None:
    done = run("dedup", "--join", "off", "-e", "annotate", "--stats", stdin=JAVA)
    assert len(done.lines) == 11
    assert (done.stats["lines"], done.stats["events"]) == ("11", "11")


def test_json_lines_are_never_joined() -> None:
    done = run("dedup", "-e", "annotate", stdin=b'{"msg":"one"}\n {"msg":"two"}\n\t{"msg":"6"}\n')
    assert [event["msg"] for event in done.objects] == ["one", "two", "6"]


def test_a_trace_in_the_text_of_a_json_event_is_known() -> None:
    trace = (
        "failed\\njava.io.IOException: closed\\n\\tat a.B.%s(B.java:%d)\\n\\tat a.C.%s(C.java:4)"
    )
    texts = [trace % ("c", 1, "x"), trace % ("c", 2, "y"), trace % ("d", 1, "x")]
    lines = b"".join(b'{"message":"%b"}\n' % text.encode() for text in texts)
    found = run("dedup", "-e", "annotate", stdin=lines).objects
    assert [event["dedup"]["decision"] for event in found] == ["new", "duplicate", "new"]


def test_annotated_events_of_several_lines_are_one_object() -> None:
    args = ("dedup", "-e", "annotate", "--output-format", "jsonl", "--start-regex", r"^\d{4}-")
    found = run(*args, stdin=JAVA).objects
    assert [event["line"] for event in found] == [1, 6, 11]
    assert b"\n".join(JAVA.splitlines()[:5]).decode() == found[0]["text"]


def decisions(*args: str, stdin: bytes) -> list[str]:
    done = run("dedup", "-e", "annotate", "--output-format", "jsonl", *args, stdin=stdin)
    assert done.code == 0
    return [event["dedup"]["decision"] for event in done.objects]


@pytest.mark.parametrize(
    ("args", "times"),
    [
        (("--time-format", "iso"), ["2026-01-01T00:00:00Z", "2026-01-01T00:30:00Z",
                                    "2026-01-01T02:00:00+00:00"]),
        (("--time-format", "syslog"), ["Jan  1 00:00:00", "Jan  1 00:30:00", "Jan  1 02:00:00"]),
        (("--time-format", "epoch"), ["1700000000", "1700001800", "1700007200"]),
        (("--time-format", "%d/%b/%Y:%H:%M:%S %z"), ["01/Jan/2026:00:00:00 +0000",
                                                     "01/Jan/2026:02:30:00 +0200",
                                                     "01/Jan/2026:02:00:00 +0000"]),
    ],
)  # fmt: skip
def test_event_time_in_the_text_decides_the_windows(
    args: tuple[str, ...], times: list[str]
) -> None:
    body = "".join(f"{time} link went down\n" for time in times).encode()
    assert decisions(*args, "--idle", "1h", stdin=body) == ["new", "duplicate", "new"]
    assert decisions(*args, "--idle", "2h", stdin=body) == ["new", "duplicate", "duplicate"]
    assert decisions(*args, "--idle", "off", "--max-age", "1h", stdin=body) == [
        "new",
        "duplicate",
        "new",
    ]


def test_event_time_in_a_json_field_decides_the_windows() -> None:
    body = b"".join(
        b'{"message":"link went down","meta":{"ts":%b}}\n' % time
        for time in (b"1700000000", b'"2023-11-14T22:43:20Z"', b"null", b"1700007200.5")
    )
    args = ("--time-field", "meta.ts", "--idle", "1h")
    assert decisions(*args, stdin=body) == ["new", "duplicate", "duplicate", "new"]


def test_groups_keep_events_apart() -> None:
    json = b"".join(
        b'{"message":"link went down","svc":{"name":"%b"}}\n' % name for name in (b"a", b"b", b"a")
    )
    assert decisions(stdin=json) == ["new", "duplicate", "duplicate"]
    assert decisions("--group-field", "svc.name", stdin=json) == ["new", "new", "duplicate"]
    text = b"api: link went down\napi: link went down\nweb: link went down\n"
    pattern = "^(?P<app>[a-z]+):"
    assert decisions(stdin=text.replace(b"web:", b"7eb:").replace(b"api:", b"4pi:")) == [
        "new",
        "duplicate",
        "duplicate",
    ]
    assert decisions("--group-regex", pattern, stdin=text) == ["new", "duplicate", "new"]


def test_the_summary_has_the_group() -> None:
    args = ("dedup", "--output-format", "jsonl", "--group-regex", "^(?P<app>[a-z]+):")
    found = run(*args, stdin=b"api: link down\napi: link down\n").objects
    assert found[-1]["group"] == {"app": "api"}
    assert tuple(found[-1][key] for key in ("count", "final", "closing")) == (2, True, "ended")


@pytest.mark.parametrize("limit", [1, 3, 4, 100])
def test_a_limit_stops_reading_across_files(log: Path, limit: int) -> None:
    done = run("dedup", "-e", "annotate", "--stats", "--limit", str(limit), log, log)
    came = [line.split(b"\t", 3)[3] for line in done.lines]
    assert (LOG.splitlines() * 2)[:limit] == came
    assert str(min(limit, 12)) == done.stats["lines"]


def test_a_limit_ends_an_endless_input() -> None:
    done = shell('yes "a line without end" | "$SD" dedup -e annotate --limit 5')
    assert done.code == 0
    assert len(done.lines) == 5


def test_the_recipe_is_chosen_and_changed(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[text]\nmasks = ["number"]\n[match]\nk = 0\n')
    body = b"took 17 ms\ntook 18 ms\ntook long\n"
    assert decisions("--recipe", str(recipe), stdin=body) == ["new", "duplicate", "new"]
    assert decisions("-r", str(recipe), "--set", "text.masks=[]", stdin=body) == [
        "new",
        "new",
        "new",
    ]


def test_statistics_count_clusters_that_are_left() -> None:
    names = ["ann", "bob", "cy", "dee", "eve"]
    between = b"disk sda is full\n" * 20_000  # each session is in a batch of its own
    body = between.join(f"session closed for user {name}\n".encode() for name in names)
    done = run("dedup", "--stats", stdin=body + b"unlike the others\n")
    assert done.stats["clusters"] == "6"
    assert (done.stats["clusters in the end"], done.stats["clusters of one event"]) == ("3", "1")
    assert "clusters in the end" not in run("dedup", "--stats", "--top", "2", stdin=body).stats


def test_statistics_show_counts_share_and_the_largest_clusters() -> None:
    body = b"link 1 went down\n" * 7 + b"user bob came in\n" * 3 + b"\n" + b"unlike the others\n"
    done = run("dedup", "--stats", stdin=body)
    assert (len(shown(done)), repeats(done)) == (3 + 1, 8)
    assert done.stats == {
        "lines": "12", "events": "12", "clusters": "3", "duplicates": "8",
        "share removed": "66.7%", "passed: nothing to fingerprint": "1",
        "clusters in the end": "3", "clusters of one event": "1",
        "found by learned word": "0", "found by its words": "0", "found by fingerprint": "0",
    }  # fmt: skip
    rows = [line.strip("│").split("│") for line in done.err.splitlines() if line.startswith("│")]
    clusters = [(n.strip(), p.strip()) for n, _, p in rows if n.strip()]  # others have values
    assert clusters == [
        ("7", "link <number> went down"),
        ("3", "user bob came in"),
        ("1", "unlike the others"),
    ]


def test_every_output_mode_has_the_same_statistics() -> None:
    body = b"link 1 went down\n" * 7 + b"user bob came in\n" * 3 + b"\n"
    stats = [run("dedup", "-e", emit, "--stats", stdin=body).stats
            for emit in ("merge", "drop", "annotate")]  # fmt: skip
    assert [stats[0]] * 3 == stats


def test_rotated_files_may_come_newest_first(tmp_path: Path) -> None:
    newer = tmp_path / "app.log"
    older = tmp_path / "app.log.1"
    newer.write_text("".join(f"2025-11-20T10:00:00Z job {n} went well\n" for n in range(20_000)))
    older.write_text("".join(f"2025-11-10T10:00:00Z disk {n} is full\n" for n in range(20_000)))
    done = run("dedup", "--emit", "drop", "--time-format", "iso", newer, older)

    assert done.out.count(b"\n") == 2


def test_a_byte_order_mark_is_not_part_of_the_first_line() -> None:
    body = b'\xef\xbb\xbf{"msg":"disk sda1 is full"}\n'
    (event,) = run("dedup", "--emit", "annotate", stdin=body).objects

    assert event["dedup"]["decision"] == "new"


def test_compressed_stdin_is_unpacked_from_files_refused_from_pipes(
    tmp_path: Path,
) -> None:
    packed = tmp_path / "app.log.gz"
    packed.write_bytes(gzip.compress(b"disk sda1 is full\n"))

    assert shell('$SD dedup < "$1"', packed).out == b"disk sda1 is full\n"
    refused = shell('cat "$1" | $SD dedup', packed)
    assert refused.code == 1
    assert "zcat FILE | stream-dedup dedup" in refused.err


def test_an_encoding_is_recognised_or_given_and_an_archive_refused(tmp_path: Path) -> None:
    text = "Größe 1 überschritten\nGröße 2 überschritten\n"
    windows, latin, archive = tmp_path / "w.log", tmp_path / "l.log", tmp_path / "a.zip"
    windows.write_text(text, "utf-16")
    latin.write_text(text, "latin-1")
    archive.write_bytes(b"PK\x03\x04\x14\x00")
    first = "Größe 1 überschritten\n".encode()

    assert run("dedup", "-e", "drop", windows, archive).out == first
    assert run("dedup", "-e", "drop", "--encoding", "latin-1", latin).out == first
    refused = run("dedup", archive, windows)
    assert (refused.code, refused.out[: len(first)]) == (1, first)
    assert f"{archive}: cannot be read: it is a ZIP archive" in refused.err
    unknown = run("dedup", "--encoding", "utf-99", latin)
    assert (unknown.code, unknown.out) == (2, b"")


def test_a_time_format_that_never_matches_is_reported() -> None:
    done = run("dedup", "--time-format", "iso", "--stats", stdin=b"disk a is full\nno time\n")

    assert "no event has a time" in done.err
    assert done.stats["events without a time"] == "2"


def test_summaries_of_a_file_are_written_where_they_were_due(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text(
        "".join(f"2025-11-21T12:{n // 12:02}:{n % 12 * 5:02}Z job {n} done\n" for n in range(120))
    )
    done = run("dedup", "--time-format", "iso", "--summary-every", "1m", log)
    matches = [re.search(r"repeated (\d+)× until (\S+)", line.decode()) for line in done.lines[1:]]

    assert 1 + sum(int(match[1]) for match in matches if match) == 120
    assert (matches[0] or [""] * 3)[2] == "12:01:55"
    assert 8 <= len(matches) <= 10


@pytest.mark.parametrize("pieces", [False, True])
def test_a_heartbeat_shorter_than_idle_is_one_cluster(tmp_path: Path, *, pieces: bool) -> None:
    log = tmp_path / "app.log"
    log.write_text(
        "".join(
            f"{datetime.fromtimestamp(1_750_000_000 + 40 * n, UTC):%Y-%m-%dT%H:%M:%SZ} alive\n"
            for n in range(20_000)
        )
    )
    source = 'cat "$1" | $SD' if pieces else '$SD "$1"'
    options = "dedup --time-format iso --idle 1m --max-age off -e drop"
    done = shell(source.replace("$SD", f"$SD {options}"), log)

    assert len(done.lines) == 1


def test_a_repeat_is_located_by_the_input_it_came_from(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("disk 1 is full\ndisk 2 is full\n")
    done = shell('(sleep 0.2; printf "disk 3 is full\n") | $SD dedup "$1" -', log)

    assert "app.log" not in done.lines[-1].decode()


def test_options_without_effect_are_reported() -> None:
    text = b"disk 1 is full\ndisk 2 is full\n"
    record = b'{"msg":"disk 1 is full"}\n'

    assert (
        "is text; options that name a JSON field"
        in run("dedup", "--text-field", "m", stdin=text).err
    )
    assert (
        "1 of 1 JSON lines have no field 'mesage', and pass undecided; name the field of their "
        "text with --text-field (the first has msg)"
        in run("dedup", "--text-field", "mesage", stdin=record).err
    )
    both = run("dedup", "--group-field", "a", "--group-regex", "(?P<a>b)", stdin=text)
    assert (both.code, "exclude each other" in both.err) == (2, True)
    wrong = run("dedup", "--text-field", "a..b", stdin=record)
    assert (wrong.code, "'a..b' has an empty step" in wrong.err) == (2, True)
