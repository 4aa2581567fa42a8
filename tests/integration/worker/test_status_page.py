"""The status page of a real worker: what it shows is what it measured and what was asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from stream_dedup import __version__
from tests.integration.worker.running import Trial, Worker, real_lines, wait_for
from tests.services.kafka import Kafka
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Proxy, Toxiproxy
from tests.status_page import Page, Section

LINES = real_lines(1_000)
LARGE = 4_000
BAD = 3


class Scene(NamedTuple):
    """A worker that has done what there was."""

    trial: Trial
    worker: Worker
    link: Proxy

    def page(self) -> Page:
        """What it shows now."""
        code, html = self.worker.get("/")
        assert code == 200, self.worker.log
        return Page(html)

    def main(self) -> Section:
        """The pipeline's part."""
        return self.page().sections["Pipeline main"]

    def wait_for_lag(self) -> int:
        """Wait until all that was written is done and measured; how much that is."""
        trial, metric = self.trial, self.worker.metric
        written = sum(trial.kafka.end_offsets(trial.read).values())
        wait_for(lambda: metric("decisions_total") == written, "all is decided and measured")
        wait_for(lambda: trial.committed() == written, "all is through")
        wait_for(lambda: self.main().values["Lag"][0] == "0", "the lag is measured")
        return written


@pytest.fixture(scope="module")
def scene(kafka: Kafka, redis_server: RedisServer, toxiproxy: Toxiproxy) -> Iterator[Scene]:
    with toxiproxy.proxy(redis_server.port) as link:
        trial = Trial(kafka, f"redis://127.0.0.1:{link.port}", partitions=3)
        settings = {"pipelines__0__max_event_bytes": LARGE, "index__within_s": "1s"}
        with trial.worker(**settings) as worker:
            wait_for(worker.ready, "it is ready")
            records: list[bytes | None] = [*LINES, b"x" * (LARGE + 1)]
            for partition in range(trial.partitions):
                kafka.produce(trial.read, records, partition=partition)
            yield Scene(trial, worker, link)


def test_it_shows_the_version_and_the_configuration(scene: Scene) -> None:
    # On a busy machine Redis may answer a moment too late for `within_s`.
    wait_for(lambda: scene.page().state == "✓ Ready", "the page says that it is ready")
    page, trial = scene.page(), scene.trial
    worker = page.sections["Worker"].values
    assert worker["Version"][0].startswith(f"{__version__}, ")
    assert worker["Kafka"] == [trial.kafka.bootstrap]
    assert [trial.settings["index__url"]] == worker["Index"]
    assert worker["Guarantee"] == ["at least once"]
    assert worker["Up since"][0].endswith("s)")
    values = page.sections["Pipeline main"].values
    assert values["Reads"] == [f"{trial.read}, as group {trial.group}"]
    assert values["Emits"] == [f"annotate, to {trial.out}"]
    assert values["Summaries"] == [f"to {trial.summary_topic}"]
    assert values["Dead letters"] == [f"to {trial.dead}"]
    assert values["Recipe"][0].startswith("logs (")
    assert values["Namespace"] == [trial.read]


def test_its_figures_are_those_of_the_metrics(scene: Scene) -> None:
    events, metric = scene.wait_for_lag(), scene.worker.metric
    wait_for(lambda: metric("dead_letters_total") == BAD, "the invalid events are counted")

    def shows_the_clusters() -> bool:
        return scene.main().values["Clusters"][0] == f"{metric('clusters'):,.0f}"

    wait_for(shows_the_clusters, "page and metric have the same count of clusters")
    main = scene.main()
    assert main.values["Events a second"][1] == f"{events:,} since the start"
    share = metric("decisions_total", decision="duplicate") / events
    assert 0.5 < share < 1
    assert main.values["Duplicates"][1] == f"{int(1000 * share) / 10:.1f} % since the start"
    near = metric("near_cache_hits_total") / events
    assert 0 < near < 1
    assert main.values["Near cache"][1] == f"{int(1000 * near) / 10:.1f} % since the start"
    lag = [[scene.trial.read, str(partition), "0"] for partition in range(3)]
    assert main.tables["Lag"][1:] == lag
    assert [["too large", str(BAD)]] == main.tables["Dead letters"][1:]
    assert str(BAD) == main.row("Counts", "Dead letters")[1]
    assert main.row("Counts", "Rebalances")[1] == "1"


def test_batches_and_calls_have_their_times(scene: Scene) -> None:
    scene.trial.write(LINES[:300])

    def measured() -> bool:
        rows = [row for row in scene.main().tables["Times"][1:] if row[0] != "emit"]
        shown = (row[1] != "0" and all(each.endswith("s") for each in row[2:]) for row in rows)
        return len(rows) == 8 and all(shown)

    wait_for(measured, "each of the eight stages and calls has its times")
    scene.wait_for_lag()


def test_it_says_why_it_is_not_ready_and_since_when(scene: Scene) -> None:
    scene.link.disable()
    try:
        wait_for(lambda: "main: index" in scene.worker.reasons(), "it is seen")
        page = scene.page()
    finally:
        scene.link.enable()
    assert page.state == "✗ Not ready"
    rows = page.sections["Why it is not ready"].tables[""]
    assert rows[0] == ["What", "Why", "Since"]
    (why,) = (row for row in rows[1:] if row[0] == "main: index")
    assert str(scene.trial.settings["index__url"]) in why[1]
    assert why[2].endswith("s)")
    assert " UTC (" in why[2]
    wait_for(lambda: scene.page().state == "✓ Ready", "it is over")
