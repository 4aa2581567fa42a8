"""What a worker asks of its process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PIECES = """
import resource
from stream_dedup.worker.tuning import tune

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        pieces = [bytes(300_000), bytes(700_000), bytes(2_000_000)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
untuned = faults()
tune()
faults()
print(untuned, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are not told")
def test_memory_of_what_is_read_and_sent_is_kept_for_the_next() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PIECES], capture_output=True, text=True, check=True, timeout=60
    )
    untuned, tuned = map(int, run.stdout.split())
    assert tuned < 1_000 < untuned
