"""The inputs that the fuzzer has kept, without sanitisers: native and reference still agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, Source

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_give_what_the_reference_gives(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())

    assert inputs
    for path in inputs:
        TARGETS[name](Source(path.read_bytes()))


def test_each_folder_of_inputs_has_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
