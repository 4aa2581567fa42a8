"""Durations, sizes and counts as text."""

from __future__ import annotations

import re

from stream_dedup.clock import US_PER_S

OFF = ("off", "never")
"""Words for an unlimited duration."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|kB|KB|KiB|MB|MiB|GB|GiB)?")
_BYTES = {
    "B": 1,
    "kB": 1_000,
    "KB": 1_000,
    "KiB": 1 << 10,
    "MB": 1_000_000,
    "MiB": 1 << 20,
    "GB": 1_000_000_000,
    "GiB": 1 << 30,
}


def counted(number: int, noun: str) -> str:
    """Return a number of things as text.

    >>> counted(1, "event"), counted(2_000, "event")
    ('1 event', '2,000 events')
    """
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def read_duration_us(text: str) -> float:
    """Return the microseconds in a duration; below one microsecond a fraction.

    >>> read_duration_us("1.5m")
    90000000.0

    Raises:
        ValueError: the text is not one.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    return float(match[1]) * _SECONDS[match[2]] * US_PER_S


def duration_text(seconds: float) -> str:
    """Return a duration as text, in the largest unit that leaves no fraction.

    >>> duration_text(0.02), duration_text(3600), duration_text(90)
    ('20ms', '1h', '90s')
    """
    if seconds == float("inf"):
        return OFF[0]
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(seconds, _SECONDS[unit])
        if number and not rest:
            return f"{number:.0f}{unit}"
    # Milliseconds with as many decimals as needed, never an exponent.
    digits = f"{seconds * 1000:.6f}".rstrip("0").rstrip(".")
    return f"{digits}ms" if seconds else "0s"


def read_size(text: str) -> int:
    """Return the bytes in a size.

    >>> read_size("1MiB"), read_size("2 kB"), read_size("100")
    (1048576, 2000, 100)

    Raises:
        ValueError: the text is not one.
    """
    match = _SIZE.fullmatch(text)
    size = float(match[1]) * _BYTES[match[2] or "B"] if match else None
    if size is None or not size.is_integer():
        raise ValueError(f"{text!r} is not a size")
    return int(size)


def size_text(size: int) -> str:
    """Return a size as text.

    >>> size_text(1 << 20), size_text(4096), size_text(1000)
    ('1MiB', '4KiB', '1000B')
    """
    for unit in ("GiB", "MiB", "KiB"):
        number, rest = divmod(size, _BYTES[unit])
        if number and not rest:
            return f"{number}{unit}"
    return f"{size}B"
