"""What is remembered of a namespace's patterns, in keys of the first shard.

All keys have a time to live, which every write renews. They are not part of what is lost with
``meta``; ``index delete-namespace`` deletes them with all other keys of the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from stream_dedup.index.patterns import (
    MAX_DUE,
    MAX_UNSENT,
    Changes,
    Stored,
    id_bytes,
    new_token,
    pattern_of,
)
from stream_dedup.index.redis import scripts
from stream_dedup.index.redis.client import Command, RedisClient
from stream_dedup.index.redis.keys import ShardKeys, check_namespace
from stream_dedup.index.redis.scripts import Argument


class RedisPatterns:
    """Remembers the patterns of one namespace; see `index.patterns.PatternStore`.

    Args:
        client: the service.
        namespace: the namespace.
        max_patterns: about so many patterns are remembered at most.
        ttl_ms: the time to live of the keys.
    """

    def __init__(
        self, client: RedisClient, namespace: str, *, max_patterns: int, ttl_ms: int
    ) -> None:
        self._client = client
        self._keys = ShardKeys(check_namespace(namespace), 0)
        self._max_patterns = max_patterns
        self._ttl_ms = ttl_ms

    async def read(self, names: Sequence[bytes], now_us: int, due_us: int | None = None) -> Stored:
        keys = self._keys
        until: Argument = "-inf" if due_us is None else due_us
        # The token comes first: if anything is written while the rest is read, so is another token,
        # and what was read is of no use to `write`.
        asked: list[Command] = [("HMGET", keys.pattern_names, *names)] if names else []
        head, count, silent, unsent, *values = await self._client.many(
            keys.meta,
            [
                ("HMGET", keys.patterns, "token", "looked"),
                ("ZCARD", keys.pattern_seen),
                ("ZRANGE", keys.pattern_due, "-inf", until, "BYSCORE", "LIMIT", 0, MAX_DUE),
                ("ZRANGE", keys.pattern_events, "-inf", now_us, "BYSCORE", "LIMIT", 0, MAX_UNSENT),
                *asked,
            ],
        )
        token, looked = head or (None, None)
        too_many = min((count or 0) - self._max_patterns, MAX_DUE)
        oldest: list[int] = []
        if too_many > 0:
            key = keys.pattern_seen
            oldest = _ids(await self._client.command(key, "ZRANGE", key, 0, too_many - 1))
        due = _ids(silent or ())
        known: dict[bytes, bytes] = {
            name: value
            for name, value in zip(names, (values[0] if values else None) or (), strict=False)
            if value is not None
        }
        wanted = list(dict.fromkeys((*map(pattern_of, known.values()), *due, *oldest)))
        packed: list[bytes | None] = []
        if wanted:
            packed = await self._client.command(
                keys.patterns, "HMGET", keys.patterns, *map(id_bytes, wanted)
            )
        return Stored(
            token or b"",
            None if looked is None else int(looked),
            known,
            {
                pattern: value
                for pattern, value in zip(wanted, packed, strict=True)
                if value is not None
            },
            due,
            oldest,
            unsent or (),
        )

    async def write(self, token: bytes, changes: Changes) -> bool:
        kept = {id_bytes(i): each for i, each in changes.patterns.items() if each is not None}
        gone = [id_bytes(i) for i, each in changes.patterns.items() if each is None]
        due = {each: found.due_us for each, found in kept.items()}
        lists: tuple[list[Argument], ...] = (
            _flat((each, found.packed) for each, found in kept.items()),
            [*gone],
            _flat((name, value) for name, value in changes.names.items() if value is not None),
            [name for name, value in changes.names.items() if value is None],
            _flat((found.last_us, each) for each, found in kept.items()),
            [*gone],
            _flat((due_us, each) for each, due_us in due.items() if due_us is not None),
            [*gone, *(each for each, due_us in due.items() if due_us is None)],
            _flat((changes.until_us, event) for event in changes.unsent),
        )
        arguments: list[Argument] = [token, new_token(), self._ttl_ms]
        arguments.append("" if changes.looked_us is None else changes.looked_us)
        for each in lists:
            arguments += [len(each), *each]
        keys = self._keys
        written = await self._client.run(
            scripts.PATTERNS,
            [
                keys.patterns,
                keys.pattern_names,
                keys.pattern_seen,
                keys.pattern_due,
                keys.pattern_events,
            ],
            arguments,
        )
        return bool(written)

    async def sent(self, events: Sequence[bytes]) -> None:
        key = self._keys.pattern_events
        if events:
            await self._client.command(key, "ZREM", key, *events)


def _ids(found: Iterable[bytes]) -> list[int]:
    return [int.from_bytes(each, "big") for each in found]


def _flat(pairs: Iterable[tuple[Argument, Argument]]) -> list[Argument]:
    return list(chain.from_iterable(pairs))
