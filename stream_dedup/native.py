"""The native extensions: which there are, and whether each is used.

Each extension (Cython, a ``.pyx`` file) has a reference in plain Python with the same interface and
the same results; property tests compare the two. The extension is used where it was compiled,
unless the environment variable ``STREAM_DEDUP_PURE_PYTHON`` is set to anything.

Whoever uses one asks here: `native_or` for a function or class, `module_or` for a whole module, and
`extension` only to say what is in use.

`setup.py` runs this file for the list, so it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")

EXTENSIONS = (
    "columnar._native",
    "features._folding",
    "features._outcome_fields",
    "features._pieces",
    "fingerprint._kernel",
    "index.redis._commits",
    "index.redis._garbage",
    "index.redis._one_off",
    "index.redis._resp",
    "kafka._fastpath._batches",
    "offline._native",
    "tables._native",
)
"""The extensions, as modules below ``stream_dedup``."""

PURE_PYTHON = "STREAM_DEDUP_PURE_PYTHON"
"""Environment variable: where it is set to anything, the references are used."""


def extension(name: str) -> Any:  # noqa: ANN401 -- a compiled module has no types
    """Import one of `EXTENSIONS`.

    Returns:
        The compiled module; None where it was not compiled or the references are asked for.
    """
    if os.environ.get(PURE_PYTHON):
        return None
    try:
        return import_module(f"stream_dedup.{name}")
    except ImportError:
        return None


def native_or(name: str, member: str, reference: T) -> T:
    """Return a member of one of `EXTENSIONS`, or the reference where the extension is not used."""
    native = extension(name)
    found: T = getattr(native, member) if native else reference
    return found


def module_or(name: str, reference: ModuleType) -> ModuleType:
    """Return one of `EXTENSIONS`, or the module of the same contents where it is not used."""
    native: ModuleType | None = extension(name)
    return native or reference


@cache
def warn_if_not_compiled() -> None:
    """Warn, once a process, where the native kernel is wanted and was not compiled."""
    if os.environ.get(PURE_PYTHON) or extension("fingerprint._kernel"):
        return
    warnings.warn(
        "stream-dedup runs without its native kernel, some 20 times slower: it was installed "
        "without a C compiler. Install one (Debian: apt-get install gcc python3-dev) and "
        "reinstall with: pip install --force-reinstall --no-binary stream-dedup stream-dedup",
        RuntimeWarning,
        stacklevel=2,
    )
