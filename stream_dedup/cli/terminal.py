"""How lines look on a terminal: control characters escaped, variables and counts in colour.

A terminal obeys control characters, so a line of a log could clear the screen, hide what follows,
or look like a summary. Where output goes to a terminal, or is coloured, such characters are shown
as escapes; a pipe gets every line as it came.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Literal

import click
from rich.cells import cell_len, set_cell_size

from stream_dedup.features.patterns import Patterns

Colour = Literal["auto", "always", "never"]

_VARIABLE = "\x1b[36m"
_COUNT = "\x1b[33m"
_DIM = "\x1b[2m"
_RESET = "\x1b[0m"

# Controls but tab and line feed; characters that change the direction of a text, or are not seen.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
PLACEHOLDER = re.compile(r"<(?:[a-z0-9_]+|\*)>")


def wants_colour(choice: Colour) -> bool:
    """Return whether to colour standard output: ``auto`` asks the terminal and NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def escaped(data: bytes) -> str:
    """Return bytes as text that a terminal shows and does not obey; tabs and line feeds stay."""
    text = data.decode("utf-8", "backslashreplace")
    if _OBEYED.search(text) is None:
        return text
    text = text.replace("\r\n", "\n")
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped_json(data: bytes) -> bytes:
    """Return JSON lines that a terminal shows and does not obey; their values stay the same."""
    text = data.decode("utf-8", "backslashreplace")
    if _OBEYED.search(text) is None:
        return data
    return _OBEYED.sub(_json_escape, text).encode()


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def note(text: str) -> None:
    """Write a message on standard error; on a terminal, control characters of names are escaped."""
    if sys.stderr.isatty():
        text = escaped(text.encode("utf-8", "backslashreplace"))
    click.echo(f"stream-dedup: {text}", err=True)


def cut_to(text: str, width: int) -> str:
    """Return a text that is no wider than a terminal, or than what is left of its line."""
    if cell_len(text) <= max(0, width):
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def coloured_line(line: bytes, patterns: Patterns) -> str:
    """Return a line, escaped, with its variable parts in colour."""
    line = line.removesuffix(b"\r")
    parts: list[str] = []
    at = 0
    for start, end in patterns.variables(line):
        if start == end:  # an empty value
            continue
        parts += escaped(line[at:start]), _VARIABLE, escaped(line[start:end]), _RESET
        at = end
    parts.append(escaped(line[at:]))
    return "".join(parts)


def coloured_summary(count: str, place: str, pattern: str) -> str:
    """Return the parts of a summary as one line, in colour."""
    return f"{_COUNT}{count}{_RESET} {_DIM}{place}{_RESET} {coloured_pattern(pattern)}"


def coloured_pattern(pattern: str) -> str:
    """Return a pattern with its placeholders in colour."""
    return PLACEHOLDER.sub(rf"{_VARIABLE}\g<0>{_RESET}", pattern)
