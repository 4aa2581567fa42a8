"""Extractors: functions from a text's bytes to its features.

``words`` and ``characters`` are extracted by the kernel itself (by `prepare` where a table weights
anything but single words). Any other extractor is a function
``(text: bytes) -> iterable of (feature: bytes, weight: int)``: a built-in one, an entry point of
the group ``stream_dedup.extractors``, or ``module:function``. It is called once an event, in
Python, and must neither block nor fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import entry_points

from stream_dedup.errors import RecipeError
from stream_dedup.features import structure

Extractor = Callable[[bytes], Iterable[tuple[bytes, int]]]

ENTRY_POINT_GROUP = "stream_dedup.extractors"
KERNEL_EXTRACTORS = ("words", "characters")
"""Extractors that are part of the kernel."""

_LETTERS = re.compile(r"[^\W\d_]+")
_MODULE_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def letters(text: bytes) -> Iterable[tuple[bytes, int]]:
    """Yield single letters in lower case: near for anagrams and typing errors.

    >>> [letter for letter, _ in letters(b"R2-D2!")]
    [b'r', b'd']
    """
    for word in _LETTERS.findall(text.decode("utf-8", "replace").lower()):
        for letter in word:
            yield letter.encode(), 1


def syllables(text: bytes) -> Iterable[tuple[bytes, int]]:
    """Yield pairs of neighbouring letters within words, in lower case, similar to syllables.

    Laughter of any length has the same pairs, and a scream has others:

    >>> sorted(set(syllables(b"hahahahaha!"))), sorted(set(syllables(b"aaaaaaahhhhhhh!")))
    ([(b'ah', 1), (b'ha', 1)], [(b'aa', 1), (b'ah', 1), (b'hh', 1)])
    """
    for word in _LETTERS.findall(text.decode("utf-8", "replace").lower()):
        for start in range(max(1, len(word) - 1)):
            yield word[start : start + 2].encode(), 1


_FUNCTIONS: dict[str, Extractor] = {
    "syllables": syllables,
    "letters": letters,
    **structure.EXTRACTORS,
}
BUILT_IN = (*KERNEL_EXTRACTORS, *_FUNCTIONS)


def is_extractor_name(name: str) -> bool:
    """Return whether `name` could be an extractor, without importing anything."""
    return (
        name in BUILT_IN
        or _MODULE_FUNCTION.fullmatch(name) is not None
        or name in entry_points(group=ENTRY_POINT_GROUP).names
    )


def load_extractor(name: str, recipe_name: str) -> Extractor:
    """Return an extractor by its name; ``module:function`` imports the module.

    Raises:
        RecipeError: it cannot be imported, or is not a function.
    """
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    try:
        if ":" in name:
            module, _, function = name.partition(":")
            found = getattr(import_module(module), function)
        else:
            found = entry_points(group=ENTRY_POINT_GROUP)[name].load()
    except (ImportError, AttributeError, KeyError) as error:
        problem = f"{name!r} cannot be imported ({error})"
        remedy = "install its package, or correct the name"
        raise RecipeError(recipe_name, "features.extractor", problem, remedy) from error
    if not callable(found):
        problem = f"{name!r} is not a function"
        remedy = "name a function from bytes to (feature, weight) pairs"
        raise RecipeError(recipe_name, "features.extractor", problem, remedy)
    extractor: Extractor = found
    return extractor
