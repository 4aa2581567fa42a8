"""The pages in a real Chromium: by keyboard, narrow, dark and light, without one complaint."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.command import COMMAND
from tests.integration.redis.helpers import in_loop
from tests.integration.ui.writing import writing
from tests.integration.worker.running import wait_for
from tests.services.browser import Browser
from tests.services.processes import free_port
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Toxiproxy
from tests.unit.ui.test_app import HOSTILE, LINES, TOKEN

TAB, ENTER, UP, DOWN = "\ue004", "\ue007", "\ue013", "\ue015"

ROWS = "return document.querySelectorAll('tbody tr').length"
WHOLE = "return document.querySelector('.chart canvas') && document.querySelector('ul.near')"


@contextmanager
def served(*args: str, shown: str = "127.0.0.1", quiet: bool = True) -> Iterator[str]:
    """The address of the application; it must log nothing if it is `quiet`."""
    port = free_port()
    process = subprocess.Popen(
        [COMMAND, "ui", "--port", str(port), *args], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"stream-dedup: http://{shown}:{port}\n"
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert not quiet or process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("ui") / "app.log"
    path.write_bytes(b"\n".join([*LINES, *HOSTILE * 2, b""]))
    with served(os.fspath(path), "--rules", f"{path}.toml") as found:
        yield found


def to_pattern(tab: Browser, address: str, words: str) -> None:
    """Open the page of the first pattern with these words."""
    tab.open(f"{address}/")
    tab.until(ROWS)
    links = "[...document.querySelectorAll('tbody a')]"
    tab.until(f"return {links}.some((a) => a.textContent.includes('{words}'))")
    tab.run(f"{links}.find((a) => a.textContent.includes('{words}')).click()")
    tab.until(WHOLE)


def tab_to(tab: Browser, condition: str) -> None:
    """Press the tabulator until an element has the focus."""
    for _ in range(200):  # a list has two for each of 50 rows
        tab.keys(TAB)
        if tab.run(f"const it = document.activeElement; return {condition}"):
            return
    raise AssertionError(f"the tabulator does not lead to: {condition}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_every_page_is_accessible_and_complains_of_nothing(
    tab: Browser, address: str, scheme: str, width: int
) -> None:
    tab.size(width)
    tab.scheme(scheme)
    tab.open(f"{address}/")
    tab.until(ROWS)
    assert tab.violations() == []
    assert tab.run("return document.documentElement.scrollWidth") <= width
    tab.run("document.querySelector('tbody a').click()")
    tab.until(WHOLE)
    assert tab.violations() == []
    assert tab.run("return document.documentElement.scrollWidth") <= width
    tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert tab.violations() == []
    assert tab.run("return document.documentElement.scrollWidth") <= width
    for path in ("/login", "/c/files", "/v/files", "/r/files", "/r/files/audit"):
        tab.open(f"{address}{path}")
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width
    assert tab.messages() == []
    tab.open(f"{address}/s/none")
    tab.until("return document.querySelector('.problem')")
    assert tab.violations() == []
    assert tab.run("return document.documentElement.scrollWidth") <= width
    (refused,) = tab.messages()
    assert "404 (Not Found)" in refused


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


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1200, "dark")])
def test_the_list_is_sorted_filtered_and_turned_by_keyboard(
    tab: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "app.log"
    words = [f"{'bcdfghkl'[n % 8]}{'aeiou'[n // 8 % 5]}{'mnrst'[n // 40]}" for n in range(120)]
    lines = [
        f"2024-05-07T09:{n // 60:02}:{n % 60:02}Z {level} {word}ing {word}ed by {word}er"
        for n, word in enumerate(words)
        for level in ["ERROR" if n % 2 else "INFO"]
    ]
    path.write_text("\n".join([*lines, *lines[7:8], *lines[118:119] * 2, ""]))
    first = "const it = document.querySelector('tbody a'); return it && it.textContent"
    figure = "return document.querySelector('.figures strong').textContent"
    tab.size(width)
    tab.scheme(scheme)
    with served(os.fspath(path)) as address:
        tab.open(f"{address}/")
        tab.until(f"{figure} === '120'")
        assert words[118] in tab.run(first)
        tab_to(tab, "it.name === 'sort'")
        tab.keys("new")
        tab.until(f"return (() => {{ {first} }})().includes('{words[119]}')")
        # The page was opened while the file was read: levels come with the list.
        tab.until("return !document.querySelector('[name=level]').parentNode.hidden")
        assert tab.run("return document.querySelector('[name=group]').parentNode.hidden")
        tab_to(tab, "it.name === 'level'")
        tab.keys("INFO")
        tab.until(f"{figure} === '60'")
        tab_to(tab, "it.name === 'seen'")
        tab.keys("min")
        tab.until(f"{figure} === '30'")
        tab.keys(UP)
        tab.until(f"{figure} === '60'")
        tab_to(tab, "it.id === 'next'")
        tab.keys(ENTER)
        tab.until("return document.querySelector('.pages span').textContent === 'Page 2 of 2'")
        tab.until(f"{ROWS} === 10")
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width
        tab_to(tab, "it.id === 'previous'")
        tab.keys(ENTER)
        tab.until(f"{ROWS} === 50")
        tab_to(tab, "it.name === 'state'")
        tab.keys("cl")
        tab.until(f"{figure} === '0'")
        assert tab.violations() == []
        tab.open("about:blank")
    assert tab.messages() == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1200, "dark")])
def test_periods_are_compared_and_volume_asked_by_keyboard(
    tab: Browser, address: str, width: int, scheme: str
) -> None:
    tab.size(width)
    tab.scheme(scheme)

    def looks_well() -> bool:
        narrow = tab.run("return document.documentElement.scrollWidth") <= width
        return narrow and tab.violations() == []

    tab.open(f"{address}/")
    tab.until(ROWS)
    tab_to(tab, "it.textContent === 'Compare'")
    tab.keys(ENTER)
    tab.until("return location.pathname === '/c/files' && document.querySelector('.compare')")
    tab_to(tab, "it.matches('button') && it.textContent === 'Compare periods'")
    tab.keys(ENTER)
    tab.until("return location.search.includes('old_start=20')")
    assert not tab.run("return document.querySelector('.problem')")
    tab_to(tab, "it.id === 'new-start'")
    tab.keys(f"{TAB * 2}{UP}")  # a year later
    tab_to(tab, "it.matches('button') && it.textContent === 'Compare periods'")
    tab.keys(ENTER)
    tab.until("return (document.querySelector('.problem') || {textContent: ''}).textContent"
              ".includes('ends before it begins')")  # fmt: skip
    assert looks_well()
    tab_to(tab, "it.textContent === 'As at first'")
    tab.keys(ENTER)
    tab.until("return location.search === '' && !document.querySelector('.problem')")

    tab.open(f"{address}/")
    tab_to(tab, "it.textContent === 'Volume'")
    tab.keys(ENTER)
    tab.until("return location.pathname === '/v/files'")
    tab_to(tab, "it.id === 'per-minute'")
    tab.keys(f"7{ENTER}")
    tab.until("return location.search === '?per_minute=7'")
    tab.until("return document.body.textContent.includes('keep 7 a minute')")
    assert looks_well()
    tab_to(tab, "it.matches('tbody a')")
    tab.keys(ENTER)
    tab.until("return location.pathname.startsWith('/p/files/')")
    assert tab.messages() == []


def test_hostile_events_run_nothing(tab: Browser, address: str) -> None:
    tab.open(f"{address}/")
    tab.run("sessionStorage.clear()")
    tab.open(f"{address}/")
    tab.until(ROWS)
    for path in tab.run("return [...document.querySelectorAll('tbody a')].map((a) => a.href)"):
        tab.open(path)
        tab.until("return document.querySelector('.chart canvas')")
    chosen = tab.run("return location.pathname.split('/').pop()")
    for path in tab.run("return [...document.querySelectorAll('a[href^=\"/two/\"]')]"
                        ".map((a) => a.href)"):  # fmt: skip
        assert chosen in path
        tab.open(path)
        tab.until("return document.querySelector('.two')")
    tab.open(f"{address}/c/files")
    tab.until("return document.querySelector('.compare')")
    assert tab.messages() == []


def decide_by_keyboard(tab: Browser, summary: str, value: str, button: str) -> None:
    """Fill in a form of the page of a pattern, with the keyboard only."""
    tab_to(tab, f"it.matches('summary') && it.textContent.trim() === '{summary}'")
    tab.keys(ENTER)
    if value:
        tab_to(tab, "['value', 'pattern', 'per_minute'].includes(it.name)")
        tab.keys(value)  # instead of what stands there: the tabulator selects it
    tab_to(tab, "it.name === 'reason'")
    tab.keys("a reason of mine")
    tab_to(tab, "it.name === 'author'")
    tab.keys("ann")
    tab_to(tab, f"it.matches('button') && it.textContent === '{button}'")
    tab.keys(ENTER)
    tab.until("return location.pathname === '/r/files' && document.readyState === 'complete'")


@contextmanager
def one_pattern(tab: Browser, folder: Path, width: int) -> Iterator[str]:
    """The page of a pattern is open, in a window so wide; rules go to ``app.log.toml``."""
    path = folder / "app.log"
    path.write_bytes(b"\n".join([*LINES, b""]))
    tab.size(width)
    with served(os.fspath(path), "--rules", f"{path}.toml") as address:
        to_pattern(tab, address, "logged in")
        yield address


@pytest.mark.parametrize("width", [360, 1200])
def test_decisions_are_made_and_undone_by_keyboard(
    tab: Browser, tmp_path: Path, width: int
) -> None:
    with one_pattern(tab, tmp_path, width) as address:
        decide_by_keyboard(tab, "Name it", "sign-ins", "Name")
        shown = tab.run("return document.querySelector('.rules li:target').textContent")
        for each in ("sign-ins", "a reason of mine", "ann", "logged in"):
            assert each in shown
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width

        tab.open(f"{address}/")
        tab.until("return document.querySelector('tbody .name')")  # the file was read again
        to_pattern(tab, address, "logged in")
        assert tab.run("return document.querySelector('h1 .name').textContent") == "sign-ins"
        decide_by_keyboard(tab, "Mute it", "", "Mute")
        assert tab.run("return document.querySelectorAll('.rules > li').length") == 2
        assert "name =" in (tmp_path / "app.log.toml").read_text()

        tab_to(tab, "it.matches('summary') && it.textContent.includes('Undo')")
        tab.keys(ENTER)
        assert tab.violations() == []
        tab_to(tab, "it.matches('button') && it.textContent === 'Undo'")
        tab.keys(ENTER)
        tab.until("return document.querySelectorAll('.rules > li').length === 1")
        tab.open(f"{address}/r/files/audit")
        assert tab.run("return document.querySelectorAll('tbody tr').length") == 3
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width
    assert tab.messages() == []


@pytest.mark.parametrize("width", [360, 1200])
def test_a_pattern_is_limited_and_freed_by_keyboard(
    tab: Browser, tmp_path: Path, width: int
) -> None:
    with one_pattern(tab, tmp_path, width):
        decide_by_keyboard(tab, "Keep some a minute", "25", "Keep")
        shown = tab.run("return document.querySelector('.rules li:target').textContent")
        for each in ("25 a minute", "a reason of mine", "logged in"):
            assert each in shown
        (rule,) = tomllib.loads((tmp_path / "app.log.toml").read_text())["rules"]
        assert (rule["kind"], rule["per_minute"], rule["author"]) == ("keep", 25, "ann")
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width

        tab_to(tab, "it.matches('summary') && it.textContent.includes('Undo')")
        tab.keys(ENTER)
        assert tab.violations() == []
        tab_to(tab, "it.matches('button') && it.textContent === 'Undo'")
        tab.keys(" ")
        tab.until("return document.querySelectorAll('.rules > li').length === 0")
        tab.until("return document.readyState === 'complete'")
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width
    assert tab.messages() == []


USER = "<timestamp> INFO user <*> logged in"
CACHE = "<timestamp> INFO cache emptied"


@pytest.mark.parametrize(
    ("summary", "steps", "button", "expected"),
    [
        ("Split off a value", [("it.id === 'slot-split'", "2"), ("it.id === 'value-split'", "u3")],
         "Split off", {"kind": "split", "pattern": USER, "slot": 2, "value": "u3"}),
        ("Never a variable", [("it.id === 'slot-never'", "2")], "Never a variable",
         {"kind": "never_variable", "pattern": USER, "slot": 2}),
        ("Always a variable", [("it.id === 'value-always'", "logged")], "Always a variable",
         {"kind": "always_variable", "pattern": USER, "value": "logged"}),
        ("Merge it with another, or never", [("it.id === 'pattern-other'", CACHE)], "Never merge",
         {"kind": "never_merge", "patterns": [USER, CACHE]}),
    ],
)  # fmt: skip
def test_what_varies_is_decided_by_keyboard(
    tab: Browser, tmp_path: Path, summary: str, steps: list[tuple[str, str]], button: str,
    expected: dict[str, object],
) -> None:  # fmt: skip
    with one_pattern(tab, tmp_path, 360):
        tab_to(tab, f"it.matches('summary') && it.textContent.trim() === '{summary}'")
        tab.keys(ENTER)
        for place, keys in steps:
            tab_to(tab, place)
            tab.keys(keys)
        assert tab.violations() == []
        tab_to(tab, f"it.matches('button') && it.textContent === '{button}'")
        tab.keys(ENTER)
        tab.until("return location.pathname === '/r/files' && document.readyState === 'complete'")
        (rule,) = tomllib.loads((tmp_path / "app.log.toml").read_text())["rules"]
        assert {name: rule.get(name) for name in expected} == expected
        assert tab.run("return document.documentElement.scrollWidth") <= 360
    assert tab.messages() == []


@contextmanager
def near_patterns(folder: Path) -> Iterator[str]:
    """The application over two patterns that are near, and a file of rules; its address."""
    path = folder / "app.log"
    path.write_bytes(b"job one has ended well\n" * 3 + b"job one was over too early today\n" * 2)
    with served(os.fspath(path), "--rules", f"{path}.toml") as address:
        yield address


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_neighbours_are_decided_by_keyboard_and_contradictions_shown(
    tab: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    tab.size(width)
    tab.scheme(scheme)
    with near_patterns(tmp_path) as address:
        for button in ("Never merge", "Merge"):
            to_pattern(tab, address, "ended well")
            tab.until("return document.querySelector('ul.near details')")
            tab_to(tab, "it.matches('ul.near summary')")
            tab.keys(ENTER)
            tab_to(tab, f"it.matches('ul.near button') && it.textContent === '{button}'")
            tab.keys(ENTER)
            tab.until("return location.pathname === '/r/files' && "
                      "document.readyState === 'complete'")  # fmt: skip
        assert "contradict" in tab.run("return document.querySelector('h1').textContent")
        assert len(tomllib.loads((tmp_path / "app.log.toml").read_text())["rules"]) == 1
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width
        tab_to(tab, "it.matches('summary') && it.textContent.includes('Undo')")
        tab.keys(ENTER)
        tab_to(tab, "it.matches('button') && it.textContent === 'Undo'")
        tab.keys(ENTER)
        tab.until("return document.body.textContent.includes('None yet')")
        (refused,) = tab.messages()
        assert "409 (Conflict)" in refused


def test_neighbours_are_merged_where_they_are_listed(tab: Browser, tmp_path: Path) -> None:
    tab.size(1200)
    with near_patterns(tmp_path) as address:
        to_pattern(tab, address, "ended well")
        tab.until("return document.querySelector('ul.near details')")
        tab.run("document.querySelector('ul.near details').open = true")
        assert tab.violations() == []
        tab.run("document.querySelector('ul.near button[value=merge]').click()")
        tab.until("return location.pathname === '/r/files'")
        assert tab.run("return document.querySelectorAll('.rules .patterns li').length") == 2
        tab.open(f"{address}/")
        tab.until(f"{ROWS} === 1")
        assert tab.run("return document.querySelector('tbody td.number').textContent") == "5"
        tab.run("document.querySelector('tbody a').click()")
        tab.until("return document.querySelector('#pattern-other')")
        tab.run(
            "document.querySelector('#pattern-other').value = 'job one was over too early today'"
        )
        tab.run("document.querySelector('button[value=never_merge]').click()")
        tab.until("return document.querySelector('h1').textContent.includes('contradict')")
        assert tab.run("return document.querySelectorAll('.rules > li').length") == 1
        assert tab.violations() == []
        (refused,) = tab.messages()
        assert "409 (Conflict)" in refused


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_two_patterns_are_chosen_and_decided_by_keyboard(
    tab: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    tab.size(width)
    tab.scheme(scheme)
    with near_patterns(tmp_path) as address:
        tab.open(f"{address}/")
        tab.until(f"{ROWS} === 2")
        for _ in range(2):
            tab_to(tab, "it.name === 'id' && !it.checked")
            tab.keys(" ")
        tab.run("htmx.trigger('#list', 'refresh')")  # what is chosen stays so
        tab.run("document.querySelector('#words').focus()")
        assert tab.violations() == []
        tab_to(tab, "it.matches('button') && it.textContent === 'Side by side'")
        tab.keys(ENTER)
        tab.until("return location.pathname === '/two/files' && document.querySelector('.two')")
        assert tab.run("return document.querySelectorAll('.two mark').length") > 0
        assert tab.violations() == []
        assert tab.run("return document.documentElement.scrollWidth") <= width
        tab_to(tab, "it.matches('button') && it.textContent === 'Merge'")
        tab.keys(ENTER)
        tab.until("return location.pathname === '/r/files'")
        assert tab.run("return document.querySelectorAll('.rules .patterns li').length") == 2
    assert tab.messages() == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_a_person_signs_in_and_out_by_keyboard(
    tab: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    path, token = tmp_path / "app.log", tmp_path / "token"
    path.write_bytes(b"\n".join([*LINES, b""]))
    token.write_text(f"{TOKEN}\n")
    tab.size(width)
    tab.scheme(scheme)
    with served(os.fspath(path), "--token-file", os.fspath(token)) as address:
        tab.open(f"{address}/v/files")
        tab.until("return location.pathname === '/login'")
        for given, end in [("wrong", "This is not the token."), (TOKEN, "Patterns of")]:
            tab_to(tab, "it.name === 'token'")
            tab.keys(f"{given}{ENTER}")
            tab.until(f"return document.body.textContent.includes('{end}')")
            assert tab.violations() == []
            assert tab.run("return document.documentElement.scrollWidth") <= width
        tab.until(ROWS)
        tab_to(tab, "it.textContent === 'Sign out'")
        tab.keys(ENTER)
        tab.until("return location.pathname === '/login'")
        tab.open(f"{address}/v/files")
        tab.until("return location.pathname === '/login'")
        (refused,) = tab.messages()
        assert "403 (Forbidden)" in refused


def test_a_form_is_sent_over_an_address_that_is_not_local(tab: Browser, tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"\n".join([*LINES, b""]))
    own = socket.gethostbyname(socket.gethostname())
    options = ("--rules", f"{path}.toml", "--host", "0.0.0.0", "--open", "--changes")  # noqa: S104
    with served(os.fspath(path), *options, shown="0.0.0.0") as address:  # noqa: S104
        to_pattern(tab, address.replace("127.0.0.1", own), "logged in")
        decide_by_keyboard(tab, "Mute it", "", "Mute")
        assert tab.run("return document.querySelectorAll('.rules > li').length") == 1


def test_a_page_of_another_site_cannot_decide(tab: Browser, tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"\n".join([*LINES, b""]))
    rules = tmp_path / "rules.toml"
    foreign = tmp_path / "index.html"
    with served(os.fspath(path), "--rules", str(rules)) as address:
        foreign.write_text(
            f'<title>x</title><form method=post action="{address}/r/files"><input name=kind '
            'value=mute><input name=pattern value="user <*> logged in"></form>'
        )
        with pages_in(tmp_path) as other:
            tab.open(other)
            tab.run("document.forms[0].submit()")
            tab.until("return document.body.textContent.includes('another site')")
            tab.open(other)
            sent = tab.run_async(
                f"const done = arguments[0]; fetch('{address}/api/v1/sources/files/rules', "
                "{method: 'POST', headers: {'Content-Type': 'application/json'}, "
                """body: '{"kind":"mute","patterns":["a b"]}'})"""
                ".then(() => done('sent'), () => done('refused'))"
            )
            assert sent == "refused"
        assert not rules.exists()


@contextmanager
def pages_in(folder: Path) -> Iterator[str]:
    """Serve a folder on another port, which is another site's as far as forms go."""
    handler = partial(SimpleHTTPRequestHandler, directory=os.fspath(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join()


def test_a_page_follows_the_stream(tab: Browser, redis_server: RedisServer) -> None:
    @in_loop
    async def check() -> None:
        async with writing(redis_server.url, "ui-live") as writer:
            await writer.write([b"cache emptied by hand"] * 3)
            with served("-n", "ui-live", "--redis", redis_server.url) as address:
                tab.open(f"{address}/")
                tab.run("sessionStorage.clear()")
                tab.open(f"{address}/")
                count = "return (document.querySelector('tbody td.number') || {}).textContent"
                wait_for(lambda: tab.run(count) == "3", "the count is shown")
                tab.run("document.querySelector('tbody a').focus()")
                await writer.write([b"cache emptied by hand"] * 39)
                wait_for(lambda: tab.run(count) == "42", "the new count is shown")
                assert tab.run("return document.activeElement.matches('tbody a')")

    check()


def test_the_page_says_that_redis_is_away_and_comes_back(
    tab: Browser, redis_server: RedisServer, toxiproxy: Toxiproxy
) -> None:
    @in_loop
    async def check() -> None:
        with toxiproxy.proxy(redis_server.port) as link:
            url = f"redis://127.0.0.1:{link.port}"
            async with writing(redis_server.url, "ui-gone") as writer:
                await writer.write([b"cache emptied by hand"] * 3)
                with served("-n", "ui-gone", "--redis", url, quiet=False) as address:
                    tab.open(f"{address}/")
                    tab.run("sessionStorage.clear()")
                    tab.open(f"{address}/")
                    count = "return (document.querySelector('tbody td.number') || {}).textContent"
                    wait_for(lambda: tab.run(count) == "3", "the count is shown")
                    link.disable()
                    tab.until("return document.querySelector('.problem[role=alert]')")
                    said = tab.run("return document.querySelector('.problem').textContent")
                    assert "What is shown was read before" in said
                    assert tab.run(count) == "3"
                    assert tab.violations() == []
                    await writer.write([b"cache emptied by hand"] * 4)
                    link.enable()
                    wait_for(lambda: tab.run(count) == "7", "it has come back by itself")
                    tab.until("return !document.querySelector('.problem')")

                    tab.run("document.querySelector('tbody a').click()")
                    tab.until("return document.querySelector('.chart canvas')")
                    said = "return document.querySelector('#h-near').parentNode.textContent"
                    tab.until(f"{said}.includes('None shares its words')")
                    link.disable()
                    tab.until("return document.querySelector('#facts .problem[role=alert]')")
                    tab.run(
                        "const place = document.querySelector('#h-near').parentNode.querySelector("
                        "'[hx-get]'); htmx.ajax('GET', place.getAttribute('hx-get'), place)"
                    )
                    tab.until(f"{said}.includes('It is tried again')")
                    assert tab.violations() == []
                    link.enable()
                    tab.until(f"{said}.includes('None shares its words')")
                    tab.until("return !document.querySelector('#facts .problem')")
                    assert tab.messages() == []

    check()
