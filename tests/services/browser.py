"""A real Chromium, driven through its WebDriver; and axe-core, which checks accessibility."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.services.debian import find_program
from tests.services.processes import file_lock, free_port

AXE = "axe-core@4.14.1"
CACHE = Path.home() / ".cache" / "stream-dedup-tests"

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key by which WebDriver names an element."""


class Browser:
    """A tab.

    Args:
        address: of the session.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = Request(f"{self._address}{path}", data, method=method)  # noqa: S310 -- ours
        try:
            with urlopen(request, timeout=120) as answer:  # noqa: S310 -- as above
                return json.load(answer)["value"]
        except HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def open(self, url: str) -> None:
        """Go to a page."""
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        """Run a script in the page and return what it returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def run_async(self, script: str) -> Any:
        """Run a script that calls `arguments[0]` with its result."""
        return self._ask("POST", "/execute/async", {"script": script, "args": []})

    def keys(self, text: str) -> None:
        """Type on the keyboard."""
        pressed = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": pressed}]
        self._ask("POST", "/actions", {"actions": actions})

    def tool(self, command: str, **parameters: object) -> Any:
        """Run a command of the developer tools."""
        body = {"cmd": command, "params": parameters}
        return self._ask("POST", "/goog/cdp/execute", body)

    def messages(self) -> list[str]:
        """Return what the console has written since the last call."""
        return [each["message"] for each in self._ask("POST", "/se/log", {"type": "browser"})]

    def size(self, width: int, height: int = 900) -> None:
        """Set the size of the page."""
        self.tool(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def scheme(self, name: str) -> None:
        """Prefer dark or light."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.tool("Emulation.setEmulatedMedia", features=features)

    def picture(self) -> str:
        """Take a picture of the page: a PNG in base64."""
        return str(self._ask("GET", "/screenshot"))

    def until(self, script: str, seconds: float = 60) -> Any:
        """Wait until a script returns something that is true, and return that."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"it did not come to pass: {script}"
            time.sleep(0.05)
        return found

    def violations(self) -> list[str]:
        """Check the page with axe: WCAG 2.2, A and AA."""
        self.run(axe())
        found = self.run_async(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa',"
            "'best-practice']}).then((found) => done(found.violations.map((each) =>"
            "`${each.id}: ${each.nodes.map((node) => node.html + ' ' + node.failureSummary)"
            ".slice(0, 3).join(' | ')}`)))"
        )
        return list(found)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser."""
    chromium = find_program("chromium", "chromium", "the pages are tested in a real browser")
    driver = find_program("chromedriver", "chromium-driver", "it drives the browser of the tests")
    port = free_port()
    with tempfile.TemporaryDirectory() as profile:
        process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield from _session(f"http://127.0.0.1:{port}", str(chromium), profile)
        finally:
            process.terminate()
            process.wait()


def _session(driver: str, chromium: str, profile: str) -> Iterator[Browser]:
    flags = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--disable-dev-shm-usage", f"--user-data-dir={profile}",
    ]  # fmt: skip
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": chromium, "args": flags},
        "goog:loggingPrefs": {"browser": "ALL"},
    }
    body = json.dumps({"capabilities": {"alwaysMatch": wanted}}).encode()
    answer = _patiently(lambda: urlopen(Request(f"{driver}/session", body), timeout=120))  # noqa: S310 -- ours
    session = json.load(answer)["value"]["sessionId"]
    address = f"{driver}/session/{session}"
    try:
        yield Browser(address)
    finally:
        urlopen(Request(address, method="DELETE"), timeout=60).close()  # noqa: S310 -- ours


def _patiently(ask: Callable[[], Any]) -> Any:
    """Ask until the driver listens."""
    end = time.monotonic() + 60
    while True:
        try:
            return ask()
        except HTTPError as error:
            pytest.fail(f"Chromium does not start: {error.read().decode()}")
        except OSError:
            assert time.monotonic() < end, "chromedriver does not answer"
            time.sleep(0.1)


def axe() -> str:
    """Return axe-core, from the npm registry, downloaded once for each machine."""
    path = CACHE / f"{AXE.replace('@', '-')}.js"
    if path.exists():
        return path.read_text("utf-8")
    npm = find_program("npm", "npm", "axe-core is a package of npm")
    CACHE.mkdir(parents=True, exist_ok=True)
    with file_lock(CACHE / "axe.lock"), tempfile.TemporaryDirectory() as folder:
        subprocess.run([npm, "pack", "--silent", AXE], cwd=folder, check=True, capture_output=True)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as packed:
            found = packed.extractfile("package/axe.min.js")
            assert found is not None
            path.write_bytes(found.read())
    return path.read_text("utf-8")
