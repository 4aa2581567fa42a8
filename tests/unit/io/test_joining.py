"""Which lines make one event: none is lost, none is joined that should not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.features.masks import compile_pattern
from stream_dedup.io import joining
from stream_dedup.io.decoder import PREFIXES
from stream_dedup.io.joining import (
    MAX_APART_LINES,
    MAX_EVENT_BYTES,
    MAX_EVENT_LINES,
    MAX_INDENTED,
    Joiner,
    PrefixJoiner,
    StartJoiner,
    TraceJoiner,
)
from tests.strategies import texts

TRACES = Path(__file__).parents[2] / "traces"
"""What programs in Java, Python, Go and Node wrote when they failed; .NET's as documented."""


def written(language: str) -> list[bytes]:
    return (TRACES / f"{language}.log").read_bytes().splitlines()


REAL = [line for path in sorted(TRACES.iterdir()) for line in path.read_bytes().splitlines()]
SOME_LINES = [
    *dict.fromkeys(REAL),
    *(b"", b" ", b"  x", b"\tat", b"key:", b"}", b"f(x)", b"a:3", b"  ^", b"panic: x"),
    *(b"a.B: c", b"WARN x", b"\tat a.B.c(B.java:1)"),
    *(b"[signal 3", b"\t/x.go:3", b" INFO z", b"ERROR x", b"INFO y", b"Error: k", b"Node.js v1"),
]


def cut(lines: Sequence[bytes], cuts: Sequence[int]) -> list[list[bytes]]:
    bounds = sorted({0, len(lines), *(at for at in cuts if at < len(lines))})
    return [list(lines[a:b]) for a, b in pairwise(bounds)]


def join(
    joiner: Joiner, reads: Sequence[list[bytes]], *, flush: bool = True
) -> tuple[list[bytes], list[int]]:
    events: list[bytes] = []
    numbers: list[int] = []
    next_number = 1
    for lines in reads:
        got, firsts = joiner.join(lines, range(next_number, next_number + len(lines)), flush=False)
        next_number += len(lines)
        events += got
        numbers += firsts
    if flush:
        got, firsts = joiner.join([], (), flush=True)
        events += got
        numbers += firsts
    return events, numbers


def joined(lines: Sequence[bytes]) -> list[bytes]:
    return join(TraceJoiner(), [list(lines)])[0]


def lines_of(text: str) -> list[bytes]:
    return text.encode().strip(b"\n").split(b"\n")


# ---------------------------------------------------------------- whatever the lines

any_lines = st.lists(
    st.one_of(
        st.sampled_from(SOME_LINES),
        texts.map(lambda text: text.replace(b"\n", b" ")),
        st.builds(lambda indent, text: indent + text.replace(b"\n", b" "),
                  st.sampled_from([b" ", b"\t", b"    "]), texts),
    ),
    max_size=30,
)  # fmt: skip
shuffled_traces = st.lists(
    st.tuples(st.integers(0, len(REAL) - 1), st.integers(1, 15)), max_size=6
).map(lambda parts: [line for at, count in parts for line in REAL[at : at + count]])
cuts = st.lists(st.integers(0, 60), max_size=8)


@given(st.one_of(any_lines, shuffled_traces), cuts)
def test_the_events_are_the_lines_each_once_and_in_order(lines: list[bytes], at: list[int]) -> None:
    events, numbers = join(TraceJoiner(), cut(lines, at))
    assert [line for event in events for line in event.split(b"\n")] == lines
    assert [lines[number - 1] for number in numbers] == [e.split(b"\n")[0] for e in events]
    assert sorted(set(numbers)) == numbers


