"""Whether a user may do all that a worker does, asked without doing it."""

from __future__ import annotations

import re
from importlib import resources

from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.scripts import Script
from stream_dedup.index.redis.server import Server

COMMANDS = sorted(
    {name for script in scripts.ALL for name in re.findall(r"call\('([A-Z]+)'", script.text)}
)
"""What the scripts call."""

PERMISSIONS = Script(
    "permissions", (resources.files(__package__) / "lua" / "permissions.lua").read_text("utf-8")
)


async def refused(server: Server, key: bytes) -> list[str]:
    """Commands that scripts call and that the user may not run on a key.

    Raises:
        IndexUnavailable: the server cannot be reached.
        IndexRefused: the user may not even run scripts with that key.
    """
    answer: list[bytes] = await server.run(PERMISSIONS, [key], COMMANDS)
    return [name.decode() for name in answer]
