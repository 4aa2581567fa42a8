"""``stream-dedup health`` against a worker's real port, and against other servers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_dedup.worker.http import HttpServer, Pages
from stream_dedup.worker.telemetry.health import START, STUCK_AFTER_S, Health
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from tests.integration.worker.running import command
from tests.services.processes import free_port


class Served:
    """A worker's health at its port, on a clock that can be put forward."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.skipped_s = 0.0
        self.health = Health(now_s=lambda: time.monotonic() + self.skipped_s)
        self.port = free_port()
        pages = Pages(self.health, PrometheusMetrics().exposition, lambda _: b"")
        self.server = HttpServer(host, self.port, pages)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    made.server.start()
    yield made
    made.server.stop()


def test_a_worker_that_lives_is_alive_before_it_is_ready(served: Served) -> None:
    served.health.beat()
    done = command("health", "--url", served.url)
    assert (done.code, done.out[:17]) == (0, b"alive, last beat "), done.err
    done = command("health", "--url", served.url, "--ready")
    assert (done.code, done.out) == (1, b"")
    assert f"{served.url}/readyz: start: the worker is starting" in done.err
    served.health.ready(START)
    done = command("health", "--url", f"{served.url}/", "--ready")
    assert (done.code, done.out, done.err) == (0, b"ready\n", "")


def test_every_reason_is_printed_on_one_line(served: Served) -> None:
    served.health.ready(START)
    served.health.not_ready("main: index", "redis is\naway")
    served.health.not_ready("main: broker", "kafka too")
    done = command("health", "--url", served.url, "--ready")
    assert done.code == 1
    assert "/readyz: main: index: redis is away; main: broker: kafka too\n" in done.err


def test_a_worker_that_is_stuck_does_not_live(served: Served) -> None:
    served.skipped_s = STUCK_AFTER_S
    done = command("health", "--url", served.url)
    assert done.code == 1
    assert "its event loop is stuck, last beat 3" in done.err


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 -- as a container has it
def test_the_configuration_says_where_it_is(tmp_path: Path, host: str) -> None:
    served = Served(host)
    served.server.start()
    file = tmp_path / "stream-dedup.toml"
    file.write_text(
        f'[http]\nhost = "{host}"\nport = 1\n[[pipelines]]\ntopics = ["a"]\noutput_topic = "b"\n'
    )
    try:
        done = command("health", "--config", str(file), "--set", f"http.port={served.port}")
    finally:
        served.server.stop()
    assert done.code == 0, done.err


def test_a_worker_without_a_port_cannot_be_asked() -> None:
    settings = ("http.port=0", "pipelines.0.topics=a", "pipelines.0.output_topic=b")
    done = command("health", *(part for each in settings for part in ("--set", each)))
    assert done.code == 2
    assert "http.port is 0" in done.err


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = command("health", "--url", url)
    assert done.code == 1
    assert f"{url}/healthz: no answer (Connection refused)" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "url", ["https://a:1", "a:1", "http://", "http://a:99999", "http://a/b", "http://[::1", ""]
)
def test_an_invalid_address_is_refused(url: str) -> None:
    done = command("health", "--url", url)
    assert done.code == 2
    assert "--url" in done.err


NO_WORKERS = {
    "nothing": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a page": b"HTTP/1.0 200 OK\r\n\r\n<html>",
    "no object": b"HTTP/1.0 200 OK\r\n\r\n[true]",
    "another object": b'HTTP/1.0 200 OK\r\n\r\n{"alive": "yes"}',
    "deep": b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 60_000,
    "endless headers": b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * 2_000,
    "not text": b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe\x00",
    "reasons that are none": b'HTTP/1.0 503 X\r\n\r\n{"ready": false, "reasons": [1, null]}',
}


@pytest.mark.parametrize("answer", NO_WORKERS.values(), ids=NO_WORKERS)
@pytest.mark.parametrize("option", ["--ready", "--timeout=4"])
def test_an_answer_not_from_a_worker_is_unhealthy(answer: bytes, option: str) -> None:
    with answering(answer) as port:
        done = command("health", "--url", f"http://127.0.0.1:{port}", option)
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith(f"stream-dedup: http://127.0.0.1:{port}/")
    assert len(done.err.splitlines()) == 1


def test_it_waits_no_longer_than_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = command("health", "--url", url, "--timeout", "0.2")
    assert done.code == 1
    assert "no answer (timed out)" in done.err


def test_a_long_answer_is_not_read_to_its_end(served: Served) -> None:
    served.health.ready(START)
    for number in range(2_000):
        served.health.not_ready(f"reason {number}", "x" * 100)
    done = command("health", "--url", served.url, "--ready")
    assert done.code == 1
    assert len(done.err) < 1_000
    assert json.dumps("x" * 200) not in done.err


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port where one connection is answered so, whatever it asks."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join(10)
