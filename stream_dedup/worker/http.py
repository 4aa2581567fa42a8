"""The worker's HTTP server: metrics and health for machines, a status page for people.

``/metrics`` is for Prometheus, ``/healthz`` (alive) and ``/readyz`` (ready) for an orchestrator,
``/`` for people. Who reaches the port may read; there is nothing to write.

aiohttp serves it, on an event loop in a thread of its own: when the worker's loop is stuck, probes
still get an answer that says so. One request a connection. A request has `MAX_REQUEST_BYTES` and
`REQUEST_S` to arrive, however slowly its bytes come; the client has `REQUEST_S` to take the answer.

Slow clients cannot keep others out. Of more than `MAX_CONNECTIONS`, one is closed: of the address
that has most, the one that has waited longest for its request. The request of a probe or a scrape
arrives with its connection, so it is answered before its turn comes.

A browser inside the network may be led to the port by a foreign page whose name an attacker has
pointed here (DNS rebinding). So the ``Host`` of a request must be an address or a name that nobody
outside can own; see `listening.HostNames`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod

from stream_dedup import listening
from stream_dedup.listening import HostNames
from stream_dedup.worker.telemetry.health import Health
from stream_dedup.worker.telemetry.status_page import POLICY

MAX_REQUEST_BYTES = 16 * 1024
"""Prometheus and kubelets send under 1 KiB; a browser with cookies a few."""

REQUEST_S = 5.0
"""A probe usually waits for 1 s, Prometheus for 10 s."""

MAX_DROPPED_BYTES = 1 << 20
"""Of a request that was refused or has a body, so much is read and dropped: closing at once could
lose the answer."""

MAX_CONNECTIONS = 256
"""Some probes, two Prometheus, a person, and many slow clients. The process needs file descriptors
for Kafka and Redis too, often out of 1,024."""

BACKLOG = 1_024
"""Connections that wait to be accepted: a probe must not be turned away where many come at once."""

ACCEPTED_AT_ONCE = 16
"""Connections accepted before those that are open are read again. A request is read two or three
rounds after its connection was accepted: much fewer than `MAX_CONNECTIONS` come in between."""

LINGER_S = 1.0
"""How long a refused client's bytes are read and dropped: closing at once could lose the answer."""

_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} [^ \r\n]+ HTTP/1\.[01]\r?\n")

NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy of all but the status page: a browser loads nothing for it."""

Exposition = Callable[[str], tuple[str, bytes]]
"""From the request's Accept header to the content type and the text of ``/metrics``."""

StatusPage = Callable[[bool], bytes]
"""From whether it refreshes itself to the HTML of ``/``."""

log = logging.getLogger(__name__)


class Pages:
    """The server's pages.

    Args:
        health: for ``/healthz`` and ``/readyz``.
        exposition: makes ``/metrics``.
        status_page: makes ``/``.
        names: by which the server may be asked.
    """

    def __init__(
        self,
        health: Health,
        exposition: Exposition,
        status_page: StatusPage,
        names: HostNames | None = None,
    ) -> None:
        self._names = names or HostNames()
        self._health = health
        self._exposition = exposition
        self._status_page = status_page
        self._pages: dict[str, Callable[[web.BaseRequest], web.Response]] = {
            "/": self._status,
            "/metrics": self._metrics,
            "/healthz": self._alive,
            "/readyz": self._ready,
        }

    def answer(self, request: web.BaseRequest) -> web.Response:
        """The answer to a request; never raises."""
        host = request.headers.get("Host", "")
        if not self._names.allow(host):
            log.warning("a request for the host %.100r is refused", host)
            problem = {"error": "not a name of this server; add it to http.allowed_hosts"}
            return _json(HTTPStatus.MISDIRECTED_REQUEST, problem)
        page = self._pages.get(request.path)
        if page is None:
            error: dict[str, object] = {"error": "no such page", "pages": list(self._pages)}
            return _json(HTTPStatus.NOT_FOUND, error)
        if request.method not in {"GET", "HEAD"}:
            return _other_method()
        try:
            return page(request)
        except Exception:
            log.exception("%s could not be made", request.path)
            error = {"error": "this page could not be made; the worker's log says why"}
            return _json(HTTPStatus.INTERNAL_SERVER_ERROR, error)

    def _status(self, request: web.BaseRequest) -> web.Response:
        html = self._status_page(request.query.get("refresh") != "off")
        headers = {"Content-Security-Policy": POLICY}
        return web.Response(body=html, content_type="text/html", charset="utf-8", headers=headers)

    def _metrics(self, request: web.BaseRequest) -> web.Response:
        content_type, text = self._exposition(request.headers.get("Accept", ""))
        return web.Response(body=text, headers={"Content-Type": content_type})

    def _alive(self, _: web.BaseRequest) -> web.Response:
        alive, silent_s = self._health.alive(), round(self._health.silent_s(), 3)
        status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
        return _json(status, {"alive": alive, "last_beat_s": silent_s})

    def _ready(self, _: web.BaseRequest) -> web.Response:
        reasons = [
            {"name": name, "reason": reason, "for_s": round(for_s, 3)}
            for name, reason, for_s in self._health.reasons()
        ]
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _json(status, {"ready": not reasons, "reasons": reasons})


