"""The application: pages for people, and the same as JSON. It changes rules, and nothing else.

No address holds anything of an event, as addresses end in logs and histories: clusters are named
by their ids, and words to search for are sent in the body of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from itertools import chain
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stream_dedup.errors import RuleConflict, RuleError, RulesChanged, StreamDedupError
from stream_dedup.ui.routes.answers import Answers
from stream_dedup.ui.routes.api import Api
from stream_dedup.ui.routes.pages import Pages
from stream_dedup.ui.routes.rendering import Templates
from stream_dedup.ui.routes.requests import json_response
from stream_dedup.ui.routes.rule_changes import RuleChanges
from stream_dedup.ui.routes.rules import RulePages
from stream_dedup.ui.routes.signing_in import SignIn
from stream_dedup.ui.routes.static import StaticFiles
from stream_dedup.ui.security import Access, Guard, problem_response
from stream_dedup.ui.sources import Source

log = logging.getLogger(__name__)


class Application:
    """The application over some sources.

    Args:
        sources: at least one.
        access: who may read, and change rules.
    """

    def __init__(self, sources: Sequence[Source], access: Access) -> None:
        self._access = access
        answers, changes, static = Answers(sources), RuleChanges(access), StaticFiles()
        self._sources = answers.sources
        self._templates = Templates(sources, static.address, signed_in=bool(access.token))
        self._subjects = (
            Pages(answers, changes, self._templates),
            RulePages(answers, changes, self._templates),
            Api(answers, changes),
            SignIn(access, self._templates),
            static,
        )

    def routes(self) -> list[Route]:
        """All addresses."""
        alive = Route("/healthz", _alive, methods=["GET"])
        return [alive, *chain.from_iterable(subject.routes() for subject in self._subjects)]

    def asgi(self) -> ASGIApp:
        """The application to serve."""
        handlers: dict[Any, Any] = {
            HTTPException: self._refused,
            RuleError: self._wrong_rule,
            RulesChanged: self._wrong_rule,
            StreamDedupError: self._away,
            Exception: self._failed,
        }
        app = Starlette(routes=self.routes(), exception_handlers=handlers, lifespan=self._reading)
        return Guard(app, self._access)

    @contextlib.asynccontextmanager
    async def _reading(self, _: Starlette) -> AsyncIterator[None]:
        """Read the sources while the application runs."""
        tasks = [
            asyncio.create_task(source.run(), name=f"reading {source.name}")
            for source in self._sources.values()
        ]
        for task in tasks:
            task.add_done_callback(_log_failure)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------ what went wrong

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._problem(request, HTTPStatus(error.status_code), error.detail, error.headers)

    async def _away(self, request: Request, error: Exception) -> Response:
        return self._problem(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    async def _wrong_rule(self, request: Request, error: Exception) -> Response:
        conflict = isinstance(error, (RuleConflict, RulesChanged))
        status = HTTPStatus.CONFLICT if conflict else HTTPStatus.UNPROCESSABLE_ENTITY
        return self._problem(request, status, str(error))

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("%s could not be made", request.url.path, exc_info=error)
        problem = "this page could not be made; the log says why"
        return self._problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, problem)

    def _problem(
        self,
        request: Request,
        status: HTTPStatus,
        problem: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        if request.url.path.startswith("/api/"):
            return problem_response(status, problem, dict(headers or {}))
        return self._templates.response(
            "problem.html", status, headers, problem=problem, phrase=status.phrase
        )


async def _alive(_: Request) -> Response:
    """Whether the application answers."""
    return json_response({"alive": True})


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the error by which a task has ended: nobody awaits it before the application ends."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed; start the application again", task.get_name(), exc_info=error)
