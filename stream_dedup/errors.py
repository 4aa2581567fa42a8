"""The errors, as a tree.

::

    StreamDedupError            everything this package raises on purpose
    ├── RecipeError             a recipe is wrong: names file, key, value and remedy
    ├── InputError              a file cannot be read, or an option does not fit it
    ├── ProtocolError           an index was called out of turn: a bug in the caller
    │   └── StaleFence          another worker owns the partition now: drop the batch, unsent
    └── RecipeMismatch          the namespace belongs to another recipe

Errors of a driver or the system arrive as one of these, with the original as ``__cause__``.
"""

from __future__ import annotations


class StreamDedupError(Exception):
    """Base of every error this package raises on purpose."""


class RecipeError(StreamDedupError):
    """A recipe is wrong.

    Attributes:
        file: where the recipe came from.
        key: dotted path of the setting, empty when the whole file is meant.
    """

    def __init__(self, file: str, key: str, problem: str, remedy: str) -> None:
        self.file = file
        self.key = key
        place = f"{file}: {key}" if key else file
        super().__init__(f"{place}: {problem}; {remedy}")


class InputError(StreamDedupError):
    """An input cannot be read, or an option does not fit it."""


class ProtocolError(StreamDedupError):
    """An index was called out of turn."""


class StaleFence(ProtocolError):  # noqa: N818 -- named for what it says, as the port's docs do
    """Another worker has claimed the partition since; nothing was written."""


class RecipeMismatch(StreamDedupError):  # noqa: N818 -- as above
    """A namespace is stamped with the digest of another recipe."""

    def __init__(self, namespace: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"namespace {namespace!r} holds fingerprints of recipe {theirs}, not of {ours}; "
            "use the recipe it was made with, or another namespace"
        )
