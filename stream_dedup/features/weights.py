"""Weights by file: lines ``feature<TAB>weight``, and lists of stop words.

Both become the recipe's table when it is loaded, so the words themselves are part of its digest,
and a file that changes is another recipe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TextIO

from stream_dedup.errors import RecipeError

MAX_WEIGHT = 1000
_WEIGHT = re.compile("[0-9]{1,9}")
MAX_LINES = 1_000_000
"""A vocabulary larger than this is a mistake, and would be held in memory by every worker."""

MAX_LINE = 65_536
"""Characters of a line; a longer one is a file that is no table."""


def read_weights(path: Path, recipe_file: str) -> dict[str, int]:
    """Read a table of weights.

    Blank lines and lines that start with ``#`` are passed over; the last line for a feature wins.

    Args:
        path: the table.
        recipe_file: what errors call the recipe that names it.

    Raises:
        RecipeError: names the line that is wrong.
    """
    key = "features.weights.file"
    table: dict[str, int] = {}
    with _opened(path, recipe_file, key) as file:
        for number, line in _lines(file, path, recipe_file, key):
            feature, _, weight = line.rstrip("\r\n").rpartition("\t")
            if not feature or not _WEIGHT.fullmatch(weight) or int(weight) > MAX_WEIGHT:
                problem = f"{path}:{number}: {line.strip()!r} is not feature<TAB>weight"
                remedy = f"write a whole number from 0 to {MAX_WEIGHT} behind a tab"
                raise RecipeError(recipe_file, key, problem, remedy)
            table[feature] = int(weight)
    return table


def stop_lists() -> list[str]:
    """The names of the stop-word lists that come with the package."""
    folder = resources.files("stream_dedup.features") / "stop_words"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if ".txt" in entry.name)


def read_stop_words(name: str, folder: Path, recipe_file: str) -> list[str]:
    """Read a list of stop words: a word a line, white space around it aside.

    Blank lines and lines that start with ``#`` are passed over.

    Args:
        name: a list that comes with the package, or a file's path.
        folder: what the path is relative to.
        recipe_file: what errors call the recipe that names it.

    Raises:
        RecipeError: there is no such list, or it cannot be read.
    """
    key = "features.weights.stop_words"
    if name in stop_lists():
        place = resources.files("stream_dedup.features") / "stop_words" / f"{name}.txt"
        lines = place.read_text("utf-8").splitlines()
        return [line for line in lines if not line.startswith("#")]
    if os.sep not in name and "." not in name:
        known = ", ".join(stop_lists())
        problem = f"no list is named {name!r}"
        raise RecipeError(recipe_file, key, problem, f"use {known}, or a file such as words.txt")
    path = folder / name
    with _opened(path, recipe_file, key) as file:
        return [line.strip() for _, line in _lines(file, path, recipe_file, key)]


@contextmanager
def _opened(path: Path, recipe_file: str, key: str) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8") as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a path that holds a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "not UTF-8"
        problem = f"{path} cannot be read ({reason})"
        raise RecipeError(recipe_file, key, problem, "check path and permissions") from error


def _lines(file: TextIO, path: Path, recipe_file: str, key: str) -> Iterator[tuple[int, str]]:
    """(number, line) of the lines that say something."""
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        if number > MAX_LINES:
            problem = f"{path} has more than {MAX_LINES} lines"
            raise RecipeError(recipe_file, key, problem, "keep the features that matter")
        if len(line) == MAX_LINE:
            problem = f"{path}:{number} has more than {MAX_LINE} characters"
            raise RecipeError(recipe_file, key, problem, "give a table of features, one a line")
        if line.strip() and not line.startswith("#"):
            yield number, line
