"""A handler for Python's logging that keeps where each record comes from.

The place of a record is its file, from the package on, and line; its template is the format string,
where the caller left the formatting to logging.
"""

from __future__ import annotations

import logging
from pathlib import Path

from benchmarks.located.labels import Line, template_of


class Located(logging.Handler):
    """Collects records as `Line`s: level, then message.

    Args:
        packages: only records from these are kept, by their loggers' names.
    """

    def __init__(self, *packages: str) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self._packages = packages

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        top = record.name.partition(".")[0]
        if top not in self._packages:
            return
        parts = Path(record.pathname).parts
        place = "/".join(parts[parts.index(top) :] if top in parts else parts[-2:])
        template = ""
        if isinstance(record.msg, str) and record.args:
            template = f"{record.levelname} {template_of(record.msg)}"
        elif record.msg == record.getMessage():
            template = f"{record.levelname} {record.msg}"
        self.lines.append(
            Line(f"{place}:{record.lineno}", f"{record.levelname} {record.getMessage()}", template)
        )
