"""The scripts: common parts and a file for each, known to the server by their SHA-1."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from importlib import resources

from stream_dedup.index.redis.layouts import LUA_CONSTANTS

Argument = bytes | str | int
"""Of a script, or of a command."""


@dataclass(frozen=True)
class Script:
    """A script as the server gets it.

    Attributes:
        name: the file's name, without ``.lua``.
        text: shebang line, the common parts that it uses, and body, with the values of constants.
        sha: its name on the server.
    """

    name: str
    text: str
    sha: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest.encode())


_TOKEN = re.compile(r"--[^\n]*|'[^'\n]*'|\b[A-Z][A-Z0-9_]+\b")
"""Comments and texts, which are left as they are, and names of constants."""


def with_constants(lua: str) -> str:
    """Replace the constants of `layouts` by their values.

    >>> with_constants("c[C_OPENED_US] = byte(s, SNAPSHOT_STATE_AT)  -- C_OPENED_US")
    'c[1] = byte(s, 41)  -- C_OPENED_US'
    """
    return _TOKEN.sub(lambda match: LUA_CONSTANTS.get(match[0], match[0]), lua)


def _read(name: str) -> str:
    return (resources.files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


def _load(file: str, *parts: str, name: str = "", allow_oom: bool = False) -> Script:
    """Load the script of a file, with common parts before it.

    Args:
        file: its name.
        parts: of the others.
        name: of the script; the file's without.
        allow_oom: whether it runs though the server's memory is full, if the file does not say so.
    """
    shebang, _, body = _read(file).partition("\n")
    if allow_oom:
        shebang += " flags=allow-oom"
    return Script(name or file, f"{shebang}\n{with_constants(''.join(map(_read, parts)) + body)}")


OPEN = _load("open")
CLAIM_PARTITION = _load("claim_partition", "_lost")
READ_PARTITION = _load("read_partition", "_lost")
NOTE_COMMITTED = _load("note_committed", "_lost")
RELEASE_PARTITION = _load("release_partition", "_lost", "_shard")
RESOLVE = _load(
    "resolve", "_lost", "_shard", "_opening", "_sampled", "_search", "_simhash", "_words"
)
RESOLVE_BANDS = _load(
    "resolve", "_lost", "_shard", "_opening", "_sampled", "_search", "_bands", name="resolve_bands"
)
FORGET = _load("forget")
STEPS = _load("steps", "_lost", "_shard", "_opening", "_search", "_simhash")
REMOVING_STEPS = _load(
    "steps",
    "_lost",
    "_shard",
    "_opening",
    "_search",
    "_simhash",
    name="removing_steps",
    allow_oom=True,
)
"""The same for requests that remove entries."""
RECORD = _load("record", "_lost", "_shard", "_sampled", "_many")
FINISH = _load(
    "record", "_lost", "_finish", "_shard", "_sampled", "_many", name="finish", allow_oom=True
)
DROP = _load("drop", "_lost", "_shard", "_many")
SETTLE = _load("settle", "_lost", "_shard", "_many")
SWEEP = _load("sweep", "_lost", "_shard")
KEEP = _load("keep")
PURGE = _load("purge", "_lost")
CLAIM = _load("claim", "_lost", "_shard", "_sampled")
MERGE_FITTING = _load(
    "merge_fitting", "_lost", "_shard", "_sampled", "_search", "_words", "_owners"
)
COMBINE = _load("combine", "_lost", "_shard", "_search", "_words", "_owners")
CONFIRM = _load("confirm", "_lost", "_shard")
PERMISSIONS = _load("permissions")
RULES = _load("rules")
PATTERNS = _load("patterns")

ALL = (
    OPEN,
    CLAIM_PARTITION,
    READ_PARTITION,
    RELEASE_PARTITION,
    RESOLVE,
    RESOLVE_BANDS,
    RECORD,
    SWEEP,
    KEEP,
    PURGE,
    CLAIM,
    MERGE_FITTING,
    COMBINE,
    CONFIRM,
    NOTE_COMMITTED,
    PATTERNS,
)
"""Every script that a worker runs."""

SPREAD = (STEPS, REMOVING_STEPS, FINISH, DROP, SETTLE, FORGET)
"""Every other one that it runs where the tables of a group lie on many shards."""
