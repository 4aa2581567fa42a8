"""An extractor of one's own: the functions of a Python stack trace, the innermost heaviest."""

import re
from collections.abc import Iterable

FRAME = re.compile(rb"line [0-9]+, in (\S+)")


def functions(text: bytes) -> Iterable[tuple[bytes, int]]:
    """Yield the trace's functions; weight 1 for the outermost, up to 5 for the innermost."""
    frames = FRAME.findall(text)
    for number, frame in enumerate(frames):
        yield frame, max(1, 5 - (len(frames) - 1 - number))
