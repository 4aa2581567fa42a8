"""The pages in a real Chromium: by keyboard, narrow, dark and light, without one complaint."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.command import COMMAND
from tests.integration.redis.helpers import in_loop
from tests.integration.ui.writing import writing
from tests.integration.worker.running import free_port, wait_for
from tests.services.browser import Browser, browser
from tests.services.redis import RedisServer
from tests.unit.ui.test_app import HOSTILE, LINES

TAB, ENTER, DOWN = "\ue004", "\ue007", "\ue015"

ROWS = "return document.querySelectorAll('tbody tr').length"
WHOLE = "return document.querySelector('.chart canvas') && document.querySelector('ul.near')"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as found:
        yield found


@contextmanager
def served(*args: str) -> Iterator[str]:
    """The address of the application."""
    port = free_port()
    process = subprocess.Popen(
        [COMMAND, "ui", "--port", str(port), *args], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"stream-dedup: http://127.0.0.1:{port}\n"
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("ui") / "app.log"
    path.write_bytes(b"\n".join([*LINES, *HOSTILE * 2, b""]))
    with served(os.fspath(path)) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_every_page_is_accessible_and_complains_of_nothing(
    tab: Browser, address: str, scheme: str, width: int
) -> None:
    tab.size(width)
    tab.scheme(scheme)
    tab.messages()
    tab.open(f"{address}/")
    tab.until(ROWS)
    assert tab.violations() == []
    assert tab.run("return document.documentElement.scrollWidth") <= width
    tab.run("document.querySelector('tbody a').click()")
    tab.until(WHOLE)
    assert tab.violations() == []
    assert tab.run("return document.documentElement.scrollWidth") <= width
    tab.open(f"{address}/login")
    assert tab.violations() == []
    assert tab.messages() == []


def test_the_keyboard_is_enough(tab: Browser, address: str) -> None:
    tab.open(f"{address}/")
    tab.run("sessionStorage.clear()")
    tab.open(f"{address}/")
    tab.until(ROWS)
    for _ in range(20):
        tab.keys(TAB)
        if tab.run("return document.activeElement.id") == "words":
            break
    tab.keys("logged")
    tab.until("return document.querySelectorAll('tbody tr').length === 1")
    for _ in range(20):
        tab.keys(TAB)
        if tab.run("return document.activeElement.matches('tbody a')"):
            break
    tab.keys(ENTER)
    tab.until("return location.pathname.startsWith('/p/')")
    tab.until(WHOLE)
    assert "logged in" in tab.run("return document.querySelector('h1').textContent")
    tab.run("history.back()")  # the words are still there
    tab.until("return (document.querySelector('#words') || {}).value === 'logged'")
    tab.until("return document.querySelectorAll('tbody tr').length === 1")


def test_hostile_events_run_nothing(tab: Browser, address: str) -> None:
    tab.messages()
    tab.open(f"{address}/")
    tab.run("sessionStorage.clear()")
    tab.open(f"{address}/")
    tab.until(ROWS)
    for path in tab.run("return [...document.querySelectorAll('tbody a')].map((a) => a.href)"):
        tab.open(path)
        tab.until("return document.querySelector('.chart canvas')")
    assert tab.messages() == []


def test_a_page_follows_the_stream(tab: Browser, redis_server: RedisServer) -> None:
    @in_loop
    async def check() -> None:
        async with writing(redis_server.url, "ui-live") as writer:
            await writer.write([b"cache emptied by hand"] * 3)
            with served("-n", "ui-live", "--redis", redis_server.url) as address:
                tab.open(f"{address}/")
                tab.run("sessionStorage.clear()")
                tab.open(f"{address}/")
                count = "return (document.querySelector('tbody td') || {}).textContent"
                wait_for(lambda: tab.run(count) == "3", "the count is shown")
                tab.run("document.querySelector('tbody a').focus()")
                await writer.write([b"cache emptied by hand"] * 39)
                wait_for(lambda: tab.run(count) == "42", "the new count is shown")
                assert tab.run("return document.activeElement.matches('tbody a')")

    check()
