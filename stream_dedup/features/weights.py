"""Weights by file: lines ``feature<TAB>weight``."""

from __future__ import annotations

import re
from pathlib import Path

from stream_dedup.errors import RecipeError

MAX_WEIGHT = 1000
_WEIGHT = re.compile("[0-9]{1,9}")
MAX_LINES = 1_000_000
"""A vocabulary larger than this is a mistake, and would be held in memory by every worker."""


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
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if number > MAX_LINES:
                    problem = f"{path} has more than {MAX_LINES} lines"
                    raise RecipeError(recipe_file, key, problem, "keep the features that matter")
                if not line.strip() or line.startswith("#"):
                    continue
                feature, _, weight = line.rstrip("\r\n").rpartition("\t")
                if not feature or not _WEIGHT.fullmatch(weight) or int(weight) > MAX_WEIGHT:
                    problem = f"{path}:{number}: {line.strip()!r} is not feature<TAB>weight"
                    remedy = f"write a whole number from 0 to {MAX_WEIGHT} behind a tab"
                    raise RecipeError(recipe_file, key, problem, remedy)
                table[feature] = int(weight)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        problem = f"{path} cannot be read ({reason})"
        raise RecipeError(recipe_file, key, problem, "check path and permissions") from error
    return table
