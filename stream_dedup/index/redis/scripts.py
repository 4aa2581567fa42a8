"""The scripts: each is the common part and a file of its own, known to the server by its SHA-1."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib import resources


@dataclass(frozen=True)
class Script:
    """A script as the server gets it.

    Attributes:
        name: the file's name, without ``.lua``.
        text: shebang line, common part if it is used, and body.
        sha: its name on the server.
    """

    name: str
    text: str
    sha: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest.encode())


def _read(name: str) -> str:
    return (resources.files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


def _load(name: str, *, shard: bool = True) -> Script:
    """The script of a file.

    Args:
        name: the file's name.
        shard: whether the common part goes before it.
    """
    shebang, _, body = _read(name).partition("\n")
    return Script(name, f"{shebang}\n{_read('_shard') if shard else ''}{body}")


OPEN = _load("open", shard=False)
CLAIM_PARTITION = _load("claim_partition", shard=False)
RELEASE_PARTITION = _load("release_partition")
RESOLVE = _load("resolve")
RECORD = _load("record")
SWEEP = _load("sweep")
PURGE = _load("purge", shard=False)
CLAIM = _load("claim")
CONFIRM = _load("confirm")

ALL = (OPEN, CLAIM_PARTITION, RELEASE_PARTITION, RESOLVE, RECORD, SWEEP, PURGE, CLAIM, CONFIRM)
"""Every script there is."""
