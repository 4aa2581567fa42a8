"""The headers that workers write are described, each with its name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADER = re.compile(r"sd-[a-z]+(?:-[a-z]+)*")


def test_every_header_that_is_written_is_described() -> None:
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
    table = page.partition("| header | on | value |")[2].partition("\n\n")[0]
    described = {
        name for row in table.splitlines()[2:] for name in HEADER.findall(row.split("|")[1])
    }
    modules = [*(ROOT / "stream_dedup" / "emit").glob("*.py")]
    modules += (ROOT / "stream_dedup" / "worker").glob("*.py")
    source = "\n".join(path.read_text("utf-8") for path in modules)
    written = set(re.findall(rf'"({HEADER.pattern})"', source))

    assert described | {"sd-last-offset"} == written
