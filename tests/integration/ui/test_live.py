"""Standard input and files that grow, live in the web application."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from tests.integration.command import COMMAND
from tests.integration.ui.test_browser import served
from tests.integration.worker.running import wait_for
from tests.services.browser import Browser
from tests.services.processes import free_port

PATTERN = "user <*> logged in from <ipv4>"


class Piped(NamedTuple):
    """The application, reading standard input."""

    address: str
    process: subprocess.Popen[bytes]

    def write(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        self.process.stdin.flush()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def piped(*args: str) -> Iterator[Piped]:
    """The application over a pipe; it must end well, and within seconds."""
    port = free_port()
    process = subprocess.Popen(
        [COMMAND, "ui", "-", "--port", str(port), *args],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        address = f"http://127.0.0.1:{port}"
        assert process.stderr.readline() == f"stream-dedup: {address}\n".encode()
        yield Piped(address, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stderr):
            with suppress(OSError):
                assert stream is not None
                stream.close()


def asked(address: str, path: str = "sources/live/patterns", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(  # noqa: S310 -- ours
        f"{address}/api/v1/{path}", data, {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=30) as answer:  # noqa: S310 -- as above
        return json.load(answer)


def counts(address: str) -> dict[str, int]:
    return {each["pattern"]: each["count"] for each in asked(address)["patterns"]}


def has(address: str, expected: dict[str, int]) -> None:
    wait_for(lambda: counts(address) == expected, f"the counts are {expected}")


def sign_ins(first: int, count: int) -> list[bytes]:
    return [f"user u{n} logged in from 10.0.0.{n}".encode() for n in range(first, first + count)]


def test_standard_input_is_shown_as_it_arrives() -> None:
    with piped() as it:
        it.write(*sign_ins(10, 5))
        has(it.address, {PATTERN: 5})
        it.write(*sign_ins(20, 3), b"cache emptied by hand")
        has(it.address, {PATTERN: 8, "cache emptied by hand": 1})
        state = asked(it.address)["source"]
        assert (state["title"], state["events"], state["note"]) == ("standard input", 9, "")

        found = asked(it.address)["patterns"][0]
        assert sum(found["counts"]) + found["before"] == 8
        details = asked(it.address, f"patterns/live/{found['id']}")
        assert details["slots"][0]["distinct"] == 8  # of a cluster that is still open
        assert details["commands"] == ["grep -aE -e 'user.*logged in from'"]


def test_the_page_says_when_standard_input_has_ended() -> None:
    with piped() as it:
        it.write(*sign_ins(10, 5), b"the last line has no end")
        it.end()
        has(it.address, {PATTERN: 5, "the last line has no end": 1})
        wait_for(lambda: asked(it.address)["source"]["note"] != "", "the end is noted")
        with urlopen(f"{it.address}/s/live") as page:  # noqa: S310 -- ours
            assert "standard input has ended: 6 events were read." in page.read().decode()
        assert it.process.stderr is not None
        said = it.process.stderr.readline()
        assert said == b"stream-dedup: standard input has ended: 6 events were read\n"
        assert counts(it.address)[PATTERN] == 5  # the page stays


def test_a_stack_trace_that_is_not_followed_by_anything_is_shown() -> None:
    trace = [b"ERROR it failed", b"Traceback (most recent call last):",
             b'  File "a.py", line 3, in f', b"ValueError: no"]  # fmt: skip
    with piped() as it:
        it.write(*trace)
        wait_for(lambda: asked(it.address)["source"]["events"] == 1, "it is one event")


def test_a_live_page_stays_bounded_in_clusters() -> None:
    with piped("--max-clusters", "50") as it:
        words = "alpha bravo carbon delta echo foxtrot golf hotel india juliet".split()
        lines = [f"{a}{b} {b}{c} {c}{a} went {a}".encode()
                 for a in words for b in words for c in words]  # fmt: skip
        it.write(*lines)
        wait_for(lambda: asked(it.address)["source"]["events"] == 1_000, "all are read")
        opened = asked(it.address, body={"state": "open"})["found"]
        assert 0 < opened <= 50


def test_rules_act_on_what_arrives_after_them(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    with piped("--rules", str(rules)) as it:
        it.write(b"job one has ended well", b"disk was found to be full today")
        has(it.address, {"job one has ended well": 1, "disk was found to be full today": 1})
        rule = {"kind": "merge", "patterns": list(counts(it.address))}
        made = asked(it.address, "sources/live/rules", rule)
        name = {"kind": "name", "patterns": ["job one has ended well"], "value": "ends"}
        asked(it.address, "sources/live/rules", name)
        wait_for(
            lambda: any(each["name"] == "ends" for each in asked(it.address)["patterns"]),
            "what is there is named",
        )
        wait_for(
            lambda: any(each["merged"] for each in asked(it.address)["patterns"]), "it is marked"
        )
        it.write(b"job one has ended well", b"disk was found to be full today")

        def sizes() -> list[int]:
            return sorted(each["count"] for each in asked(it.address)["patterns"])

        # What was counted before stays where it was counted.
        wait_for(lambda: sizes() == [1, 1, 2], "both are in one cluster")
        state = asked(it.address, f"sources/live/rules/{made['id']}/undo", {"reason": "no"})
        assert state["undone"]["reason"] == "no"


def test_files_are_followed_through_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"".join(line + b"\n" for line in sign_ins(10, 5)))
    with followed(path) as address:
        has(address, {PATTERN: 5})
        with path.open("ab") as file:
            file.write(b"user u77 logged in from 10.0.0.9\n")
        has(address, {PATTERN: 6})
        path.rename(tmp_path / "app.log.1")
        path.write_bytes(b"user u78 logged in from 10.0.0.9\ncache emptied by hand\n")
        has(address, {PATTERN: 7, "cache emptied by hand": 1})
        assert f"{path}: is another file now; reading it" in asked(address)["source"]["note"]


@contextmanager
def followed(path: Path) -> Iterator[str]:
    port = free_port()
    with (path.parent / "said").open("wb") as said:
        process = subprocess.Popen(
            [COMMAND, "ui", "--follow", "--port", str(port), str(path)], stderr=said
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(lambda: answers(address), "the application answers")
            yield address
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


def answers(address: str) -> bool:
    with suppress(OSError), urlopen(f"{address}/healthz") as answer:  # noqa: S310 -- ours
        return bool(answer.status == 200)
    return False


def test_a_file_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "later.log"
    with followed(path) as address:
        wait_for(lambda: "waiting for it" in asked(address)["source"]["note"], "it says so")
        path.write_bytes(b"cache emptied by hand\n")
        has(address, {"cache emptied by hand": 1})


def test_a_named_pipe_without_a_writer_does_not_keep_it_alive(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with served(str(path)) as address:
        assert asked(address)["source"]["events"] == 0


def test_times_later_than_now_count_as_now() -> None:
    with piped() as it:
        it.write(b"2999-05-07T09:30:00Z clock is wrong here", b"one more line came later on")
        wait_for(lambda: asked(it.address)["source"]["events"] == 2, "both are counted")
        for each in asked(it.address)["patterns"]:
            assert not each["last"].startswith("2999")
            assert sum(each["counts"]) == 1


def test_a_page_of_standard_input_renews_itself(tab: Browser) -> None:
    with piped() as it:
        it.write(*sign_ins(10, 5))
        has(it.address, {PATTERN: 5})
        tab.open(f"{it.address}/")
        count = "return (document.querySelector('tbody td.number') || {}).textContent"
        assert tab.until(count) == "5"
        writer = threading.Thread(target=it.write, args=sign_ins(20, 4))
        writer.start()
        wait_for(lambda: tab.run(count) == "9", "the page shows the new count")
        writer.join()
        it.end()
        tab.until("return document.querySelector('#list').textContent.includes('has ended')")
        assert tab.violations() == []
        assert tab.messages() == []
