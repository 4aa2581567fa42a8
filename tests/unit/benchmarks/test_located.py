"""Sets labelled by code location: how lines become a set, and the sets as they are."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from benchmarks.datasets import load_datasets
from benchmarks.located.etcd import lines_of
from benchmarks.located.labels import MAX_LINES, Line, write_set
from benchmarks.located.python_logging import Located
from docs.blocks import ROOT

SETS = ROOT / "benchmarks" / "located" / "sets"


def test_a_set_holds_so_many_lines_of_a_place(tmp_path: Path) -> None:
    lines = [Line("a.py:1", f"on box {n}\n  at night", "on box <*>") for n in range(MAX_LINES + 5)]
    lines.append(Line("a.py:2", "said box", ""))
    assert write_set(tmp_path, "A", lines, ["box"]) == MAX_LINES + 1
    (found,) = load_datasets(tmp_path)
    assert found.lines[7] == b"on host 7 at night"
    assert found.truth[-1] == "a.py:2"
    assert found.templates == {"a.py:1": "on host <*>"}


def test_places_with_several_templates_have_none(tmp_path: Path) -> None:
    write_set(tmp_path, "A", [Line("a.py:1", "x", "x"), Line("a.py:1", "y", "y")])
    assert load_datasets(tmp_path)[0].templates == {}


def test_a_record_of_logging_knows_its_place_and_template() -> None:
    located = Located("here")
    logger = logging.getLogger("here.there")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(located)
    logger.propagate = False
    logger.warning("took %d ms", 7)
    logging.getLogger("elsewhere").addHandler(located)
    (line,) = located.lines
    assert line.place.startswith("benchmarks/test_located.py:")
    assert line[1:] == ("WARNING took 7 ms", "WARNING took <*> ms")


def test_lines_of_etcd_lose_time_and_place(tmp_path: Path) -> None:
    log = tmp_path / "m1.log"
    log.write_text(
        '2024-01-01T00:00:00Z\tinfo\tembed/etcd.go:124\tready\t{"a": 1}\n'
        "2024-01-01T00:00:00Z\twarn\tzapgrpc/zapgrpc.go:176\t[core] closed\n"
        "goroutine 1 [running]:\n",
        "utf-8",
    )
    assert list(lines_of(log)) == [Line("embed/etcd.go:124", 'info\tready\t{"a": 1}')]


def test_the_sets_are_those_that_the_readme_lists() -> None:
    readme = (SETS.parent / "README.md").read_text("utf-8")
    rows = re.findall(r"^(\| `\w+` \| [\d,]+ \| \d+ \|)", readme, re.MULTILINE)
    sets = load_datasets(SETS)
    assert sorted(f"| `{one.name}` | {len(one):,} | {len(set(one.truth))} |" for one in sets) == (
        sorted(rows)
    )
