"""The status page: that each value is the registry's, and nothing from outside can do harm."""

from __future__ import annotations

import base64
import hashlib
import re
from itertools import pairwise
from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from stream_dedup.clock import US_PER_S, ManualClock
from stream_dedup.config import Config, IndexConfig, KafkaConfig, PipelineConfig, WorkerConfig
from stream_dedup.metrics import FIXED, METRICS, Counter, start_at_zero
from stream_dedup.worker.telemetry.health import START, Health
from stream_dedup.worker.telemetry.page_elements import MAX_ROWS, MAX_TEXT_CHARS
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from stream_dedup.worker.telemetry.snapshots import RecentMetrics
from stream_dedup.worker.telemetry.status_page import POLICY, StatusPage
from tests.status_page import Page, Section, text

HOSTILE = (
    "</style></title><script>alert('1')</script><img src=x onerror=\"alert(2)\">&lt;\x00\u202e"
)
ALERTS = Path(__file__).parents[4] / "deploy" / "prometheus" / "alerts.yaml"
STARTED_US = 1_700_000_000 * US_PER_S
MAIN = PipelineConfig(
    topics=("app-logs", "audit"), namespace="app", output_topic="merged", summary_topic="counts"
)
CONFIG = Config(
    kafka=KafkaConfig(bootstrap_servers=("k1:9092", "k2:9092")),
    index=IndexConfig(url=SecretStr("redis://r:6379")),
    worker=WorkerConfig(guarantee="exactly_once"),
    pipelines=(MAIN,),
)


class Shown:
    """A worker's page, and what it shows."""

    def __init__(
        self, config: Config = CONFIG, version: str = "1.2.3", kernel: str = "native"
    ) -> None:
        self.metrics = PrometheusMetrics()
        self.now_s = 50.0
        self.clock = ManualClock(STARTED_US)
        self.health = Health(self.metrics, now_s=lambda: self.now_s)
        self.health.ready(START)
        self.recent = RecentMetrics(self.metrics.snapshot, lambda: self.now_s)
        self.page = StatusPage(
            config, self.health, self.recent, self.clock, kernel=kernel, version=version
        )

    def pass_by(self, seconds: float) -> None:
        """Time goes by, and a reading is taken."""
        self.now_s += seconds
        self.clock.advance(seconds)
        self.health.beat()
        self.recent.update()

    def read(self, refresh: bool = True) -> Page:
        return Page(self.page.html(refresh))

    def main(self) -> Section:
        return self.read().sections["Pipeline main"]


@pytest.fixture
def shown() -> Shown:
    made = Shown()
    start_at_zero(made.metrics, "main")
    return made


# ------------------------------------------------------------ what is shown


def test_it_shows_the_worker_and_its_configuration(shown: Shown) -> None:
    shown.pass_by(7_500)
    page = shown.read()
    assert page.state == "✓ Ready"
    assert set(page.sections) == {"Worker", "Pipeline main"}
    worker = page.sections["Worker"].values
    assert worker["Version"] == ["1.2.3, native kernel"]
    assert worker["Up since"] == ["2023-11-14 22:13:20 UTC (2 h 5 min)"]
    assert worker["Kafka"] == ["k1:9092, k2:9092"]
    assert worker["Index"] == ["redis://r:6379"]
    assert worker["Guarantee"] == ["exactly once"]
    values = page.sections["Pipeline main"].values
    assert values["Reads"] == ["app-logs, audit, as group stream-dedup-main"]
    assert values["Emits"] == ["merge, to merged"]
    assert values["Summaries"] == ["to counts"]
    assert values["Dead letters"] == ["none"]
    assert values["Recipe"] == ["logs (9565dbca9c2d1b29)"]
    assert values["Namespace"] == ["app"]


def test_before_anything_is_measured_nothing_is_made_up(shown: Shown) -> None:
    page = shown.read()
    assert page.sections["Worker"].values["Shown"][0].endswith("; no rates yet")
    main = page.sections["Pipeline main"]
    for tile in ("Events a second", "Duplicates", "Near cache", "Lag", "Delay, 99 %", "Clusters"):
        assert main.values[tile][0] == "–", tile
    assert main.row("Times", "decide") == ["0", "–", "–", "–"]
    assert main.row("Counts", "Commits") == ["–", "0"]
    assert "Lag" not in main.tables
    assert "Dead letters" not in main.tables


