"""Which kernel serves: the native one, the reference on request, the reference where none is built.

All in processes of their own, as the choice is made once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, sys, warnings
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import stream_dedup
    from stream_dedup import Deduplicator
    from stream_dedup.fingerprint.fingerprinter import make_kernel
    lines = [line.encode("latin-1") for line in json.load(sys.stdin)]
    decisions = {}
    for recipe in ("logs", "words", "text"):
        made = Deduplicator(recipe, key=b"sixteen secrets!")
        decisions[recipe] = [
            [d.kind.value, d.cluster, d.distance]
            for start in range(0, len(lines), 20)
            for d in made.process(lines[start:start + 20])
        ]
    kernel = type(make_kernel(made.recipe, PUBLIC_KEY)).__module__
print(json.dumps({
    "file": stream_dedup.__file__, "kernel": kernel, "decisions": decisions,
    "warnings": [[w.category.__name__, str(w.message)] for w in caught],
}))
"""

CORPUS = [
    *(f"Failed password for user{i} from 10.0.0.{i} port {i}" for i in range(30)),
    *(f"Accepted {word} for root after {i} ms" for i, word in enumerate(["key", "password"] * 10)),
    *(f"the quick {animal} jumps over the lazy dog again and again" for animal in ["fox", "cat"]),
    *(f"Jan {i} 07:05:09 host /var/log/{i} \xff\x00 rotated" for i in range(9)),
    "",
    " ",
    "x" * 70_000,
    "GET /index.html took 3 ms",
]


def run(folder: Path, **environment: str) -> dict[str, Any]:
    kept = {k: v for k, v in os.environ.items() if k != "STREAM_DEDUP_PURE_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(CORPUS),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=kept | {"PYTHONPATH": str(folder)} | environment,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert Path(answer["file"]).is_relative_to(folder)
    return answer


def test_pure_python_decides_as_the_native_kernel_does(tmp_path: Path) -> None:
    native = run(ROOT)
    on_request = run(ROOT, STREAM_DEDUP_PURE_PYTHON="1")

    assert native["kernel"] == "stream_dedup.fingerprint._kernel"
    assert on_request["kernel"] == "stream_dedup.fingerprint.reference"
    assert native["decisions"] == on_request["decisions"]
    assert {kind for kind, *_ in native["decisions"]["logs"]} == {"new", "duplicate", "passed"}
    assert [] == native["warnings"] == on_request["warnings"]

    shutil.copytree(
        ROOT / "stream_dedup",
        tmp_path / "stream_dedup",
        ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"),
    )
    not_built = run(tmp_path)

    assert not_built["kernel"] == "stream_dedup.fingerprint.reference"
    assert native["decisions"] == not_built["decisions"]
    ((category, message),) = not_built["warnings"]
    assert category == "RuntimeWarning"
    assert "apt-get install gcc" in message
    assert "pip install --force-reinstall --no-binary stream-dedup stream-dedup" in message
