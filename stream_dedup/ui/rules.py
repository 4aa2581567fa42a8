"""The rules of a source: read whenever they change, changed by whoever may, and what they mark.

Rules are stored where whatever decides reads them too: the namespace of workers, or the file that
was given. So the command `stream-dedup rules` and the pages change the same rules, and neither
overwrites what the other has done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from stream_dedup.cli.rules import FilePlace
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import RuleError, StreamDedupError
from stream_dedup.features.fields import decoded
from stream_dedup.index.redis.rules import RedisRules
from stream_dedup.rules.book import RuleBook
from stream_dedup.rules.model import PatternRule, RuleKind
from stream_dedup.rules.ruleset import is_outcome
from stream_dedup.rules.template import Template, read_pattern, words_of
from stream_dedup.tools.index_inspector.reader import Reader

NO_PLACE = "start stream-dedup ui with --rules FILE to decide here; FILE may be a new one"
"""How to get a place for rules."""


class Place(Protocol):
    """Where rules are stored.

    Attributes:
        title: for people.
        acts: for people: when a change acts.
    """

    title: str
    acts: str

    async def version(self) -> object:
        """Return what is another one whenever the rules have changed."""

    async def read(self) -> RuleBook:
        """Return the rules.

        Raises:
            RuleError: they cannot be read.
        """

    async def change(self, edit: Callable[[RuleBook], RuleBook]) -> RuleBook:
        """Read, edit and write; see `RedisRules.change`."""


class InFile:
    """A TOML file; it is created with the first rule.

    Args:
        path: the file.
        acts: for people: when a change acts.
    """

    def __init__(
        self, path: str, acts: str = "After each change the files are read again."
    ) -> None:
        self.acts = acts
        self.title = f"the file {PurePath(path).name}"
        self._path = Path(path)
        self._file = FilePlace(path)
        self._changing = asyncio.Lock()

    async def version(self) -> object:
        """Return what the file system says of it."""
        try:
            found = self._path.stat()
        except OSError:
            return 0
        return found.st_mtime_ns, found.st_size, found.st_ino

    async def read(self) -> RuleBook:
        """Return the rules; none if there is no file."""
        return await asyncio.to_thread(self._file.read)

    async def change(self, edit: Callable[[RuleBook], RuleBook]) -> RuleBook:
        """Read, edit and write the whole file, or nothing.

        Raises:
            InputError: it cannot be written.
        """
        async with self._changing:
            return await asyncio.to_thread(self._file.change, edit)


class InRedis:
    """A namespace.

    Args:
        reader: makes the reader of the service, on the event loop.
        namespace: its name.
    """

    acts = (
        "Workers act by a change within two seconds, on the events that follow. What was counted "
        "before stays where it was counted."
    )

    def __init__(self, reader: Callable[[], Reader], namespace: str) -> None:
        self.title = f"the namespace {namespace}"
        self._reader = reader
        self._namespace = namespace

    @property
    def _rules(self) -> RedisRules:
        return RedisRules(self._reader(), self._namespace)

    async def version(self) -> object:
        """Return the version that is stored."""
        return await self._rules.version()

    async def read(self) -> RuleBook:
        """Return the rules."""
        return await self._rules.read()

    async def change(self, edit: Callable[[RuleBook], RuleBook]) -> RuleBook:
        """Read, edit and write."""
        return await self._rules.change(edit)


class Mark(NamedTuple):
    """What rules do with the events of a cluster.

    Attributes:
        name: what they call it; empty for nothing.
        muted: whether its repeats are not written.
        per_minute: how many of its events leave a minute at most; 0 for all.
        merged: whether they merge it with other patterns.
        only: the values that its events have, where rules keep values apart.
        rules: the ids of these rules.
    """

    name: str
    muted: bool
    per_minute: int
    merged: bool
    only: tuple[str, ...]
    rules: tuple[str, ...]


def mark_of(dedup: Deduplicator, first: bytes) -> Mark | None:
    """Return what the rules of a deduplicator do with the cluster of this event."""
    rules = dedup.engine.rules
    if rules is None:
        return None
    acted = rules.acted(first, decoded(first) if dedup.engine.takes_fields else None)
    if acted is None or not acted.rules:
        return None
    sides = (side.split("\0") for side in acted.identity.split("\x1e"))
    only = [side[2][1:] for side in sides if len(side) == 3 and side[2].startswith("=")]
    return Mark(
        acted.name.value if acted.name else "",
        acted.limit is not None and acted.limit.kind is RuleKind.MUTE,
        acted.limit.per_minute if acted.limit else 0,
        acted.join is not None,
        tuple(only),
        tuple(rule.id for rule in acted.rules),
    )


class SourceRules:
    """The rules of one source.

    Args:
        place: where they are stored; None if there is no such place.
        hint: how to get one, then.

    Attributes:
        place: as given.
        hint: as given.
        book: the rules, as they were read last.
        problem: why they cannot be read now; empty if they can.
    """

    def __init__(self, place: Place | None = None, hint: str = NO_PLACE) -> None:
        self.place = place
        self.hint = hint
        self.book = RuleBook()
        self.problem = ""
        self._version: object = None
        self._by_word: dict[str, list[tuple[Template, PatternRule]]] = {}

    @property
    def is_known(self) -> bool:
        """Whether they were read before."""
        return self._version is not None

    async def refresh(self) -> None:
        """Read the rules if they have changed.

        Raises:
            StreamDedupError: the service cannot be reached, or refuses.
        """
        if self.place is None:
            return
        version = await self.place.version()
        if version == self._version:
            return
        try:
            book = await self.place.read()
            await self._take(book)
            self.problem = ""
        except RuleError as error:
            self.problem = str(error)
        self._version = version

    async def look(self) -> str:
        """Do the same, and return why they cannot be read now; empty if they can."""
        try:
            await self.refresh()
        except StreamDedupError as error:
            return str(error)
        return ""

    async def change(self, edit: Callable[[RuleBook], RuleBook]) -> None:
        """Change the rules.

        Raises:
            RuleError: there is no place for rules, or `edit` has raised it.
            RulesChanged, StreamDedupError: as `RedisRules.change`.
        """
        if self.place is None:
            raise RuleError("rules", "", "have no place here", self.hint)
        await self._take(await self.place.change(edit))

    def about(self, pattern: str) -> list[PatternRule]:
        """Return the rules that are about a pattern, the oldest first."""
        if not self._by_word:
            return []
        words = set(words_of(pattern))
        words |= {f"<{word}>" for word in words if word.endswith("xx")}  # classes of status
        near = [each for word in words for each in self._by_word.get(word, ())]
        near = [each for each in near if each[0].words <= words]
        if not near:
            return []
        try:
            reading = read_pattern(pattern).reading()
        except ValueError:  # no word, or too many
            return []
        found = {
            rule.id: rule
            for template, rule in near
            if template.match(reading, is_outcome) is not None
        }
        return sorted(found.values(), key=lambda rule: (rule.time_us, rule.id))

    async def _take(self, book: RuleBook) -> None:
        if book.rules == self.book.rules:  # a change of our own that is read again
            return
        self._by_word = await asyncio.to_thread(_by_word, book.acting())
        self.book = book


def _by_word(rules: Iterable[PatternRule]) -> dict[str, list[tuple[Template, PatternRule]]]:
    """Return the patterns of rules by the longest of their words."""
    found: dict[str, list[tuple[Template, PatternRule]]] = {}
    for rule in rules:
        templates: Sequence[Template] = rule.templates()
        if rule.kind is RuleKind.ALWAYS_VARIABLE and rule.value:
            templates = [templates[0], templates[0].with_slot(rule.value)]
        for template in templates:
            anchor = max(template.words, key=lambda word: (len(word), word))
            found.setdefault(anchor, []).append((template, rule))
    return found
