"""What ``stream-dedup dedup`` writes for people: marks, ids, colours, reports."""

from __future__ import annotations

import json
import re
import signal
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.integration.command import live, run, run_file, shell
from tests.integration.test_terminal import ESCAPES, HOSTILE, on_terminal, printable

LOG = (
    b"disk sda1 is 91% full\n"
    b"user bob logged in from 10.0.0.7\n"
    b"disk sdb7 is 64% full\n"
    b"\n"
    b"user bob logged in from 10.0.0.9\n"
    b"disk sdc3 is 12% full\n"
)
TEMPLATES = (b"2d5cdeeeab321cf2", b"6c89826dc567fab0")
FORGED = "… repeated 9× until line 9 [0000000000000000] all is well".encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_bytes(LOG)
    return path


# ---------------------------------------------------------------- marks and ids


def test_a_line_that_looks_like_a_summary_is_pointed_out() -> None:
    done = run("dedup", stdin=b"link 1 went down\n" + FORGED + b"\nlink 2 went down\n")
    assert done.err == (
        "stream-dedup: a line of the input begins with '… repeated', as summaries do; to tell them "
        "apart, give another --mark, or --output-format jsonl\n"
    )


def test_a_mark_tells_summaries_from_lines() -> None:
    body = b"link 1 went down\n" + FORGED + b"\nlink 2 went down\n"
    done = run("dedup", "--mark", "== 7f3a", stdin=body)
    assert done.err == ""
    assert done.lines[1] == FORGED
    marked = [line for line in done.lines if line.startswith(b"== 7f3a repeated ")]
    assert marked == done.lines[2:]
    assert len(marked) == 1


@pytest.mark.parametrize("mark", ["", "  ", "a\nb", "\x1b[1m"])
def test_a_mark_has_to_be_visible(mark: str) -> None:
    done = run("dedup", "--mark", mark, stdin=b"")
    assert done.code == 2
    assert "is not a printable text" in done.err


@pytest.mark.parametrize("emit", ["merge", "drop"])
def test_ids_precede_first_lines_if_asked_for(log: Path, emit: str) -> None:
    annotated = run("dedup", "-e", "annotate", log).lines
    ids = [line.split(b"\t")[1] for line in annotated]
    done = run("dedup", "-e", emit, "--ids", log)
    assert done.lines[:3] == [
        b"[%b %b] disk sda1 is 91%% full" % (ids[0], TEMPLATES[0]),
        b"[%b %b] user bob logged in from 10.0.0.7" % (ids[1], TEMPLATES[1]),
        b"[-] ",
    ]
    if emit == "merge":
        assert b"[%b] disk <*> is" % ids[0] in done.lines[3]


# ---------------------------------------------------------------- colours and escapes


def test_a_terminal_shows_variables_and_counts_in_colour(log: Path) -> None:
    _, shown, _, _ = on_terminal("dedup", log, out=True, err=False)
    text = shown.decode().replace("\r\n", "\n")
    assert "disk \x1b[36msda1\x1b[0m is \x1b[36m91%\x1b[0m full\n" in text
    assert "\x1b[33m… repeated 2×\x1b[0m \x1b[2muntil line 6 [" in text
    assert "disk \x1b[36m<*>\x1b[0m is \x1b[36m<number>\x1b[0m full\n" in text
    plain = ESCAPES.sub(b"", shown).replace(b"\r\n", b"\n")
    ids = re.compile(rb"[0-9a-f]{16}")
    assert ids.sub(b"", plain) == ids.sub(b"", run("dedup", log).out)


@pytest.mark.parametrize(
    ("variable", "args", "coloured"),
    [
        ("NO_COLOR=1", (), False),
        ("NO_COLOR=", (), True),
        ("TERM=dumb", (), False),
        ("A=", ("--color", "never"), False),
        ("NO_COLOR=1", ("--color", "always"), True),
    ],
)
def test_colours_can_be_turned_off_and_on(
    log: Path, monkeypatch: pytest.MonkeyPatch, variable: str, args: tuple[str, ...], coloured: bool
) -> None:
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    _, shown, _, _ = on_terminal("dedup", *args, log, out=True, err=False, term=None)
    assert (b"\x1b[36m" in shown) == coloured
    assert b"disk" in shown


