"""Folders of labelled sets: plain and compressed files, templates beside them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.datasets import DatasetError, load_datasets

ROWS = b"event_id\tcontent\nE1\tdisk 1 is full\nE2\tok\tthen\n"
TEMPLATES = 'EventId,EventTemplate,Occurrences\nE1,"disk <*> is, well, full",1\n'


def test_plain_and_compressed_sets_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(ROWS)
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(ROWS))
    found = load_datasets(tmp_path)
    assert [one.name for one in found] == ["a", "b"]
    for one in found:
        assert one.truth == ["E1", "E2"]
        assert one.lines == [b"disk 1 is full", b"ok\tthen"]
        assert one.templates == {}


def test_templates_are_read_from_the_file_beside_a_set(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(ROWS)
    (tmp_path / "a.log_templates.csv").write_text(TEMPLATES, "utf-8")
    (tmp_path / "b.tsv").write_bytes(ROWS)
    (tmp_path / "b.log_templates.csv.gz").write_bytes(gzip.compress(TEMPLATES.encode()))
    templates = {one.name: one.templates for one in load_datasets(tmp_path)}
    expected = {"E1": "disk <*> is, well, full"}
    assert templates == {"a": expected, "b": expected}


def test_templates_without_their_column_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(ROWS)
    (tmp_path / "a.log_templates.csv").write_text("EventId,Template\nE1,x\n", "utf-8")
    with pytest.raises(DatasetError, match=r"a\.log_templates\.csv: no column 'EventTemplate'"):
        load_datasets(tmp_path)
