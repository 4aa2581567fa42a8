"""The Compose stack: its files are consistent, and it keeps running while a worker is killed."""

from __future__ import annotations

import copy
import json
import re
import secrets
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from stream_dedup import __version__
from stream_dedup.config import load
from stream_dedup.ui.command import ui
from tests.deploy.containers import Built
from tests.integration.worker.running import text_headers, wait_for
from tests.services.docker_images import DEPLOY, STAND_INS, settings
from tests.services.kafka_existing import ExistingKafka
from tests.services.kafka_jars import VERSION as KAFKA_VERSION
from tests.services.kafka_records import Record
from tests.services.processes import REPOSITORY, PortReservation

COMPOSE = (DEPLOY / "compose.yaml").read_text("utf-8")
STACK: dict[str, Any] = msgspec.yaml.decode(COMPOSE)
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
OWN = {"worker", "generator", "ui"}
CONFIG = load(str(DEPLOY / "stream-dedup.toml")).config
(PIPELINE,) = CONFIG.pipelines
GROUP = f"{CONFIG.kafka.group_id}-{PIPELINE.name}"

WITHIN_S = 180.0
"""For whatever is waited for; on an idle machine each takes some seconds, some half a minute."""


# ------------------------------------------------------------ what the files say


def test_every_variable_is_used_and_explained() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE))
    given = settings()
    assert set(given) == {"COMPOSE_PROFILES", "COMPOSE_PROJECT_NAME"} | used
    page = (REPOSITORY / "docs" / "how-to" / "docker.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| `([^`]*)` \|", page, re.MULTILINE))
    assert given == rows


def test_no_variable_has_a_second_default() -> None:
    assert re.findall(r"\$\{[A-Z_]+(?!:\?see deploy/\.env\})[^A-Z_][^}]*\}", COMPOSE) == []


def test_versions_are_those_that_are_tested() -> None:
    given = settings()
    assert given["STREAM_DEDUP_IMAGE"] == f"stream-dedup:{__version__}"
    assert given["KAFKA_IMAGE"].startswith(f"apache/kafka:{KAFKA_VERSION}@")
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    for name in ("PYTHON_IMAGE", "BUILD_IMAGE", "EXTRAS"):
        assert f"\nARG {name}={given[name]}\n" in dockerfile
    assert f"\nARG VERSION={__version__}\n" in dockerfile


@pytest.mark.parametrize("name", [*STAND_INS, "GRAFANA_IMAGE"])
def test_images_of_others_are_pinned_by_digest(name: str) -> None:
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+[a-z-]*@sha256:[0-9a-f]{64}", settings()[name])


def test_the_topics_of_the_configuration_are_created() -> None:
    made = set(re.findall(r"make (app[a-z-]*)", SERVICES["topics"]["command"][0]))
    sent = set(PIPELINE.output_topics)
    assert {*PIPELINE.topics, *sent} == made


def test_both_profiles_are_complete() -> None:
    minimal = {name for name, service in SERVICES.items() if "minimal" in service["profiles"]}
    assert minimal == {"kafka", "topics", "redis", "worker", "ui"}
    for name, service in SERVICES.items():
        assert "full" in service["profiles"], name
        for needed in service.get("depends_on", {}):
            assert set(service["profiles"]) <= set(SERVICES[needed]["profiles"]), (name, needed)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_services_are_bounded_checked_and_unprivileged(name: str) -> None:
    service = SERVICES[name]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert name in {"topics", "worker"} or service["healthcheck"]["test"]  # the image's; it ends
    for port in service.get("ports", []):
        assert port.startswith("${BIND_ADDRESS"), "it is open to the machine alone"
    if name in OWN:
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert "privileged" not in service


def test_the_web_application_shows_the_namespace_of_the_workers() -> None:
    service = SERVICES["ui"]
    variables = settings()
    command = [re.sub(r"\$\{([A-Z_]+)[^}]*\}", lambda m: variables[m[1]], each)
               for each in service["command"]]  # fmt: skip
    options = copy.copy(ui).make_context("ui", command[1:]).params
    assert command[0] == "ui"
    assert options["namespaces"] == (PIPELINE.namespace or PIPELINE.recipe,)
    assert options["redis"] == CONFIG.index.url.get_secret_value()
    (port,) = service["ports"]
    assert port.endswith(f":{options['port']}")


