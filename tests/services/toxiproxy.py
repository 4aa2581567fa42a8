"""The real Toxiproxy: interrupts, delays and throttles the connections to a server."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
import pytest

from tests.services.processes import CACHE, Daemon, PortReservation, ServiceError, file_lock

VERSION = "v2.12.0"

Toxic = Literal[
    "latency", "timeout", "reset_peer", "limit_data", "bandwidth", "slow_close", "slicer"
]
Stream = Literal["upstream", "downstream"]

# A proxy that the environment names for the internet is not for servers on this machine.
_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@functools.cache
def find_toxiproxy() -> Path:
    """The Toxiproxy server; built with Go if it is not there yet."""
    folder = CACHE / "bin"
    binary = folder / f"toxiproxy-{VERSION}"
    if binary.exists():
        return binary
    with file_lock(CACHE / "toxiproxy.lock"):
        if not binary.exists():
            _build(folder)
            (folder / "server").rename(binary)
    return binary


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.fail(
            "these tests build Toxiproxy, which needs Go 1.23 or newer: install it (https://go.dev"
            "/doc/install, or Debian's golang-go where it is new enough)"
        )
    done = subprocess.run(
        [go, "install", f"github.com/Shopify/toxiproxy/v2/cmd/server@{VERSION}"],
        env={**os.environ, "GOBIN": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"go install of Toxiproxy {VERSION} failed:\n{done.stderr}")


class Toxiproxy(Daemon):
    """A Toxiproxy server, running inside a `with` block."""

    def __init__(self) -> None:
        self._binary = find_toxiproxy()
        super().__init__("toxiproxy")
        self._proxies: list[Proxy] = []
        self._names = itertools.count(1)

    def proxy(self, upstream_port: int) -> Proxy:
        """A port whose connections go on to another port; open until it or this is closed."""
        made = Proxy(self, f"proxy-{next(self._names)}", upstream_port)
        self._proxies.append(made)
        return made

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.release()
        super().close()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        """Send a request to the server's own interface.

        Raises:
            ServiceError: The server refused it; with its reason.
            OSError: It did not answer.
        """
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        )
        try:
            # A toxic goes when what it holds has passed: of a slow link that takes a while.
            with _http.open(request, timeout=60):
                return
        except urllib.error.HTTPError as error:
            with error:
                why = error.read().decode(errors="replace")
            raise ServiceError(f"Toxiproxy refused {method} {path}: {why}") from error

    def _command(self) -> list[str]:
        return [str(self._binary), "-host", "127.0.0.1", "-port", str(self.port)]

    def _answers(self) -> bool:
        try:
            self.call("GET", "/version")
        except OSError:
            return False  # not yet listening
        return True


class Proxy:
    """One port that leads to another; a context manager.

    Attributes:
        port: Where clients connect.
    """

    def __init__(self, server: Toxiproxy, name: str, upstream_port: int) -> None:
        self._server = server
        self._path = f"/proxies/{name}"
        self._toxics: list[str] = []
        self._reservation = PortReservation()
        self.port = self._reservation.port
        addresses = {
            "listen": f"127.0.0.1:{self.port}",
            "upstream": f"127.0.0.1:{upstream_port}",
        }
        try:
            server.call("POST", "/proxies", {"name": name, "enabled": True, **addresses})
        except BaseException:
            self.release()
            raise

    def disable(self) -> None:
        """Cut all connections and refuse new ones."""
        self._server.call("POST", self._path, {"enabled": False})

    def enable(self) -> None:
        """Let connections through again."""
        self._server.call("POST", self._path, {"enabled": True})

    def add_toxic(self, toxic: Toxic, stream: Stream = "downstream", **attributes: int) -> str:
        """Make the link worse, for connections that are open too.

        Args:
            toxic: What happens: `latency` (`latency` and `jitter`, in ms), `timeout` (`timeout` in
                ms; 0 lets nothing through and never closes), `reset_peer` (`timeout`),
                `limit_data` (`bytes`), `bandwidth` (`rate` in KB/s), `slow_close` (`delay`),
                `slicer` (`average_size`, `size_variation`, `delay`).
            stream: `downstream` is what the server sends, `upstream` what the client sends.
            attributes: The numbers that belong to the kind.

        Returns:
            The name that `remove_toxic` takes.
        """
        name = f"{toxic}-{stream}"
        body = {"name": name, "type": toxic, "stream": stream, "attributes": attributes}
        self._server.call("POST", f"{self._path}/toxics", body)
        self._toxics.append(name)
        return name

    def remove_toxic(self, name: str) -> None:
        self._server.call("DELETE", f"{self._path}/toxics/{name}")
        self._toxics.remove(name)

    def remove_toxics(self) -> None:
        """Make the link good again."""
        for name in list(self._toxics):
            self.remove_toxic(name)

    def close(self) -> None:
        """Cut all connections and give up the port."""
        self._server.call("DELETE", self._path)
        self.release()

    def release(self) -> None:
        self._reservation.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
