"""A real Prometheus scrapes a real worker under load: every panel and every rule has data.

Prometheus has the shipped configuration and rules, with the worker's address and a scrape a second.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from docs.blocks import ROOT
from docs.dashboard import DASHBOARD
from tests.integration.worker.running import Trial, Worker, real_lines, wait_for
from tests.services.kafka import Kafka
from tests.services.processes import free_port
from tests.services.prometheus import Prometheus, Sample
from tests.services.redis import RedisServer
from tests.services.toxiproxy import Proxy, Toxiproxy

SHIPPED = ROOT / "deploy" / "prometheus"
LINES = real_lines(1_500)
ROUNDS, MOST_ROUNDS = 4, 40
LARGE = 4_000
PIPELINE = "main"
WITHOUT_RATE = (
    "stream_dedup_stage_seconds_count unless rate(stream_dedup_stage_seconds_count[2m]) > 0"
)
NO_LAG = "sum(stream_dedup_lag_events) == 0"

MADE: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
PANELS = [panel for panel in MADE["panels"] if panel["type"] != "row"]
CHOSEN = {"job": "stream-dedup", "instance": ".+", "pipeline": ".+", "__rate_interval": "2m"}
"""What Grafana puts in: one deployment, all of its workers and pipelines."""


class Scene(NamedTuple):
    """What is watched, and the watcher."""

    prometheus: Prometheus
    trial: Trial
    link: Proxy
    instance: str
    refused: str
    rounds: int
    loaded_s: float  # when Prometheus had seen the whole load

    def active(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Alerts that fire, or will if it stays so, by name and worker."""
        found = self.prometheus.get("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("instance", "")): alert
            for alert in found
        }

    def asked(self, expression: str) -> list[Sample]:
        """What Grafana would be answered at the end of the load."""
        for name, value in CHOSEN.items():
            expression = expression.replace(f"${name}", value)
        assert "$" not in expression
        return self.prometheus.query(expression, at_s=self.loaded_s)

    def value(self, expression: str) -> float:
        """The one value of a panel's expression."""
        (sample,) = self.asked(expression)
        return sample.value


@pytest.fixture(scope="module")
def scene(kafka: Kafka, redis_server: RedisServer, toxiproxy: Toxiproxy) -> Iterator[Scene]:
    refused_port = free_port()
    with toxiproxy.proxy(redis_server.port) as link:
        trial = Trial(kafka, f"redis://127.0.0.1:{link.port}")
        limits = {"pipelines__0__max_event_bytes": LARGE, "index__within_s": "1s"}
        with trial.worker(**limits) as worker:
            wait_for(worker.ready, "it is ready")
            instance, refused = (f"127.0.0.1:{port}" for port in (worker._port, refused_port))
            done = trial.once(pipelines__0__recipe="text", http__port=refused_port)
            assert done.code == 1
            assert "holds fingerprints of recipe logs" in done.err
            with Prometheus(configuration(instance, refused)) as prometheus:
                seen = f'up{{instance="{instance}"}} == 1'
                wait_for(lambda: bool(prometheus.query(seen)), "it is scraped")
                rounds = load(trial, worker, prometheus)
                wait_for(lambda: bool(prometheus.query(NO_LAG)), "the lag is measured once more")
                yield Scene(prometheus, trial, link, instance, refused, rounds, time.time())


