"""The command: what it refuses, and how it ends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.integration.command import COMMAND
from tests.integration.redis.helpers import in_loop
from tests.integration.ui.test_browser import served
from tests.integration.ui.writing import writing
from tests.integration.worker.running import wait_for
from tests.services.processes import free_port
from tests.services.redis import RedisServer


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "app.log"
    path.write_bytes(b"one line here\n" * 5)
    return str(path)


def refused(*args: str) -> str:
    done = subprocess.run(
        [COMMAND, "ui", *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_a_port_in_use_is_named_with_what_to_do(log: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refused("--port", port, log) == (
            f"stream-dedup: http://127.0.0.1:{port}: another program, perhaps another "
            "stream-dedup, listens there; end that, or choose another port\n"
        )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--host", "192.0.2.1"], "--token-file, --user-header, or --open"),
        (["--token-file", "/nowhere"], "/nowhere cannot be read: No such file or directory"),
        (["--token-file", "/dev/null"], "openssl rand -hex 32"),
        (["--namespace", "x"], "give FILEs, - for standard input, or --namespace"),
        (["/nowhere.log"], "/nowhere.log: cannot be opened"),
        (["/"], "/: cannot be opened: Is a directory"),
        (["--host", "203.0.113.9", "--open"], "name an address of this machine"),
    ],
)
def test_what_is_wrong_is_refused(log: str, args: list[str], expected: str) -> None:
    assert expected in refused(log, "--port", "1", *args).replace("\n", " ")


def test_a_pattern_without_namespaces_is_refused(redis_server: RedisServer) -> None:
    assert "no namespace is named as 'nope-*'" in refused(
        "-n", "nope-*", "--redis", redis_server.url, "--port", str(free_port())
    )


def test_a_wrong_password_ends_it(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("redis://", "redis://nobody:secret@")
    said = refused("-n", "logs", "--redis", url, "--port", str(free_port()))
    assert "check user and password" in said
    assert "secret" not in said


def test_without_the_extra_it_says_what_to_install(log: str) -> None:
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "sys.argv = ['stream-dedup', 'ui', sys.argv[1]]\n"
        "from stream_dedup.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, log], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'stream-dedup[ui]'" in done.stderr


def test_slow_clients_keep_nobody_out(log: str) -> None:
    with served(log) as address:
        port = int(address.rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(400)]
        for each in slow:
            each.sendall(b"GET / HTTP/1.1\r\nHo")
        begun_s = time.monotonic()
        with urlopen(f"{address}/healthz", timeout=30) as answer:  # noqa: S310 -- ours
            assert answer.status == 200
        assert time.monotonic() - begun_s < 25
        for each in slow:
            each.close()


def test_clients_that_take_nothing_keep_nobody_out(log: str) -> None:
    with served(log) as address:
        port = int(address.rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        for each in slow:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            each.sendall(b"GET /static/0/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with urlopen(f"{address}/healthz", timeout=60) as answer:  # noqa: S310 -- ours
            assert answer.status == 200
        for each in slow:
            each.close()


def test_who_waits_for_redis_keeps_no_other_page_waiting(
    make_redis: Callable[..., RedisServer],
) -> None:
    server = make_redis()

    @in_loop
    async def write() -> None:
        async with writing(server.url, "ui-stalls") as writer:
            await writer.write([b"cache emptied by hand", b"cache of the disk was lost"] * 3)

    write()
    with served("-n", "ui-stalls", "--redis", server.url, quiet=False) as address:

        def patterns() -> list[str]:
            url = f"{address}/api/v1/sources/ui-stalls/patterns"
            with urlopen(url, timeout=60) as answer:  # noqa: S310 -- ours
                return [each["id"] for each in json.load(answer)["patterns"]]

        def ask(path: str) -> None:
            with suppress(HTTPError), urlopen(f"{address}{path}", timeout=60):  # noqa: S310 -- ours
                pass

        wait_for(lambda: len(patterns()) == 2, "both are read")
        one, two = patterns()
        server.pause()
        paths = [f"/p/ui-stalls/{one}/neighbours", f"/two/ui-stalls?id={one}&id={two}"]
        waiting = [threading.Thread(target=ask, args=(path,)) for path in paths]
        for each in waiting:
            each.start()
        time.sleep(1)  # they have begun to wait, for ten seconds
        ask("/c/ui-stalls")
        assert all(each.is_alive() for each in waiting)
        server.resume()
        for each in waiting:
            each.join()
