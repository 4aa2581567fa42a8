"""The kernel's port: a batch of texts in, arrays of numbers out. Native, or the reference.

The native kernel (`_kernel`, Cython) does a whole batch in one call without the GIL; the
reference (`reference`) says the same in plain Python. Property tests hold them equal. Which one
serves is decided once, here: the native one where it was built, unless the environment variable
``STREAM_DEDUP_PURE_PYTHON`` is set to anything. Recipes that rebuild other systems' fingerprints
have the reference alone (`is_native`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.numbers import Fingerprints, Segments
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.simhash import WIDTHS


class Kernel(Protocol):
    """What turns texts into numbers. Holds no state between calls; safe to share by threads."""

    def __init__(self, recipe: Recipe) -> None: ...

    def scan(self, texts: Sequence[bytes], full: bool) -> Fingerprints:
        """Texts of one part each, by the recipe's own extractor (words or characters).

        Args:
            texts: any bytes.
            full: whether fingerprints and sketches are wanted, or exact hashes alone.
        """

    def scan_segments(self, segments: Segments, full: bool) -> Fingerprints:
        """The same for events of several parts."""

    def fold(self, events: Sequence[Sequence[tuple[bytes, int, int]]], full: bool) -> Fingerprints:
        """Events whose (feature, weight, salt) triples another extractor has taken.

        Raises:
            TypeError: a feature is not bytes.
            ValueError: a weight is no whole number from 0 to `MAX_WEIGHT`.
        """


@cache
def native_module() -> Any:  # noqa: ANN401 -- a compiled module, or None
    """The compiled kernel, or None where it was not built. Warns once, if it is not there."""
    if os.environ.get("STREAM_DEDUP_PURE_PYTHON"):
        return None
    try:
        from stream_dedup.fingerprint import _kernel  # noqa: PLC0415 -- may not have been built
    except ImportError:
        warnings.warn(
            "stream-dedup runs without its native kernel, some 20 times slower: it was installed "
            "without a C compiler. Install one (Debian: apt-get install gcc python3-dev) and "
            "reinstall with: pip install --force-reinstall --no-binary stream-dedup stream-dedup",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    return _kernel


def is_native(recipe: Recipe) -> bool:
    """Whether the native kernel knows all that a recipe asks for."""
    features, fingerprint = recipe.features, recipe.fingerprint
    return (
        (fingerprint.hash, fingerprint.tie) == ("murmur3", "zero")
        and fingerprint.width in WIDTHS
        and features.window == "full"
        and features.delimiters != "space"
    )


def make_kernel(recipe: Recipe) -> Kernel:
    """The kernel for a recipe: the native one, if there is one that knows it, or the reference."""
    native = native_module() if is_native(recipe) else None
    if native is not None:
        kernel: Kernel = native.Kernel(recipe)
        return kernel
    return ReferenceKernel(recipe)
