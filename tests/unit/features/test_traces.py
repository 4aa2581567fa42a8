"""What two traces of the same error have in common, and what tells others apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.clustering.comparison import Inspector
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features.patterns import MAX_PATTERN, Patterns
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.features.traces import MAX_LINES, Trace, trace_of
from stream_dedup.features.values import SlotReader
from stream_dedup.io.joining import TraceJoiner
from stream_dedup.model import Decision, Kind
from tests.strategies import texts

TRACES = Path(__file__).parents[2] / "traces"
LOGS = load_recipe("logs")


def traces(language: str) -> list[tuple[str, ...]]:
    lines = (TRACES / f"{language}.log").read_bytes().splitlines()
    events, _ = TraceJoiner().join(lines, range(1, len(lines) + 1), flush=True)
    found = [trace_of(event) for event in events]
    return [tuple(word.decode() for word in trace.variant) for trace in found if trace is not None]


def decided(*values: str, recipe: Recipe = LOGS) -> list[Decision]:
    return Deduplicator(recipe).process(list(values))


def merge(first: str, second: str, recipe: Recipe = LOGS) -> bool:
    return decided(first, second, recipe=recipe)[1].kind is Kind.DUPLICATE


PARSE = "java.lang.NumberFormatException", "java.lang.NumberFormatException.forInputString"


@pytest.mark.parametrize(
    ("language", "variants"),
    [
        (
            "java",
            [
                *[("App$OrderException", *PARSE, "App.charge")] * 3,
                (*PARSE, "App.charge"),
                ("java.lang.NullPointerException", "java.util.Objects.requireNonNull",
                 "App.refund"),
                (*PARSE, "App.charge"),
                *[("App$OrderException", *PARSE, "App.charge")] * 2,
            ],
        ),
        (
            "python",
            [
                *[("ZeroDivisionError", "price (shop/app.py)")] * 3,
                ("ZeroDivisionError", "KeyError", "price (shop/app.py)"),
                ("ZeroDivisionError", "RuntimeError", "price (shop/app.py)"),
                ("json.decoder.JSONDecodeError", "raw_decode (json/decoder.py)",
                 "parse (shop/app.py)"),
                ("SyntaxError", "(conf.py)"),
                ("json.decoder.JSONDecodeError", "ZeroDivisionError", "group (shop/app.py)"),
                ("RecursionError", "deep (shop/app.py)"),
                ("json.decoder.JSONDecodeError", "ZeroDivisionError", "group (shop/app.py)"),
            ],
        ),
        (
            "go",
            [
                *[("main.(*shop).item",)] * 3,
                ("main.main",),
                ("internal/sync.runtime_SemacquireMutex", "main.main"),
                ("main.(*shop).item",),
            ],
        ),
        (
            "node",
            [
                *[("price (shop/app.js)",)] * 3,
                ("Object.openSync (node:fs)", "Object.<anonymous> (shop/app.js)"),
                ("Error", "Object.openSync (node:fs)", "Object.<anonymous> (shop/app.js)"),
                ("Error", "TypeError", "price (shop/app.js)"),
                ("TypeError", "price (shop/app.js)"),
                ("RangeError", "(shop/app.js)"),
            ],
        ),
        (
            "dotnet",
            [
                ("System.InvalidOperationException", "System.FormatException",
                 "System.Number.ThrowFormatException[TChar]", "Shop.Cards.Charge"),
                ("System.AggregateException", "System.Net.Http.HttpRequestException",
                 "Shop.Client.GetAsync"),
                ("System.FormatException", "System.Int32.Parse", "Shop.Cards.Charge"),
            ],
        ),
    ],
)  # fmt: skip
def test_a_trace_names_its_exceptions_and_innermost_frames(
    language: str, variants: list[tuple[str, ...]]
) -> None:
    assert traces(language) == variants


def test_the_header_is_all_that_is_said_in_words() -> None:
    text = (TRACES / "python.log").read_bytes().splitlines()[61:81]
    assert trace_of(b"\n".join(text)) == Trace(
        b"2024-05-07 09:00:07,730 ERROR web: request 21 failed\n"
        b"ZeroDivisionError: division by zero\n"
        b"RuntimeError: request 21",
        (b"ZeroDivisionError", b"RuntimeError"),
        (b"price (shop/app.py)",),
    )


JAVA = """2024-05-07 09:00:00 ERROR order {id} failed
java.lang.IllegalStateException: no stock
\tat shop.Stock.{innermost}(Stock.java:{line})
\tat shop.Orders.place(Orders.java:5){outer}
\tat java.base/java.lang.Thread.run(Thread.java:840)"""
PYTHON = """2024-05-07 09:00:00 ERROR order {id} failed
Traceback (most recent call last):
  File "/srv/shop/web.py", line 7, in serve
    place(order){outer}
  File "/srv/shop/stock.py", line {line}, in {innermost}
    raise NoStock("no stock")
