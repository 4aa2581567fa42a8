"""What the worker's HTTP server answers under which path. Knows nothing of sockets.

``/metrics`` for Prometheus, ``/healthz`` (alive) and ``/readyz`` (ready) for an orchestrator, ``/``
for people.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from stream_dedup.worker.telemetry.health import Health
from stream_dedup.worker.telemetry.page import POLICY

log = logging.getLogger(__name__)

Exposition = Callable[[str], tuple[str, bytes]]
"""From the request's Accept header to the content type and the text of ``/metrics``."""

StatusPage = Callable[[bool], bytes]
"""From whether it is to come again by itself to the HTML of ``/``."""

NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy of what is not to be looked at: a browser loads nothing for it."""


class Answer(NamedTuple):
    """What is answered.

    Attributes:
        status: the status.
        content_type: the body's type.
        body: the body.
        policy: what a browser may load for it: a Content-Security-Policy.
    """

    status: HTTPStatus
    content_type: str
    body: bytes
    policy: str = NOTHING


def as_json(status: HTTPStatus, value: object) -> Answer:
    """An answer in JSON."""
    return Answer(status, "application/json", json.dumps(value).encode() + b"\n")


class Site:
    """What stands under which path; knows nothing of sockets.

    Args:
        health: what ``/healthz`` and ``/readyz`` tell.
        exposition: what ``/metrics`` tells.
        page: what ``/`` shows.
    """

    def __init__(self, health: Health, exposition: Exposition, page: StatusPage) -> None:
        self._health = health
        self._exposition = exposition
        self._page = page
        self._pages: dict[str, Callable[[str, str], Answer]] = {
            "/": lambda query, _: self._status(query),
            "/metrics": lambda _, accept: Answer(HTTPStatus.OK, *self._exposition(accept)),
            "/healthz": lambda _, __: self._alive(),
            "/readyz": lambda _, __: self._ready(),
        }

    def answer(self, method: str, target: str, accept: str) -> Answer:
        """The answer to a request; never fails."""
        path, _, query = target.partition("?")
        page = self._pages.get(path)
        if page is None:
            paths = list(self._pages)
            return as_json(HTTPStatus.NOT_FOUND, {"error": "no such page", "pages": paths})
        if method not in {"GET", "HEAD"}:
            return as_json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"})
        try:
            return page(query, accept)
        except Exception:
            log.exception("%s could not be made", path)
            error = {"error": "this page could not be made; the worker's log says why"}
            return as_json(HTTPStatus.INTERNAL_SERVER_ERROR, error)

    def _status(self, query: str) -> Answer:
        still = "refresh=off" in query.split("&")
        html = self._page(not still)
        return Answer(HTTPStatus.OK, "text/html; charset=utf-8", html, POLICY)

    def _alive(self) -> Answer:
        alive, silent_s = self._health.alive(), round(self._health.silent_s(), 3)
        status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
        return as_json(status, {"alive": alive, "last_beat_s": silent_s})

    def _ready(self) -> Answer:
        reasons = [
            {"name": name, "reason": reason, "for_s": round(for_s, 3)}
            for name, reason, for_s in self._health.reasons()
        ]
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return as_json(status, {"ready": not reasons, "reasons": reasons})
