"""Matching whole files of fingerprints: all near pairs, and the clusters that they form.

`kernel` is the native module (`_native`, Cython), or `reference`, which has the same contents in
plain Python, where that was not compiled or `STREAM_DEDUP_PURE_PYTHON` is set.
"""

from typing import TYPE_CHECKING

from stream_dedup.native import module_or, warn_if_not_compiled
from stream_dedup.offline import reference

if TYPE_CHECKING:
    kernel = reference
else:
    warn_if_not_compiled()
    kernel = module_or("offline._native", reference)

__all__ = ["kernel"]