def test_a_pipe_gets_colours_only_if_asked_for(log: Path) -> None:
    assert b"\x1b" not in run("dedup", log).out
    assert b"\x1b[36msda1\x1b[0m" in run("dedup", "--color", "always", log).out


@pytest.mark.parametrize(
    "args",
    [(), ("--color", "never"), ("-e", "drop"), ("-e", "annotate"), ("--output-format", "jsonl"),
     ("--top", "3"), ("--ids",)],
)  # fmt: skip
def test_a_terminal_shows_control_characters_of_lines_escaped(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    path = tmp_path / "hostile.log"
    path.write_bytes(HOSTILE + b"\nthe end\r\n" + HOSTILE + b"\n")
    _, shown, _, _ = on_terminal("dedup", *args, path, out=True, err=False)
    assert printable(shown.replace(b"\t", b""))
    assert b"owned" in shown
    assert b"\x1b]0" not in shown


def test_a_pipe_gets_the_bytes_of_lines_as_they_came(tmp_path: Path) -> None:
    path = tmp_path / "hostile.log"
    path.write_bytes(HOSTILE + b"\r\n")
    assert run("dedup", path).out == HOSTILE + b"\r\n"
    assert printable(run("dedup", "--color", "always", path).out)


def test_json_on_a_terminal_keeps_its_values(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    path.write_text('{"msg": "a\x7f\u202e\U000e0001 b"}\n')
    _, shown, _, _ = on_terminal("dedup", "-e", "drop", path, out=True, err=False)
    assert r'"a\u007f\u202e\udb40\udc01 b"' in shown.decode()


# ---------------------------------------------------------------- reports


def test_top_writes_the_largest_clusters_and_says_what_is_left(log: Path) -> None:
    done = run("dedup", "--top", "1", log)
    assert done.code == 0
    head, first, rest = [line.decode() for line in done.lines]
    assert head.split() == ["count", "first", "last", "cluster", "pattern"]
    assert re.fullmatch(r" +3  line 1  line 6  [0-9a-f]{16}  disk <\*> is <number> full", first)
    assert rest == "and 1 more cluster with 2 events"


def test_the_counts_of_top_add_up(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("disk 1 full\n----\ndisk 2 full\n\n----\n \n----\n")
    done = run("dedup", "--top", "2", path)
    assert [line.split()[0] for line in done.lines] == [b"count", b"3", b"2"]
    assert "2 of the events are in no cluster: nothing to compare" in done.err


@pytest.mark.parametrize(
    ("order", "words"),
    [("count", ["disk", "user", "link"]), ("first", ["link", "user", "disk"]),
     ("last", ["disk", "link", "user"])],
)  # fmt: skip
def test_sort_orders_clusters_by_size_or_by_time(log: Path, order: str, words: list[str]) -> None:
    body = LOG + b"link eth0 down\ndisk sdd4 is 5% full\n"
    log.write_bytes(body)
    done = run("dedup", "--sort", order, log)
    assert [line.split()[6].decode() for line in done.lines[1:]] == words
    dated = b"".join(
        b"2026-01-01T00:%02d:00Z %b\n" % (minute, line)
        for minute, line in enumerate(body.splitlines())
    )
    done = run("dedup", "--sort", order, "--time-format", "iso", stdin=dated)
    patterns = [line.decode().partition("<timestamp> ")[2] for line in done.lines[1:]]
    assert [pattern.split()[0] for pattern in patterns if pattern] == words


def test_a_report_says_when_or_where_over_several_files(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.log"
    other.write_bytes(b"first\ndisk sdd4 is 5% full\n")
    done = run("dedup", "--top", "1", log, other)
    assert f"{log}:1  {other}:2" in done.lines[1].decode()
    dated = b"2026-01-01T00:00:00Z up\n2026-01-01T00:30:00Z up\n"
    done = run("dedup", "--top", "1", "--time-format", "iso", stdin=dated)
    assert b"  2026-01-01 00:00:00  2026-01-01 00:30:00  " in done.lines[1]


def test_a_report_as_json_is_the_final_summaries(log: Path) -> None:
    done = run("dedup", "--top", "2", "--output-format", "jsonl", log)
    assert [(found["type"], found["final"], found["count"]) for found in done.objects] == [
        ("summary", True, 3),
        ("summary", True, 2),
    ]


def test_a_report_on_a_pipe_comes_when_it_is_interrupted() -> None:
    with live("dedup", "--top", "3") as pipe:
        pipe.write(LOG)
        pipe.write(b"link eth0 down\n")
        pipe.wait_until_read()
        pipe.signal(signal.SIGINT)
        done = pipe.end()
    assert done.code == 130
    assert [int(line.split()[0]) for line in done.lines[1:]] == [3, 2, 1]


def test_reports_and_other_ways_to_emit_exclude_each_other(log: Path) -> None:
    done = run("dedup", "--top", "3", "-e", "drop", log)
    assert done.code == 2
    assert "leave out --emit drop" in done.err


class Page(HTMLParser):
    """The tags, addresses and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_report_is_one_page_that_loads_nothing(log: Path, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    done = run("dedup", "--html", html, log)
    assert (done.code, done.out, done.err) == (0, b"", "")
    text = html.read_text("utf-8")
    page = Page(text)
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert page.tags.count("tr") == 1 + 2
    assert {"disk <*> is <number> full", "disk sdb7 is 64% full"} <= set(page.texts)
    assert {"link", "img", "iframe", "object", "embed"}.isdisjoint(page.tags)
    assert {"src", "href", "srcset", "action", "style"}.isdisjoint(dict(page.attributes))
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "http" not in text.replace("http-equiv", "")
    policy = next(v for k, v in page.attributes if k == "content" and v and "default-src" in v)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_the_html_report_names_a_pipe(tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    assert run("dedup", "--html", html, stdin=b"a b\n").code == 0
    assert "standard input" in html.read_text("utf-8")


def test_the_html_report_shows_input_as_text(tmp_path: Path) -> None:
    path = tmp_path / "<b>hostile&.log"
    line = b"</script><script>alert(1)</script> <img src=x onerror=alert(1)> \x1b[2J\x00 &amp; \xff"
    path.write_bytes(line + b"\n" + line + b" more\n")
    html = tmp_path / "report.html"
    assert run("dedup", "--html", html, path).code == 0
    text = html.read_text("utf-8")
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert "b" not in page.tags
    shown = [each for each in page.texts if "alert(1)" in each]
    assert any(r"\x1b[2J\x00 &amp; \xff" in each for each in shown)
    assert not re.search("[\x00-\x08\x0b-\x1f]", text)


def test_the_html_report_says_what_it_leaves_out(log: Path, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    run("dedup", "--html", html, "--top", "1", log)
    assert "and 1 more cluster with 2 events" in Page(html.read_text("utf-8")).texts


# ---------------------------------------------------------------- times and prefixes


def test_since_and_until_take_events_of_these_times(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(
        b"2026-01-01T08:00:00Z early bird\n2026-01-01T09:00:00Z mail came\n  at noon\n"
        b"2026-01-01T10:00:00Z late train\n"
    )
    options = ("dedup", "-e", "drop", "--time-format", "iso", "--stats")
    done = run(*options, "--since", "2026-01-01T09:00", "--until", "2026-01-01T10:00:00Z", path)
    assert done.lines == [b"2026-01-01T09:00:00Z mail came", b"  at noon"]
    assert done.stats["lines"] == "4"
    assert "events outside --since and --until" in done.err
    assert run(*options, "--until", "2026-01-01", path).lines == []
    assert run(*options, "--since", "30s", path).lines == []


def test_since_takes_how_long_ago() -> None:
    script = """
        now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
        printf '2020-01-01T00:00:00Z old\n%s now\n' "$now" \
            | "$SD" dedup -e drop --time-format iso --since 2h
    """
    (line,) = shell(script).lines
    assert line.endswith(b" now")


def test_since_finds_times_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(
        b'::1 - - [01/Jan/2026:08:00:00 +0000] "GET /old"\n'
        b'::1 - - [01/Jan/2026:09:30:00 +0000] "GET /new"\n'
    )
    done = run("dedup", "-e", "drop", "--since", "2026-01-01T09:00", path)
    assert [line.split()[-1] for line in done.lines] == [b'/new"']
    events = b'{"time":"2026-01-01T08:00:00Z","log":"old"}\n{"time":1767261600,"log":"new"}\n'
    done = run("dedup", "-e", "drop", "--since", "2026-01-01T09:00", stdin=events)
    assert [found["log"] for found in done.objects] == ["new"]


def test_since_says_how_times_are_written(log: Path) -> None:
    done = run("dedup", "--since", "yesterday", log)
    assert done.code == 2
    assert "'yesterday' is not a time; write 2024-05-07T09:30" in done.err
    done = run("dedup", "--since", "1h", log)
    assert "no event has a time that was recognised" in done.err


def test_lines_of_several_pods_are_groups() -> None:
    body = b"".join(
        b"[pod/%b/app] worker 7 is ready\n" % pod
        for pod in (b"api-5d8f9c7b6-x2x8p", b"api-5d8f9c7b6-q9q4t", b"web-0", b"web-1", b"web-0")
    )
    assert len(run("dedup", "-e", "drop", stdin=body).lines) == 4
    assert len(run("dedup", "-e", "drop", "--group-prefix", "service", stdin=body).lines) == 2
    assert len(run("dedup", "-e", "drop", "--group-prefix", "off", stdin=body).lines) == 1
    (summary,) = run("dedup", stdin=body).lines[4:]
    assert b" (container=app, pod=web-0) " in summary


# ---------------------------------------------------------------- following


def test_follow_reads_through_rotations_until_a_signal(tmp_path: Path) -> None:
    path, other = tmp_path / "app.log", tmp_path / "other.log"
    path.write_bytes(b"link 1 went down\n")
    with live("dedup", "--follow", path, other) as pipe:
        pipe.wait_for("link 1 went down\n")
        with path.open("ab") as file:
            file.write(b"user bob came in\nlink 2 went down\n")
        pipe.wait_for("user bob came in\n")
        path.rename(tmp_path / "app.log.1")
        path.write_bytes(b"a new file\n")
        pipe.wait_for("a new file\n")
        other.write_bytes(b"the other file\n")
        pipe.wait_for("the other file\n")
        path.write_bytes(b"cut\n")
        pipe.wait_for("cut\n")
        pipe.signal(signal.SIGINT)
        done = pipe.end()
    assert done.code == 130
    assert done.lines[-1].startswith("… repeated 1× until ".encode())
    assert "app.log: is another file now; reading it" in done.err
    assert "app.log: was truncated; reading from its beginning" in done.err
    assert "other.log: cannot be opened: No such file or directory; waiting for it" in done.err


def test_follow_needs_files() -> None:
    for args in ((), ("-",)):
        done = run("dedup", "--follow", *args)
        assert done.code == 2
        assert "--follow takes FILEs; a pipe is followed anyway" in done.err
    done = run_file("dedup", "--follow", "/")
    assert done.code == 1


# ---------------------------------------------------------------- values of variables


def test_reports_list_the_values_that_repeat(log: Path) -> None:
    lines = [line.split(b"  ")[-1].strip() for line in run("dedup", "--top", "2", log).lines]
    assert lines == [
        b"pattern",
        b"disk <*> is <number> full",
        b"user bob logged in from <ipv4>",
    ]  # no value is there twice
    log.write_bytes(LOG * 2)
    lines = [line.split(b"  ")[-1].strip() for line in run("dedup", "--top", "1", log).lines]
    assert lines[2:4] == [
        b"<*>: sda1 33%, sdb7 33%, sdc3 33%",
        b"<number>: 12% 33%, 64% 33%, 91% 33%",
    ]


def test_json_has_the_values_of_clusters_and_of_events_on_request(log: Path) -> None:
    done = run("dedup", "--output-format", "jsonl", "--parameters", log)
    events = [json.loads(line) for line in done.lines]
    first, *_, disks = [each for each in events if "disk" in json.dumps(each)]
    assert first["dedup"]["parameters"] == [
        {"slot": "<*>", "value": "sda1"},
        {"slot": "<number>", "value": "91%"},
    ]
    assert disks["variables"]["sampled"] == 3
    assert disks["variables"]["error"] == 0
    assert [slot["distinct"] for slot in disks["variables"]["slots"]] == [3, 3]
    assert "parameters" not in run("dedup", "--output-format", "jsonl", log).out.decode()


@pytest.mark.parametrize("options", [("--output-format", "text"), ("--top", "3")])
def test_parameters_are_refused_where_nothing_shows_them(log: Path, options: list[str]) -> None:
    done = run("dedup", "--parameters", *options, log)
    assert done.code == 2
    assert "--parameters is of events in JSON" in done.err