def test_the_figures_are_what_the_registry_says(shown: Shown) -> None:
    metrics = shown.metrics
    metrics.add("events_total", 1_000_000, pipeline="main", topic="audit")
    metrics.add("decisions_total", 1_000_000, pipeline="main", decision="new")
    metrics.add("commits_total", 90, pipeline="main")
    shown.pass_by(1)
    metrics.observe("delivery_delay_seconds", 0.9, pipeline="main")
    metrics.observe("redis_seconds", 12, pipeline="main")
    metrics.observe("kernel_seconds", 0.0003, pipeline="main")
    metrics.add("retries_total", 3, pipeline="main", cause="index")
    for name, value in (("clusters", 4_321), ("fingerprints", 5_000), ("waiting_clusters", 2)):
        metrics.set(name, value, pipeline="main")  # type: ignore[arg-type]
    metrics.set("assigned_partitions", 3, pipeline="main")
    for _ in range(20):
        metrics.add("events_total", 120, pipeline="main", topic="app-logs")
        metrics.add("events_total", 5, pipeline="other", topic="app-logs")
        metrics.add("decisions_total", 90, pipeline="main", decision="duplicate")
        metrics.add("decisions_total", 10, pipeline="main", decision="new")
        metrics.add("near_cache_hits_total", 75, pipeline="main")
        metrics.add("commits_total", 2, pipeline="main")
        metrics.observe("stage_seconds", 0.004, pipeline="main", stage="decide")
        shown.pass_by(1)
    page = shown.read()
    assert page.sections["Worker"].values["Shown"][0].endswith("; rates of the last 20 s")
    main = page.sections["Pipeline main"]
    assert main.values["Events a second"][:2] == ["120", "1,002,400 since the start"]
    assert main.values["Duplicates"] == ["90.0 %", "0.1 % since the start"]
    assert main.values["Near cache"] == ["75.0 %", "0.1 % since the start"]
    assert main.values["Delay, 99 %"] == ["995 ms", "from timestamp to delivery"]
    assert main.values["Clusters"] == ["4,321", "5,000 fingerprints, 2 waiting"]
    assert main.row("Times", "decide") == ["20", "3.75 ms", "4.98 ms", "80 ms"]
    assert main.row("Times", "emit") == ["0", "–", "–", "–"]
    assert main.row("Times", "a call of Redis") == ["1", "over 10 s", "over 10 s", "12 s"]
    assert main.row("Times", "kernel, within hash") == ["1", "0.25 ms", "0.495 ms", "0.3 ms"]
    assert main.tables["Times"][0] == ["Last 20 s", "How often", "50 %", "99 %", "In all"]
    assert [*FIXED["stage"]] == [row[0] for row in main.tables["Times"][1:-2]]
    assert main.row("Counts", "Commits") == ["40", "130"]
    assert main.row("Counts", "Calls to Kafka or Redis retried") == ["3", "3"]
    assert main.row("Counts", "Rebalances") == ["0", "0"]


def test_what_an_alert_counts_is_on_the_page(shown: Shown) -> None:
    watched = set(re.findall(r"increase\(stream_dedup_(\w+_total)", ALERTS.read_text("utf-8")))
    assert len(watched) > 8
    for name in sorted(watched):
        labels = {
            label: "main" if label == "pipeline" else FIXED.get(label, ("x",))[0]
            for label in METRICS[name].labels
        }
        shown.metrics.add(cast(Counter, name), 7_654_321, **labels)
        assert b"7,654,321" in shown.page.html(), name
        shown = Shown()


def test_the_line_shows_each_second_from_nothing_to_the_most(shown: Shown) -> None:
    for events in (0, 100, 50, 0):
        shown.metrics.add("events_total", events, pipeline="main", topic="app-logs")
        shown.pass_by(1)
    page = shown.read()
    (line,) = page.root.iter("polyline")
    (image,) = page.root.iter("svg")
    assert line.get("points") == "0.0,1.0 50.0,15.0 100.0,29.0"
    assert text(image.find("title")) == "Of the last 3 seconds, at most 100 a second"


def test_partitions_are_listed_by_lag(shown: Shown) -> None:
    for topic, number, behind in (("app", 0, 5), ("app", 10, 1_200), ("audit", 2, 5)):
        shown.metrics.set("lag_events", behind, pipeline="main", topic=topic, partition=number)
    shown.metrics.set("lag_events", 9_999, pipeline="other", topic="app", partition=1)
    shown.metrics.set("assigned_partitions", 3, pipeline="main")
    main = shown.main()
    expected = [["app", "10", "1,200"], ["app", "0", "5"], ["audit", "2", "5"]]
    assert main.tables["Lag"][1:] == expected
    assert main.values["Lag"] == ["1,210", "events, in 3 partitions"]


