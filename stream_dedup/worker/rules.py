"""Rules that change while a worker runs: looked for periodically, never per batch."""

from __future__ import annotations

import asyncio

from stream_dedup.errors import IndexRefused, IndexUnavailable, RuleError
from stream_dedup.worker.context import Context, RulesSource

LOOK_S = 1.0
"""Time between two looks at the version of the rules."""


class RulesWatcher:
    """Gives the engine the rules that are there, whenever they change.

    A batch that is being decided is decided by the rules of before. Rules that cannot be read leave
    those in place that act.

    Args:
        context: the pipeline's settings and connections.
        source: where its rules are.
        version: of the rules that the engine has.
    """

    def __init__(self, context: Context, source: RulesSource, version: int) -> None:
        self._context = context
        self._source = source
        self._version = version
        self._refused = -1

    async def run(self) -> None:
        """Look for changed rules, without end."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except (IndexUnavailable, IndexRefused):
                continue  # others say so, and retry

    async def _look(self) -> None:
        version = await self._source.version()
        if version in (self._version, self._refused):
            return
        context = self._context
        try:
            book = await self._source.read()
            rules = await asyncio.to_thread(book.compiled)
        except RuleError as error:
            self._refused = version
            context.warn(f"the stored rules are wrong, so the former rules stay in use: {error}")
            return
        context.engine.use_rules(rules)
        self._version = book.version
        context.warn(f"rules of version {book.version} act from now on: {len(rules.rules)}")
