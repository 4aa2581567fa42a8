"""Processes of workers and callers: each begins when it is told to, and writes lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tests.services.processes import REPOSITORY


@contextmanager
def started(module: str, job: msgspec.Struct) -> Iterator[subprocess.Popen[str]]:
    """The process of a job: a module of this folder with that job."""
    command = [sys.executable, "-m", f"tests.integration.redis.{module}"]
    with subprocess.Popen(
        [*command, msgspec.json.encode(job).decode()],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
