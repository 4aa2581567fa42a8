"""The pages that show clusters."""

from __future__ import annotations

from hashlib import sha256
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from stream_dedup.errors import StreamDedupError
from stream_dedup.ui.comparing import Chosen
from stream_dedup.ui.patterns import Query
from stream_dedup.ui.routes.answers import Answers
from stream_dedup.ui.routes.rendering import Templates
from stream_dedup.ui.routes.requests import chosen, html_response, identity_of, read_form
from stream_dedup.ui.routes.rule_changes import RuleChanges
from stream_dedup.ui.views.pairs import NeighbourList, aligned
from stream_dedup.ui.views.patterns import pattern_of
from stream_dedup.ui.views.rules import rule_of
from stream_dedup.ui.views.sources import source_state
from stream_dedup.ui.views.text import printable

MAX_RECORD = 20_000
"""Characters shown of a record."""


class Pages:
    """Pages, and the parts of them that a page asks for again.

    Args:
        answers: finds what is asked for.
        changes: of rules, which pages have forms for.
        templates: of all pages.
    """

    def __init__(self, answers: Answers, changes: RuleChanges, templates: Templates) -> None:
        self._answers = answers
        self._changes = changes
        self._templates = templates

    def routes(self) -> list[Route]:
        """The addresses."""
        get = ["GET"]
        of_pattern = "/p/{source}/{identity}"
        return [
            Route("/", self.index, methods=get),
            Route("/s/{source}", self.patterns, methods=get),
            Route("/s/{source}/list", self.listed, methods=["POST"]),
            Route(of_pattern, self.pattern, methods=get),
            Route(f"{of_pattern}/facts", self.facts, methods=get),
            Route(f"{of_pattern}/neighbours", self.neighbours, methods=get),
            Route("/two/{source}", self.pair, methods=get),
            Route("/v/{source}", self.volume, methods=get),
            Route("/c/{source}", self.compared, methods=get),
        ]

    async def index(self, _: Request) -> Response:
        """The list of the first source."""
        return RedirectResponse(f"/s/{next(iter(self._answers.sources))}", HTTPStatus.SEE_OTHER)

    # ------------------------------------------------------------ lists

    async def patterns(self, request: Request) -> Response:
        """A page with a list."""
        source = self._answers.source(request)
        groups, levels = self._answers.choices(source)
        found = await self._answers.patterns(source, Query())
        return self._templates.response(
            "list.html", it=found, groups=groups, levels=levels, source=source
        )

    async def listed(self, request: Request) -> Response:
        """A list, for a page that is open; nothing if it has not changed."""
        source = self._answers.source(request)
        form = await read_form(request)
        seen = form.pop("seen_list", "")
        query = chosen(form, Query)
        groups, levels = self._answers.choices(source)
        found = await self._answers.patterns(source, query)
        html = self._templates.render(
            "rows.html", it=found, groups=groups, levels=levels, source=source
        )
        digest = sha256(html.encode("utf-8", "replace")).hexdigest()[:16]
        if digest == seen:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        mark = f'<input type="hidden" name="seen_list" value="{digest}" form="filters">\n'
        return html_response(html + mark)

    async def volume(self, request: Request) -> Response:
        """Patterns by the bytes that they take."""
        source = self._answers.source(request)
        found = await self._answers.volume(source, request)
        return self._templates.response("volume.html", it=found, source=source)

    # ------------------------------------------------------------ one cluster

    async def pattern(self, request: Request) -> Response:
        """The page of a cluster."""
        source, entry = self._answers.entry(request)
        found, choices = await self._answers.details(source, entry)
        record = printable(msgspec.json.format(bytes(found.record), indent=2), MAX_RECORD)
        return self._templates.response(
            "pattern.html", it=found, source=source, record=record, choices=choices,
            state=source_state(source),
            about=[rule_of(rule) for rule in source.rules.about(entry.pattern)],
            **self._changes.form(request, source),
        )  # fmt: skip

    async def facts(self, request: Request) -> Response:
        """What changes on the page of a cluster."""
        source, entry = self._answers.entry(request)
        row, state = pattern_of(source, entry), source_state(source)
        return self._templates.response("facts.html", row=row, state=state, source=source)

    async def neighbours(self, request: Request) -> Response:
        """The neighbours of a cluster, for its page."""
        source, entry = self._answers.entry(request)
        problem, near = "", NeighbourList([])
        try:
            near = await self._answers.neighbours(source, entry)
        except StreamDedupError as error:
            problem = str(error)  # the page asks again
        return self._templates.response(
            "neighbours.html", it=near, source=source, own=pattern_of(source, entry),
            problem=problem, **self._changes.form(request, source),
        )  # fmt: skip

    # ------------------------------------------------------------ comparisons

    async def pair(self, request: Request) -> Response:
        """The page of two clusters, side by side."""
        source = self._answers.source(request)
        ids = [identity_of(each) for each in request.query_params.getlist("id")]
        if len(ids) != 2 or ids[0] == ids[1]:
            problem = f"choose two patterns to see them side by side, not {len(ids)}"
            raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
        found = await self._answers.pair(source, ids[0], ids[1])
        return self._templates.response(
            "pair.html", it=found, source=source, state=source_state(source),
            aligned=aligned(found.first.pattern, found.second.pattern),
            **self._changes.form(request, source),
        )  # fmt: skip

    async def compared(self, request: Request) -> Response:
        """The page that compares two periods, or files."""
        source, asked = self._answers.source(request), chosen(request.query_params, Chosen)
        problem = ""
        try:
            found = await self._answers.changes(source, asked)
        except ValueError as error:
            problem, found = str(error), await self._answers.changes(source, Chosen())
        return self._templates.response(
            "compare.html", it=found, source=source, chosen=asked, problem=problem,
            state=source_state(source),
        )  # fmt: skip
