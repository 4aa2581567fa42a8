"""Matching whole files of fingerprints: all near pairs, and the clusters that they form.

`kernel` is the native module (`_native`, Cython), or `reference`, which has the same contents in
plain Python, where that was not compiled or `STREAM_DEDUP_PURE_PYTHON` is set.
"""

from typing import TYPE_CHECKING

from stream_dedup.native import extension, warn_if_not_compiled

if TYPE_CHECKING:
    from stream_dedup.offline import reference as kernel
else:
    kernel = extension("offline._native")
    if kernel is None:
        from stream_dedup.offline import reference as kernel

        warn_if_not_compiled()

__all__ = ["kernel"]