def test_dead_letters_are_listed_by_reason_most_frequent_first(
    shown: Shown,
) -> None:
    for reason, count in (("not JSON", 3), ("too large", 1_500), ("field missing", 0)):
        shown.metrics.add("dead_letters_total", count, pipeline="main", reason=reason)
    main = shown.main()
    assert main.tables["Dead letters"][1:] == [["too large", "1,500"], ["not JSON", "3"]]
    assert main.row("Counts", "Dead letters") == ["–", "1,503"]


def test_why_it_is_not_ready_comes_first_with_since_when(shown: Shown) -> None:
    shown.health.not_ready("main: index", "redis://r:6379 is away")
    shown.pass_by(150)
    shown.health.not_ready("main: kafka", "no broker")
    page = shown.read()
    assert page.state == "✗ Not ready"
    assert next(iter(page.sections)) == "Why it is not ready"
    rows = page.sections["Why it is not ready"].tables[""]
    assert rows == [
        ["What", "Why", "Since"],
        ["main: index", "redis://r:6379 is away", "2023-11-14 22:13:20 UTC (2 min 30 s)"],
        ["main: kafka", "no broker", "2023-11-14 22:15:50 UTC (0 s)"],
    ]
    shown.health.ready("main: index")
    shown.health.ready("main: kafka")
    assert shown.read().state == "✓ Ready"


def test_a_loop_that_is_stuck_is_seen(shown: Shown) -> None:
    shown.pass_by(1)
    shown.pass_by(1)
    shown.now_s += 100
    shown.clock.advance(100)
    page = shown.read()
    (row,) = page.sections["Why it is not ready"].tables[""][1:]
    assert row[:2] == ["loop", "the event loop is stuck for 100 s"]
    assert (
        page.sections["Worker"].values["Shown"][0].endswith("rates of the last 1 s, 1 min 40 s ago")
    )


# ------------------------------------------------------------ how it is shown


def test_the_page_reloads_itself_unless_asked_not_to(shown: Shown) -> None:
    def asks(page: Page) -> list[str]:
        return [meta.get("content", "") for meta in page.root.iter("meta")
                if meta.get("http-equiv") == "refresh"]  # fmt: skip

    assert asks(shown.read()) == ["5"]
    assert asks(shown.read(refresh=False)) == []


def test_it_needs_nothing_but_itself(shown: Shown) -> None:
    page = shown.read()
    assert not page.elements & {"script", "link", "img", "iframe", "form", "object", "base"}
    named = [element.attrib for element in page.root.iter()]
    assert not [each for each in named if {"style", "src"} & set(each)]
    assert not [each for each in named for name in each if name.startswith("on")]
    hrefs = [link.get("href") for link in page.root.iter("a")]
    assert hrefs == ["metrics", "readyz", "healthz", "?refresh=off"]
    assert "url(" not in text(page.root.find(".//style"))


def test_its_policy_lets_in_its_own_style_and_nothing_else(shown: Shown) -> None:
    html = shown.page.html().decode()
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert POLICY.startswith("default-src 'none'; ")
    assert "unsafe" not in POLICY