def configuration(*targets: str) -> dict[str, Any]:
    """The shipped one, in haste, for these targets."""
    found: dict[str, Any] = msgspec.yaml.decode((SHIPPED / "prometheus.yml").read_bytes())
    assert found["scrape_configs"][0]["static_configs"][0]["targets"] == ["localhost:9464"]
    found["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    found["rule_files"] = [str(SHIPPED / name) for name in found["rule_files"]]
    found["scrape_configs"][0]["static_configs"][0]["targets"] = list(targets)
    return found


def load(trial: Trial, worker: Worker, prometheus: Prometheus) -> int:
    """Write rounds of lines until Prometheus has seen every stage at work; return their number.

    A round is some thousand lines, most of them alike, and a few that are not lines. The next one
    is written when Prometheus has seen the last, however slow the machine is. A rare stage, such as
    the summaries', may have run only before the first scrape that shows it: then it has no rate.
    """
    for number in range(MOST_ROUNDS):
        records: list[bytes | None] = [*LINES, None, None, b"large " * LARGE]
        records += [b"shard %d holds %d" % (number, part) for part in range(200)]
        trial.kafka.produce(trial.read, records, partition=number % trial.partitions)
        wait_for(
            lambda: trial.committed() == sum(trial.kafka.end_offsets(trial.read).values()),
            "all is through",
        )
        wait_for(lambda: scraped_all(prometheus, worker), "it is scraped once more")
        if number + 1 >= ROUNDS and not prometheus.query(WITHOUT_RATE):
            return number + 1
    raise AssertionError(f"no rate after {MOST_ROUNDS} rounds: {prometheus.query(WITHOUT_RATE)}")


def scraped_all(prometheus: Prometheus, worker: Worker) -> bool:
    """Whether Prometheus has seen the last decision, which the worker counts once a second."""
    decided = prometheus.query("sum(stream_dedup_decisions_total)")
    read = worker.metric("events_total")
    return [read] == [sample.value for sample in decided]


# ------------------------------------------------------------ the dashboard


@pytest.mark.timeout(120)
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: f"{panel['id']} {panel['title']}")
def test_no_panel_is_empty_under_load(scene: Scene, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        samples = scene.asked(target["expr"])
        assert samples, target["expr"]
        assert all(math.isfinite(sample.value) for sample in samples), target["expr"]
        if panel["type"] == "stat":
            assert len(samples) == 1, "a number is one number"
        named = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
        legends = {tuple(sample.labels.get(name, "") for name in named) for sample in samples}
        assert len(legends) == len(samples), "two lines of one name"


def test_the_numbers_equal_the_load(scene: Scene) -> None:
    shown = {
        (panel["title"], panel["type"]): panel["targets"][0]["expr"] for panel in PANELS
    }  # the first query of each
    assert scene.value(shown["Workers ready", "stat"]) == 1
    assert scene.value(shown["Lag", "stat"]) == 0
    assert 0.5 < scene.value(shown["Duplicates", "stat"]) < 1
    assert 0 < scene.value(shown["Near cache", "stat"]) < 1
    assert scene.value(shown["Events read", "stat"]) > 5
    passed = scene.asked(shown["Passed through, by reason", "timeseries"])
    assert "tombstone" in {sample.labels["reason"] for sample in passed if sample.value > 0}
    invalid = scene.asked(shown["Events that could not be processed, by reason", "timeseries"])
    assert {sample.labels["reason"] for sample in invalid if sample.value > 0} == {"too large"}
    total = "sum(stream_dedup_events_total)"
    assert scene.rounds * (len(LINES) + 203) == scene.prometheus.query(total)[0].value


def test_each_variable_finds_what_can_be_chosen(scene: Scene) -> None:
    found = {}
    for variable in MADE["templating"]["list"]:
        if variable["type"] != "query":
            continue
        parts = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert parts is not None
        series = parts[1].replace("$job", CHOSEN["job"])
        found[variable["name"]] = scene.prometheus.get(f"label/{parts[2]}/values", match=series)
    job, instance = CHOSEN["job"], scene.instance
    assert {"job": [job], "pipeline": [PIPELINE], "instance": [instance]} == found


# ------------------------------------------------------------ the alerts


def test_every_rule_can_be_evaluated(scene: Scene) -> None:
    (group,) = scene.prometheus.get("rules")["groups"]
    wait_for(
        lambda: all(
            rule["health"] != "unknown"
            for rule in scene.prometheus.get("rules")["groups"][0]["rules"]
        ),
        "each rule is evaluated",
    )
    (group,) = scene.prometheus.get("rules")["groups"]
    wrong = [rule for rule in group["rules"] if rule["health"] != "ok" or rule.get("lastError")]
    assert wrong == []
    assert len(group["rules"]) > 15


def test_dead_letters_fire_and_nothing_else_does(scene: Scene) -> None:
    wait_for(lambda: ("StreamDedupDeadLetters", "") in scene.active(), "the alert on dead letters")
    firing = {name: each for name, each in scene.active().items() if each["state"] == "firing"}
    assert set(firing) == {("StreamDedupDeadLetters", "")}
    ((_, alert),) = firing.items()
    assert alert["annotations"]["summary"] == f"Pipeline {PIPELINE} cannot process some events."
    assert re.match(r"\d[\d.]* in ten minutes", alert["annotations"]["description"])


def test_a_worker_with_a_refused_recipe_is_reported_as_down(scene: Scene) -> None:
    wait_for(lambda: ("StreamDedupDown", scene.refused) in scene.active(), "the alert")
    assert ("StreamDedupDown", scene.instance) not in scene.active()


def test_an_unreachable_redis_is_reported_until_it_is_back(scene: Scene) -> None:
    expected = {("StreamDedupRedisAway", scene.instance), ("StreamDedupNotReady", scene.instance)}
    assert not expected & set(scene.active())
    scene.link.disable()
    try:
        scene.trial.write(LINES[:100])
        wait_for(lambda: expected <= set(scene.active()), "the alert")
    finally:
        scene.link.enable()
    wait_for(lambda: not expected & set(scene.active()), "the end of the alert")