@given(
    st.one_of(any_lines, shuffled_traces),
    cuts,
    st.sampled_from([3, 7, MAX_EVENT_LINES]),
    st.sampled_from([2, MAX_INDENTED]),
)
def test_events_are_the_same_however_an_input_is_read(
    lines: list[bytes], at: list[int], most_lines: int, most_indented: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "MAX_EVENT_LINES", most_lines)
        patch.setattr(joining, "MAX_INDENTED", most_indented)
        whole = join(TraceJoiner(), [lines])
        assert join(TraceJoiner(), cut(lines, at)) == whole
        assert join(TraceJoiner(), [[line] for line in lines]) == whole


# ---------------------------------------------------------------- real traces


@pytest.mark.parametrize(
    ("language", "counts"),
    [
        ("java", [1, 11, 11, 11, 10, 5, 10, 1, 11, 10]),
        ("python", [1, 12, 1, 12, 1, 12, 1, 20, 1, 20, 1, 18, 9, 35, 16, 1, 33]),
        ("go", [1, 16, 16, 1, 10, 7, 28, 15]),
        ("node", [1, 10, 10, 10, 15, 15, 16, 5, 1, 9]),
        ("dotnet", [1, 8, 9, 1, 5, 2, 2]),
    ],
)
def test_every_trace_of_a_program_is_one_event(language: str, counts: list[int]) -> None:
    found = joined(written(language))
    assert [event.count(b"\n") + 1 for event in found] == counts


def test_a_line_before_a_trace_belongs_to_it_unless_only_informs() -> None:
    trace = lines_of('Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 1')
    assert len(joined([b"2024-05-07 ERROR web: request 17 failed", *trace])) == 1
    assert len(joined([b"request 17 failed", *trace])) == 1
    assert joined([b"2024-05-07 INFO web: started", *trace])[0] == b"2024-05-07 INFO web: started"
    assert len(joined([b"INFO an error is expected here", *trace])) == 1
    assert joined([b"", *trace])[0] == b""


SPRING = """2025-11-03T10:00:00Z ERROR 1 --- [exec-3] dispatcherServlet : Servlet.service() threw

java.lang.IllegalStateException: no card
	at com.example.A.b(A.java:1)
Caused by: java.io.IOException: gone
	... 3 more

2025-11-03T10:00:01Z  INFO 1 --- [main] boot : next"""


def test_empty_lines_around_a_trace_belong_to_it_behind_an_error() -> None:
    lines = lines_of(SPRING)
    assert joined(lines) == [b"\n".join(lines[:7]), lines[7]]
    assert joined([*lines[:7], *lines]) == [b"\n".join(lines[:7])] * 2 + [lines[7]]
    assert joined([*lines[:7], b"", b"x"]) == [b"\n".join(lines[:7]), b"", b"x"]
    assert joined([lines[7], *lines[1:]]) == [
        lines[7], b"", b"\n".join(lines[2:6]), b"", lines[7],
    ]  # fmt: skip


def test_only_the_first_empty_line_behind_a_trace_belongs_to_it() -> None:
    lines = lines_of(SPRING)
    whole = [*lines[:7], b"\tat z.Z.z(Z.java:1)", b"", b"  data: 1"]
    assert joined(whole)[0] == b"\n".join(lines[:7])
    assert joined([b"  at a.b(C.java:3)", b"", b"INFO other"])[1:] == [b"", b"INFO other"]
    assert len(joined([b"\tat a.B.b(C.java:1)", b""] * 50)) == 100


def test_an_empty_line_behind_an_error_is_held_back_a_moment() -> None:
    header, blank, *_ = lines_of(SPRING)
    joiner = TraceJoiner()
    assert join(joiner, [[header, blank]], flush=False) == ([], [])
    assert joiner.join([b"INFO x", b"y"], range(3, 5), flush=False)[0] == [header, blank, b"INFO x"]


def test_a_trace_without_its_beginning_is_one_event() -> None:
    assert len(joined([b"\tat a.B.c(B.java:1)", b"\tat a.B.d(B.java:2)", b"\t... 3 more"])) == 1


# ---------------------------------------------------------------- other indented lines


