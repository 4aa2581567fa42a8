"""Files that recipes name: ``feature<TAB>weight`` lines, lists of stop words, and of passages.

Their lines become part of the recipe when it is loaded. So the words themselves are part of the
recipe's digest, and with a changed file it is another recipe.
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
"""A larger vocabulary is a mistake, and every worker would hold it in memory."""

MAX_LINE = 65_536
"""Maximum characters of a line; a file with longer lines is not a table."""


def read_weights(path: Path, recipe_file: str) -> dict[str, int]:
    """Read a table of weights.

    Blank lines and lines that start with ``#`` are skipped; the last line for a feature wins.
    `recipe_file` names the recipe in errors.

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
    """Return the names of the shipped lists of stop words."""
    folder = resources.files("stream_dedup.features") / "stop_words"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if ".txt" in entry.name)


def read_stop_words(name: str, folder: Path, recipe_file: str) -> list[str]:
    """Read a list of stop words, one a line. Blank lines and lines with ``#`` are skipped.

    Args:
        name: a shipped list, or a file's path, relative to `folder`.
        folder: the recipe's.
        recipe_file: names the recipe in errors.

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


def read_passages(path: Path, recipe_file: str) -> list[str]:
    """Read passages of boilerplate, one a line. Blank lines and lines with ``#`` are skipped.

    Raises:
        RecipeError: the file cannot be read.
    """
    key = "text.boilerplate_file"
    with _opened(path, recipe_file, key) as file:
        return [line.strip() for _, line in _lines(file, path, recipe_file, key)]


@contextmanager
def _opened(path: Path, recipe_file: str, key: str) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8") as file:
            yield file
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "not UTF-8"
        problem = f"{path} cannot be read ({reason})"
        raise RecipeError(recipe_file, key, problem, "check path and permissions") from error


def _lines(file: TextIO, path: Path, recipe_file: str, key: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of the lines that are neither blank nor comments."""
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
