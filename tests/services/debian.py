"""Programs that tests run, installed where they are missing and may be."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.services.processes import file_lock


def find_program(program: str, package: str, what_for: str) -> Path:
    """A program's path; on Debian, as root, its package is installed if it is missing.

    Args:
        program: what is run.
        package: Debian's package that has it.
        what_for: begins the sentence that says what to do where it cannot be had.
    """
    if shutil.which(program) is None and may_install():
        _install(program, package)
    found = shutil.which(program)
    if found is None:
        pytest.fail(
            f"{what_for}: install {program}, so that it is on the PATH"
            f" (Debian: apt-get install {package})"
        )
    return Path(found)


def may_install() -> bool:
    """Whether packages can be installed here: on Debian, as root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install(program: str, package: str) -> None:
    with file_lock(Path(tempfile.gettempdir()) / "stream-dedup-services-apt.lock"):
        if shutil.which(program) is not None:
            return  # another run has done it meanwhile
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        wait = "DPkg::Lock::Timeout=120"
        for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
            done = subprocess.run(
                ["apt-get", "-q", "-o", wait, *command],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                pytest.fail(f"apt-get {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
