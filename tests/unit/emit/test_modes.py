"""Output modes."""

from __future__ import annotations

from typing import get_args

from stream_dedup.emit.modes import MODES, EmitMode


def test_every_mode_that_can_be_configured_is_described() -> None:
    assert set(MODES) == set(get_args(EmitMode))


def test_no_mode_writes_duplicates_and_counts_them_too() -> None:
    assert not [name for name, mode in MODES.items() if mode.duplicates and mode.summaries]
