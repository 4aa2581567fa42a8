"""Variants: words and statuses in which events of a cluster never differ."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.clustering.comparison import Inspector
from stream_dedup.features.lines import LineReader
from stream_dedup.features.patterns import Patterns
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.features.variants import LEVELS, OUTCOMES
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.model import Kind
from stream_dedup.native import extension

LOGS = load_recipe("logs")

NONZERO = ["nonzero"]


def words_of(text: str) -> list[str]:
    reader = LineReader(LOGS)
    return [one.word.decode() for one in reader.read(reader.without_escapes(text.encode())).variant]


def check_native(*lines: bytes) -> None:
    """The native kernel finds the same variants in lines as the reference."""
    for recipe in (LOGS, replace(LOGS, text__classes=True, match__learn=0)):
        reference = ReferenceKernel(recipe, PUBLIC_KEY)
        native = extension("fingerprint._kernel").Kernel(recipe, PUBLIC_KEY)
        assert native.scan(lines, full=True) == reference.scan(lines, full=True)


def check_remembered(lines: list[bytes]) -> None:
    """A kernel that has seen some of the lines before, but for digits, finds the same of each."""
    native = extension("fingerprint._kernel").Kernel(LOGS, PUBLIC_KEY)
    reference = ReferenceKernel(LOGS, PUBLIC_KEY)
    for line in lines * 2:
        assert native.scan([line], full=False) == reference.scan([line], full=False)


def with_other_digits(text: str, rng: random.Random) -> str:
    return re.sub("[0-9]", lambda _: rng.choice("0123456789"), text)


def kinds(lines: Sequence[str], recipe: Recipe | str = "logs") -> list[Kind]:
    decisions = Deduplicator(recipe=recipe).process([line.encode() for line in lines])
    return [decision.kind for decision in decisions]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job 7 finished with status OK", ["ok"]),
        ("GET /a responded 200 in 3 ms, b responded with 503 c responded 40 ms", ["2xx", "5xx"]),
        ("Sent 503 in 12ms. Sent 503 bytes xSent 503 in 3", ["5xx"]),
        ("resp=404 resp 200", ["4xx"]),
        (
            "finished with code 0, ended with code 3 completed with 3",
            ["zero", "nonzero", "completed"],
        ),
        ("completed with status: 200 failed with code: 503", ["completed", "2xx", "failed", "5xx"]),
        ("got HTTP 503 errors status=404 failures", ["5xx", "errors", "4xx", "failures"]),
        ("WEXITSTATUS 1 exitCode 0 exitCode  0", ["nonzero", "zero"]),
        ("0 errors", ["zero", "errors"]),
        (
            "00 failures, 12 errors, so x1 errors or 3 error, 3 errors-x",
            ["zero", "failures", "nonzero", "errors", "errors", "error"],
        ),
        ("unreachable=0", ["unreachable", "zero"]),
        ("Job failed. Not retried!", ["failed", "not"]),
        ("ERROR disk sda is DOWN...", ["error", "down"]),
        ("[warn] x", ["warn"]),
        ("okay-ish failures2 nothing", []),
        # log levels that are values of keys
        (
            "level=info log.level=warn severity=Critical status=alert",
            ["info", "warn", "critical", "alert"],
        ),
        ("user=info name=fatal a_very_long_name_of=warn x.y-z=notice", []),
        ("user=down =info user= info", ["down", "info", "info"]),
        # before the name of a process, as Celery writes them
        (
            "[10:02:11,123: INFO/ForkPoolWorker-1] [ERROR/MainProcess] WARNING/x WRN/1",
            ["info", "error", "warning", "wrn"],
        ),
        ("info/refs DEBUGS/a OK/a error/index.html /ERROR/a ERROR/", ["error"]),
        # behind the number of an exit status, as systemd writes it
        ("status=0/SUCCESS status=1/FAILURE.", ["success", "failure"]),
        ("203/EXEC 1/x/FAILURE x1/FAILURE 1/ /FAILURE 1/FAILURES? 1/INFO", []),
        # negations
        ("it can't, didn't and DON'T x't n't a 't n 't ant'", ["not", "not", "not", "not"]),
        # levels of klog and glog
        (
            "I1126 10:02:11.314159       1 a.go:5] W0101 00:00:00 E1231 23:59:59",
            ["info", "warning", "error"],
        ),
        (
            "[F20261126 10:02:11.3 7 a.cc:5] E1126\t10:02:11 E1126  10:02:11 E1126 1:02:11",
            ["fatal"],
        ),
        ("F20261126 10:02:11.3", ["fatal"]),
        ("E1126 10:02:1", []),
        ("seat=E1126 10:02:11 level=W1126 10:02:11", ["warning"]),
        (
            "E1126 on E112 10:02:11 E11266 10:02:11 D1126 10:02:11 e1126 10:02:11 E1126 10-02-11",
            ["on"],
        ),
        ("E112a 10:02:11 E1126. 10:02:11 xE1126 10:02:11 E1126", []),
        # HTTP statuses
        ('"GET /a HTTP/1.1" 503 17', ["5xx"]),
        ('"GET /a http/2" 204', ["2xx"]),
        ("HTTP/1.1 404 Not Found", ["4xx", "not", "found"]),
        ("status=200 Status_Code: 301 'code': 502", ["2xx", "3xx", "5xx"]),
        ('{"status": "500"}', ["5xx"]),
        ("statusCode=200 http_status: 404 HTTP.Response.Status-Code=503", ["2xx", "4xx", "5xx"]),
        ('{"responseCode":502,"upstream_status":"200"}', ["5xx", "2xx"]),
        # three digits that are none
        ("status 503", []),
        ('[GIN] 2026/11/26 - 12:00:00 | 503 |  12.8ms | 10.0.0.1 | GET  "/a"', ["5xx"]),
        ("12:00:00 | 200 | 1.2ms | 10.0.0.1 | GET | /a", ["2xx"]),
        ("12:00:00 | 200 | 1.2\u00b5s | 10.0.0.1 | GET | /a", ["2xx"]),
        ("12:00:00 | 200 | worker | a", []),  # a thread
        ("12:00:00 |200| 1ms | 12:00:00 | 20 | 1ms | 2:00:00 | 200 | 1ms |", []),
        ("12:00:00 | 200 | 1m | 12:00:00 | 200 | s | 12:00:00 | 200 | 1ms", []),
        ("node stats | 120 | 300 | 500 | sent", []),
        ('in back/s1 10/0/30/-1/+109 503 2750 - - ---- "GET /a HTTP/1.1"', ["5xx"]),
        ("a 1/2/3/4 200 b 1/2/3/4/5/6 200 c 1/2//4/5 200 d 1/2/3/4/5  200 e 1/2/3/4/-+5 200", []),
        ("GET /users/7 200 12.3 ms - 45", ["2xx"]),
        ('"POST /a?b=1&c=2" 404', ["4xx"]),
        ("GET https://a.b/c -> 503, again", ["5xx"]),
        ("12:01 PUT '/a' => 201", ["2xx"]),
        ('GET      "/a": 301|', ["3xx"]),
        ("GET /a 345 ms, POST /b 200 msx, PATCH /c 123 bytes", ["2xx"]),
        ("GET /a 120 KB, GET /b 120  seconds, GET /c 120 \u00b5s GET /d 120 ms. GET /e 120 h", []),
        ("GET /a 120,5 ms, GET /b 120;5", []),
        ("GET /a 200 ms-auth GET /b 301 s3 GET /c 404 MB/s", ["2xx", "3xx"]),
        ("GET /a - 443 - 10.0.0.2, GET /b - 404 - x, GET /c - 503", ["4xx", "5xx"]),
        ("GET /a - 443 - ::1 x", []),
        ("GET /a - 500 - 12ms GET /a - 404 - 1.25 ms", ["5xx", "4xx"]),
        ("GET http://a/x - 500 - 10.0.0.2", ["5xx"]),
        ("GET http://a/x - - - 500 - text/html", ["5xx"]),
        ("POST http://a/x - application/json 81 - 503 93 text/html 9ms", ["5xx"]),
        ("POST http://a/x - text/html;+charset=utf-8 - - 201", ["2xx"]),
        ("POST http://a/x - a/b c - 201 POST http://a/x - a/b 3 201", []),
        ("Request finished in 31.1ms 404 text/html", ["4xx"]),
        ("Request finished in 31ms 200, request finished in 31.ms 404", ["2xx"]),
        ("request Finished in 1234567890.1ms 404 finished in 3ms 404", []),
        ("ERROR[10.0.0.1] mail rejected[::1]: x failed[...]", ["error", "rejected", "failed"]),
        ("job=<WARN> stdout='panic: x' user=info", ["warn", "panic"]),
        ("user=ok\x1dAUID failed\x1f", ["ok", "failed"]),
        ("GET /a 500 - - 1.234 ms, GET /b 304 - 9ms", ["5xx", "3xx"]),
        ("GET /a 2000, GET /b 20, GET /c 999, get /d 200, GETS /e 200, GET f 200", []),
        ("GET /a 200.5, GET /b x 200, GET /c -->> (200), GET /d         200", []),
        ("status=600 status=5030 status=50", []),
        ("503 HTTP/1.1", []),
        ("HTTP/1.1=503", []),
        ("codes=200 atus=200 status\0=200 _=200", []),
        (
            "fetch ended: HTTP 404. Then http error 503, HTTP status 200",
            ["4xx", "error", "5xx", "2xx"],
        ),
        ("HTTP response code 500; (status code 301) Http Code 204!", ["5xx", "3xx", "2xx"]),
        ("HTTP 404 of HTTP 500", ["4xx", "5xx"]),
        ("xHTTP 404 HTTP  404 HTTP errors 404 HTTP 4040 code 404 HTTP-404", ["errors"]),
        ("HTTP code error 500 http_status code 500 s status code\t500 code", ["error"]),
        # load balancers of AWS
        ('0.0 0.001 0.0 502 - 34 366 "GET http://a.b:80/ HTTP/1.1" "curl"', ["5xx"]),
        ('0.0 0.001 0.0 200 503 34 366 "POST https://a.b:443/ HTTP/2.0" "curl"', ["2xx"]),
        ('0.0 -1 -1 400 - 0 0 "- http://a.b:80- " "-"', ["4xx"]),
        (
            'a 502 - 34 "GET /" b 502 50 34 3 "GET /" c 502 500 34 3 "get /" d 502 500 34 "GET /"',
            [],
        ),
        (
            'x502 - 34 366 "GET x 502 - 34 36600000000 "GET x 502 - 34 3 "ABCDEFGH / 502 - 3 3 "G',
            [],
        ),
        # Squid
        ("25 10.0.0.1 TCP_DENIED/403 3900 GET http://a.b/ - HIER_NONE/- text/html", ["4xx"]),
        ("TCP_MEM_HIT/200 1 NONE_NONE/400 2 UDP_HIT/000 3 TAG_NONE/503 4", ["2xx", "4xx", "5xx"]),
        ("NONE/400 0 TCP_MISS/200 x TCP/443 9 TCP_/200 9 TCP_MISS/200", ["4xx"]),
        ("TCP_MISS/2000 9 TCP_MISS/20 9 tcp_miss/200 9 xTCP_MISS/200 9 TCP_M1/200 9", []),
        # IIS
        ("10.0.0.1 GET /a - 80 - 10.0.0.9 Mozilla/5.0+(X;+Y) - 500 0 64 15", ["5xx"]),
        ("10.0.0.1 POST /a.asp x=1&y=2 443 DOMAIN\\me fe80::1 - - 200 0 0 46", ["2xx"]),
        ("GET /a - 80 - 10.0.0.9 404 0 2 1\r", ["4xx"]),
        ("GET /a - 80 - 10.0.0.9 x 404 0 2", []),
        ("GET /a - 80 - host x 404 0 2 1", []),
        ("GET /a - 800000 - 10.0.0.9 x 404 0 2 1", []),
        ("GET /a - 80 - 10.0.0.9 x 604 0 2 1", []),
        # exit codes
        ("job 7 exited with code 0", ["zero"]),
        ("job 7 exited with 137, exit status 1; Exit Code of 2.", NONZERO * 3),
        ("exited with status -1 exit code 0x0 exit code 0xC0000005", [*NONZERO, "zero", *NONZERO]),
        ("return code 00 returned code 1 return status of 3", ["zero", *NONZERO]),
        ("terminated abnormally with code 6 exited unexpectedly with status 0", [*NONZERO, "zero"]),
        ("exited, code 1 exited code 0 exit code is 2 exit code was 0", [*NONZERO, "zero"] * 2),
        (
            "Exited (137) 3 minutes ago, exit code (0), exit status [1]",
            [*NONZERO, "zero", *NONZERO],
        ),
        ("exit code = 1, Exit Status : 0, exit code '3'", [*NONZERO, "zero", *NONZERO]),
        ('{"exitCode":1} exit_status=200 rc=-5 RC: 0', [*NONZERO * 3, "zero"]),
        (
            '{\\"exitCode\\":1} process.exit_code=0 container_exit_code=2',
            [*NONZERO, "zero", *NONZERO],
        ),
        (
            "retcode='0' (return-code=0) errno=28 err=0 retval: 1",
            ["zero"] * 2 + [*NONZERO, "err", "zero", *NONZERO],
        ),
        (
            "ok=3 failed=0 web: failures=1, errors: 0",
            ["ok", "failed", "zero", "failures", *NONZERO, "errors", "zero"],
        ),
        ("exited with errors 3 with code 3 code 4 of 4 xexit code 4 exit code x4 rc 5", ["errors"]),
        ("exit code 0x exit code 0xg exit code 1.5 exit code 123456789012345678901 rc=1s", []),
        ("exit code: 137, then exit code=-1, exited with status: 0", [*NONZERO * 2, "zero"]),
        ("exit code  1 exit  code 1 exit code:  1 exit code := 1 src=1 rc=--1 of 1", []),
        ("syscall=0 exit=3 a0=1 traffic exit: 4021 rc:12:30:11 exited with 3 messages", []),
        ("exit code 3 ms, return code of 12 bytes, exited with 12 s", []),
        # escape sequences are no part of a line
        (
            '\x1b[0mGET /a \x1b[32m200\x1b[0m 2 ms - 1 \x1b[1m\x1b[31mGET /b HTTP/1.1\x1b[0m" 503',
            ["2xx", "5xx"],
        ),
        (
            "12:00:00 |\x1b[97;41m 500 \x1b[0m| 1ms | exit code \x1b[0m\x1b[31m1\x1b[0m",
            ["5xx", *NONZERO],
        ),
        ("\x1b[36mstatus\x1b[0m=200 HTTP 404 a\x1b[1mok", ["2xx", "4xx", "ok"]),
        (
            "#033[36mstatus#033[0m=200#012HTTP 404 a#033[1mok #033[31mERROR#015",
            ["2xx", "4xx", "ok", "error"],
        ),
        ("x failed#0117 #012passed {#012 ok#017 \t#011#011up", ["failed", "passed", "ok", "up"]),
        (
            "#033[31mERROR#033(B#033[m up#033]0;t#007down#000#033ok#033",
            ["error", "up", "down", "ok"],
        ),
        ("#01ok #018ok #0333ok #0120ok #033_ok #037ok", []),
        ("httpresponsestatuscodes=200 http2_status=200 statu\xf3=200", []),
        ("HTTP/1.15 503", []),
        ("", []),
    ],
)
def test_words_of_a_variant(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected
    check_native(text.encode())
    rng = random.Random(text)
    others = [with_other_digits(text, rng) for _ in range(20)]
    check_remembered([line.encode() for line in (text, *others) if line])


NOISE = (
    *" \t\"'=:;.!{}[]",
    "  ",
    "HTTP/1.1",
    "http/2",
    "status",
    "Code",
    "http_",
    "Response.",
    "_",
    "\0",
    "200",
    "503",
    "600",
    "\xff",
    *("GET", "POST", "/a", "https://a.b", " -> ", "1/2/3/4/5 ", "1/-1/+3/4 ", "-/1/2/3/4 "),
    *("12:00:00 | ", " | 1.2ms |", " ms", " KB", ","),
    *("E1126", "I20261126", " 12:00:00", "seat="),
    *("INFO/", "ERROR/a-1", "Ok/", "WRN"),
    *("can't", "n'", "t", "1/", "0/SUCCESS", " - "),
    *("HTTP ", "error ", "response ", "status ", "code ", "exit ", "exited ", "with ", "of "),
    *("return ", "rc", "exit_code", "-", "0", "0x", "7", "TCP_MISS/", "NONE_", "UDP_HIT/404"),
    *(' 200 - 1 2 "', ' 502 500 34 366 "GET ', " - 80 - 10.0.0.9 ", " 500 0 64 15", "\r"),
    *("#033[0m", "#033", "#012", "#011", "#", "#0", "#033(B", "#033]", "#007", "#015"),
    *("\x1b[0m", "\x1b", "(", "errno", "terminated ", "abnormally ", "http://", "\\"),
)
PIECES = st.sampled_from([*NOISE, *sorted(OUTCOMES | LEVELS), *map(str.upper, sorted(LEVELS))])


@given(st.lists(PIECES, max_size=20).map("".join))
def test_the_native_kernel_finds_the_same_variants(text: str) -> None:
    check_native(text.encode("latin-1"), b"fine")


@given(
    st.lists(PIECES, max_size=12).map("".join),
    st.lists(st.randoms(use_true_random=False), max_size=6),
)
def test_lines_that_differ_in_digits_have_their_own_variants(
    text: str, changes: list[random.Random]
) -> None:
    """The kernel remembers lines without their digits."""
    lines = [text, *(with_other_digits(text, rng) for rng in changes)]
    check_remembered([line.encode("latin-1") for line in lines if line])


def test_outcomes_and_statuses_are_not_merged() -> None:
    lines = [
        "job nightly-backup of volume data on host web finished with status OK",
        "job nightly-backup of volume data on host web finished with status FAILED",
        '10.0.0.1 - - "GET /a HTTP/1.1" 200 512',
        '10.0.0.2 - - "GET /b HTTP/1.1" 503 17',
        '10.0.0.3 - - "GET /c HTTP/1.1" 204 0',
        "WARN the queue of worker a is getting long, look at it soon please",
        "ERROR the queue of worker a is getting long, look at it soon please",
    ]
    new, duplicate = Kind.NEW, Kind.DUPLICATE
    assert kinds(lines) == [new, new, new, new, duplicate, new, new]
    assert kinds(lines, "logs-1") == [new, duplicate, new, duplicate, duplicate, new, new]


@pytest.mark.parametrize("count", [5, 8, 16, 24, 40])
def test_no_pair_of_different_outcomes_ever_merges(count: int) -> None:
    rng = random.Random(count)
    outcomes = sorted(OUTCOMES)
    lines = []
    for _ in range(1_000):
        words = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(count - 1)]
        place = rng.randrange(count)
        lines += [
            " ".join([*words[:place], word, *words[place:]]) for word in rng.sample(outcomes, 2)
        ]
    decisions = Deduplicator(recipe="logs").process([line.encode() for line in lines])
    clusters = [decision.cluster for decision in decisions]
    assert all(first != second for first, second in list(pairwise(clusters))[::2])


def test_a_recipe_has_its_own_protected_words() -> None:
    text = "job nightly-backup of volume data on host web finished with status"
    lines = [f"{text} OK", f"{text} FAILED"]
    own = replace(LOGS, match__protected=["Failed"])
    assert kinds(lines, own) == [Kind.NEW, Kind.NEW]
    own = replace(LOGS, match__protected=["ajar"], match__jaccard=0.6)
    assert kinds(lines, own) == [Kind.NEW, Kind.DUPLICATE]


def test_a_list_without_not_has_no_negation() -> None:
    own = replace(LOGS, match__protected=["ajar"])
    assert not LineReader(own).read(b"it can't").variant


def test_least_hashes_keep_variants_apart() -> None:
    recipe = replace(load_recipe("minhash-n"), match__protected=["ok", "failed"])
    text = "one two three four five six seven eight nine ten eleven twelve thirteen"
    lines = [f"{text} {word} {text} {number}" for number in "ab" for word in ("ok", "failed")]
    clusters = [d.cluster for d in Deduplicator(recipe=recipe).process([x.encode() for x in lines])]
    assert clusters[0] != clusters[1]


def test_patterns_show_the_status_class() -> None:
    patterns = Patterns(LOGS)
    line = b'10.0.0.1 - - [x] "GET /a/7 HTTP/1.1" 503 17 "-"'
    assert patterns.pattern(line) == '<ipv4> - - [x] "GET <path> <*>" <5xx> <number> "<*>"'
    assert patterns.pattern(b"exited, status=1/FAILURE") == "exited, status=<*>FAILURE"
    assert patterns.pattern(b"took status=404, 3 ms") == "took status=<4xx>, <number> <unit>"
    assert patterns.pattern(b"job 7 exited with code 137, ok") == (
        "job <number> exited with code <nonzero>, ok"
    )
    assert patterns.pattern(b"TCP_MISS/404 12 GET") == "<*><4xx> <number> GET"
    assert patterns.pattern(b"[INFO/Pool-1] done") == "[INFO<path>] done"
    assert Patterns(load_recipe("logs-1")).pattern(line).endswith('<*>" <number> "-"')


def test_the_comparison_names_what_keeps_two_lines_apart() -> None:
    text = b"job nightly-backup of volume data on host web finished with status"
    pair = text + b" OK", text + b" FAILED"
    assert Inspector(load_recipe("logs-1")).compare(*pair).merge
    found = Inspector(LOGS).compare(*pair)
    assert not found.merge
    assert found.verdict() == (
        "They do not merge: outcome, level, status or frames differ, which never vary in a "
        "cluster: 'on ok' and 'on failed'."
    )