class HttpServer:
    """Serves pages between `start` and `stop`.

    Args:
        host: the address or name to listen on; ``::`` is every address, IPv4 too.
        port: 0 for no server.
        pages: what is served.
    """

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._running: _Running | None = None

    @property
    def url(self) -> str:
        """The server's address; empty without a server."""
        return listening.url(self._host, self._port) if self._port else ""

    def start(self) -> None:
        """Listen, and serve from now on.

        Raises:
            ConfigError: it cannot listen on the address.
        """
        if not self._port:
            return
        opened = listening.listen(self._host, self._port, ", or 0 for no server")
        self._running = _Running(opened, self._pages)
        log.info("serving metrics and health at %s", self.url)

    def stop(self) -> None:
        """Close idle connections, finish what is being answered; takes `REQUEST_S` at most."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()


def _json(status: HTTPStatus, value: object) -> web.Response:
    body = json.dumps(value).encode() + b"\n"
    return web.Response(status=status, body=body, content_type="application/json")


def _other_method() -> web.Response:
    refused = _json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"})
    refused.headers["Allow"] = "GET, HEAD"
    return refused


# ------------------------------------------------------------ aiohttp


class _Running:
    """A server that runs, with the thread of its event loop."""

    def __init__(self, listening: socket.socket, pages: Pages) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="stream-dedup-http", daemon=True
        )
        self._thread.start()
        opening = self._open(listening, pages)
        self._runner = asyncio.run_coroutine_threadsafe(opening, self._loop).result()

    @staticmethod
    async def _open(listening: socket.socket, pages: Pages) -> web.ServerRunner:
        runner = web.ServerRunner(_Server(pages), shutdown_timeout=REQUEST_S)
        await runner.setup()
        await web.SockSite(runner, listening, backlog=ACCEPTED_AT_ONCE).start()
        listening.listen(BACKLOG)
        return runner

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Server(web.Server):
    """Answers each connection's request, and closes a connection where there are too many."""

    def __init__(self, pages: Pages) -> None:
        super().__init__(self._answer)
        self._pages = pages
        self._of_address: dict[str, dict[_Connection, None]] = {}  # each the oldest first

    def __call__(self) -> web.RequestHandler:
        return _Connection(self)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        cast(_Connection, request.protocol).arrived()
        return _closing(self._pages.answer(request))

    def add(self, connection: _Connection) -> None:
        """Note a connection; close one if there are too many."""
        self._of_address.setdefault(connection.address, {})[connection] = None
        if sum(map(len, self._of_address.values())) > MAX_CONNECTIONS:
            most = max(self._of_address.values(), key=len)
            oldest = next((each for each in most if each.waits), next(iter(most)))
            log.warning("more than %d connections at once: one is closed", MAX_CONNECTIONS)
            self.remove(oldest)
            oldest.force_close()

    def remove(self, connection: _Connection) -> None:
        """Forget a connection; do nothing if that was done."""
        same = self._of_address.get(connection.address, {})
        same.pop(connection, None)
        if not same:
            self._of_address.pop(connection.address, None)


class _Connection(web.RequestHandler):
    """One connection, one request: closed when the request is too slow or too large.

    Attributes:
        address: the client's.
        waits: whether its request has not arrived.
    """

    def __init__(self, server: _Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # none is allowed
            keepalive_timeout=0,
            max_line_size=MAX_REQUEST_BYTES,
            max_field_size=MAX_REQUEST_BYTES,
            lingering_time=LINGER_S,
        )
        self.address = ""
        self.waits = True
        self._server = server
        self._begin = b""
        self._left = MAX_REQUEST_BYTES
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self._within(REQUEST_S, self._too_slow)
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        self._begin = self._begin or data[:MAX_REQUEST_BYTES]
        taken, self._left = max(0, self._left), self._left - len(data)
        if taken and not self._refused:
            super().data_received(data[:taken])
            self.waits = not self._request_count
        if self._left < -MAX_DROPPED_BYTES:
            self.force_close()
        elif self._left < 0 and not self._refused and not self._request_count:
            error = f"a request has {MAX_REQUEST_BYTES} bytes at most, without its body"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, error)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._server.remove(self)
        super().connection_lost(exc)

    def force_close(self) -> None:
        """Close now; drop what a slow client has not taken, for which aiohttp waits endlessly."""
        transport = self.transport
        super().force_close()
        if transport is not None:
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp's parser does not understand."""
        del request, message
        if isinstance(exc, BadHttpMethod) and _REQUEST_LINE.match(self._begin):
            return _closing(_other_method())
        log.debug("not an HTTP request: %r", exc)
        return _closing(_json(HTTPStatus(status), {"error": "this is not an HTTP request"}))

    def arrived(self) -> None:
        """The request has arrived: the time for the answer begins."""
        self._within(REQUEST_S, self.force_close)

    def _within(self, seconds: float, late: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, late)

    def _too_slow(self) -> None:
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"a request takes {REQUEST_S:.0f} s at most")

    def _refuse(self, status: HTTPStatus, error: str) -> None:
        """Answer without aiohttp, which waits for the rest of the request."""
        self._refused = True
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        body = json.dumps({"error": error}).encode() + b"\n"
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        transport.write(head.encode() + body)
        with contextlib.suppress(OSError):
            transport.write_eof()
        self._within(LINGER_S, self.force_close)


def _closing(response: web.Response) -> web.Response:
    """A response with the headers that all have; the connection ends with it."""
    response.force_close()
    for name, value in (
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Content-Security-Policy", NO_CONTENT_POLICY),
        ("Referrer-Policy", "no-referrer"),
        ("Server", "stream-dedup"),
    ):
        response.headers.setdefault(name, value)
    return response
