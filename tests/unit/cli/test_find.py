from __future__ import annotations

import pytest

from stream_dedup.cli import common
from stream_dedup.cli.find import comparing_progress


def test_progress_is_a_line_at_times_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for every_s, quiet in ((0.0, False), (1000.0, False), (0.0, True)):
        monkeypatch.setattr(common, "LINE_EVERY_S", every_s)
        with comparing_progress(quiet=quiet) as progress:
            progress(3, 28)

    assert capfd.readouterr().err == "stream-dedup: 3 of 28 ranges are compared\n"
