"""Run one target under Atheris, against the extensions in ``build/fuzz``; see ``__main__``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "build" / "fuzz" / "lib"))

import atheris

with atheris.instrument_imports(include=["stream_dedup", "tests.fuzz.targets"]):
    from tests.fuzz.targets import TARGETS, Source

from stream_dedup.fingerprint import _kernel


def main() -> None:
    """Run the target that the first argument names; the others are libFuzzer's."""
    assert "build/fuzz" in _kernel.__file__
    target = TARGETS[sys.argv.pop(1)]

    def once(data: bytes) -> None:
        target(Source(data))

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


main()
