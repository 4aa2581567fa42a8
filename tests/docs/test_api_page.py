"""The page of the Python interface is complete and up to date; `test_docs` runs its examples."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from docs.api_page import API_PAGE, PARTS
from docs.blocks import ROOT

NAMES = [(part.module, name) for part in PARTS for name in part.names]


def test_the_page_is_up_to_date() -> None:
    """The page is made in another process.

    CPython 3.11 counts how deep a tree is for all threads at once (python/cpython#106905), and
    those of tests before may be parsing.
    """
    made = subprocess.run(
        [sys.executable, "-c", "from docs.api_page import api_page; print(api_page(), end='')"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    assert made == API_PAGE.read_text("utf-8"), "run `make docs`"


@pytest.mark.parametrize("module", ["stream_dedup", "stream_dedup.testing"])
def test_every_public_name_of_a_module_is_on_the_page(module: str) -> None:
    given = set(importlib.import_module(module).__all__) - {"__version__"}
    here = {name for part, name in NAMES if part in {"stream_dedup", module}}
    assert given <= here


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_can_be_imported_and_is_described(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    sentence = (found.__doc__ or "").strip().splitlines()[0]
    assert sentence.endswith((".", ":"))
    _, _, below = API_PAGE.read_text("utf-8").partition(f"\n### {name}\n")
    section = below.partition("\n### ")[0]
    assert sentence in section


def test_methods_are_on_the_page_with_their_arguments() -> None:
    text = API_PAGE.read_text("utf-8")
    assert "#### Deduplicator.process\n" in text
    assert "\nprocess_one(value: Value, *, time_us: int | None = None" in text
    assert "_offset" not in text
