"""Serves the application with uvicorn, so that slow clients hold nobody up.

One request a connection, and each connection ends after `CONNECTION_S`, however slowly its bytes
come or go. Of more than `MAX_CONNECTIONS`, the oldest is closed. So clients that send nothing, or
take nothing, cost a connection for a while, and never keep another one out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from stream_dedup import signals

CONNECTION_S = 30.0
"""A page takes a tenth of a second, and the slowest comparison a second."""

MAX_CONNECTIONS = 256

MAX_HEAD_BYTES = 16 * 1024
"""Of a request without its body."""

SHUTDOWN_S = 2
"""How long answers may take to finish."""


def serve(app: ASGIApp, listening: socket.socket, started: Callable[[], None]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; a second signal ends what is still open at once.

    Args:
        app: the application.
        listening: where.
        started: called once requests are answered.
    """
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        headers=[("Connection", "close")],
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    asyncio.run(_Server(config, started).serve([listening]))


class _Server(uvicorn.Server):
    """Ends cleanly on a signal: uvicorn's own would raise it again."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with signals.handled(self._stop):
            yield

    def _stop(self, _number: int) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


_open: dict[_Connection, None] = {}
"""All connections, the oldest first."""


class _Connection(H11Protocol):
    """A connection that ends in time."""

    _timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(CONNECTION_S, transport.abort)
        _open[self] = None
        if len(_open) > MAX_CONNECTIONS:
            oldest = next(iter(_open))
            del _open[oldest]
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        _open.pop(self, None)
        super().connection_lost(exc)
