"""How the process is set up for a worker: threads, garbage and memory."""

from __future__ import annotations

import ctypes
import gc
import sys

SWITCH_S = 0.001
"""How long one thread may keep others from Python: short, as the kernel's waits for the loop's."""

GARBAGE_EVERY = (100_000, 50, 100)
"""How often the interpreter looks for garbage in cycles: rarely. Each look goes over the events on
their way, and neither they nor what is decided of them are in any."""

LARGEST_KEPT, MOST_KEPT = 32 << 20, 64 << 20
"""A piece of memory up to so many bytes is kept for the next when it is freed, and so many in all.

What is read and sent comes in pieces of some hundred kilobytes that live for milliseconds. The C
library (glibc) would give them back to the system each time, and to get their pages anew costs more
than to fill them.
"""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as malloc.h has them


def tune() -> None:
    """Set the interpreter up for a worker, once all is imported."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GARBAGE_EVERY)
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # other C libraries have none
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(_M_TRIM_THRESHOLD, MOST_KEPT)
