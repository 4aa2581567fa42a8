"""The pipe's sums: whatever the lines, options and pieces, nothing is lost and nothing hidden."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_dedup.cli.output import Output
from stream_dedup.cli.pipe import Interrupt, OpeningEndedError, Pipe
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.events import PASSED
from stream_dedup.emit.modes import MODES
from stream_dedup.index.base import Limits
from stream_dedup.io import files
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.io.formats import HEAD_BYTES, encoding_of, refusal
from tests.integration.command import REPEATED
from tests.strategies import texts

Emit = Literal["merge", "drop", "annotate"]

_json_lines = st.builds(
    lambda message, extra: msgspec.json.encode({"message": message, **extra}),
    st.sampled_from(["disk a1 full", "disk b2 full", "user bob came in", "1 2 3", ""]),
    st.dictionaries(st.sampled_from(["n", "time", "dedup"]), st.integers(0, 2**70)),
)
_plain = st.sampled_from(
    [
        b"disk sda1 is 91% full",
        b"disk sdb7 is 64% full",
        b"2026-01-01T00:00:00Z job 1 done",
        b"2026-01-01T09:00:00Z job 2 done",
        b"12 34",
        b"",
        b"\r",
        b"  at some.java.Class(File.java:1)",
        b"[1]",
        b'{"broken":',
    ]
)
_lines = st.lists(
    st.one_of(_plain, _plain, _json_lines, texts.map(lambda text: text.replace(b"\n", b" "))),
    max_size=25,
)
# A line that begins like a summary would be taken for one; a byte order mark at the beginning of a
# file is removed.
lines_read = _lines.map(
    lambda lines: [line for line in lines if not line.startswith(("…".encode(), b"\xef\xbb\xbf"))]
)
readings = st.builds(
    DecoderOptions,
    format=st.sampled_from(["auto", "auto", "text", "jsonl"]),
    time_format=st.sampled_from(["", "", "iso"]),
    group_pattern=st.sampled_from(["", "(?P<word>^[a-z]+)"]),
)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda size: monkeypatch.setattr(files, "PIECE_BYTES", size)


def piped(
    folder: Path,
    lines: Sequence[bytes],
    reading: DecoderOptions,
    *,
    emit: Emit,
    form: Literal["text", "jsonl"] | None,
    max_clusters: int = 1000,
    idle_us: int = 3600 * 10**6,
) -> tuple[Pipe, Deduplicator, bytes]:
    """What comes out for `lines`, half of them in one file and half in the next."""
    for name, half in (("a", lines[: len(lines) // 2]), ("b", lines[len(lines) // 2 :])):
        body = b"".join(line + b"\n" for line in half)
        assume(refusal(body[:HEAD_BYTES]) is None and encoding_of(body[:HEAD_BYTES]) is None)
        (folder / name).write_bytes(body)
    dedup = Deduplicator(
        windows=Windows(
            idle_us=idle_us,
            max_age_us=max(24 * 3600 * 10**6, idle_us),
            quiet_after_us=FOREVER_US,
        ),
        summaries=Summaries(every_us=1),
        limits=Limits(max_clusters=max_clusters),
    )
    out = io.BytesIO()
    pipe = Pipe(
        dedup,
        reading,
        Output(MODES[emit], form, stats=True, limit=None, step_us=60_000_000),
        out,
        lambda _: None,
    )
    assert pipe.run([str(folder / "a"), str(folder / "b")]) == 0
    assert not pipe.failed
    return pipe, dedup, out.getvalue()


def output_lines(out: bytes) -> list[bytes]:
    *lines, rest = out.split(b"\n")
    assert rest == b""
    return lines


@given(lines_read, readings, st.integers(1, 60), st.sampled_from([1, 2, 1000]))
def test_merged_text_accounts_for_every_line(
    pieces: Callable[[int], None],
    tmp_path: Path,
    lines: list[bytes],
    reading: DecoderOptions,
    size: int,
    max_clusters: int,
) -> None:
    pieces(size)
    pipe, dedup, out = piped(
        tmp_path, lines, reading, emit="merge", form="text", max_clusters=max_clusters
    )
    shown = output_lines(out)
    matches = [REPEATED.fullmatch(line.decode("utf-8", "replace")) for line in shown]
    first = [line for line, match in zip(shown, matches, strict=True) if match is None]
    assert len(lines) == len(first) + sum(int(match[1]) for match in matches if match)
    assert len(lines) == pipe.lines == dedup.counts.events
    rest = iter(lines)
    assert all(line in rest for line in first)  # as they came, in their order


@given(lines_read, readings, st.integers(1, 60), st.sampled_from([1, 2, 1000]))
def test_final_counts_and_passed_events_of_merged_json_add_up(
    pieces: Callable[[int], None],
    tmp_path: Path,
    lines: list[bytes],
    reading: DecoderOptions,
    size: int,
    max_clusters: int,
) -> None:
    pieces(size)
    _, dedup, out = piped(
        tmp_path, lines, reading, emit="merge", form="jsonl", max_clusters=max_clusters
    )
    objects: list[dict[str, Any]] = [msgspec.json.decode(line) for line in output_lines(out)]
    summaries = [o for o in objects if o.get("type") == "summary"]
    events = [o for o in objects if o.get("type") != "summary"]
    finals = [o for o in summaries if o["final"]]
    passed = [o for o in events if o["dedup"]["decision"] == "passed"]
    new = [o for o in events if o["dedup"]["decision"] == "new"]
    assert len(lines) == sum(o["count"] for o in finals) + len(passed)
    assert len(lines) == sum(o["new_count"] for o in summaries) + len(passed)
    assert len(events) == len(new) + len(passed)
    assert sorted(o["cluster"] for o in finals) == sorted(o["dedup"]["cluster"] for o in new)
    assert len(new) == dedup.counts.new
    assert len(passed) == sum(dedup.counts.passed.values())


@given(lines_read, readings, st.integers(1, 60))
def test_annotated_json_is_one_object_a_line_in_order(
    pieces: Callable[[int], None],
    tmp_path: Path,
    lines: list[bytes],
    reading: DecoderOptions,
    size: int,
) -> None:
    pieces(size)
    _, dedup, out = piped(tmp_path, lines, reading, emit="annotate", form="jsonl")
    shown = output_lines(out)
    assert len(lines) == len(shown)
    half = len(lines) // 2
    for at, (line, text) in enumerate(zip(lines, shown, strict=True)):
        found = msgspec.json.decode(text)
        made = found.pop("dedup")
        assert {"decision", "cluster", "distance", "fingerprint", "pattern"} <= made.keys()
        if "line" in found and "text" in found:
            assert {"line": at % half + 1 if at < half else at - half + 1} | {
                "text": line.decode("utf-8", "backslashreplace")
            } == found
        elif b'"dedup"' not in line:
            assert text.startswith(line.strip()[:-1].rstrip())
        else:
            document = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            assert list(document) == list(msgspec.json.decode(text))
    counts = dedup.counts
    assert counts.events == counts.new + counts.duplicates + sum(counts.passed.values())


@given(lines_read, readings, st.integers(1, 60))
def test_drop_writes_the_events_that_annotate_calls_new_or_passed(
    pieces: Callable[[int], None],
    tmp_path: Path,
    lines: list[bytes],
    reading: DecoderOptions,
    size: int,
) -> None:
    pieces(size)
    _, _, dropped = piped(tmp_path, lines, reading, emit="drop", form="text")
    _, _, annotated = piped(tmp_path, lines, reading, emit="annotate", form="text")
    marked = [line.split(b"\t", 3) for line in output_lines(annotated)]
    assert [raw for *_, raw in marked] == lines
    assert output_lines(dropped) == [raw for kind, _, _, raw in marked if kind != b"duplicate"]


@given(lines_read, readings, st.integers(1, 400), st.integers(1, 400))
def test_decisions_do_not_depend_on_piece_size(
    pieces: Callable[[int], None],
    tmp_path: Path,
    lines: list[bytes],
    reading: DecoderOptions,
    size: int,
    other: int,
) -> None:
    # No cluster expires here: when one is closed hangs on what a batch brought, by design. So does
    # the shape of what leaves before a file's first line that is not empty.
    decided = []
    for given_size in (size, other):
        pieces(given_size)
        _, _, out = piped(
            tmp_path, lines, reading, emit="annotate", form="jsonl", idle_us=FOREVER_US
        )
        events = [msgspec.json.decode(line) for line in output_lines(out)]
        decided.append([event["dedup"]["decision"] for event in events])
    assert decided[0] == decided[1]


@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from(["merge", "drop", "annotate"]))
def test_a_line_too_long_is_written_in_pieces_that_join_to_it(
    pieces: Callable[[int], None],
    tmp_path: Path,
    length: int,
    size: int,
    emit: Emit,
) -> None:
    pieces(size)
    with pytest.MonkeyPatch.context() as patch:
        defaults = files.InputFile.__init__.__kwdefaults__
        assert defaults is not None
        patch.setitem(defaults, "max_line_bytes", 10)
        long = bytes(range(97, 97 + 26)) * 2
        lines = [b"a word", long[:length] + b" \xff", b"one word", long, b"last word"]
        _, dedup, text = piped(
            tmp_path, lines, DecoderOptions(format="text"), emit=emit, form="text"
        )
        shown = [line.split(b"\t", 3)[-1] for line in output_lines(text)]
        assert [line for line in lines if line in shown] == shown
        assert long in shown
        assert len(lines) == dedup.counts.events
        assert text.count(PASSED) == (emit == "annotate") * sum(dedup.counts.passed.values())
        _, _, out = piped(
            tmp_path, lines, DecoderOptions(format="text"), emit="annotate", form="jsonl"
        )
    numbered: dict[tuple[bool, int], str] = {}
    second = False
    for found in map(msgspec.json.decode, output_lines(out)):
        second = second or (found["line"] == 1 and (False, 2) in numbered)
        key = second, found["line"]
        numbered[key] = numbered.get(key, "") + found["text"]
    assert [line.decode("utf-8", "backslashreplace") for line in lines] == list(numbered.values())


def test_a_signal_ends_what_waits_in_the_opening_of_an_input() -> None:
    interrupt = Interrupt()
    with interrupt.watch():
        with pytest.raises(OpeningEndedError), interrupt.opening():
            signal.raise_signal(signal.SIGTERM)
        assert interrupt.signal == signal.SIGTERM


def test_a_signal_before_the_opening_of_an_input_ends_it() -> None:
    interrupt = Interrupt()
    with interrupt.watch():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(OpeningEndedError), interrupt.opening():
            pytest.fail("it was opened")


def test_a_signal_behind_the_opening_of_an_input_is_noted() -> None:
    interrupt = Interrupt()
    with interrupt.watch():
        with interrupt.opening():
            pass
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.signal == signal.SIGTERM
