"""Builds the C++ simhash library's commands, where its sources lie beside this checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "shared" / "peers" / "simhash-cpp"
"""The library's checkout: ``src``, ``include`` and the commands in ``src/bin``."""

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stream-dedup-tests"

FLAGS = ("-O3", "-march=native", "-std=c++11")


def command(name: str) -> Path:
    """The built command, ``simhash-find-all`` or ``simhash-find-clusters``; built once a version.

    Raises:
        RuntimeError: there is no C++ compiler, or it fails.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise RuntimeError("no g++ was found; install it (Debian: apt-get install g++)")
    files = [*sorted(SOURCES.glob("src/*.cpp")), SOURCES / "src" / "bin" / f"{name}.cpp"]
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in (*files, *sorted(SOURCES.glob("include/*.h"))):
        digest.update(path.read_bytes())
    CACHE.mkdir(parents=True, exist_ok=True)
    built = CACHE / f"{name}-{digest.hexdigest()[:16]}"
    with (CACHE / "simhash-cpp.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            part = built.with_suffix(".part")
            done = subprocess.run(
                [compiler, *FLAGS, f"-I{SOURCES / 'include'}", *files, "-o", part],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{name} cannot be built: {done.stderr}")
            part.rename(built)
    return built
