"""What a run says about events that it did not compare, and when it says nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stream_dedup.cli.output import Output
from stream_dedup.cli.pipe import Pipe
from stream_dedup.clustering.windows import FOREVER_US, Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.emit.modes import MODES
from stream_dedup.index.base import Limits
from stream_dedup.io import files
from stream_dedup.io.decoder import DecoderOptions

DIGITS = str.maketrans("0123456789", "abcdefghij")
Run = Callable[..., tuple[str, int]]


def distinct(count: int) -> list[str]:
    """Lines that are not alike."""
    return [f"{n:06} x{n:06} {n * 7919:08}y z{n * 31:07}".translate(DIGITS) for n in range(count)]


@pytest.fixture
def notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs lines through a pipe; gives its notes and the lines that it wrote."""
    monkeypatch.setattr(files, "PIECE_BYTES", 200)  # a few lines at once

    def of(
        lines: Sequence[str],
        max_clusters: int = 100,
        idle_us: int = FOREVER_US,
        recipe: str = "logs",
        **reading: str,
    ) -> tuple[str, int]:
        path = tmp_path / "input"
        path.write_text("".join(f"{line}\n" for line in lines))
        dedup = Deduplicator(
            recipe,
            windows=Windows(idle_us=idle_us, max_age_us=FOREVER_US, quiet_after_us=FOREVER_US),
            limits=Limits(max_clusters=max_clusters),
            key=bytes(range(16)),  # what is estimated depends on it
        )
        out = io.BytesIO()
        output = Output(MODES["drop"], None, stats=False, limit=None, step_us=60_000_000)
        Pipe(dedup, DecoderOptions(**reading), output, out, lambda _: None).run([str(path)])  # type: ignore[arg-type]
        return capsys.readouterr().err, out.getvalue().count(b"\n")

    return of


def test_copies_that_came_after_their_cluster_closed_are_told(notes: Run) -> None:
    lines = distinct(130)
    said, written = notes(lines * 2)
    assert written == 260
    assert said == (
        "stream-dedup: at least 130 events were new again because their clusters were among the "
        "160 that were closed for want of room; give --max-clusters 130 or more\n"
    )
    assert notes(lines * 2, max_clusters=130) == ("", 130)


def test_closed_clusters_that_nothing_came_back_to_are_no_news(notes: Run) -> None:
    assert notes(distinct(500)) == ("", 500)


def test_copies_after_their_window_are_no_want_of_room(notes: Run) -> None:
    lines = [f"2026-01-01T0{hour}:00:00Z {line}" for hour in (0, 5) for line in distinct(130)]
    said, written = notes(lines, idle_us=3600 * 10**6, time_format="iso")
    assert (said, written) == ("", 260)


def test_json_without_a_known_text_is_told_at_the_first_hundred(notes: Run) -> None:
    line = '{"n":1,"summary":"disk full","http":{"path":"/a","status":200},"a.b":"c"}'
    said, written = notes([line] * 1000)
    assert written == 1000
    (note,) = said.splitlines()
    count = int(note.split()[1])
    assert 100 <= count < 110
    assert note == (
        f"stream-dedup: {count} JSON lines so far have no text in message, msg, MESSAGE, "
        "short_message, log, text, body, event, line, textPayload, @message, @m, @mt, "
        "RenderedMessage, Message, and pass undecided; name the field of their text with "
        "--text-field (the first has summary, http.path, /a.b)"
    )
    assert notes([line] * 1000, text_field="summary") == ("", 1)


def test_a_few_json_lines_without_text_are_told_at_the_end(notes: Run) -> None:
    said, _ = notes(['{"summary":"disk full"}'] * 3)
    assert said.startswith("stream-dedup: 3 of 3 JSON lines have no text in message, ")
    assert notes(['{"msg":"disk full"}'] * 3 + ['{"n":1}']) == ("", 2)


def test_names_of_fields_are_shown_on_one_line_only(notes: Run) -> None:
    said, _ = notes(['{"a\\nb\\u001b[31m":"x","' + "y" * 100 + '":"x"}'])
    assert said.endswith("name the field of their text with --text-field\n")


@pytest.mark.parametrize(
    ("field", "first", "other", "shown"),
    [
        ("level", '"gold"', '"SILVER"', "gold and SILVER"),
        ("level", "3", "5", "3 and 5"),
        ("status", "7", "8", "7 and 8"),
        ("statusCode", '"in queue"', '"in work"', "in queue and in work"),
        ("Severity", '"a\\u202e"', '"b"', "'a\\u202e' and b"),
    ],
)
def test_events_that_merge_and_differ_in_a_level_or_status_are_noted(
    notes: Run, field: str, first: str, other: str, shown: str
) -> None:
    lines = [f'{{"msg":"job done","{field}":{value}}}' for value in (first, first, other, first)]
    said, written = notes(lines)
    assert written == 1
    assert said == (
        f"stream-dedup: events with {field} {shown} are counted as one, as the recipe does not "
        f"know what these mean; --group-field {field} keeps them apart\n"
    )


@pytest.mark.parametrize(
    "lines",
    [
        ['{"msg":"a b","level":"info"}', '{"msg":"a b","level":"INFO"}'],
        ['{"msg":"a b","status":200}', '{"msg":"a b","status":204}'],
        ['{"msg":"a b","status":200}', '{"msg":"a b","status":"200 OK"}'],
        ['{"msg":"a b","level":"info"}', '{"msg":"a b","level":"Information"}'],
        ['{"msg":"a b","pid":1,"level":30}', '{"msg":"a b","pid":1,"level":"info"}'],
        ['{"msg":"a b","status":{"a":1}}', '{"msg":"a b","status":{"a":2}}', '{"msg":"a b"}'],
        ['{"msg":"a b","level":""}', '{"msg":"a b","level":null}', '{"msg":"a","levels":"b"}'],
        ["level=info a b", "level=error a b"],
        ['{"msg":"a b","level":"info"}', '{"msg":"c d e","level":"error"}'],
    ],
)
def test_equal_levels_and_other_fields_are_not_noted(notes: Run, lines: list[str]) -> None:
    assert notes(lines)[0] == ""


def test_levels_that_keep_apart_are_not_noted(notes: Run) -> None:
    lines = ['{"msg":"a b","level":"info"}', '{"msg":"a b","level":"error"}']
    assert notes(lines) == ("", 2)
    assert notes(lines, recipe="logs-1", group_fields=("level",)) == ("", 2)


def test_levels_that_another_recipe_does_not_take_are_noted(notes: Run) -> None:
    lines = ['{"msg":"a b","level":"info"}', '{"msg":"a b","level":"error"}']
    said, written = notes(lines, recipe="logs-1")
    assert written == 1
    assert said.startswith("stream-dedup: events with level info and error are counted as one")