def test_who_cannot_see_it_can_hear_it(shown: Shown) -> None:
    shown.metrics.set("lag_events", 1, pipeline="main", topic="t", partition=1)
    shown.health.not_ready("main: index", "away")
    root = shown.read().root
    assert root.get("lang") == "en"
    headings = [int(e.tag[1]) for e in root.iter() if re.fullmatch("h[1-6]", e.tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(low + 1 >= high for low, high in pairwise(headings))
    for table in root.iter("table"):
        first, *rest = table.iter("tr")
        assert {cell.get("scope") for cell in first} == {"col"}
        assert {row[0].get("scope") for row in rest} == {"row"}
        assert {len(first)} == {len(row) for row in rest}
    for image in root.iter("svg"):
        assert image.get("role") == "img"
        assert text(image.find("title"))


# ------------------------------------------------------------ hostile input


def test_whatever_comes_from_outside_is_shown_and_not_obeyed() -> None:
    keys = [name for name, value in MAIN if isinstance(value, str)]
    pipeline = MAIN.model_copy(update=dict.fromkeys(keys, HOSTILE) | {"topics": (HOSTILE, HOSTILE)})
    pipeline._recipe = msgspec.structs.replace(MAIN.load_recipe(), name=HOSTILE)
    config = CONFIG.model_copy(
        update={
            "kafka": CONFIG.kafka.model_copy(update={"bootstrap_servers": (HOSTILE,)}),
            "index": CONFIG.index.model_copy(update={"url": SecretStr(f"unix:///{HOSTILE}")}),
            "worker": CONFIG.worker.model_copy(update={"guarantee": HOSTILE}),
            "pipelines": (pipeline,),
        }
    )
    shown = Shown(config, HOSTILE, HOSTILE)
    elements = shown.read().elements
    shown.health.not_ready(HOSTILE, HOSTILE)
    name = HOSTILE
    shown.metrics.add("dead_letters_total", 3, pipeline=name, reason=HOSTILE)
    shown.metrics.set("lag_events", 3, pipeline=name, topic=HOSTILE, partition=1)
    html = shown.page.html().decode()
    page = Page(html)
    assert elements == page.elements
    assert "script" not in elements
    assert html.count("&lt;script&gt;") > 10
    assert "\x00" not in html
    assert "\u202e" not in html
    (row,) = page.sections["Why it is not ready"].tables[""][1:]
    assert HOSTILE.replace("\x00", "\\x00").replace("\u202e", "\\u202e") == row[0] == row[1]


@given(st.text())
def test_any_text_can_be_shown(reason: str) -> None:
    shown = Shown()
    elements = shown.read().elements
    shown.health.not_ready("main: index", reason)
    shown.metrics.add("dead_letters_total", 3, pipeline="main", reason=reason)
    page = shown.read()
    assert elements | {"table"} == page.elements
    assert len(page.sections["Pipeline main"].tables["Dead letters"]) - 1 == 1


def test_no_secret_is_shown() -> None:
    secret = "hunter2-s3cret"  # noqa: S105 -- looked for in all that is shown
    config = Config(
        kafka=KafkaConfig(
            bootstrap_servers=("k:9093",),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="me",
            sasl_password=SecretStr(secret),
        ),
        index=IndexConfig(url=SecretStr(f"redis://me:{secret}@r:6379/2")),
        worker=WorkerConfig(),
        pipelines=(PipelineConfig(topics=("in",), output_topic="out"),),
    )
    shown = Shown(config)
    shown.health.not_ready("main: index", f"redis://me:{secret}@r:6379: password={secret} refused")
    html = shown.page.html().decode()
    assert secret not in html
    page = Page(html)
    assert page.sections["Worker"].values["Index"] == ["redis://r:6379/2"]
    assert page.sections["Worker"].values["Kafka"] == ["k:9093"]
    assert page.sections["Pipeline main"].values["Reads"] == ["in, as group stream-dedup-main"]
    assert "redis://me:[hidden]@" in page.sections["Why it is not ready"].text


# ------------------------------------------------------------ bounds


def test_of_long_lists_it_shows_some_and_says_how_many_more_there_are() -> None:
    topics = tuple(f"topic-{number}" for number in range(300))
    many = [
        MAIN.model_copy(update={"name": f"p{number}", "topics": topics}) for number in range(50)
    ]
    kafka = CONFIG.kafka.model_copy(update={"bootstrap_servers": topics})
    shown = Shown(CONFIG.model_copy(update={"kafka": kafka, "pipelines": many}))
    for number in range(40):
        shown.metrics.add("dead_letters_total", 1, pipeline="p0", reason=f"reason {number}")
        shown.health.not_ready(f"part {number}", "amiss")
    for topic in topics:
        for partition in range(10):
            shown.metrics.set("lag_events", 2, pipeline="p0", topic=topic, partition=partition)
    html = shown.page.html()
    page = Page(html)
    names = [name for name in page.sections if name.startswith("Pipeline")]
    assert [f"Pipeline p{number}" for number in range(MAX_ROWS)] == names
    assert "… and 30 more pipelines" in text(page.root.find(".//main"))
    assert page.sections["Worker"].values["Kafka"][0].endswith("topic-19, … and 280 more")
    first = page.sections["Pipeline p0"]
    assert "topic-19, … and 280 more, as group" in first.values["Reads"][0]
    assert len(first.tables["Lag"]) - 1 == MAX_ROWS
    assert "… and 2,980 more partitions, 5,960 events behind in all" in first.text
    assert first.values["Lag"][0] == "6,000"
    assert len(first.tables["Dead letters"]) - 1 == MAX_ROWS
    assert "… and 20 more reasons" in first.text
    why = page.sections["Why it is not ready"]
    assert len(why.tables[""]) - 1 == MAX_ROWS
    assert "… and 20 more reasons" in why.text
    assert len(html) < 150_000


def test_a_long_text_is_cut(shown: Shown) -> None:
    shown.health.not_ready("main: index", "x" * 1_000_000)
    (row,) = shown.read().sections["Why it is not ready"].tables[""][1:]
    assert row[1] == "x" * MAX_TEXT_CHARS + "…"
