"""The server over real sockets: its pages, what it refuses, and how it starts and stops."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stream_dedup.clock import SystemClock, monotonic_s
from stream_dedup.config import Config, PipelineConfig
from stream_dedup.errors import ConfigError
from stream_dedup.listening import HostNames
from stream_dedup.worker import http as served
from stream_dedup.worker.http import (
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    NO_CONTENT_POLICY,
    HttpServer,
    Pages,
)
from stream_dedup.worker.telemetry.health import START, STUCK_AFTER_S, Health
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from stream_dedup.worker.telemetry.snapshots import RecentMetrics
from stream_dedup.worker.telemetry.status_page import POLICY, StatusPage
from tests.services.processes import free_port
from tests.status_page import Page

LOCAL = "127.0.0.1"


class Worker:
    """A server with what it serves."""

    def __init__(self, host: str = LOCAL) -> None:
        self.skipped_s = 0.0
        self.metrics = PrometheusMetrics()
        self.health = Health(self.metrics, now_s=lambda: time.monotonic() + self.skipped_s)
        self.host = host
        self.port = free_port(host)
        config = Config(pipelines=(PipelineConfig(topics=("in",), output_topic="out"),))
        recent = RecentMetrics(self.metrics.snapshot, monotonic_s)
        self.page = StatusPage(
            config, self.health, recent, SystemClock(), kernel="native", version="1"
        )
        self.pages = Pages(self.health, self._exposition, self._html)
        self.server = HttpServer(host, self.port, self.pages)

    def _exposition(self, accept: str) -> tuple[str, bytes]:
        return self.metrics.exposition(accept)

    def _html(self, refresh: bool) -> bytes:
        return self.page.html(refresh)

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> tuple[int, Any]:
        response, body = self.ask(path)
        assert response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(body)

    def raw(self, *pieces: bytes, every_s: float = 0.0) -> bytes:
        """What is answered to bytes sent piece by piece."""
        with socket.create_connection((self.host, self.port), timeout=20) as connection:
            for piece in pieces:
                try:
                    connection.sendall(piece)
                except OSError:
                    break
                time.sleep(every_s)
            return whole(connection)


def whole(connection: socket.socket) -> bytes:
    answer = b""
    while piece := connection.recv(65_536):
        answer += piece
    return answer


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    made.server.start()
    yield made
    made.server.stop()


# ------------------------------------------------------------ pages


def test_metrics_are_served_in_the_format_asked_for(worker: Worker) -> None:
    worker.metrics.add("events_total", 5, pipeline="p", topic="t")
    response, body = worker.ask("/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert b'stream_dedup_events_total{pipeline="p",topic="t"} 5.0\n' in body
    response, body = worker.ask("/metrics?x=1", Accept="application/openmetrics-text")
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_healthz_distinguishes_a_running_loop_from_a_stuck_one(worker: Worker) -> None:
    status, answer = worker.json("/healthz")
    assert (status, answer["alive"]) == (200, True)
    worker.skipped_s = STUCK_AFTER_S + 10
    status, answer = worker.json("/healthz")
    assert (status, answer["alive"]) == (503, False)
    assert STUCK_AFTER_S + 10 <= answer["last_beat_s"] < STUCK_AFTER_S + 20
    worker.health.beat()
    assert worker.json("/healthz")[0] == 200


def test_readyz_lists_the_reasons_why_not(worker: Worker) -> None:
    status, answer = worker.json("/readyz")
    assert (status, answer["reasons"][0]["name"]) == (503, START)
    worker.health.ready(START)
    assert worker.json("/readyz") == (200, {"ready": True, "reasons": []})
    worker.health.not_ready("index", 'redis "a" away\n')
    status, answer = worker.json("/readyz")
    assert status == 503
    assert [(r["name"], r["reason"]) for r in answer["reasons"]] == [("index", 'redis "a" away\n')]
    assert b"stream_dedup_ready 0.0" in worker.ask("/metrics")[1]


def test_the_status_page_leads_to_the_others(worker: Worker) -> None:
    response, body = worker.ask("/")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    page = Page(body)
    assert page.state == "✗ Not ready"
    for link in page.root.iter("a"):
        path = f"/{link.get('href')}"
        assert worker.ask(path)[0].status in {200, 503}, path


def test_the_status_page_does_not_reload_when_asked_not_to(worker: Worker) -> None:
    def refreshes(path: str) -> bool:
        return b'http-equiv="refresh"' in worker.ask(path)[1]

    assert refreshes("/")
    assert refreshes("/?x=1&refresh=on")
    assert not refreshes("/?x=1&refresh=off")


def test_the_headers_forbid_a_browser_to_load_anything_else(worker: Worker) -> None:
    assert worker.ask("/")[0].headers["Content-Security-Policy"] == POLICY
    for path in ("/metrics", "/healthz", "/readyz", "/nothing"):
        headers = worker.ask(path)[0].headers
        assert headers["Content-Security-Policy"] == NO_CONTENT_POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


def test_head_has_the_headers_of_get_and_no_body(worker: Worker) -> None:
    got, body = worker.ask("/")
    head, nothing = worker.ask("/", "HEAD")
    assert nothing == b""
    assert got.headers["Content-Length"] == head.headers["Content-Length"] == str(len(body))
    assert worker.ask("/readyz", "HEAD")[0].status == 503


def test_other_pages_and_methods_are_refused_in_json(worker: Worker) -> None:
    status, answer = worker.json("/nothing")
    assert status == 404
    assert "/metrics" in answer["pages"]
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        for path in ("/", "/metrics"):
            response, body = worker.ask(path, method, b"x" * 1_000)
            assert response.status == 405
            assert response.headers["Allow"] == "GET, HEAD"
            assert "error" in json.loads(body)


@pytest.mark.parametrize("size", [MAX_REQUEST_BYTES, 60_000, 500_000])
def test_a_large_body_does_not_hide_that_the_method_is_refused(worker: Worker, size: int) -> None:
    response, body = worker.ask("/metrics", "POST", b"x" * size)
    assert response.status == 405
    assert json.loads(body) == {"error": "only GET and HEAD"}


def test_an_unknown_method_is_refused_as_one(worker: Worker) -> None:
    for request in (b"BREW / HTTP/1.1\r\n\r\n", b"get /metrics HTTP/1.0\r\nHost: a\r\n\r\n"):
        answer = worker.raw(request)
        assert answer.split(b" ", 2)[1] == b"405"
        assert b"Allow: GET, HEAD\r\n" in answer


def test_no_answer_may_be_cached_or_names_python(worker: Worker) -> None:
    response, _ = worker.ask("/healthz")
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Server"] == "stream-dedup"


def test_a_page_that_cannot_be_made_is_an_error_of_its_own(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: str) -> tuple[str, bytes]:
        raise RuntimeError("the secret reason")

    monkeypatch.setattr(worker.metrics, "exposition", fail)
    response, body = worker.ask("/metrics")
    assert response.status == 500
    assert b"secret" not in body
    assert "the secret reason" in caplog.text
    assert worker.ask("/healthz")[0].status == 200
    monkeypatch.setattr(worker.page, "html", lambda refresh: fail(str(refresh)))
    response, body = worker.ask("/")
    assert response.status == 500
    assert b"secret" not in body


# ------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST_BYTES * 2, b"431"),
        (b"GET /" + b"x" * MAX_REQUEST_BYTES * 2, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"BREW /\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"400"),
    ],
)
def test_what_is_too_large_or_no_request_is_refused(
    worker: Worker, request_: bytes, status: bytes
) -> None:
    answer = worker.raw(request_)
    assert answer.split(b" ", 2)[1] == status
    assert b'"error"' in answer
    assert worker.ask("/healthz")[0].status == 200


def test_a_request_that_drips_is_ended(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REQUEST_S", 0.3)
    began = time.monotonic()
    answer = worker.raw(b"GET / HTTP/1.1\r\nX: ", *[b"x"] * 20, every_s=0.05)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 20


def test_who_only_knocks_or_leaves_harms_nothing(worker: Worker) -> None:
    for _ in range(MAX_CONNECTIONS * 3):
        socket.create_connection((LOCAL, worker.port)).close()
    connection = socket.create_connection((LOCAL, worker.port))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    connection.close()  # with a reset
    for _ in range(100):
        try:
            assert worker.ask("/healthz")[0].status == 200
            break
        except OSError:  # all places are still taken by those that knocked
            time.sleep(0.05)
    else:
        pytest.fail("it does not answer any more")


def test_of_too_many_connections_the_oldest_that_waits_is_closed(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "MAX_CONNECTIONS", 3)
    first, *others = (socket.create_connection((LOCAL, worker.port), 20) for _ in range(3))
    try:
        assert worker.ask("/healthz")[0].status == 200
        assert first.recv(1) == b""
        for connection in others:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert whole(connection).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in (first, *others):
            connection.close()


def test_an_address_with_many_connections_keeps_no_other_out(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "MAX_CONNECTIONS", 3)
    kept = socket.create_connection((LOCAL, worker.port), 20)
    many = [
        socket.create_connection((LOCAL, worker.port), 20, source_address=("127.0.0.2", 0))
        for _ in range(10)
    ]
    try:
        kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert whole(kept).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in (kept, *many):
            connection.close()


def test_probes_are_answered_while_1000_connections_dribble(worker: Worker) -> None:
    over = threading.Event()

    def dribble() -> None:
        """Hold connections whose requests never end; open another one for each that is closed."""
        held: list[socket.socket] = []
        while not over.wait(0.2):
            for connection in list(held):
                try:
                    connection.sendall(b"x")
                except OSError:
                    held.remove(connection)
                    connection.close()
            while len(held) < 100 and not over.is_set():
                connection = socket.create_connection((LOCAL, worker.port), 20)
                held.append(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(b"GET /")
        for connection in held:
            connection.close()

    threads = [threading.Thread(target=dribble) for _ in range(10)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            worker.health.beat()
            assert worker.ask("/healthz")[0].status == 200
            time.sleep(0.1)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        worker.ask("/healthz")  # all before it are accepted


# ------------------------------------------------------------ names


@pytest.mark.parametrize(
    "host",
    [
        "10.244.1.7:9464", "[fd00::7]:9464", "localhost:9464", "worker-1:9464", "x.localhost",
        "stream-dedup.logs.svc:9464", "stream-dedup-0.stream-dedup.logs.svc.cluster.local", "",
        "10-0-0-7.logs.pod.cluster.local.", "metrics.example.com", "a.example.org", "A.Example.ORG",
    ],
)  # fmt: skip
def test_addresses_local_names_and_named_ones_are_answered(host: str) -> None:
    names = HostNames(["metrics.example.com", ".example.org"])
    assert names.allow(host)


@pytest.mark.parametrize(
    "host",
    ["evil.com", "evil.com:9464", "example.com", "notexample.org", "svc.evil.com", "7f.1", "[x].y"],
)
def test_a_name_that_anybody_may_own_is_refused(host: str) -> None:
    names = HostNames(["metrics.example.com", ".example.org"])
    assert not names.allow(host)
    assert HostNames(["*"]).allow(host)


def test_a_foreign_host_gets_no_page_and_learns_the_setting(worker: Worker) -> None:
    for path in ("/", "/metrics", "/readyz", "/healthz"):
        response, body = worker.ask(path, Host="evil.com:9464")
        assert response.status == 421
        assert "http.allowed_hosts" in json.loads(body)["error"]
    assert worker.ask("/metrics", Host="10.0.0.7:9464")[0].status == 200


@pytest.mark.parametrize("size", [50_000, 8_000_000])
def test_clients_that_take_no_answer_are_disconnected(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(served, "REQUEST_S", 0.3)
    monkeypatch.setattr(served, "MAX_CONNECTIONS", 16)
    monkeypatch.setattr(worker.metrics, "exposition", lambda _: ("text/plain", b"x" * size))
    slow = [socket.socket() for _ in range(16)]
    try:
        for connection in slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            connection.connect((LOCAL, worker.port))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        deadline_s = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):  # they still have all places
                if worker.ask("/healthz")[0].status == 200:
                    break
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.filterwarnings("error")
def test_a_client_that_takes_no_answer_leaves_no_socket_at_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served, "REQUEST_S", 0.3)
    worker = Worker()
    asked = threading.Event()

    def large(_: str) -> tuple[str, bytes]:
        asked.set()
        return "text/plain", b"x" * 8_000_000

    worker.server = HttpServer(LOCAL, worker.port, Pages(worker.health, large, worker.page.html))
    worker.server.start()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        slow.connect((LOCAL, worker.port))
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(10)
        worker.server.stop()
        gc.collect()


def test_many_ask_at_once(worker: Worker) -> None:
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.append(worker.ask("/metrics")[0].status))
        for _ in range(MAX_CONNECTIONS // 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [200] * (MAX_CONNECTIONS // 2)


# ------------------------------------------------------------ start and stop


def test_a_port_in_use_is_our_error_with_a_remedy(worker: Worker) -> None:
    second = HttpServer(LOCAL, worker.port, worker.pages)
    with pytest.raises(ConfigError, match=r"another program.*choose another port, or 0") as caught:
        second.start()
    assert f"http://{LOCAL}:{worker.port}" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    second.stop()


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_this_machines_is_our_error(host: str) -> None:
    worker = Worker()
    with pytest.raises(ConfigError, match="name an address of this machine"):
        HttpServer(host, worker.port, worker.pages).start()


def test_port_0_starts_no_server() -> None:
    server = HttpServer(LOCAL, 0, Worker().pages)
    server.start()
    assert server.url == ""
    server.stop()


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_it_listens_on_ipv6(host: str) -> None:
    worker = Worker("::1")
    worker.server = HttpServer(host, worker.port, worker.pages)
    worker.server.start()
    assert worker.server.url == f"http://[::1]:{worker.port}"
    assert worker.ask("/healthz")[0].status == 200
    worker.server.stop()


@pytest.mark.parametrize("host", ["::", "0.0.0.0", "", "localhost"])  # noqa: S104 -- is tested
def test_every_address_answers_on_ipv4_too(host: str) -> None:
    worker = Worker()
    worker.server = HttpServer(host, worker.port, worker.pages)
    worker.server.start()
    try:
        worker.host = "localhost"
        assert worker.ask("/healthz")[0].status == 200
        if host == "::":
            worker.host = LOCAL
            assert worker.ask("/healthz")[0].status == 200
    finally:
        worker.server.stop()


def test_it_stops_cleanly_and_frees_the_port() -> None:
    worker = Worker()
    for _ in range(3):
        worker.server.start()
        assert worker.ask("/healthz")[0].status == 200
        worker.server.stop()
        worker.server.stop()
        with pytest.raises(OSError, match="refused"):
            worker.ask("/healthz")
    assert not [t for t in threading.enumerate() if t.name == "stream-dedup-http"]


def test_a_request_under_way_is_answered_before_it_stops() -> None:
    worker = Worker()
    asked, go = threading.Event(), threading.Event()

    def slow(_: str) -> tuple[str, bytes]:
        asked.set()
        go.wait(10)
        return "text/plain", b"late\n"

    worker.server = HttpServer(LOCAL, worker.port, Pages(worker.health, slow, worker.page.html))
    worker.server.start()
    answers: list[bytes] = []
    client = threading.Thread(target=lambda: answers.append(worker.ask("/metrics")[1]))
    client.start()
    asked.wait(10)
    stopping = threading.Thread(target=worker.server.stop)
    stopping.start()
    go.set()
    client.join(10)
    stopping.join(10)
    assert answers == [b"late\n"]
    assert not stopping.is_alive()


def test_a_stuck_event_loop_can_be_seen(worker: Worker) -> None:
    # This thread acts as the loop's: it only waits for the answer of another one.
    worker.skipped_s = STUCK_AFTER_S * 2
    assert worker.json("/healthz")[0] == 503
