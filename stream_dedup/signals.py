"""Which signals end a process that runs until it is told to end."""

from __future__ import annotations

import signal


def ending() -> list[signal.Signals]:
    """Return SIGINT, SIGTERM and SIGHUP; the last one not where it is ignored, as under `nohup`."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
