"""The session under the exporters: answers that are long, slow, or lead elsewhere."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from requests import RequestException

from stream_dedup.clock import monotonic_s
from stream_dedup.io.otlp import HeadSession, span_exporter
from tests.services.otlp import TRACES, OtlpReceiver

SECRET = "hunter2-s3cret"  # noqa: S105 -- looked for in what is said
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
LENGTH = 1 << 30


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[tuple[str, list[str]]]:
    """A server that takes requests of a connection; its address, and who connected so far.

    A request's body is one byte; it may come after its head.
    """
    connected: list[str] = []
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while not ended.is_set():
                request = b""
                while not request.endswith(b"\r\n\r\nx"):
                    received = connection.recv(65_536)
                    if not received:
                        return
                    request += received
                answer(connection)

    def take() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connected.append("")
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=take, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", connected
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)


def test_of_a_long_answer_only_the_head_is_read() -> None:
    sent = []

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LENGTH)
        for _ in range(LENGTH >> 16):
            connection.sendall(bytes(1 << 16))
            sent.append(1 << 16)

    with answering(endless) as (url, _):
        response = HeadSession().request("POST", url, data=b"x", timeout=30)
        assert response.status_code == 200
        assert sum(sent) < LENGTH // 4  # what the buffers of both sides take


def test_a_slow_answer_is_not_waited_for() -> None:
    ended = threading.Event()

    def dripping(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not ended.wait(0.2):
            connection.sendall(b"x")

    started_s = monotonic_s()
    with answering(dripping) as (url, _):
        HeadSession().request("POST", url, data=b"x", timeout=30)
    ended.set()
    assert monotonic_s() - started_s < 60  # of 200


def test_a_connection_serves_again() -> None:
    with answering(lambda connection: connection.sendall(EMPTY)) as (url, connected):
        session = HeadSession()
        for _ in range(3):
            session.request("POST", url, data=b"x", timeout=30)
        assert len(connected) == 1


def test_what_leads_elsewhere_takes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver() as receiver:
        receiver.status = 302
        exporter = span_exporter(receiver.url, {}, 30.0)
        assert exporter.export([]).name == "FAILURE"
        assert len(receiver.requests()) == 1
    assert "leads elsewhere (302 Found); give the address" in caplog.text


def test_the_authorization_is_ours_and_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login me password theirs\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with OtlpReceiver() as receiver:
        for headers in ({}, {"authorization": SECRET}):
            span_exporter(receiver.url + TRACES, headers, 30.0).export([])
        sent = [request.headers.get("authorization") for request in receiver.requests()]
    assert sent == [None, SECRET]


@pytest.mark.parametrize("value", [f" {SECRET}", f"{SECRET}\nx: y", f"\t{SECRET}"])
def test_a_header_that_cannot_be_sent_is_not_repeated(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RequestException) as raised:
        HeadSession().request("POST", "http://127.0.0.1:1", headers={"authorization": value})
    assert SECRET not in str(raised.value)
    exporter = span_exporter("http://127.0.0.1:1", {"authorization": value}, 1.0)
    assert exporter.export([]).name == "FAILURE"
    assert "a header begins or ends with a blank" in caplog.text
    assert SECRET not in caplog.text
