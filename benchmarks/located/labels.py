"""Sets of log lines labelled by code location: from a program's own log to a `*.tsv.gz`.

A program that logs where it logs from labels its lines itself: two lines of one place in the code
are one event, whatever their words. That is nearer to the truth than a label given by a person or
a parser, but not the same: a place that logs a whole object, or a message it was given, is one
label, and a finer split can be right for a reader.

One label has at most `MAX_LINES` lines, the first ones, so that a place that logs a thousand times
a second is not the whole set. A line is one line: line feeds within a message become spaces.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

MAX_LINES = 800
"""Lines of one label."""

TEMPLATE_HEADER = ("EventId", "EventTemplate")
"""The columns of a file of templates, as in LogHub's."""

_BREAK = re.compile(r"\s*[\r\n]\s*")
_ARGUMENT = re.compile(r"%(?:\(\w+\))?[-+ #0]*[\d*]*(?:\.\d+)?[sdrifgxX]")


class Line(NamedTuple):
    """A line with its origin.

    Attributes:
        place: file and line in the code.
        text: the line without its time.
        template: the text with `<*>` for each argument, where the program knows it; else empty.
    """

    place: str
    text: str
    template: str = ""


def template_of(message: str) -> str:
    """Return the format string of Python's logging as a template.

    >>> template_of("Got %d items in %.2f s from %(host)s")
    'Got <*> items in <*> s from <*>'
    """
    return _ARGUMENT.sub("<*>", message).replace("%%", "%")


def write_set(folder: Path, name: str, lines: Iterable[Line], hidden: Sequence[str] = ()) -> int:
    """Write a set and, where lines have templates, `NAME.log_templates.csv.gz` beside it.

    Templates are written for the places whose lines have one and the same.

    Args:
        folder: where to write.
        name: of the set.
        lines: in the order of the log.
        hidden: texts of this machine, as its host's name; `host` takes their place.

    Returns:
        How many lines were written.
    """
    seen: Counter[str] = Counter()
    templates: dict[str, set[str]] = {}
    rows = ["event_id\tcontent"]
    for line in lines:
        text = _clean(line.text, hidden)
        seen[line.place] += 1
        if seen[line.place] > MAX_LINES or not text:
            continue
        rows.append(f"{line.place}\t{text}")
        templates.setdefault(line.place, set()).add(_clean(line.template, hidden))
    _write(folder / f"{name}.tsv.gz", "\n".join(rows) + "\n")
    known = {place: one for place, (one, *more) in templates.items() if one and not more}
    if known:
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([TEMPLATE_HEADER, *known.items()])
        _write(folder / f"{name}.log_templates.csv.gz", table.getvalue())
    return len(rows) - 1


def _clean(text: str, hidden: Sequence[str]) -> str:
    for name in hidden:
        text = re.sub(rf"\b{re.escape(name)}\b", "host", text)
    return _BREAK.sub(" ", text.strip())


def _write(path: Path, text: str) -> None:
    """Write a text, compressed; the same text gives the same bytes."""
    path.write_bytes(gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0))
