"""The kernel's port: a batch of texts in, arrays of numbers out. Native, or the reference.

The native kernel (`_kernel`, Cython) does a whole batch in one call without the GIL; the
reference (`reference`) says the same in plain Python. Property tests hold them equal. Which one
serves is decided once, here: the native one where it was built, unless the environment variable
``STREAM_DEDUP_PURE_PYTHON`` is set to anything. Recipes that rebuild other systems' fingerprints
have the reference alone (`is_native`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stream_dedup.features.recipe import Recipe
from stream_dedup.fingerprint.numbers import Fingerprints, Segments
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.simhash import WIDTHS
from stream_dedup.native import extension, warn_if_not_compiled


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


def native_module() -> Any:  # noqa: ANN401 -- a compiled module, or None
    """The compiled kernel, or None where it is not used. Warns once where it was not compiled."""
    warn_if_not_compiled()
    return extension("fingerprint._kernel")


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
