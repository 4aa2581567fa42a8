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

from stream_dedup._version import __version__
from stream_dedup.worker.health import Health

log = logging.getLogger(__name__)

Exposition = Callable[[str], tuple[str, bytes]]
"""From the request's Accept header to the content type and the text of ``/metrics``."""

_INDEX = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>stream-dedup</title>
<h1>stream-dedup {__version__}</h1>
<ul>
<li><a href="/metrics">/metrics</a>: numbers, for Prometheus
<li><a href="/healthz">/healthz</a>: whether the worker lives
<li><a href="/readyz">/readyz</a>: whether it works, and if not, why
</ul>
</html>
""".encode()


class Answer(NamedTuple):
    """What is answered: a status, a body and its type."""

    status: HTTPStatus
    content_type: str
    body: bytes


def as_json(status: HTTPStatus, value: object) -> Answer:
    """An answer in JSON."""
    return Answer(status, "application/json", json.dumps(value).encode() + b"\n")


class Site:
    """What stands under which path; knows nothing of sockets.

    Args:
        health: what ``/healthz`` and ``/readyz`` tell.
        exposition: what ``/metrics`` tells.
    """

    def __init__(self, health: Health, exposition: Exposition) -> None:
        self._health = health
        self._exposition = exposition
        self._pages: dict[str, Callable[[str], Answer]] = {
            "/": lambda _: Answer(HTTPStatus.OK, "text/html; charset=utf-8", _INDEX),
            "/metrics": lambda accept: Answer(HTTPStatus.OK, *self._exposition(accept)),
            "/healthz": lambda _: self._alive(),
            "/readyz": lambda _: self._ready(),
        }

    def answer(self, method: str, target: str, accept: str) -> Answer:
        """The answer to a request; never fails."""
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            paths = list(self._pages)
            return as_json(HTTPStatus.NOT_FOUND, {"error": "no such page", "pages": paths})
        if method not in {"GET", "HEAD"}:
            return as_json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"})
        try:
            return page(accept)
        except Exception:
            log.exception("%s could not be made", target.partition("?")[0])
            error = {"error": "this page could not be made; the worker's log says why"}
            return as_json(HTTPStatus.INTERNAL_SERVER_ERROR, error)

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
