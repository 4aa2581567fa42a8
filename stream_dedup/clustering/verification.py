"""Verification: how much two events have in common, from their sketches.

A sketch holds the least distinct feature hashes of an event, up to `SKETCH_SIZE`, eight bytes
each, ascending. Below that size it is the whole set and the Jaccard index is exact; above, the
least hashes of the union are a random sample of it (Broder, 1997), and the share of the sample
that both hold estimates the index.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from stream_dedup.fingerprint.kernel import native_module
from stream_dedup.fingerprint.numbers import SKETCH_SIZE

SKETCH_BYTES = SKETCH_SIZE * 8
"""A sketch of this size may have been cut."""


def reference_jaccard(left: bytes, right: bytes) -> float:
    """Shared over all distinct features of two sketches; two empty ones are equal.

    >>> a, b = (array("Q", hashes).tobytes() for hashes in ([1, 2, 3], [2, 3, 4]))
    >>> reference_jaccard(a, b)
    0.5
    """
    if left == right:
        return 1.0
    ours, theirs = set(array("Q", left)), set(array("Q", right))
    union = ours | theirs
    if len(left) >= SKETCH_BYTES or len(right) >= SKETCH_BYTES:
        union = set(sorted(union)[:SKETCH_SIZE])
    return len(union & ours & theirs) / len(union)


def fastest_jaccard() -> Callable[[bytes, bytes], float]:
    """The same, natively where the kernel was built."""
    native = native_module()
    return native.jaccard if native else reference_jaccard
