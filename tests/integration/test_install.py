"""Installing from source, with a compiler and without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES = b"disk sda1 is 91% full\ndisk sdb7 is 64% full\nout of memory\n"


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command that must succeed."""
    done: subprocess.CompletedProcess[bytes] = subprocess.run(  # type: ignore[call-overload]
        [str(part) for part in command], capture_output=True, check=False, **options
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the checkout, without anything that was built in it."""
    copy = tmp_path / "source"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "stream_dedup", copy / "stream_dedup", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def test_without_a_compiler_the_install_succeeds_and_the_reference_serves(
    tmp_path: Path, source: Path
) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    no_compiler = {**os.environ, "CC": "/nonexistent/cc", "CXX": "/nonexistent/c++"}
    run(python, "-m", "pip", "install", "--quiet", source, env=no_compiler)

    built = list((tmp_path / "venv").glob("lib/*/site-packages/stream_dedup/**/*.so"))
    command = tmp_path / "venv" / "bin" / "stream-dedup"
    done = run(command, "dedup", "--emit", "drop", input=LINES, cwd=tmp_path)

    assert [] == built
    assert b"disk sda1 is 91% full\nout of memory\n" == done.stdout
    assert 1 == done.stderr.count(b"without its native kernel")
    assert b"apt-get install gcc" in done.stderr


def test_a_wheel_holds_the_native_kernel_the_recipes_and_the_types(
    tmp_path: Path, source: Path
) -> None:
    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", source)

    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")

    assert 3 == sum(name.endswith(".so") for name in names)
    assert "stream_dedup/features/recipes/logs.toml" in names
    assert "stream_dedup/py.typed" in names
    assert archive.stat().st_size > 0
