"""Which extensions there are, and when each is used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import stream_dedup
from stream_dedup.native import EXTENSIONS, PURE_PYTHON, extension

FOLDER = Path(stream_dedup.__file__).parent


def test_every_cython_source_is_listed_as_an_extension() -> None:
    sources = {path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.pyx")}
    assert {".".join(path.parts) for path in sources} == set(EXTENSIONS)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_is_used_unless_python_is_asked_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PURE_PYTHON, raising=False)
    assert extension(name).__name__ == f"stream_dedup.{name}"

    monkeypatch.setenv(PURE_PYTHON, "1")
    assert extension(name) is None


def test_an_extension_that_was_not_compiled_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PURE_PYTHON, raising=False)
    monkeypatch.setitem(sys.modules, "stream_dedup.tables._native", None)
    assert extension("tables._native") is None
