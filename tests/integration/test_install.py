"""What is published, made and installed as a user does: with a compiler and without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from stream_dedup import __version__
from stream_dedup.native import EXTENSIONS
from tests.integration.command import run as run_command

ROOT = Path(__file__).resolve().parents[2]
LINES = b"disk sda1 is 91% full\ndisk sdb7 is 64% full\nout of memory\n"

READ = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
"""What is in the sdist beside the package, the manual pages, and what setuptools writes."""

VERSIONS = {
    "deploy/.env": r"^STREAM_DEDUP_IMAGE=\S+:(.+)$",
    "deploy/Dockerfile": r"^ARG VERSION=(.+)$",
    "deploy/helm/stream-dedup/Chart.yaml": r'^(?:version|appVersion): "?([^"\n]+)"?$',
    "docs/how-to/install.md": r"stream-dedup(?:\[worker\])?(?:==|~=|:|_dedup-)([0-9.]*[0-9])",
}
"""Where the version is written a second time, and how."""

MADE = re.compile(r"\.(so|c|pyc)$|(^|/)__pycache__(/|$)")
"""What building and running leave behind."""


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command that must succeed."""
    done: subprocess.CompletedProcess[bytes] = subprocess.run(  # type: ignore[call-overload]
        [str(part) for part in command], capture_output=True, check=False, **options
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done


def sources(root: Path) -> set[str]:
    """The files of the package and of the manual, as paths below `root`."""
    found = {path for folder in ("stream_dedup", "docs/man") for path in (root / folder).rglob("*")}
    names = {str(path.relative_to(root)) for path in found if path.is_file()}
    return {name for name in names if not MADE.search(name)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the checkout, without anything that was built in it."""
    copy = tmp_path / "source"
    for name in (*READ, *sources(ROOT)):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def fresh_environment(folder: Path) -> Path:
    """The folder of programs of a new virtual environment, which has pip alone."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin"


def test_without_a_compiler_the_install_works_with_the_reference(
    tmp_path: Path, source: Path
) -> None:
    programs = fresh_environment(tmp_path / "venv")
    no_compiler = {**os.environ, "CC": "/nonexistent/cc", "CXX": "/nonexistent/c++"}
    run(programs / "pip", "install", "--quiet", source, env=no_compiler)

    built = list((tmp_path / "venv").glob("lib/*/site-packages/stream_dedup/**/*.so"))
    command = programs / "stream-dedup"
    done = run(command, "dedup", "--emit", "drop", input=LINES, cwd=tmp_path)
    version = run(command, "--version", cwd=tmp_path)

    assert built == []
    assert done.stdout == b"disk sda1 is 91% full\nout of memory\n"
    assert done.stderr.count(b"without its native kernel") == 1
    assert b"apt-get install gcc" in done.stderr
    assert b"(kernel in Python: built without a C compiler, CPython 3." in version.stdout
    assert version.stderr == b""


def test_the_sdist_makes_a_wheel_that_installs_and_runs_natively(
    tmp_path: Path, source: Path
) -> None:
    # Without further options the wheel is built from the sdist, unpacked elsewhere.
    quick = {**os.environ, "CFLAGS": "-O0"}  # optimising would take most of the time
    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", source, env=quick)
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")

    _check_sdist(archive, {*READ, *sources(source)})
    _check_wheel(wheel, sources(source))

    programs = fresh_environment(tmp_path / "venv")
    run(programs / "pip", "install", "--quiet", wheel)
    done = run(programs / "stream-dedup", "dedup", "--emit", "drop", input=LINES, cwd=tmp_path)
    version = run(programs / "stream-dedup", "--version", cwd=tmp_path)

    assert (done.stdout, done.stderr) == (b"disk sda1 is 91% full\nout of memory\n", b"")
    assert f"stream-dedup {__version__} (native kernel, CPython 3.".encode() in version.stdout
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "stream-dedup.1").exists()


def _check_sdist(archive: Path, expected: set[str]) -> None:
    """All that builds is in it, and nothing else but what setuptools writes."""
    with tarfile.open(archive) as opened:
        names = {member.name.partition("/")[2] for member in opened if member.isfile()}
    written = {name for name in names if name.startswith("stream_dedup.egg-info/")}
    assert names - written - {"PKG-INFO", "setup.cfg"} == expected


def _check_wheel(wheel: Path, expected: set[str]) -> None:
    opened = zipfile.ZipFile(wheel)
    names = set(opened.namelist())
    inside = {
        name for name in names if not re.match(r"stream_dedup-[^/]+\.(dist-info|data)/", name)
    }
    native = {name for name in inside if name.endswith(".so")}
    manual = {name.rpartition("/")[2] for name in names if "/data/share/man/man1/" in name}
    assert len(EXTENSIONS) == len(native)
    assert {*(inside - native), *(f"docs/man/{name}" for name in manual)} == expected

    _check_metadata(opened.read(f"stream_dedup-{__version__}.dist-info/METADATA"))


def _check_metadata(text: bytes) -> None:
    """It is valid, and the readme's links lead somewhere from PyPI's page too."""
    metadata = Metadata.from_email(text, validate=True)
    description = metadata.description or ""
    assert metadata.description_content_type == "text/markdown"
    assert "](https://github.com/stream-dedup/stream-dedup/blob/main/docs/index.md)" in description
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", description) == []
    assert re.findall(r'(?:src|srcset)="(?!https?:)[^"]*"', description) == []


@pytest.mark.parametrize("name", VERSIONS)
def test_the_version_is_the_same_everywhere(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert set(re.findall(VERSIONS[name], text, re.MULTILINE)) == {__version__}


def test_the_version_names_the_kernel_and_the_python() -> None:
    done = run_command("--version")
    pure = run_command("--version", env={"STREAM_DEDUP_PURE_PYTHON": "1"})
    python = f"CPython {sys.version.split()[0]}, "
    start = f"stream-dedup {__version__} "
    assert done.out.decode().startswith(f"{start}(native kernel, {python}")
    assert pure.out.decode().startswith(
        f"{start}(kernel in Python: STREAM_DEDUP_PURE_PYTHON is set, {python}"
    )
    assert (done.err, pure.err) == ("", "")
