"""The real Prometheus, which scrapes what tests run, and its promtool."""

from __future__ import annotations

import functools
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from tests.services.debian import find_program
from tests.services.processes import Daemon, ServiceError

_PACKAGE = "prometheus"

# A proxy that the environment names for the internet is not for servers on this machine.
_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@functools.cache
def find_prometheus() -> Path:
    return find_program("prometheus", _PACKAGE, "these tests ask a real Prometheus")


@functools.cache
def find_promtool() -> Path:
    return find_program("promtool", _PACKAGE, "these tests check rules with Prometheus's promtool")


def promtool(*args: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    return subprocess.run(
        [str(find_promtool()), *args],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Sample(msgspec.Struct, frozen=True):
    """One series' value, as a query answered."""

    labels: dict[str, str]
    value: float


class Prometheus(Daemon):
    """A Prometheus of our own on a free port of 127.0.0.1, running inside a `with` block.

    Args:
        config: its ``prometheus.yml``. Rule files are named by absolute paths.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._binary = find_prometheus()
        super().__init__("prometheus")
        self._config = self.directory / "prometheus.yml"
        self._config.write_bytes(msgspec.json.encode(config))  # which is YAML too

    def _command(self) -> list[str]:
        return [
            str(self._binary),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _answers(self) -> bool:
        try:
            with _http.open(f"http://127.0.0.1:{self.port}/-/ready", timeout=1) as page:
                return bool(page.status == 200)
        except OSError:
            return False  # not yet listening, or reading its data

    def query(self, expression: str, at_s: float | None = None) -> list[Sample]:
        """What an expression is, as an instant vector or a scalar.

        Args:
            expression: PromQL.
            at_s: when, in Unix seconds; None is now.

        Raises:
            ServiceError: it is not PromQL, or cannot be evaluated.
        """
        when = {} if at_s is None else {"time": f"{at_s:.3f}"}
        data = self.get("query", query=expression, **when)
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(each["metric"], float(each["value"][1])) for each in data["result"]]

    def get(self, path: str, **parameters: str) -> Any:
        """What a part of its HTTP interface answers.

        Args:
            path: below ``/api/v1/``.
            parameters: the request's; ``match`` is sent as ``match[]``.

        Raises:
            ServiceError: it refused; with its reason.
        """
        named = {"match[]" if name == "match" else name: v for name, v in parameters.items()}
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(named)}"
        try:
            with _http.open(url, timeout=10) as page:
                return msgspec.json.decode(page.read())["data"]
        except urllib.error.HTTPError as error:
            with error:
                why = error.read().decode(errors="replace")
            raise ServiceError(f"Prometheus refused {path} {parameters}: {why}") from error
