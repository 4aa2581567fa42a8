"""The worker's small HTTP server: metrics and health for machines, a status page for people.

It serves a `Site` from threads of its own: a stuck event loop can still be seen. Who may reach the
port may read; there is nothing to write.

Theory of operation: one request a connection (HTTP/1.0), a thread each, at most `MAX_CONNECTIONS`.
A request, its head and whatever follows, has `MAX_REQUEST_BYTES` and `REQUEST_S` in all, however
slowly it drips in; the answer has `REQUEST_S` to be taken.
"""

from __future__ import annotations

import errno
import io
import logging
import socket
import socketserver
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from stream_dedup.errors import ConfigError, ConfigProblem
from stream_dedup.worker.site import Answer, Site, as_json

MAX_REQUEST_BYTES = 16 * 1024
"""Prometheus and kubelets send under 1 KiB; a browser with cookies a few."""

REQUEST_S = 5.0
"""A probe waits for 1 s as a rule, Prometheus for 10 s."""

MAX_CONNECTIONS = 16
"""Served at once: some probes, two Prometheus, a person. More are turned away."""

_LINGER_S = 1.0
"""What a client still sends is read for so long: closing at once would cost it the answer."""

log = logging.getLogger(__name__)


class HttpServer:
    """Serves a `Site` from threads, between `start` and `stop`.

    Args:
        host: the address or name to listen on; ``::`` is every address, IPv4 too.
        port: 0 for no server.
        site: what is served.
    """

    def __init__(self, host: str, port: int, site: Site) -> None:
        self._host = host.strip("[]")
        self._port = port
        self._site = site
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it is to be found; empty without a server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}" if self._port else ""

    def start(self) -> None:
        """Listen, and serve from now on.

        Raises:
            ConfigError: the address cannot be had.
        """
        if not self._port:
            return
        try:
            found = socket.getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, *_, address = found[0]
            self._server = _Server(family, address, self._site)
        except OSError as error:
            raise ConfigError(_problem(self.url, error)) from error
        serve = self._server.serve_forever
        self._thread = threading.Thread(
            target=serve, kwargs={"poll_interval": 0.1}, name="stream-dedup-http", daemon=True
        )
        self._thread.start()
        log.info("serving metrics and health at %s", self.url)

    def stop(self) -> None:
        """Take no more connections, and finish those that stand; takes `REQUEST_S` at the most."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()
            server.drain(REQUEST_S)


def _problem(url: str, error: OSError) -> ConfigProblem:
    remedy = "choose another port, or 0 for no server"
    problem = f"cannot be listened on ({error.strerror or error})"
    if error.errno == errno.EADDRINUSE:
        problem = "another program, perhaps another worker, listens there"
        remedy = f"end that, or {remedy}"
    elif error.errno == errno.EACCES:
        remedy = "choose a port from 1024 on, or 0 for no server"
    elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        remedy = "name an address of this machine: 0.0.0.0 or :: for all, 127.0.0.1 for itself"
    return ConfigProblem(url, "", problem, remedy)


class _Server(socketserver.ThreadingTCPServer):
    """Hands each connection to a thread, and only so many."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, family: int, address: Any, site: Site) -> None:  # noqa: ANN401 -- socket's
        self.address_family = family
        self.site = site
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- as above
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            log.warning("more than %d connections at once: one is turned away", MAX_CONNECTIONS)
            request.close()

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 -- as above
        until_s = time.monotonic() + _LINGER_S
        try:
            request.shutdown(socket.SHUT_WR)
            rest = _Bounded(request, 4 * MAX_REQUEST_BYTES, until_s)
            while rest.read(io.DEFAULT_BUFFER_SIZE):
                pass
        except (OSError, _TooLarge):
            pass  # it has its answer, or does not want it
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        error = sys.exception()
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        log.log(level, "a connection broke: %r", error)

    def drain(self, within_s: float) -> None:
        """Wait until no connection is being served."""
        until_s = time.monotonic() + within_s
        for _ in range(MAX_CONNECTIONS):
            self._slots.acquire(timeout=max(0.0, until_s - time.monotonic()))


class _TooLarge(Exception):  # noqa: N818 -- named for what it says
    """A client sends more than it may."""


class _Bounded(io.RawIOBase):
    """A socket to read from, so many bytes, until some time."""

    def __init__(self, connection: socket.socket, left: int, until_s: float) -> None:
        self._connection = connection
        self._left = left
        self._until_s = until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 -- Buffer is Python 3.12's
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if self._left <= 0:
            raise _TooLarge
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    server: _Server

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        limited = _Bounded(self.connection, MAX_REQUEST_BYTES, time.monotonic() + REQUEST_S)
        self.rfile = io.BufferedReader(limited)
        self.command, self.requestline, self.request_version = "", "", "HTTP/1.0"

    def handle(self) -> None:
        try:
            self.raw_requestline = self.rfile.readline(MAX_REQUEST_BYTES)
            if not self.raw_requestline or not self.parse_request():
                return  # it only knocked, or has been told what is wrong
            answer = self.server.site.answer(
                self.command, self.path, self.headers.get("Accept", "")
            )
        except _TooLarge:
            error = {"error": f"a request has {MAX_REQUEST_BYTES} bytes at most"}
            answer = as_json(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, error)
        except TimeoutError:
            error = {"error": f"a request takes {REQUEST_S:.0f} s at most"}
            answer = as_json(HTTPStatus.REQUEST_TIMEOUT, error)
        self._send(answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what `parse_request` does not understand."""
        del explain
        status = HTTPStatus(code)
        self._send(as_json(status, {"error": message or status.phrase}))

    def _send(self, answer: Answer) -> None:
        self.connection.settimeout(REQUEST_S)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", answer.policy)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Connection", "close")
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "stream-dedup"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as the base has it
        log.debug(format, *args)