@pytest.mark.parametrize(
    "text",
    [
        "LOG:  statement: SELECT id,\n\t  name\n\tFROM t",
        "ProducerConfig values:\n\tacks = 1\n\tlinger.ms = 5",
        "order failed\n  reason: card expired\n  code: 17",
        '{\n  "a": 1,\n  "b": {\n    "c": 2\n  }\n}',
        "<34>Oct 11 22:14:15 su: failed\n  for user bob",
        "thread 'main' panicked at src/main.rs:2:5:\n   0: rust_begin_unwind\n   1: main",
    ],
)
def test_indented_lines_continue_the_line_before(text: str) -> None:
    assert joined(lines_of(text)) == [text.encode()]
    assert len(joined([b"before", *lines_of(text), b"after"])) == 3


YAML = """
apiVersion: v1
metadata:
  name: web
  labels: {app: web}
data: |
  some text
  more
"quoted": # a comment
  - x
defaults: &defaults
  a: 1
- name: x
  image: y
"""
DIFF = """
diff --git a/x.py b/x.py
index 1234567..89abcde 100644
--- a/x.py
+++ b/x.py
@@ -1,4 +1,4 @@ def f():
 import os
-import re
+import sys
 import json
     deep
"""
PS = """
  PID TTY          TIME CMD
    1 ?        00:00:01 init
12345 pts/0    00:00:00 bash
  123 ?        00:00:00 sh
"""
LEVELS = """
 INFO [main] (App.java:3) - started
ERROR [main] (App.java:5) - failed
 WARN [main] (App.java:7) - slow
 2024-05-07 10:00:00 aligned
 10:00:00 aligned
"""


@pytest.mark.parametrize(
    "text",
    [
        YAML,
        DIFF,
        PS,
        LEVELS,
        "  every line\n  is indented\n    as here",
        "a\tb\tc\n\tb\tc",
        "commit 1234\nAuthor: x\n\n    a message\n\n    more of it",
        '[\n  {"a": 1},\n  {"a": 2}\n]',
        "<root>\n  <a/>\n</root>",
        "make: Entering directory\n" + "  CC      x.o\n" * (MAX_INDENTED + 1) + "done\n  ok",
    ],
)
def test_lines_indented_for_other_reasons_stay_events(text: str) -> None:
    assert joined(lines_of(text)) == lines_of(text)


# ---------------------------------------------------------------- limits and waiting


def test_an_event_of_too_many_lines_goes_on_as_another() -> None:
    trace = [b"E start", *[b"\tat a.B.c(B.java:1)"] * (2 * MAX_EVENT_LINES), b"end"]
    assert [event.count(b"\n") + 1 for event in joined(trace)] == [
        MAX_EVENT_LINES, MAX_EVENT_LINES, 1, 1,
    ]  # fmt: skip


