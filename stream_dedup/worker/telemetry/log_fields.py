"""What may stand in a log line: no secrets, nothing a terminal or a parser would obey. Pure.

Secrets are not logged to begin with; hiding them here is a backstop, by the name of a field and by
what stands before them in a text. It may hide too much, and cannot find a secret without a name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

HIDDEN = "[hidden]"

MAX_CHARS = 20_000
"""Characters logged of one text; a long traceback has half of it."""

_MAX_DEPTH = 6
_MAX_ITEMS = 100

_SECRET_NAME = re.compile(
    r"passw|passphrase|pwd|secret|sasl|credential|(?:api|private|access)[-_.]?key|authorization"
    r"|(?:^|[^a-z])token(?:$|[^a-z])|[a-z]Token$|^auth$",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^\s/@:]*:)[^\s/@]+(?=@)")
_IN_TEXT = re.compile(
    r"""((?:passwords?|passwd|passphrase|pwd|secret|token|sasl[\w.]{0,40}password|api[-_]?key)"""
    r"""["']?\s{0,3}[=:]\s{0,3})(?:"[^"]*"|'[^']*'|[^\s,;&'"]+)""",
    re.IGNORECASE,
)


def clean(value: object, *, lines: bool = False, depth: int = 0) -> object:
    """A value as it may be logged: of plain types, secrets hidden, texts escaped and cut.

    >>> clean({"user": "sam", "password": "hunter2", "line": b"a\\x1b[2Jb"})
    {'user': 'sam', 'password': '[hidden]', 'line': 'a\\\\x1b[2Jb'}

    Args:
        value: anything.
        lines: whether ends of lines and tabs may stand, as in a traceback.
        depth: how deep inside a field it stands.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, str | bytes) or depth >= _MAX_DEPTH:
        return clean_text(_as_text(value), lines=lines)
    if isinstance(value, Mapping):
        return {
            clean_text(str(key)): HIDDEN if is_secret(str(key)) else clean(item, depth=depth + 1)
            for key, item in list(value.items())[:_MAX_ITEMS]
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item, depth=depth + 1) for item in list(value)[:_MAX_ITEMS]]
    return clean_text(_as_text(value), lines=lines)


def is_secret(name: str) -> bool:
    """Whether a field of this name holds a secret.

    >>> list(map(is_secret, ("user", "tokens", "token", "sasl.password", "authToken")))
    [False, False, True, True, True]
    """
    return _SECRET_NAME.search(name) is not None


def clean_text(text: str, *, lines: bool = False) -> str:
    r"""A text with secrets hidden and what is not printable escaped.

    >>> clean_text("redis://me:hunter2@host/0\x1b[2J\n")
    'redis://me:[hidden]@host/0\\x1b[2J\\n'
    """
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}…"
    text = _IN_URL.sub(rf"\1{HIDDEN}", text)
    text = _IN_TEXT.sub(rf"\1{HIDDEN}", text)
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 -- a log line must not stop the work
        return f"<{type(value).__name__}, which cannot be shown: {type(error).__name__}>"
