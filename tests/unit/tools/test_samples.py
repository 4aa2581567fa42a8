from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stream_dedup.errors import InputError
from stream_dedup.tools.load_generator.events import MAX_LINE_BYTES, Sample, read_samples


def test_the_first_of_similar_lines_is_kept_and_all_are_counted(tmp_path: Path) -> None:
    (tmp_path / "web.error.log.gz").write_bytes(
        gzip.compress(b"disk 1 is full\n\ndisk 2 is full\r\nuser 7 logged in again\n")
    )
    lines = read_samples([str(tmp_path / "web.error.log.gz")])
    assert [m.text for m in lines.samples] == [b"disk 1 is full", b"user 7 logged in again"]
    assert (lines.count, {m.service for m in lines.samples}) == (3, {"web"})


def test_a_json_line_gives_its_text_and_keeps_its_fields(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"ts":1,"service":"shop","msg":"cart 7 was declined"}\n'
        '{"level":"info","message":"all is well in here"}\n'
        '{"broken": \n{"no":"text"}\n'
    )
    shop = {"ts": 1, "service": "shop", "msg": "cart 7 was declined"}
    well = {"level": "info", "message": "all is well in here"}
    samples = read_samples([str(tmp_path / "a.jsonl")]).samples
    assert [
        Sample(b"cart 7 was declined", "shop", shop, "msg"),
        Sample(b"all is well in here", "a", well, "message"),
    ] == samples[:2]
    assert {b'{"broken": ', b'{"no":"text"}'} >= {sample.text for sample in samples[2:]}


def test_lines_of_numbers_are_samples_only_if_there_are_no_others(tmp_path: Path) -> None:
    numbers, words = tmp_path / "numbers", tmp_path / "words"
    numbers.write_text("17 4\n23 9\n")
    words.write_text("the cart was declined 7 times\n")
    assert [m.text for m in read_samples([str(numbers)]).samples] == [b"17 4", b"23 9"]
    both = read_samples([str(numbers), str(words)])
    assert ([m.text for m in both.samples], both.count) == ([b"the cart was declined 7 times"], 3)


def test_lines_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(b"x" * (MAX_LINE_BYTES + 1) + b"\nall is well in here\n")
    assert [m.text for m in read_samples([str(file)]).samples] == [b"all is well in here"]


def test_an_unreadable_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: cannot be opened: No such file"):
        read_samples([str(tmp_path / "nowhere")])