shop.errors.NoStock: no stock"""
GO = """2024/05/07 09:00:00 http: panic serving 10.0.0.{id}:5: no stock
goroutine {id} [running]:
net/http.(*conn).serve.func1()
\t/usr/local/go/src/net/http/server.go:1898 +0xb0
panic({{0x65, 0xc000}})
\t/usr/local/go/src/runtime/panic.go:770 +0x132
main.{innermost}(0xc000{id})
\t/srv/shop/stock.go:{line} +0x1d{outer}
net/http.(*conn).serve(0xc000)
\t/usr/local/go/src/net/http/server.go:2009"""
NODE = """2024-05-07T09:00:00.000Z ERROR order {id} failed: Error: no stock
    at {innermost} (/srv/shop/stock.js:{line}:9){outer}
    at Module._compile (node:internal/modules/cjs/loader:1521:14)"""
DOTNET = """2024-05-07 09:00:00 ERROR order {id} failed
System.InvalidOperationException: no stock
   at Shop.Stock.{innermost}(Int32 id) in /src/Stock.cs:line {line}{outer}
   at Shop.Program.Main(String[] args) in /src/Program.cs:line 3"""
OUTER = {
    JAVA: "\n\tat shop.Batch.run(Batch.java:9)",
    PYTHON: '\n  File "/srv/shop/batch.py", line 3, in run\n    place(order)',
    GO: "\nmain.batch(0xc0)\n\t/srv/shop/batch.go:3 +0x9",
    NODE: "\n    at batch (/srv/shop/batch.js:3:1)",
    DOTNET: "\n   at Shop.Batch.Run() in /src/Batch.cs:line 9",
}


@pytest.mark.parametrize("form", OUTER)
def test_the_innermost_frames_alone_tell_traces_apart(form: str) -> None:
    def trace(number: int, innermost: str = "take", outer: str = "", line: int = 7) -> str:
        return form.format(id=number, innermost=innermost, outer=outer, line=line)

    assert merge(trace(1), trace(2))
    assert merge(trace(1), trace(2, outer=OUTER[form]))
    assert merge(trace(1), trace(2, line=8))
    assert not merge(trace(1), trace(1, innermost="reserve"))
    assert decided(trace(1), trace(1))[1].distance == 0


def test_properties_of_an_error_of_node_say_what_happened() -> None:
    text = (
        "Error: request aborted\n    at f (/app/a.js:3:1)\n    at g (/app/b.js:5:1) {{\n"
        "  errno: {},\n  code: '{}',\n  config: {{\n    code: '{}'\n  }}\n}}"
    )
    events = [(1, "ECONNREFUSED", "a"), (2, "ENOSPC", "a"), (3, "ENOSPC", "b")]
    found = Deduplicator("logs").process([text.format(*event).encode() for event in events])
    assert [decision.kind for decision in found] == [Kind.NEW, Kind.NEW, Kind.DUPLICATE]
    trace = trace_of(text.format(*events[0]).encode())
    assert trace is not None
    header = b"Error: request aborted\ncode: 'ECONNREFUSED',"
    assert trace.header == header
    behind = trace_of(text.format(*events[0]).encode() + b"\nnext\n  status: running")
    assert behind is not None
    assert behind.header == header + b"\nnext"


def test_another_exception_is_another_cluster() -> None:
    trace = JAVA.format(id=1, innermost="take", outer="", line=7)
    assert not merge(trace, trace.replace("IllegalState", "IllegalArgument"))
    assert not merge(trace, trace.replace("ERROR", "WARN"))
    assert not merge(trace, trace.split("\n\tat")[0])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.App$$Lambda$14/0x0000000800066840.run(Unknown Source)",
         "a.App$$Lambda$77/0x00000008000aa840.run(Unknown Source)"),
        ("java.base@17/java.util.List.of(List.java:3)", "java.util.List.of(List.java:4)"),
        ("a.B.c(B.java:3) ~[a-1.2.jar:?]", "a.B.c(B.java:4) [a-1.3.jar:1.3]"),
        ("f (/srv/releases/17/shop/a.js:1:2)", "f (/srv/releases/18/shop/a.js:3:4)"),
    ],
)  # fmt: skip
def test_what_differs_between_builds_does_not_count(first: str, second: str) -> None:
    found = [trace_of(f"ERROR x\n\tat {frame}".encode()) for frame in (first, second)]
    assert found[0] is not None
    assert found[0] == found[1]


def test_the_prefix_of_a_pod_is_no_part_of_a_trace() -> None:
    lines = JAVA.format(id=1, innermost="take", outer="", line=7).split("\n")
    plain = trace_of("\n".join(lines).encode())
    found = trace_of("\n".join(f"[pod/a-1/web] {line}" for line in lines).encode())
    assert plain is not None
    assert found == plain._replace(header=b"[pod/a-1/web] " + plain.header)


@pytest.mark.parametrize("language", ["java", "python", "go", "dotnet", "node"])
def test_a_trace_that_rsyslog_wrote_on_one_line_is_the_same(language: str) -> None:
    lines = (TRACES / f"{language}.log").read_bytes().splitlines()
    events, _ = TraceJoiner().join(lines, range(1, len(lines) + 1), flush=True)
    found = [event for event in events if trace_of(event) is not None]
    assert len(found) >= 3
    slots = SlotReader(LOGS)
    for event in found:
        line = event.replace(b"\n", b"#012").replace(b"\t", b"#011")
        assert trace_of(line) == trace_of(event)
        assert merge(event.decode(), line.decode())
        dedup = Deduplicator(LOGS)
        assert [dedup.process_one(each).kind for each in (event, line)] == [
            Kind.NEW, Kind.DUPLICATE,
        ]  # fmt: skip
        assert Patterns(LOGS).pattern(line) == Patterns(LOGS).pattern(event)
        assert slots.slots(line).names == slots.slots(event).names
        assert slots.slots(event).values(line) == slots.slots(event).values(event)


@pytest.mark.parametrize(
    "text", ["", "ERROR x", "ERROR x\n  reason: y", "a\n  at the end: b", "\n\n", "x\n\t/a.go:3"]
)
def test_other_texts_are_compared_as_they_are(text: str) -> None:
    assert trace_of(text.encode()) is None


@given(st.lists(st.one_of(texts, st.sampled_from((TRACES / "go.log").read_bytes().splitlines()))))
def test_any_text_of_several_lines_can_be_read(lines: list[bytes]) -> None:
    text = b"\n".join(lines)
    trace = trace_of(text)
    assert trace is None or (trace.frames and len(trace.header) <= len(text))
    assert len(decided(text.decode("latin-1"))) == 1


def test_of_a_text_of_very_many_lines_both_ends_are_read() -> None:
    frames = "".join(f'  File "a.py", line {n}, in f{n}\n' for n in range(MAX_LINES))
    found = trace_of(f"ERROR x\n{frames}KeyError: 1".encode())
    last = f"f{MAX_LINES - 1} (a.py)".encode()
    assert found == Trace(b"ERROR x\nKeyError: 1", (b"KeyError",), (last,))


def test_recipes_without_frames_compare_all_of_a_trace() -> None:
    first = JAVA.format(id=1, innermost="take", outer=OUTER[JAVA] * 8, line=7)
    second = first.replace("Stock.take", "Stock.reserve")
    assert not merge(first, second)
    assert merge(first, second, load_recipe("logs-1"))
    variants = replace(LOGS, match__variants=["level", "status"])
    assert merge(first, second, variants)


def test_traces_in_json_and_lines_share_a_batch() -> None:
    trace = PYTHON.format(id=1, innermost="take", outer="", line=7)
    found = decided("disk 1 full", trace, "disk 2 full", trace, trace.replace("take", "get"))
    assert [decision.kind.value for decision in found] == [
        "new", "new", "duplicate", "duplicate", "new",
    ]  # fmt: skip


def test_the_pattern_of_a_trace_ends_with_its_place() -> None:
    patterns = Patterns(LOGS)
    trace = JAVA.format(id=1, innermost="take", outer="", line=7)
    assert patterns.pattern(trace.encode()) == (
        "<timestamp> ERROR order <number> failed IllegalStateException: no stock at shop.Stock.take"
    )
    long = patterns.pattern(trace.replace("no stock", "no stock " * 100).encode())
    assert long.endswith("… at shop.Stock.take")
    assert len(long) == MAX_PATTERN


def test_the_comparison_says_which_frames_differ() -> None:
    trace = JAVA.format(id=1, innermost="take", outer="", line=7)
    found = Inspector(LOGS).compare(trace.encode(), trace.replace("take", "get").encode())
    assert not found.merge
    assert found.verdict() == (
        "They do not merge: outcome, level, status or frames differ, which never vary in a "
        "cluster: 'error failed no java.lang.IllegalStateException shop.Stock.take' and 'error "
        "failed no java.lang.IllegalStateException shop.Stock.get'."
    )