def test_the_files_for_grafana_fit_together() -> None:
    grafana = SERVICES["grafana"]
    mounts = dict(volume.split(":")[:2][::-1] for volume in grafana["volumes"])
    provisioning = DEPLOY / mounts["/etc/grafana/provisioning"]
    (provider,) = msgspec.yaml.decode(
        (provisioning / "dashboards" / "stream-dedup.yaml").read_bytes()
    )["providers"]
    dashboards = provider["options"]["path"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == dashboards
    assert (DEPLOY / mounts[dashboards] / home.name).is_file()
    (source,) = msgspec.yaml.decode(
        (provisioning / "datasources" / "prometheus.yaml").read_bytes()
    )["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus"]["ports"][0].endswith(":9090")


# ------------------------------------------------------------ what it does


class Stack(NamedTuple):
    """The stack, up; all of ``full`` but Grafana, whose image Debian has no stand-in for."""

    built: Built
    settings: dict[str, str]
    kafka: ExistingKafka
    prometheus: str
    ui: str

    @property
    def project(self) -> str:
        return self.settings["COMPOSE_PROJECT_NAME"]

    def compose(self, *args: str) -> str:
        return self.built.docker.compose(
            self.built.compose_file, *args, settings=self.settings, within_s=900
        )

    def up(self) -> None:
        """The one command, for all that there are images for."""
        services = [name for name in SERVICES if name != "grafana"]
        self.compose("up", "--detach", "--build", "--wait", *services)

    def containers(self, service: str) -> list[dict[str, Any]]:
        """What the engine knows of a service's containers."""
        names = self.compose("ps", "--all", "--quiet", service).split()
        return [self.built.docker.inspect(name) for name in names]

    def asked(self, expression: str) -> list[float]:
        """The values that Prometheus has for an expression."""
        query = urllib.parse.urlencode({"query": expression})
        url = f"{self.prometheus}/api/v1/query?{query}"
        with urllib.request.urlopen(url, timeout=30) as page:  # noqa: S310 -- ours, on this machine
            found = msgspec.json.decode(page.read())["data"]["result"]
        return [float(each["value"][1]) for each in found]

    def committed(self) -> int:
        """Events that the group is done with."""
        return sum(self.kafka.committed(GROUP).values())

    def came(self) -> int:
        """Events that were written."""
        return sum(self.kafka.end_offsets(PIPELINE.topics[0]).values())


@pytest.fixture(scope="module")
def stack(built: Built) -> Iterator[Stack]:
    ports = [PortReservation() for _ in range(4)]
    kafka, prometheus, grafana, ui_port = (str(each.port) for each in ports)
    for each in ports:
        each.release()  # Docker binds them for itself
    project = f"stream-dedup-tests-{secrets.token_hex(4)}"
    given = {"KAFKA_PORT": kafka, "PROMETHEUS_PORT": prometheus, "GRAFANA_PORT": grafana,
             "UI_PORT": ui_port}  # fmt: skip
    made = Stack(
        built,
        {**built.settings, **given, "COMPOSE_PROJECT_NAME": project},
        ExistingKafka(f"localhost:{kafka}"),
        f"http://127.0.0.1:{prometheus}",
        f"http://127.0.0.1:{ui_port}",
    )
    with ExitStack() as ending:
        ending.callback(made.compose, "down", "--volumes", "--timeout", "5")
        try:
            made.up()
            yield made
        except BaseException as error:
            error.add_note(made.compose("logs", "--no-color", "--tail", "20"))
            raise


@pytest.mark.docker
@pytest.mark.timeout(2_400)
def test_the_stack_survives_a_killed_worker_and_counts_right(
    stack: Stack,
) -> None:
    # It is up, as it was asked for.
    workers = stack.containers("worker")
    assert int(settings()["WORKERS"]) == len(workers) == 2
    for worker in workers:
        host = worker["HostConfig"]
        assert (host["ReadonlyRootfs"], host["CapDrop"]) == (True, ["ALL"])
        assert worker["State"]["Health"]["Status"] == "healthy"
    wait_for(lambda: up(stack) == [1, 1], "Prometheus sees both", WITHIN_S)
    firing = 'ALERTS{alertstate="firing", severity="critical"}'
    assert stack.asked(firing) == []

    # Counts come out while events come in.
    wait_for(lambda: bool(summaries(stack)), "there are summaries", WITHIN_S)
    assert len(stack.kafka.describe_group(GROUP).members) == 2

    # The web application shows them, and takes rules.
    source = f"{stack.ui}/api/v1/sources/{PIPELINE.namespace or PIPELINE.recipe}"
    wait_for(lambda: json_of(f"{source}/patterns")["found"] > 10, "patterns are shown", WITHIN_S)
    rule = {"kind": "name", "patterns": ["never seen <*>"], "value": "a test"}
    assert json_of(f"{source}/rules", rule)["value"] == "a test"
    assert json_of(f"{source}/rules")["found"] == 1

    # One of two is killed in the midst of it; the other does the work of both.
    before = stack.committed()
    stack.built.docker.run("kill", workers[0]["Id"])
    killed = before + 1_000
    wait_for(lambda: one_does_all(stack) and stack.committed() > killed, "one does all", WITHIN_S)

    # The same command brings it back.
    stack.up()
    wait_for(lambda: len(stack.kafka.describe_group(GROUP).members) == 2, "it is back", WITHIN_S)
    wait_for(lambda: up(stack) == [1, 1], "Prometheus sees both again", WITHIN_S)

    # No more events: all that came have left, or are counted.
    stack.compose("stop", "generator")
    wait_for(lambda: stack.committed() == stack.came() > 0, "all are decided", WITHIN_S)
    wait_for(lambda: balance(stack) == 0, "all are counted", WITHIN_S)

    # Ended in good order, and gone.
    stack.compose("stop", "worker")
    assert {worker["State"]["ExitCode"] for worker in stack.containers("worker")} == {0}
    stack.compose("down", "--volumes")
    assert stack.built.docker.all_of(stack.project) == {
        "containers": [],
        "volumes": [],
        "networks": [],
    }


def json_of(url: str, body: object = None) -> dict[str, Any]:
    """What the web application answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 -- ours
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 -- as above
        found: dict[str, Any] = json.load(answer)
    return found


def up(stack: Stack) -> list[float]:
    """Whether Prometheus reaches each worker that it knows of."""
    return stack.asked('up{job="stream-dedup"}')


def one_does_all(stack: Stack) -> bool:
    """Whether a single member of the group has every partition."""
    members = stack.kafka.describe_group(GROUP).members
    return [int(settings()["PARTITIONS"])] == [len(member.partitions) for member in members]


def summaries(stack: Stack) -> dict[str, dict[int, dict[str, Any]]]:
    """Summaries by cluster and revision; copies of a revision are equal."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for record in stack.kafka.consume(PIPELINE.summary_topic or ""):
        summary = json.loads(record.value or b"")
        assert summary["cluster"].encode() == record.key
        known = found.setdefault(summary["cluster"], {})
        assert known.setdefault(summary["revision"], summary) == summary
    return found


def balance(stack: Stack) -> int:
    """The events read minus those written, counted and dead-lettered, from the topics alone.

    A cluster's count includes its first event, which was written; a cluster without a summary yet
    has only that event.
    """
    came = stack.kafka.consume(PIPELINE.topics[0], timeout_s=WITHIN_S)
    values = Counter(record.value for record in came)
    firsts: dict[str, Record] = {}
    for record in stack.kafka.consume(PIPELINE.output_topic, timeout_s=WITHIN_S):
        headers = text_headers(record)
        assert headers["sd-decision"] == "new"
        assert values[record.value], "not an input"
        known = firsts.setdefault(headers["sd-cluster"], record)
        # After a crash it may be written again, with the same bytes.
        assert (known.value, known.headers) == (record.value, record.headers)
    counted = 0
    for cluster, revisions in summaries(stack).items():
        assert cluster in firsts
        counts = [revisions[number]["count"] for number in sorted(revisions)]
        new = [revisions[number]["new_count"] for number in sorted(revisions)]
        # The topic is compacted: early revisions may be gone.
        assert counts[-1] - counts[0] == sum(new[1:])
        counted += counts[-1]
        del firsts[cluster]
    letters = stack.kafka.consume(PIPELINE.dead_letter_topic)
    places = ("sd-topic", "sd-partition", "sd-offset")
    bad = {tuple(text_headers(letter)[name] for name in places) for letter in letters}
    return len(came) - counted - len(firsts) - len(bad)