def test_an_event_of_too_many_bytes_goes_on_as_another() -> None:
    frame = b"\tat a.B.c(" + b"x" * (MAX_EVENT_BYTES // 3) + b")"
    assert [event.count(b"\n") + 1 for event in joined([b"E", *[frame] * 4])] == [3, 2]
    large = b"x" * (MAX_EVENT_BYTES + 1)
    assert joined([large, b"\tat a.B.c(B.java:1)"]) == [large, b"\tat a.B.c(B.java:1)"]


def test_only_what_may_go_on_is_held_back() -> None:
    joiner = TraceJoiner()
    given_out, _ = join(joiner, [[b"one", b"two", b"three"]], flush=False)
    assert (given_out, joiner.held) == ([b"one", b"two"], 3)
    assert joiner.join([], (), flush=True) == ([b"three"], [3])
    assert joiner.held == 0


# ---------------------------------------------------------------- several pods or containers

POD = compile_pattern(PREFIXES["source"][0])


def prefixed(pod: str, lines: Sequence[bytes]) -> list[bytes]:
    return [f"[pod/{pod}/web] ".encode() + line for line in lines]


def mixed(*sources: Sequence[bytes]) -> list[bytes]:
    """Lines of several sources in turns."""
    longest = max(map(len, sources))
    return [lines[i] for i in range(longest) for lines in sources if i < len(lines)]


@given(cuts)
def test_lines_of_pods_are_joined_within_each_pod(at: list[int]) -> None:
    java, python = prefixed("a", written("java")), prefixed("b", written("python"))
    events, numbers = join(PrefixJoiner(POD, TraceJoiner()), cut(mixed(java, python), at))
    assert sorted(numbers) == numbers
    for name, lines in (("a", java), ("b", python)):
        own = [event for event in events if event.startswith(f"[pod/{name}/".encode())]
        assert [line for event in own for line in event.split(b"\n")] == lines
        assert len(own) == len(joined(written("java" if name == "a" else "python")))


def test_a_silent_pod_does_not_hold_back_others_for_long() -> None:
    joiner = PrefixJoiner(POD, TraceJoiner())
    first = prefixed("a", [b"ready"])
    others = prefixed("b", [b"x"] * 10)
    reads = [first, *[others] * (MAX_APART_LINES // 10 + 1)]
    events, _ = join(joiner, reads[:-1], flush=False)
    assert events == []
    joiner = PrefixJoiner(POD, TraceJoiner())
    events, _ = join(joiner, [*reads, others], flush=False)
    assert events[: 1 + MAX_APART_LINES] == [*first, *others * (MAX_APART_LINES // 10)]


def test_a_pod_that_trickles_does_not_hold_back_others_for_long() -> None:
    joiner = PrefixJoiner(POD, TraceJoiner())
    slow = prefixed("a", [b"  at App.more(App.java:1)"])
    others = prefixed("b", [b"x"] * 99)
    numbers = count(1)
    most = 0
    for read in [prefixed("a", [b"java.lang.Error: x"]), *[[*others, *slow]] * 100]:
        joiner.join(read, [next(numbers) for _ in read], flush=False)
        most = max(most, len(joiner._waiting))
    assert 0.9 * MAX_APART_LINES < most < 1.2 * MAX_APART_LINES


def test_a_flush_keeps_what_was_learned_of_a_pod() -> None:
    """Of a file of indented lines few are joined, also if it pauses."""
    joiner = PrefixJoiner(POD, TraceJoiner())
    lines = prefixed("a", [b"head", *[b"  text"] * (MAX_INDENTED + 1)])
    joiner.join(lines, range(1, len(lines) + 1), flush=True)
    events, _ = joiner.join(prefixed("a", [b"head", b"  text"]), range(900, 902), flush=True)
    assert events == prefixed("a", [b"head", b"  text"])


# ---------------------------------------------------------------- by a pattern of first lines

STARTS = st.sampled_from([b"E one", b"E two", b"  at x", b"  at y", b"", b"\r", b"Caused by"])


def from_starts(lines: Sequence[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    for line in lines:
        if held and line.startswith(b"E"):
            yield b"\n".join(held)
            held = []
        held.append(line)
    if held:
        yield b"\n".join(held)


@given(st.lists(STARTS, max_size=20), cuts)
def test_a_first_line_begins_an_event(lines: list[bytes], at: list[int]) -> None:
    events, numbers = join(StartJoiner(compile_pattern("^E ").search), cut(lines, at))
    assert events == list(from_starts(lines))
    assert [lines[n - 1] for n in numbers] == [event.split(b"\n")[0] for event in events]


def test_an_event_of_endless_lines_is_cut() -> None:
    lines = [b"E start", *[b"  at x"] * (2 * MAX_EVENT_LINES)]
    events, _ = join(StartJoiner(compile_pattern("^E").search), [lines])
    assert [event.count(b"\n") + 1 for event in events] == [MAX_EVENT_LINES, MAX_EVENT_LINES, 1]
