"""The rules of a namespace, in a key of their own.

Whoever edits them reads them with their version, and writes them under that version: of two who
edit at the same time the second is refused, and tries again with what the first has written.
Workers ask for the version alone, every second or so.

The key has no time to live, and does not belong to what is lost with ``meta``: rules outlive
clusters. ``index delete-namespace`` deletes it with all other keys of the namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from stream_dedup.errors import RuleError, RulesChanged
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.client import RedisClient, Refusal
from stream_dedup.index.redis.keys import ShardKeys, check_namespace
from stream_dedup.rules import file
from stream_dedup.rules.book import RuleBook

EDIT_TRIES = 20
"""How often an edit is repeated because somebody else was faster."""


class RedisRules:
    """The rules of one namespace.

    Args:
        client: the service.
        namespace: the namespace; it need not exist.
    """

    def __init__(self, client: RedisClient, namespace: str) -> None:
        self._client = client
        self._namespace = check_namespace(namespace)
        keys = ShardKeys(namespace, 0)
        self._key, self._meta = keys.rules, keys.meta

    async def has_namespace(self) -> bool:
        """Whether a worker has laid the namespace out; else its rules wait for it."""
        return bool(await self._client.command(self._meta, "EXISTS", self._meta))

    async def version(self) -> int:
        """Return the version of the rules; 0 if there never were any."""
        (version,) = await self._client.command(self._key, "HMGET", self._key, "version")
        return int(version or 0)

    async def read(self) -> RuleBook:
        """Read the rules.

        Raises:
            RuleError: they were written by a newer program, or are damaged.
            IndexUnavailable, IndexRefused: the server cannot be reached, or refuses.
        """
        stored = await self._client.command(self._key, "HMGET", self._key, "version", "rules")
        version, text = stored
        place = f"rules of namespace {self._namespace}"
        try:
            # Many rules take a second to read: not in the event loop.
            found = await asyncio.to_thread(file.read, (text or b"").decode(), place)
        except UnicodeDecodeError as error:
            raise RuleError(place, "", "are not text", "delete the key, and import them") from error
        return RuleBook(found.rules, int(version or 0))

    async def write(self, book: RuleBook) -> RuleBook:
        """Write rules that were read and edited; return them with their new version.

        Raises:
            RulesChanged: somebody else has written since; nothing was changed.
        """
        text = file.written(book.rules).encode("utf-8", "replace")
        arguments: list[scripts.Argument] = [book.version, text]
        try:
            version = await self._client.run(scripts.RULES, [self._key], arguments)
        except Refusal as refusal:
            if refusal.code != "SDRULES":
                raise
            raise RulesChanged(
                f"the rules of namespace {self._namespace} were changed by somebody else; look at "
                "them, and try again"
            ) from refusal
        return RuleBook(book.rules, version)

    async def change(self, edit: Callable[[RuleBook], RuleBook]) -> RuleBook:
        """Read, edit and write; again with what was written meanwhile, if somebody was faster.

        Args:
            edit: returns the edited rules; raises RuleError if that cannot be. It may be called
                again, with other rules.

        Raises:
            RulesChanged: others are faster all the time.
        """
        tries = 0
        while True:
            edited = await asyncio.to_thread(partial(edit, await self.read()))
            tries += 1
            try:
                return await self.write(edited)
            except RulesChanged:
                if tries == EDIT_TRIES:
                    raise
