"""A person decides in the page; a worker over real Kafka and Redis follows, also when restarted."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.request import urlopen

from tests.integration.ui.test_browser import served
from tests.integration.worker.running import Trial, text_headers, wait_for
from tests.services.browser import Browser
from tests.services.kafka import Kafka
from tests.services.redis import RedisServer

DONE, OVER = b"report of the night was finished", b"backup to the vault went fine today"
BEAT = b"heartbeat of the main pump"
BOB, ANN = b"user bob logged in at the door", b"user ann logged in at the door"
NAMES = b"dan eve fay gus hal ida jon kim lou mia ned".split()
KINDS = (DONE, OVER, BEAT, BOB, ANN, b"user cid logged in at the door")

SECONDS = 30.0
"""Within which a worker follows: it looks every two seconds, and the machine may be busy."""


class Stream:
    """Events that flow through the worker, and what has left it."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.written = 0
        self.beats = 0

    def write(self, kinds: Sequence[bytes] = KINDS) -> int:
        """Write one event of each kind; return the number of the first."""
        first = self.written
        self.beats += list(kinds).count(BEAT)
        for line in kinds:
            self.trial.kafka.produce(
                self.trial.read, [line], partition=self.written % 2,
                keys=[b"%d" % self.written], headers=[[]],
                timestamps_ms=[int(time.time() * 1000)],
            )  # fmt: skip
            self.written += 1
        return first

    def left(self, since: int = 0) -> dict[bytes, list[str]]:
        """The clusters of the events that have left, by line."""
        found: dict[bytes, list[str]] = {}
        for record in self.trial.kafka.consume(self.trial.out):
            if int(record.key or b"-1") >= since:
                found.setdefault(record.value or b"", []).append(text_headers(record)["sd-cluster"])
        return found

    def wait_for_all(self) -> None:
        """Wait until the worker has committed everything."""
        wait_for(lambda: self.trial.committed() == self.written, "all is committed")

    def until(self, holds: Callable[[dict[bytes, list[str]]], bool], what: str) -> float:
        """Write a round of events again and again, until one is decided as it should be.

        Returns how long that took.
        """
        begun_s = time.monotonic()
        while True:
            first = self.write()
            self.wait_for_all()
            if holds(self.left(first)):
                return time.monotonic() - begun_s
            assert time.monotonic() - begun_s < SECONDS, what
            time.sleep(0.2)


def joined(left: dict[bytes, list[str]]) -> bool:
    return set(left[DONE]) == set(left[OVER])


def apart(left: dict[bytes, list[str]]) -> bool:
    return not set(left[DONE]) & set(left[OVER])


def muted(left: dict[bytes, list[str]]) -> bool:
    return BEAT not in left


def split(left: dict[bytes, list[str]]) -> bool:
    return not set(left[BOB]) & set(left[ANN])


class Page:
    """A person at the page."""

    def __init__(self, tab: Browser, address: str, namespace: str) -> None:
        self.tab = tab
        self.address = address
        self.namespace = namespace

    def listed(self) -> Any:
        url = f"{self.address}/api/v1/sources/{self.namespace}/patterns"
        with urlopen(url, timeout=60) as answer:  # noqa: S310 -- ours
            return json.load(answer)

    def has_counted(self, stream: Stream) -> bool:
        """Whether it shows every event once, also muted ones and those it has not read."""
        listed = self.listed()
        found = [each for each in listed["patterns"] if BEAT.decode() in each["pattern"]]
        source = listed["source"]
        beats = sum(each["count"] for each in found)
        counted = source["events"] + source["unread"]
        return (beats, counted) == (stream.beats, stream.written)

    def choose(self, words: str) -> None:
        """Tick a pattern of the list, which renews itself."""
        self.tab.until(
            "const row = [...document.querySelectorAll('tbody tr')].find((each) => "
            f"each.textContent.includes('{words}')); if (!row) return false;"
            "const box = row.querySelector('input'); if (!box.checked) box.click();"
            "return box.checked"
        )

    def open(self, words: str) -> None:
        """Open the page of a pattern."""
        self.tab.open(f"{self.address}/s/{self.namespace}")
        self.tab.until(
            "const link = [...document.querySelectorAll('tbody a')].find((each) => "
            f"each.textContent.includes('{words}')); if (link) link.click(); return !!link"
        )
        self.tab.until("return document.querySelector('#h-decide')")

    def decide(self, button: str) -> None:
        """Press the button of a form, with a reason."""
        self.tab.run(
            "for (const each of document.querySelectorAll('details')) each.open = true;"
            f"const button = [...document.querySelectorAll('form button')].find((each) => "
            f"each.textContent === '{button}'); button.form.reason.value = 'a person said so';"
            "button.click()"
        )
        self.tab.until(
            "return location.pathname.startsWith('/r/') && document.readyState === 'complete'"
        )


def test_a_worker_follows_decisions_of_the_page(
    kafka: Kafka, redis_server: RedisServer, tab: Browser
) -> None:
    trial = Trial(kafka, redis_server.url)
    stream = Stream(trial)
    options = ("-n", trial.read, "--redis", redis_server.url)
    tab.size(1200)
    with served(*options) as address:
        page = Page(tab, address, trial.read)
        with trial.worker() as worker:
            wait_for(worker.ready, "the worker is ready")
            stream.write([b"user %s logged in at the door" % name for name in NAMES])
            stream.until(lambda left: not split(left), "who logs in is a variable")
            before = stream.write()
            stream.wait_for_all()
            assert apart(stream.left(before))
            assert len(stream.left(before)[BEAT]) == 1

            tab.open(f"{address}/s/{trial.read}")
            page.choose("report of the night")
            page.choose("backup to the vault")
            tab.run("document.querySelector('#two button').click()")
            tab.until("return document.querySelector('.two')")
            assert "do not merge" in tab.run("return document.body.textContent")
            page.decide("Merge")
            took_s = stream.until(joined, "the worker merges them")

            page.open("heartbeat of the main pump")
            page.decide("Mute")
            took_s = max(took_s, stream.until(muted, "the worker mutes it"))

            page.open("logged in at the door")
            tab.run("document.querySelector('#value-split').value = 'bob'")
            page.decide("Split off")
            took_s = max(took_s, stream.until(split, "the worker splits it off"))
            assert took_s < SECONDS

            wait_for(lambda: page.has_counted(stream), "muted ones are counted")
            worker.signal(signal.SIGTERM)
            assert worker.end() == 0

        with trial.worker() as worker:
            first = stream.write()
            stream.wait_for_all()
            left = stream.left(first)  # the first round that it has seen
            assert joined(left)
            assert muted(left)
            assert split(left)

            tab.open(f"{address}/r/{trial.read}")
            assert tab.run("return document.querySelectorAll('.rules > li').length") == 3
            for kept in (2, 1, 0):
                page.decide("Undo")
                tab.until(f"return document.querySelectorAll('.rules > li').length === {kept}")
            stream.until(apart, "the merge is undone")
            stream.until(lambda left: BEAT in left, "it leaves again")
            stream.until(lambda left: set(left[BOB]) == set(left[ANN]), "they are one again")
            wait_for(lambda: page.has_counted(stream), "all of them are counted")
            assert worker.process.poll() is None
    assert tab.messages() == []
