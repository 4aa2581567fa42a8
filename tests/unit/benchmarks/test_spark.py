"""`benchmarks.spark`: rows of known origins, and what is measured about marks on them."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from benchmarks.spark import log_lines, quality, texts, write_rows


def test_log_lines_of_an_origin_differ_in_digits_only() -> None:
    shapes: dict[int, set[str]] = {}
    for origin, line in islice(log_lines(2_000), 2_000):
        shapes.setdefault(origin, set()).add(re.sub("[0-9]", "0", line))
    assert {len(each) for each in shapes.values()} == {1}
    assert 0.04 < len(shapes) / 2_000 < 0.07


def test_texts_of_an_origin_share_most_words() -> None:
    first: dict[int, list[str]] = {}
    for origin, text in texts(500):
        words = text.split()
        others = zip(words, first.setdefault(origin, words), strict=True)
        assert sum(one != other for one, other in others) <= 4
    assert 500 / 12 < len(first) < 500 / 5


def test_recall_and_wrong_marks_are_shares(tmp_path: Path) -> None:
    write_rows(tmp_path / "given", iter([(1, "a"), (1, "b"), (2, "c"), (1, "d"), (3, "e")]))
    columns = {"id": [4, 3, 2, 1, 0], "is_duplicate": [False, False, True, True, False]}
    (tmp_path / "out").mkdir()
    parquet.write_table(pa.table(columns), tmp_path / "out/rows.parquet")
    assert quality(tmp_path / "given", tmp_path / "out") == (1 / 2, 1 / 3)
    parquet.write_table(pa.table(columns).slice(1), tmp_path / "out/rows.parquet")
    with pytest.raises(SystemExit, match="holds 4 rows, not each of 5 once"):
        quality(tmp_path / "given", tmp_path / "out")
