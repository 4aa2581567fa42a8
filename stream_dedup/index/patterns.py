"""The port to what is remembered of a namespace's patterns, for events about them.

All workers of a namespace share it. None keeps anything of it: a worker reads what a batch of
summaries needs, decides, and writes it back, unless another worker has written meanwhile; then it
begins again. So it does not matter who is given which summary, or when a worker dies.

What a write adds to the events is *unsent* until `sent`. Whoever wrote it sends it. If that takes
longer than its lease, any worker may take it with another write, and send it again, byte for byte.

Every adapter passes ``tests/contract/test_patterns.py``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

TOKEN_BYTES = 12


def new_token() -> bytes:
    """Return a name for what is written. After a loss of data, a number could come again."""
    return secrets.token_bytes(TOKEN_BYTES)


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read.

    Attributes:
        token: names what is stored; empty if there is nothing.
        looked_us: stream time until which all events were in summaries; None if that is not known.
        names: what the names that were asked for lead to, packed; those that are unknown are left
            out.
        patterns: the patterns that were asked for, packed: those that the names lead to, those
            that are due, and those that were not seen for longest, as far as they are known.
        due: patterns that vanish if they stay silent, and have.
        oldest: patterns that are too many: those not seen for longest.
        unsent: events whose lease has ended.
    """

    token: bytes
    looked_us: int | None
    names: Mapping[bytes, bytes]
    patterns: Mapping[int, bytes]
    due: Sequence[int] = ()
    oldest: Sequence[int] = ()
    unsent: Sequence[bytes] = ()


class Pattern(NamedTuple):
    """A pattern, to be written.

    Attributes:
        packed: what is known of it.
        last_us: when it was last seen.
        due_us: from when on it is due; None for never.
    """

    packed: bytes
    last_us: int
    due_us: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be written.

    Attributes:
        looked_us: see `Stored`; None leaves it.
        names: what they lead to; None deletes one.
        patterns: what is known of them; None deletes one.
        unsent: events.
        until_us: when their lease ends, by the clock.
    """

    looked_us: int | None = None
    names: Mapping[bytes, bytes | None] = field(default_factory=dict)
    patterns: Mapping[int, Pattern | None] = field(default_factory=dict)
    unsent: Sequence[bytes] = ()
    until_us: int = 0


class PatternStore(Protocol):
    """Remembers patterns."""

    async def read(self, names: Sequence[bytes], now_us: int, due_us: int | None = None) -> Stored:
        """Read what some names lead to.

        Args:
            names: the names.
            now_us: the clock.
            due_us: read also patterns that are due until then.

        Raises:
            IndexUnavailable: a remote store cannot be reached.
        """

    async def write(self, token: bytes, changes: Changes) -> bool:
        """Write changes, all or nothing; return False if somebody has written since the read.

        Args:
            token: of the read.
            changes: what to write.

        Raises:
            IndexUnavailable: a remote store cannot be reached; the changes may be written. Read
                again: the events among them are unsent then.
        """

    async def sent(self, events: Sequence[bytes]) -> None:
        """Delete unsent events. Called again: does nothing.

        Raises:
            IndexUnavailable: a remote store cannot be reached.
        """


MAX_DUE = 500
"""Patterns read at once because they are due; and because they are too many."""

MAX_UNSENT = 500
"""Unsent events read at once."""


class MemoryPatterns:
    """Remembers patterns in this process.

    Args:
        max_patterns: about so many at most.
    """

    def __init__(self, max_patterns: int) -> None:
        self._max_patterns = max_patterns
        self._token = b""
        self._looked_us: int | None = None
        self._names: dict[bytes, bytes] = {}
        self._patterns: dict[int, Pattern] = {}
        self._unsent: dict[bytes, int] = {}

    async def read(self, names: Sequence[bytes], now_us: int, due_us: int | None = None) -> Stored:
        every = self._patterns
        due: list[int] = []
        if due_us is not None:
            found = [(p.due_us, i) for i, p in every.items() if p.due_us is not None]
            due = [pattern for at_us, pattern in sorted(found) if at_us <= due_us][:MAX_DUE]
        too_many = min(len(every) - self._max_patterns, MAX_DUE)
        oldest: list[int] = []
        if too_many > 0:
            oldest = sorted(every, key=lambda pattern: every[pattern].last_us)[:too_many]
        known = {name: self._names[name] for name in names if name in self._names}
        wanted = {*map(pattern_of, known.values()), *due, *oldest}
        unsent = [event for event, until_us in self._unsent.items() if until_us <= now_us]
        return Stored(
            self._token,
            self._looked_us,
            known,
            {pattern: every[pattern].packed for pattern in wanted if pattern in every},
            due,
            oldest,
            unsent[:MAX_UNSENT],
        )

    async def write(self, token: bytes, changes: Changes) -> bool:
        if token != self._token:
            return False
        self._token = new_token()
        if changes.looked_us is not None:
            self._looked_us = changes.looked_us
        for name, value in changes.names.items():
            if value is None:
                self._names.pop(name, None)
            else:
                self._names[name] = value
        for number, pattern in changes.patterns.items():
            if pattern is None:
                self._patterns.pop(number, None)
            else:
                self._patterns[number] = pattern
        self._unsent.update(dict.fromkeys(changes.unsent, changes.until_us))
        return True

    async def sent(self, events: Sequence[bytes]) -> None:
        for event in events:
            self._unsent.pop(event, None)


ID_BYTES = 8


def pattern_of(value: bytes) -> int:
    """Return the pattern that a name leads to: its value begins with it."""
    return int.from_bytes(value[:ID_BYTES], "big")


def id_bytes(pattern: int) -> bytes:
    """Return a pattern's id as it is stored."""
    return pattern.to_bytes(ID_BYTES, "big")
