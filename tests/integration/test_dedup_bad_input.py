"""Bad input, bad options and bad surroundings: nothing crashes, hangs, or loses another line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.integration.command import repeats, run, run_measured, shell

GOOD = b"link 1 went down\n"
MAX_RSS_MB = 200
LONG = 100_000_000


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe not UTF-8 \xc3",
        b"NUL \x00 bytes \x00\x00",
        b"\x00" * 1000,
        b"",
        b"   ",
        b"carriage return\r",
        b"a\rb\rc",
        b"1234567890",
        b"17 18 19.5",
        b"{[(<\"':;,=|>)]}",
        b"\x1b[31mred\x1b[0m",
        b"\xe2\x80\xa6 repeated 3\xc3\x97 until",
        "\u202eright to left\u2066".encode(),
        b"word " * 100_000,
        b"x" * 1_000_000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"message":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"message":"broken',
        b'{"message":"\xff"}',
        b'{"other":1}',
        b'{"message":null}',
        b"[1,2,3]",
        b"null",
        b"1e999",
        b'{"message":"\\ud800"}',
        b"\xef\xbb\xbfbyte order mark",
    ],
)
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_a_bad_line_passes_and_the_good_ones_are_decided(line: bytes, form: str) -> None:
    good = GOOD if form == "text" else b'{"message":"link 1 went down"}\n'
    body = good + line + b"\n" + good
    args = ("dedup", "-e", "annotate", "--input-format", form, "--stats")
    done = run(*args, "--output-format", "text", stdin=body)
    assert done.code == 0
    assert done.stats["lines"] == "3"
    marked = [text.split(b"\t", 3) for text in done.lines]
    assert body.split(b"\n")[:-1] == [raw for *_, raw in marked]
    assert [marked[0][0], marked[2][0]] == [b"new", b"duplicate"]
    done = run(*args, "--output-format", "jsonl", stdin=body)
    assert done.code == 0
    assert [done.objects[n]["dedup"]["decision"] for n in (0, 2)] == ["new", "duplicate"]
    if b"\n" + line + b"\n" in body and "text" in done.objects[1]:
        assert line.decode("utf-8", "backslashreplace") == done.objects[1]["text"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"message":"broken', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"plain", "not JSON"),
        (b'"text"', "not a JSON object"),
        (b'{"other":1}', "field missing"),
    ],
)
def test_broken_json_is_marked_and_counted_by_reason(line: bytes, reason: str) -> None:
    body = b'{"message":"link 1 went down"}\n' * 2 + line + b"\n" + line + b"\n"
    done = run("dedup", "-e", "annotate", "--stats", "--input-format", "jsonl", stdin=body)
    assert [event["dedup"]["reason"] for event in done.objects[2:]] == [reason] * 2
    assert [event["dedup"]["decision"] for event in done.objects[2:]] == ["passed"] * 2
    assert done.stats[f"passed: {reason}"] == "2"
    assert done.stats["share removed"] != "50.0%"
    merged = run("dedup", "--output-format", "text", "--input-format", "jsonl", stdin=body)
    assert merged.lines[1:3] == [line, line]


def test_text_among_json_is_merged_as_text() -> None:
    body = b'{"message":"link 1 went down"}\nlistening on port 1\n{"message":"link 2 went down"}\n'
    body += b'{"message":\nlistening on port 2\n'
    done = run("dedup", "-e", "annotate", stdin=body)
    decisions = [event["dedup"]["decision"] for event in done.objects]
    assert decisions == ["new", "new", "duplicate", "passed", "duplicate"]
    assert done.objects[1]["text"] == "listening on port 1"
    for options in (("--text-field", "message"), ("--recipe", "json")):
        named = run("dedup", "-e", "annotate", *options, stdin=body)
        assert [event["dedup"].get("reason") for event in named.objects][1::3] == ["not JSON"] * 2


def test_numbers_and_the_order_of_keys_are_kept() -> None:
    line = b'{"z":1.0,"a":12345678901234567890, "big":1234567890123456789012345678901234567890,'
    line += b'"e":1E5,"f":0.10,"message":"caf\\u00e9","a":2}'
    done = run("dedup", "-e", "annotate", stdin=line + b"\n")
    assert done.out.startswith(line[:-1] + b',"dedup":{"decision":"new","cluster":"')
    again = run("dedup", "-e", "annotate", stdin=done.out)
    assert b'"z":1.0,' in again.out
    assert b'"big":1234567890123456789012345678901234567890,"e":1E5,"f":0.10,' in again.out
    assert again.out.count(b'"dedup":') == 1


def long_line(unit: bytes, size: int = LONG) -> Iterator[bytes]:
    yield b"before it\n"
    piece = unit * (1_000_000 // len(unit))
    for _ in range(size // len(piece)):
        yield piece
    yield b"\nafter it\nafter it\n"


# Slow: 100 MB through the command, a second or two each.
@pytest.mark.parametrize("unit", [b"x", b"many words "])
def test_a_line_of_100_mb_passes_byte_for_byte_in_bounded_memory(
    tmp_path: Path, unit: bytes
) -> None:
    out = tmp_path / "out"
    done, rss_mb = run_measured(long_line(unit), out, "dedup", "-e", "drop", "--stats")
    assert done.code == 0
    assert rss_mb < MAX_RSS_MB
    assert done.stats["lines"] == "4"
    assert done.stats["passed: line too long"] == "1"
    expected = long_line(unit)
    with out.open("rb") as file:
        for piece in expected:
            wanted = b"\nafter it\n" if piece.startswith(b"\n") else piece
            assert file.read(len(wanted)) == wanted
        assert file.read() == b""


# Slow: as above; what is not UTF-8 grows fivefold on its way, so there is less of it.
@pytest.mark.parametrize(
    ("unit", "shown", "size"),
    [(b"x", "x", LONG), (b"\xff", "\\xff", 25_000_000), (b"\x00", "\x00", 25_000_000)],
)
def test_a_line_of_100_mb_passes_as_json_in_bounded_memory(
    tmp_path: Path, unit: bytes, shown: str, size: int
) -> None:
    out = tmp_path / "out"
    args = ("dedup", "-e", "annotate", "--output-format", "jsonl")
    done, rss_mb = run_measured(long_line(unit, size), out, *args)
    assert done.code == 0
    assert rss_mb < MAX_RSS_MB
    seen: list[tuple[int, str]] = []
    length = 0
    with out.open("rb") as file:
        for line in file:
            event = msgspec.json.decode(line)
            seen.append((event["line"], event["dedup"]["decision"]))
            if event["line"] == 2:
                assert event["text"] == shown * (len(event["text"]) // len(shown))
                length += len(event["text"]) // len(shown)
    assert size == length
    assert list(dict.fromkeys(seen)) == [(1, "new"), (2, "passed"), (3, "new"), (4, "duplicate")]


def test_a_line_of_100_mb_of_json_is_passed(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def json() -> Iterator[bytes]:
        yield b'{"message":"link 1 down"}\n{"message":"'
        yield from (b"y" * 1_000_000 for _ in range(30))
        yield b'"}\n{"message":"link 2 down"}\n'

    done, rss_mb = run_measured(json(), out, "dedup", "-e", "drop", "--stats")
    assert done.code == 0
    assert rss_mb < MAX_RSS_MB
    assert done.stats["lines"] == "3"
    assert done.stats["passed: line too long"] == "1"


def distinct_lines(count: int) -> Iterator[bytes]:
    letters = bytes.maketrans(b"0123456789", b"abcdefghij")
    for n in range(count):
        word = b"%06d" % n
        line = b" ".join((word, word[::-1], b"x" + word, word + b"y"))
        yield line.translate(letters) + b"\n"


# Slow: 100 000 clusters opened and closed; all open at once would take 200 MB or more.
@pytest.mark.timeout(1_200)
def test_more_distinct_lines_than_allowed_keep_memory_and_sums(
    tmp_path: Path,
) -> None:
    count = 100_000
    out = tmp_path / "out"
    args = ("dedup", "--max-clusters", "1000", "--output-format", "jsonl", "--stats")
    done, rss_mb = run_measured(distinct_lines(count), out, *args)
    assert done.code == 0
    # 51 MB without input; room for the near cache and what one batch brings.
    assert rss_mb < MAX_RSS_MB
    finals = passed = 0
    with out.open("rb") as lines:
        for line in lines:
            event = msgspec.json.decode(line)
            if event.get("type") == "summary" and event["final"]:
                finals += event["count"]
            elif event.get("type") != "summary":
                passed += event["dedup"]["decision"] == "passed"
    assert count == finals + passed
    clusters = int(done.stats["clusters"].replace(",", ""))
    evicted = int(done.stats["clusters closed for want of room"].replace(",", ""))
    assert clusters - 1000 == evicted


def test_a_recipe_over_fields_passes_lines_that_are_not_json() -> None:
    body = b'{"a":"link down","n":1}\nplain text here\n{"a":"link down","n":2}\n[1]\n'
    done = run("dedup", "-r", "json", "-e", "annotate", stdin=body)
    assert done.code == 0
    assert [event["dedup"]["decision"] for event in done.objects] == [
        "new",
        "passed",
        "duplicate",
        "passed",
    ]


@pytest.mark.parametrize("emit", ["merge", "drop", "annotate"])
def test_a_full_disk_is_reported(emit: str) -> None:
    done = shell(f'echo "link 1 down" | "$SD" dedup -e {emit} > /dev/full')
    assert done.code == 1
    assert done.err == "stream-dedup: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_fills_half_way_is_reported(tmp_path: Path, unbuffered: str) -> None:
    script = """
    trap "" XFSZ; ulimit -f 8; export PYTHONUNBUFFERED=$2
    seq 10000 | "$SD" dedup -e annotate > "$1/out"
    """
    done = shell(script, tmp_path, unbuffered)
    assert done.code == 1
    assert done.err == "stream-dedup: cannot write the output: File too large\n"


@pytest.mark.parametrize("command", ["dedup", "plan", "recipes list", "explain a b", "--help"])
def test_a_closed_output_is_reported(command: str) -> None:
    done = shell(f'echo "link 1 down" | "$SD" {command} >&-')
    assert done.code == 1
    assert done.err == "stream-dedup: standard output is closed; send it to a file or pipe\n"


def test_a_closed_input_is_reported(tmp_path: Path) -> None:
    for command in ("dedup", "dedup -", "fingerprint"):
        done = shell(f'"$SD" {command} <&-')
        assert done.code == 1
        assert "closed; give" in done.err
    (tmp_path / "f").write_bytes(GOOD)
    done = shell('"$SD" dedup "$1/f" <&-', tmp_path)
    assert (done.code, done.out) == (0, GOOD)


def test_a_closed_error_stream_hurts_nobody(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(GOOD * 2)
    done = shell('"$SD" dedup --stats "$1/f" nowhere 2>&-', tmp_path)
    assert done.code == 1
    assert repeats(done) == 1
    done = shell('"$SD" dedup --idle nonsense 2>&-')
    assert (done.code, done.out) == (2, b"")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--recipe", "nowhere"], "use one of documents, java32, json,"),
        (["--recipe", "/nowhere.toml"], "cannot be read (No such file or directory); check path"),
        (["--recipe", "/"], "/: cannot be read (Is a directory); check path"),
        (["--recipe", "/dev/null"], ""),
        (["--set", "match.k"], "'--set': 'match.k' is not KEY=VALUE, as in match.k=4"),
        (["--set", "match.k=many"], "match.k: 'many' is not an integer"),
        (["--set", "match.q=1"], "match.q: unknown key; known keys: k, jaccard"),
        (["--set", "match.k=64"], "match.k: is 64, which every fingerprint is within; give a k"),
        (["--set", "text.masks=['ipv9']"], "no mask is named 'ipv9'; use some of url,"),
        (["--idle", "soon"], "'--idle': 'soon' is not a duration; write 90s, 5m, 1h, 2d or off"),
        (["--idle", "0s"], "is not a duration"),
        (["--idle", "0.0001ms"], "is not a duration"),
        (["--idle", "-5s"], "is not a duration"),
        (["--summary-every", "5"], "'--summary-every': '5' is not a duration"),
        (["--max-age", ""], "is not a duration"),
        (["--time-format", "%q"], "%q is not known; use %Y"),
        (["--time-format", "%Y"], "has no time of day; give one such as"),
        (["--start-regex", "("], "start pattern '(' is not RE2 syntax: missing )"),
        (["--start-regex", "(?=x)"], "start pattern '(?=x)' is not RE2 syntax"),
        (["--start-regex", b"\xff"], "is not UTF-8"),
        (["--group-regex", "["], "group pattern '[' is not RE2 syntax: missing ]"),
        (["--group-regex", "(x)"], "has no named group; write one as (?P<service>[a-z]+)"),
        (["--max-clusters", "0"], "'--max-clusters': 0 is not in the range x>=1"),
        (["--limit", "none"], "'--limit': 'none' is not a valid integer"),
        (["--emit", "all"], "'--emit'"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_a_wrong_option_is_named_with_a_remedy(args: list[str | bytes], says: str) -> None:
    done = run("dedup", *args, stdin=GOOD)
    if says:
        assert (done.code, done.out) == (2, b"")
    assert says in " ".join(done.err.split())


@pytest.mark.parametrize(
    "text",
    [
        "[match]\nk = 'six'",
        "[match\n",
        "nonsense = 1",
        "[text]\nclasses = 3",
        "[[text.mask]]\nname = 'a'\npattern = '('",
        "[features]\nextractor = 'nobody'",
        "[features.weights]\nfile = 'nowhere.tsv'",
        "\x00",
    ],
)
def test_a_wrong_recipe_is_named_by_its_file(tmp_path: Path, text: str) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(text)
    done = run("dedup", "--recipe", recipe, stdin=GOOD)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"stream-dedup: {recipe}: ")
    assert run("recipes", "check", recipe) == done


@pytest.mark.parametrize("length", ["9" * 400 + "h", "1000000d", "0.5ms", "off"])
def test_extreme_durations_are_taken(length: str) -> None:
    done = run("dedup", "--idle", length, "--max-age", length, stdin=GOOD * 3)
    assert done.code == 0
    assert repeats(done) >= 1  # the last line comes half a millisecond later, as it may go on


def test_times_at_the_ends_of_the_calendar_are_taken() -> None:
    lines = [b"0001-01-01T00:00:00+14:00 a", b"0001-01-01T00:00:00Z b", b"9999-12-31T23:59:59Z c",
             b"9999-12-31T23:59:59-14:00 d", b"2026-01-01T00:00:00Z e"]  # fmt: skip
    body = b"".join(line + b" went down\n" for line in lines * 2)
    for form in ("text", "jsonl"):
        done = run("dedup", "--time-format", "iso", "--output-format", form, stdin=body)
        assert done.code == 0
    done = run("dedup", "--time-format", "iso", "--stats", stdin=body)
    assert done.stats["times in the future"] == "4"  # what has none is as old as the one before
