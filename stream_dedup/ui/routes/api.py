"""The JSON interface; `openapi` describes it."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_dedup.ui import openapi
from stream_dedup.ui.comparing import Chosen
from stream_dedup.ui.deciding import NewRule, NewUndo
from stream_dedup.ui.patterns import Query
from stream_dedup.ui.routes.answers import Answers
from stream_dedup.ui.routes.requests import (
    chosen,
    identity_of,
    json_response,
    page_of,
    read_change,
    read_json,
)
from stream_dedup.ui.routes.rule_changes import RuleChanges
from stream_dedup.ui.views.patterns import count_list
from stream_dedup.ui.views.rules import audit_list, rule_list, rule_of
from stream_dedup.ui.views.sources import source_state


class Api:
    """What pages show and do, as JSON.

    Args:
        answers: finds what is asked for.
        changes: of rules.
    """

    def __init__(self, answers: Answers, changes: RuleChanges) -> None:
        self._answers = answers
        self._changes = changes

    def routes(self) -> list[Route]:
        """The addresses."""
        get, post = ["GET"], ["POST"]
        of_source, of_pattern = "/api/v1/sources/{source}", "/api/v1/patterns/{source}/{identity}"
        return [
            Route("/api/v1/openapi.json", self.description, methods=get),
            Route("/api/v1/sources", self.sources, methods=get),
            Route(f"{of_source}/patterns", self.patterns, methods=["GET", "POST"]),
            Route(f"{of_source}/volume", self.volume, methods=get),
            Route(f"{of_source}/changes", self.changes, methods=get),
            Route(f"{of_source}/rules", self.rules, methods=get),
            Route(f"{of_source}/rules", self.add_rule, methods=post),
            Route(f"{of_source}/rules/{{rule}}/undo", self.undo_rule, methods=post),
            Route(f"{of_source}/audit", self.audit, methods=get),
            Route(of_pattern, self.pattern, methods=get),
            Route(f"{of_pattern}/counts", self.counts, methods=get),
            Route(f"{of_pattern}/neighbours", self.neighbours, methods=get),
            Route(f"{of_pattern}/with/{{other}}", self.pair, methods=get),
        ]

    async def description(self, _: Request) -> Response:
        """The description of the interface."""
        return json_response(openapi.document())

    async def sources(self, _: Request) -> Response:
        """The sources."""
        sources = self._answers.sources.values()
        for source in sources:
            source.wanted()
        return json_response([source_state(source) for source in sources])

    # ------------------------------------------------------------ clusters

    async def patterns(self, request: Request) -> Response:
        """A list."""
        source = self._answers.source(request)
        if request.method == "POST":
            query = await read_json(request, Query)
        else:
            fields = dict(request.query_params)
            if not fields.keys().isdisjoint({"words", "group"}):
                problem = "send words and group by POST: nothing of an event belongs in an address"
                raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
            query = chosen(fields, Query)
        return json_response(await self._answers.patterns(source, query))

    async def pattern(self, request: Request) -> Response:
        """Everything about a cluster."""
        found, _ = await self._answers.details(*self._answers.entry(request))
        return json_response(found)

    async def counts(self, request: Request) -> Response:
        """The counts over time of a cluster."""
        return json_response(count_list(*self._answers.entry(request)))

    async def neighbours(self, request: Request) -> Response:
        """The neighbours of a cluster."""
        return json_response(await self._answers.neighbours(*self._answers.entry(request)))

    async def pair(self, request: Request) -> Response:
        """Two clusters, side by side."""
        source, entry = self._answers.entry(request)
        other = identity_of(request.path_params["other"])
        return json_response(await self._answers.pair(source, entry.identity, other))

    async def volume(self, request: Request) -> Response:
        """Patterns by the bytes that they take."""
        source = self._answers.source(request)
        return json_response(await self._answers.volume(source, request))

    async def changes(self, request: Request) -> Response:
        """Two periods, or files, compared."""
        source = self._answers.source(request)
        try:
            found = await self._answers.changes(source, chosen(request.query_params, Chosen))
        except ValueError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
        return json_response(found)

    # ------------------------------------------------------------ rules

    async def rules(self, request: Request) -> Response:
        """The rules that act."""
        source = self._answers.source(request)
        await source.rules.refresh()
        changeable = self._changes.allowed(source)
        return json_response(rule_list(source, page_of(request), changeable=changeable))

    async def audit(self, request: Request) -> Response:
        """What was done with rules."""
        source = self._answers.source(request)
        await source.rules.refresh()
        return json_response(audit_list(source, page_of(request)))

    async def add_rule(self, request: Request) -> Response:
        """Add a rule."""
        source = self._answers.source(request)
        self._changes.check(source)
        rule = self._changes.rule(request, await read_change(request, NewRule))
        await source.rules.change(lambda book: book.add(rule))
        return json_response(rule_of(rule))

    async def undo_rule(self, request: Request) -> Response:
        """Undo a rule."""
        source, identity = self._answers.source(request), request.path_params["rule"]
        self._changes.check(source)
        undoing = self._changes.undoing(request, await read_change(request, NewUndo))
        await source.rules.change(lambda book: book.undo(identity, undoing))
        (rule,) = (rule for rule in source.rules.book.rules if rule.id == identity)
        return json_response(rule_of(rule))
