"""Finds in sources what pages and the JSON interface show."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request

from stream_dedup.rules.model import MAX_PER_MINUTE
from stream_dedup.ui.comparing import Chosen, sides_of
from stream_dedup.ui.deciding import Choices, choices_of
from stream_dedup.ui.lists import Lists
from stream_dedup.ui.patterns import Entry, Query, neighbours
from stream_dedup.ui.routes.requests import identity_of, number_of, page_of
from stream_dedup.ui.sources import Source
from stream_dedup.ui.views.changes import ChangeList, change_list
from stream_dedup.ui.views.details import PatternDetails, pattern_details
from stream_dedup.ui.views.pairs import NeighbourList, PatternPair, neighbour_list, pattern_pair
from stream_dedup.ui.views.patterns import PatternList, pattern_list
from stream_dedup.ui.views.volume import VOLUME_A_PAGE, VolumeList, volume_list
from stream_dedup.volume.savings import PER_MINUTE


class Answers:
    """What is asked of some sources. What takes long runs in a thread, one at a time.

    Methods raise `HTTPException` where there is no such source or cluster, and `StreamDedupError`
    where a source cannot be read now.

    Args:
        sources: at least one.

    Attributes:
        sources: by name.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = {source.name: source for source in sources}
        self._lists = {source.name: Lists(source) for source in sources}
        self._comparing = asyncio.Semaphore(1)  # it takes a core: one at a time

    def source(self, request: Request) -> Source:
        """Return the source that an address names, and keep it current."""
        source = self.sources.get(request.path_params["source"])
        if source is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such source")
        source.wanted()
        return source

    def entry(self, request: Request) -> tuple[Source, Entry]:
        """Return the source and the cluster that an address names."""
        source = self.source(request)
        return source, self._cluster(source, identity_of(request.path_params["identity"]))

    def _cluster(self, source: Source, identity: int) -> Entry:
        entry = source.entry(identity)
        if entry is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, "there is no such cluster, or it is no longer kept"
            )
        source.wanted([identity])
        return entry

    def choices(self, source: Source) -> tuple[list[str], list[str]]:
        """Return the groups and levels to choose from."""
        return self._lists[source.name].choices()

    async def patterns(self, source: Source, query: Query) -> PatternList:
        """Find a list."""
        found = await self._lists[source.name].find(query)
        source.wanted([entry.identity for entry in found.entries])
        return pattern_list(source, query, found)

    async def volume(self, source: Source, request: Request) -> VolumeList:
        """Find the page of patterns by their bytes that an address asks for."""
        given = number_of(request.query_params.get("per_minute", ""))
        page, per_minute = page_of(request), min(given, MAX_PER_MINUTE) or PER_MINUTE
        query = Query(sort="bytes", page=min(page, 1_000_000), limit=VOLUME_A_PAGE)
        found = await self._lists[source.name].find(query)
        source.wanted([entry.identity for entry in found.entries])
        return volume_list(source, found, page, per_minute)

    async def details(self, source: Source, entry: Entry) -> tuple[PatternDetails, Choices]:
        """Return everything about a cluster, and what can be decided about it."""
        found = await source.details(entry.identity)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "this cluster is no longer kept")
        summary, inspector = found.summary, source.inspector
        events = [
            summary.representative, *summary.samples, *(value for _, value in summary.sampled)
        ]  # fmt: skip
        recipe = inspector.recipe if inspector else None

        def made() -> tuple[PatternDetails, Choices]:
            details = pattern_details(source, entry, found)
            return details, choices_of(entry.pattern, events, recipe)

        async with self._comparing:
            return await asyncio.to_thread(made)

    async def neighbours(self, source: Source, entry: Entry) -> NeighbourList:
        """Compare a cluster with those of similar patterns."""
        entries = list(source.entries.values())
        async with self._comparing:
            near = await asyncio.to_thread(neighbours, entry, entries)
        ids = [entry.identity, *(each.identity for each in near)]
        first, *values = await source.firsts(ids)  # takes seconds where the service is away
        pairs = list(zip(near, values, strict=True))
        async with self._comparing:
            return await asyncio.to_thread(neighbour_list, source, first or b"", pairs)

    async def pair(self, source: Source, first: int, second: int) -> PatternPair:
        """Compare two clusters, named by their ids."""
        entries = self._cluster(source, first), self._cluster(source, second)
        one, two = await source.firsts([first, second])
        values = one or b"", two or b""
        async with self._comparing:
            return await asyncio.to_thread(pattern_pair, source, entries, values)

    async def changes(self, source: Source, chosen: Chosen) -> ChangeList:
        """Compare two periods, or files.

        Raises:
            ValueError: there are no such ones.
        """
        files = len(source.inputs) if len(source.inputs) > 1 else 0
        if files and chosen == Chosen():
            chosen = Chosen(old_file=1, new_file=2)
        entries = list(source.entries.values())
        sides = sides_of(chosen, source.axis, files, entries, has_times=source.has_times)
        async with self._comparing:
            return await asyncio.to_thread(change_list, source, entries, sides)
