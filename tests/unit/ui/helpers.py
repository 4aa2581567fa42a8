"""Asks an application as a browser would, without a network; and files of events to show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from starlette.types import ASGIApp, Message

from stream_dedup.features.recipe import load_recipe
from stream_dedup.io.decoder import DecoderOptions
from stream_dedup.io.timestamps import GUESSED
from stream_dedup.listening import HostNames
from stream_dedup.ui.app import Application
from stream_dedup.ui.files import FileSource
from stream_dedup.ui.patterns import Entry, Found, Query, find_in_steps
from stream_dedup.ui.rules import SourceRules
from stream_dedup.ui.security import Access
from stream_dedup.volume.counts import Axis


class Answer(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A client of an application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        pieces: int = 1,
    ) -> Answer:
        path, _, query = path.partition("?")
        given = {"host": "127.0.0.1:9465", **(headers or {})}
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "scheme": "http",
            "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 9465),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        messages = [
            {"type": "http.request", "body": body, "more_body": piece + 1 < pieces}
            for piece in range(pieces)
        ]
        sent: list[Message] = []

        async def receive() -> Message:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))  # type: ignore[arg-type]
        start, *parts = sent
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], found, b"".join(part.get("body", b"") for part in parts))

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={n.replace("_", "-"): v for n, v in headers.items()})

    def post(self, path: str, body: bytes = b"", **headers: str) -> Answer:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", path, body, names)


def file_source(
    path: Path, lines: Iterable[bytes], rules: SourceRules | None = None, **reading: Any
) -> FileSource:
    """A file with these lines, read."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    options = DecoderOptions(time_format=GUESSED, join=True, **reading)
    source = FileSource([str(path)], load_recipe("logs"), options, 100_000, rules)
    source.read()
    return source


def client_of(*sources: Any, **access: Any) -> Client:
    return Client(application_of(*sources, **access).asgi())


def application_of(*sources: Any, **access: Any) -> Application:
    return Application(sources, Access(HostNames(), **access))


def find(entries: Sequence[Entry], query: Query, axis: Axis) -> Found:
    steps = find_in_steps(entries, query, axis)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast(Found, done.value)
