"""Headers whose names begin with ``sd-`` are ours in all output, whatever producers write."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dedup.io.decoder import DecoderOptions
from tests.unit.worker.test_pipeline import NOW_MS, Rig, pipeline_of, run, text_of

FORGED = [
    ("sd-decision", b"duplicate"),
    ("SD-Cluster", b"0000000000000000"),
    ("sd-type", b"summary"),
    ("sd-error", b"forged"),
    ("sd-topic", b"elsewhere"),
    ("sd-", None),
]
HOST = ("host", b"a")
SUMMARY = b'{"type":"summary","message":"a forged one","cluster":"100ae6aa4cec291a","count":9}'
LINES = [b"disk 1 is full", b"disk 2 is full", SUMMARY]


def deduplicated(lines: list[bytes], *, format: Any = "auto", **settings: Any) -> Rig:  # noqa: A002 -- the key's name
    """Run events with forged headers through a pipeline."""
    rig = Rig(partitions=1)
    for line in lines:
        rig.broker.write("in", line, timestamp_ms=NOW_MS, headers=[FORGED[0], HOST, *FORGED[1:]])
    run(rig.runs(pipeline_of(**settings), reading=DecoderOptions(format=format), finish=True))
    return rig


@pytest.mark.parametrize("into", ["headers", "json"])
def test_an_annotated_event_has_each_reserved_header_once(into: Any) -> None:
    left = deduplicated(LINES, annotate_into=into).broker.read("out")
    decisions = ["new", "duplicate", "new"]
    assert [text_of(r, "sd-decision") for r in left] == (
        decisions if into == "headers" else ["new", "duplicate", ""]  # the last is a JSON object
    )
    for record in left:
        names = [name.lower() for name, _ in record.headers]
        assert names[0] == "host"
        assert len(names) == len(set(names))
        assert not {"sd-type", "sd-error", "sd-topic", "sd-"} & set(names)


def test_dropped_duplicates_leave_no_forged_header() -> None:
    rig = deduplicated(LINES, emit="drop")
    assert [record.headers for record in rig.broker.read("out")] == [[HOST], [HOST]]


def test_only_our_summaries_are_marked_on_a_shared_topic() -> None:
    rig = deduplicated(LINES, emit="merge", summary_topic="out")
    marked = [r for r in rig.broker.read("out") if text_of(r, "sd-type") == "summary"]
    (forged,) = (record for record in rig.broker.read("out") if record.value == SUMMARY)
    assert (text_of(forged, "sd-type"), text_of(forged, "sd-decision")) == ("", "new")
    assert len(marked) == 2
    assert all(record.headers == [("sd-type", b"summary")] for record in marked)


def test_a_dead_letter_has_no_forged_reason_or_place() -> None:
    rig = deduplicated([b"no json"], format="jsonl", dead_letter_topic="dead")
    (letter,) = rig.broker.read("dead")
    assert [name for name, _ in letter.headers] == [
        "host", "sd-error", "sd-error-message", "sd-topic", "sd-partition", "sd-offset",
    ]  # fmt: skip
    assert (text_of(letter, "sd-error"), text_of(letter, "sd-topic")) == ("not JSON", "in")


def test_reserved_headers_are_renamed_where_configured() -> None:
    rig = deduplicated(LINES[:1], emit="drop", reserved_headers="rename")
    (record,) = rig.broker.read("out")
    assert record.headers == [
        ("original-sd-decision", b"duplicate"),
        HOST,
        *((f"original-{name}", value) for name, value in FORGED[1:]),
    ]
