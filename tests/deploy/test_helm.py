"""The Helm chart is valid for Helm, for Kubernetes' schemas and for the worker."""

from __future__ import annotations

import copy
import functools
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import make_mocked_request

from docs.blocks import ROOT, blocks
from docs.helm_schema import given_elsewhere, secret_files
from stream_dedup._version import __version__
from stream_dedup.config import Config, load
from stream_dedup.config.document import Key, keys
from stream_dedup.metrics import GAUGES
from stream_dedup.ui.command import ui
from stream_dedup.ui.security import read_token
from stream_dedup.worker.http import Pages
from stream_dedup.worker.telemetry.health import Health
from tests.deploy import helm_chart
from tests.deploy.helm_chart import CASES, CHART, REFRESH, Manifest, manifests
from tests.services.helm import KUBERNETES, kubeconform

# The first test builds Helm where it is not there yet.
pytestmark = [pytest.mark.timeout(1500), pytest.mark.helm]

PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
SECRETS = "/run/secrets/stream-dedup"
MINIMAL = helm_chart.values_of("minimal")
UI = {"enabled": True, "token": {"secret": "ui", "key": "token"}}


@functools.cache
def rendered(case: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        done = helm_chart.template(helm_chart.values_of(case), home=Path(home))
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(case: str) -> dict[str, Manifest]:
    return manifests(rendered(case))


def workload(found: dict[str, Manifest]) -> Manifest:
    return found.get("Deployment") or found["StatefulSet"]


def pod(found: dict[str, Manifest]) -> Manifest:
    spec: Manifest = workload(found)["spec"]["template"]["spec"]
    return spec


def container(found: dict[str, Manifest]) -> Manifest:
    (only,) = pod(found)["containers"]
    assert isinstance(only, dict)
    return only


def with_minimal(home: Path, **settings: Any) -> dict[str, Manifest]:
    done = helm_chart.template(MINIMAL, home=home, settings=settings)
    assert done.returncode == 0, done.stderr
    return manifests(done.stdout)


def loaded(found: dict[str, Manifest], folder: Path) -> Config:
    """What the worker's own loader makes of the mounted files."""
    secrets = folder / "secrets"
    secrets.mkdir()
    for volume in pod(found)["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            for item in source["secret"]["items"]:
                (secrets / item["path"]).write_text(f"{source['secret']['name']}/{item['key']}\n")
    for name, text in found["ConfigMap"]["data"].items():
        (folder / name).write_text(text.replace(SECRETS, str(secrets)), "utf-8")
    return load(str(folder / "stream-dedup.toml")).config


# ------------------------------------------------------------ Helm and Kubernetes


@pytest.mark.parametrize("case", [None, *CASES])
def test_lint_finds_nothing(case: str | None, tmp_path: Path) -> None:
    values = [helm_chart.values_of(case)] if case else []
    done = helm_chart.lint(*values, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("case", CASES)
def test_a_case_renders_as_its_golden_file_says(case: str) -> None:
    assert helm_chart.golden_of(case).read_text("utf-8") == rendered(case), REFRESH


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("case", CASES)
def test_the_schemas_of_kubernetes_hold(case: str, version: str, tmp_path: Path) -> None:
    file = tmp_path / "manifests.yaml"
    file.write_text(rendered(case), "utf-8")
    done = kubeconform(file, version)
    count = len(objects(case))
    assert f"Valid: {count}, Invalid: 0, Errors: 0, Skipped: 0" in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    "right", ["readOnlyRootFilesystem:", "clusterIP:", "minReplicaCount:", "interval:", "egress:"]
)
def test_the_schemas_refuse_a_misspelt_key(right: str, tmp_path: Path) -> None:
    text = rendered("full")
    assert right in text
    file = tmp_path / "manifests.yaml"
    file.write_text(text.replace(right, f"x{right}", 1), "utf-8")
    done = kubeconform(file, KUBERNETES[-1])
    assert done.returncode == 1
    assert f"'x{right[:-1]}' not allowed" in done.stdout


def test_the_chart_is_of_the_worker_s_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == __version__
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


def test_all_kinds_are_in_some_case() -> None:
    kinds = {kind for case in CASES for kind in objects(case)}
    assert kinds == {
        *("ConfigMap", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy"),
        *("PodDisruptionBudget", "ScaledObject", "Secret", "Service", "ServiceAccount"),
        *("ServiceMonitor", "StatefulSet", "ui Deployment", "ui NetworkPolicy", "ui Service"),
    }


@pytest.mark.parametrize("release", ["a", "stream-dedup", "r" * 53])
def test_names_are_short_enough(release: str, tmp_path: Path) -> None:
    done = helm_chart.template(MINIMAL, home=tmp_path, release=release)
    for each in manifests(done.stdout).values():
        assert len(each["metadata"]["name"]) <= 52
    assert done.stdout.count("stream-dedup-stream-dedup") == 0


# ------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("replicas", "two", "'/replicas': got string, want integer"),
        ("replica", 2, "additional properties 'replica' not allowed"),
        ("config.kafka.bootstrap_server", "a:9092", "'bootstrap_server' not allowed"),
        ("config.kafka.sasl_password", "hidden", "'sasl_password' not allowed"),
        ("config.kafka.group_instance_id", "one", "'group_instance_id' not allowed"),
        ("config.index.password", "hidden", "'password' not allowed"),
        ("config.index.ca_file", "/ca", "'ca_file' not allowed"),
        ("config.worker.guarantee", "twice", "must be one of 'at_least_once', 'exactly_once'"),
        ("config.http.port", 80, "minimum: got 80, want 1,024"),
        ("config.pipelines", [{"topics": ["a"]}], "missing property 'output_topic'"),
        ("config.pipelines", [], "config.pipelines is empty; give a pipeline"),
        ("config.kafka.bootstrap_servers", [], "bootstrap_servers is empty; name brokers"),
        ("config.index.url", "", "config.index.url is empty; say where Redis is"),
        ("config.index.url", "redis://u:hidden@h:6379", "holds a password, which would stand in"),
        ("config.index.url", "redis+cluster://:hidden@h:1,i:2", "holds a password"),
        ("files", {"stream-dedup.toml": ""}, "invalid propertyName 'stream-dedup.toml'"),
        ("files", {"../x": ""}, "invalid propertyName '../x'"),
        ("secrets.kafka", {"sasl_username": {"value": "x"}}, "'sasl_username' not allowed"),
        ("secrets.index", {"password_file": {"secret": "x"}}, "missing property 'key'"),
        ("secrets.index", {"password_file": {"key": "x"}}, "missing property 'secret'"),
        ("image.digest", "latest", "'/image/digest'"),
        ("image.pullPolicy", "Sometimes", "'/image/pullPolicy': value must be one of"),
        ("probes.liveness", {"httpGet": {"path": "/"}}, "'httpGet' not allowed"),
        ("podSecurityContext.runAsUser", 0, "minimum: got 0, want 1"),
        ("podDisruptionBudget.maxUnavailable", 0, "minimum: got 0, want 1"),
        ("autoscaling.type", "vpa", "must be one of 'none', 'hpa', 'keda'"),
        ("autoscaling", {"type": "hpa", "minReplicas": 9}, "which is above maxReplicas, 4"),
        ("autoscaling", {"type": "hpa", "lagPerWorker": 0}, "cpuPercent are both 0; give one"),
        ("autoscaling", {"type": "keda", "lagPerWorker": 0}, "lagPerWorker is 0; give 1 or more"),
        ("ui", {"enabled": True}, "both empty, so that everybody could read; name the Secret"),
        ("ui", {"token": {"value": "x"}}, "'/ui/token'"),
        ("ui", {**UI, "recipe": "a.toml"}, "ui.recipe is a.toml, which is not in files"),
        ("ui", {**UI, "port": 80}, "minimum: got 80, want 1,024"),
        ("terminationGracePeriodSeconds", 49, "give 50 or more, or a smaller drain_s"),
        ("config.worker.drain_s", "1m", "give 250 or more, or a smaller drain_s"),
        ("config.worker.drain_s", 12.6, "a stop may take 62 s with config.worker.drain_s of 13 s"),
    ],
)
def test_wrong_values_are_refused(name: str, value: Any, message: str, tmp_path: Path) -> None:
    done = helm_chart.template(MINIMAL, home=tmp_path, settings={name: value})
    assert done.returncode == 1
    assert message in done.stderr
    assert "hidden" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"autoscaling.type": "keda", "config.kafka.security_protocol": "SSL"},
            "triggerAuthentication is empty, but config.kafka.security_protocol is SSL",
        ),
        (
            {"networkPolicy.enabled": True, "config.kafka.bootstrap_servers": ["a:9092", "b:9095"]},
            "networkPolicy.kafka.ports lacks 9095, the port of b:9095",
        ),
        (
            {"networkPolicy.enabled": True, "networkPolicy.kafka.ports": [9093],
             "config.kafka.bootstrap_servers": ["a"]},
            "networkPolicy.kafka.ports lacks 9092, the port of a",
        ),
        (
            {"networkPolicy.enabled": True, "config.index.url": "redis+sentinel://a:26379,b/main"},
            "networkPolicy.redis.ports lacks 26379",
        ),
        (
            {"ui": UI, "config.index.kind": "memory"},
            "config.index.kind is memory, which only its worker sees",
        ),
        (
            {"ui": UI, "secrets.index": {"sentinel_password_file": {"secret": "a", "key": "b"}}},
            "the web application knows no password of Sentinel",
        ),
        (
            {"networkPolicy.enabled": True, "config.otel": {"enabled": True, "endpoint": "http://a:80"}},
            "networkPolicy.otel.ports lacks 80, the port of config.otel.endpoint",
        ),
    ],
)  # fmt: skip
def test_values_that_contradict_are_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    done = helm_chart.template(MINIMAL, home=tmp_path, settings=settings)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize("drain", ["10s", 11.4, "500ms", "0.2m", "12"])
def test_a_drain_that_the_grace_period_covers_is_taken(drain: object, tmp_path: Path) -> None:
    found = with_minimal(tmp_path, **{"config.worker.drain_s": drain})
    assert (
        f"drain_s = {drain if isinstance(drain, float) else repr(drain)}".replace("'", '"')
        in (found["ConfigMap"]["data"]["stream-dedup.toml"])
    )


def test_an_ipv6_address_is_not_a_port(tmp_path: Path) -> None:
    url = {"networkPolicy.enabled": True, "config.index.url": "redis://[fd00::12]:6379"}
    assert "NetworkPolicy" in with_minimal(tmp_path, **url)


@pytest.mark.parametrize(
    ("enabled", "namespace", "expected"),
    [("auto", "", False), ("auto", "metrics", True), (False, "metrics", False), (True, "", True)],
)
def test_a_network_policy_is_there_where_metrics_have_a_namespace(
    enabled: object, namespace: str, *, expected: bool, tmp_path: Path
) -> None:
    settings = {"networkPolicy.enabled": enabled, "networkPolicy.metricsNamespace": namespace}
    found = with_minimal(tmp_path, **settings)
    assert ("NetworkPolicy" in found) is expected
    if expected:
        named = [
            peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
            for rule in found["NetworkPolicy"]["spec"]["ingress"]
            for peer in rule["from"]
        ]
        assert named == ([namespace] if namespace else [])


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    done = helm_chart.template(home=tmp_path)
    assert done.stderr.count("is empty; ") == 3


@pytest.mark.parametrize("key", list(keys()), ids=lambda key: key.variable)
def test_every_key_of_the_configuration_can_be_given(key: Key, tmp_path: Path) -> None:
    if key.name == "group_instance_id":
        found = objects("static")
        names = [each["name"] for each in container(found)["env"]]
        assert "STREAM_DEDUP__KAFKA__GROUP_INSTANCE_ID" in names
    elif key.type == "secret":
        assert f"{key.name}_file" in secret_files(key.section)
    elif given_elsewhere(key):
        settings: dict[str, Any] = {f"secrets.{key.section}": {key.name: {"value": "x"}}}
        text = with_minimal(tmp_path, **settings)["ConfigMap"]["data"]["stream-dedup.toml"]
        assert tomllib.loads(text)[key.section][key.name] == f"{SECRETS}/{key.section}.{key.name}"
    elif key.default:
        value = tomllib.loads(f"value = {key.default}")["value"]
        settings = {f"config.{key.section}.{key.name}": value}
        if key.section == "pipelines":
            pipeline = {"topics": ["a"], "output_topic": "b", key.name: value}
            settings = {"config.pipelines": [pipeline]}
        text = with_minimal(tmp_path, **settings)["ConfigMap"]["data"]["stream-dedup.toml"]
        table = tomllib.loads(text)[key.section]
        assert (table[0] if key.section == "pipelines" else table)[key.name] == value


# ------------------------------------------------------------ what the worker gets


@pytest.mark.parametrize("case", CASES)
def test_the_worker_takes_the_configuration(case: str, tmp_path: Path) -> None:
    found = objects(case)
    given = yaml.safe_load(helm_chart.values_of(case).read_text("utf-8"))
    config = loaded(found, tmp_path)
    document = tomllib.loads(found["ConfigMap"]["data"]["stream-dedup.toml"])
    for section, table in given["config"].items():
        if section != "pipelines":
            assert {key: document[section][key] for key in table} == table
    assert given["config"]["pipelines"] == document["pipelines"]
    for section, table in given.get("secrets", {}).items():
        for key, source in table.items():
            if "secret" in source and key.endswith("password_file"):
                expected = f"{source['secret']}/{source['key']}"
                assert getattr(config, section).secret(key.removesuffix("_file")) == expected


def test_a_secret_is_in_the_secret_alone() -> None:
    found = objects("full")
    name, text = "kafka.sasl_password_file", 'it\'s "secret": {{ none }} #1'
    assert found["Secret"]["stringData"] == {name: text}
    assert rendered("full").count("it's") == 1
    sources = pod(found)["volumes"][1]["projected"]["sources"]
    assert found["Secret"]["metadata"]["name"] in {each["secret"]["name"] for each in sources}


def test_files_are_beside_the_configuration() -> None:
    given = yaml.safe_load(helm_chart.values_of("full").read_text("utf-8"))["files"]
    data = objects("full")["ConfigMap"]["data"]
    assert {name: text for name, text in data.items() if name != "stream-dedup.toml"} == given


@pytest.mark.parametrize("case", CASES)
def test_the_worker_finds_its_configuration(case: str) -> None:
    found = objects(case)
    (variable,) = [e for e in container(found)["env"] if e["name"] == "STREAM_DEDUP_CONFIG"]
    folder, _, name = variable["value"].rpartition("/")
    mounts = {each["mountPath"]: each["name"] for each in container(found)["volumeMounts"]}
    (volume,) = [each for each in pod(found)["volumes"] if each["name"] == mounts[folder]]
    assert found["ConfigMap"]["metadata"]["name"] == volume["configMap"]["name"]
    assert name in found["ConfigMap"]["data"]


def test_the_name_of_a_static_member_is_the_pod_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = objects("static")
    (variable,) = [e for e in container(found)["env"] if "valueFrom" in e]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    monkeypatch.setenv(variable["name"], "logs-stream-dedup-0")
    assert loaded(found, tmp_path).kafka.group_instance_id == "logs-stream-dedup-0"
    assert found["Service"]["metadata"]["name"] == found["StatefulSet"]["spec"]["serviceName"]


@pytest.mark.parametrize("case", CASES)
def test_probes_ask_what_the_worker_answers(case: str) -> None:
    found = objects(case)
    port = tomllib.loads(found["ConfigMap"]["data"]["stream-dedup.toml"])["http"]["port"]
    (named,) = container(found)["ports"]
    (served,) = found["Service"]["spec"]["ports"]
    assert (named["containerPort"], served["port"]) == (port, port)
    pages = Pages(Health(), lambda _: ("text/plain", b""), lambda _: b"")
    for probe, path in {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }.items():
        asked = container(found)[probe]["httpGet"]
        assert {"path": path, "port": named["name"]} == asked
        assert pages.answer(make_mocked_request("GET", path)).status != HTTPStatus.NOT_FOUND


def test_only_a_changed_configuration_replaces_the_pods(tmp_path: Path) -> None:
    def template(**settings: Any) -> Manifest:
        found = workload(with_minimal(tmp_path, **settings))
        made: Manifest = found["spec"]["template"]
        return made

    same = template()
    assert template(replicas=5) == same
    assert template(**{"config.log.level": "debug"}) != same
    assert template(files={"a.toml": ""}) != same
    secret: Any = {"secrets.index": {"password_file": {"value": "a"}}}
    other: Any = {"secrets.index": {"password_file": {"value": "b"}}}
    assert template(**secret) != template(**other)


# ------------------------------------------------------------ notes


def notes(tmp_path: Path, case: str, **settings: Any) -> str:
    """The notes that Helm prints after an installation; `helm template` leaves them out."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    included = '{{ toJson (include "stream-dedup/templates/NOTES.txt" .) }}'
    (chart / "templates" / "notes.yaml").write_text(f"kind: Notes\ntext: {included}\n", "utf-8")
    values = helm_chart.values_of(case)
    done = helm_chart.template(values, home=tmp_path, settings=settings, chart=chart)
    assert done.returncode == 0, done.stderr
    text: str = manifests(done.stdout)["Notes"]["text"]
    return text


@pytest.mark.parametrize("case", CASES)
def test_the_notes_name_what_there_is(case: str, tmp_path: Path) -> None:
    owner = workload(objects(case))
    target = f"{owner['kind'].lower()}/{owner['metadata']['name']}"
    text = notes(tmp_path, case)
    assert f"rollout status {target}\n" in text
    assert f"exec {target} -- stream-dedup config check" in text
    assert ("Secret" in objects(case)) is ("Secrets were given as values" in text)
    assert "config.index.kind is memory" not in text


def test_the_notes_warn_of_what_loses_clusters_or_time(tmp_path: Path) -> None:
    settings = {"config.index.kind": "memory", "autoscaling.type": "hpa"}
    text = notes(tmp_path, "static", **settings)
    assert "config.index.kind is memory" in text
    assert "its partitions wait for" in text


# ------------------------------------------------------------ the web application


def parsed(found: dict[str, Manifest], folder: Path) -> dict[str, Any]:
    """The options of the web application, as its command reads them."""
    (only,) = found["ui Deployment"]["spec"]["template"]["spec"]["containers"]
    for volume in found["ui Deployment"]["spec"]["template"]["spec"].get("volumes", []):
        for source in volume.get("projected", {}).get("sources", []):
            for item in source["secret"]["items"]:
                (folder / item["path"]).write_text("a secret of some length")
    args = [each.replace(SECRETS, str(folder)) for each in only["args"]]
    assert only["command"] == ["stream-dedup", "ui"]
    return dict(copy.copy(ui).make_context("ui", args).params)


@pytest.mark.parametrize("case", ["full", "hpa"])
def test_the_web_application_takes_its_options(case: str, tmp_path: Path) -> None:
    given = values_with_defaults(case)
    options = parsed(objects(case), tmp_path)
    assert options["redis"] == given["config"]["index"]["url"]
    assert options["port"] == given["ui"]["port"]
    assert options["token_file"] == str(tmp_path / "ui.token")
    assert read_token(options["token_file"])
    assert options["files"] == ()
    if case == "full":
        assert options["namespaces"] == ("ours", "text")
        assert options["user_header"] == "X-Forwarded-User"
        assert options["changes"] is False
        assert options["no_check_hostname"]
        assert options["password_file"] == str(tmp_path / "index.password_file")
        assert options["recipe"] == "/etc/stream-dedup/ours.toml"
        assert options["allowed_hosts"] == ("patterns.example.com", ".example.org")
        assert options["window_us"] == 90 * 60 * 1_000_000
    else:
        assert (options["namespaces"], options["changes"]) == (("logs",), None)


def values_with_defaults(case: str) -> dict[str, Any]:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    given: dict[str, Any] = yaml.safe_load(helm_chart.values_of(case).read_text("utf-8"))
    return {**given, "ui": {**defaults["ui"], **given["ui"]}}


def test_the_namespaces_of_pipelines_are_shown(tmp_path: Path) -> None:
    pipelines = [
        {"topics": ["a"], "output_topic": "b", **more}
        for more in ({}, {"recipe": "text"}, {"namespace": "mine"}, {"recipe": "logs"})
    ]
    found = with_minimal(tmp_path, ui=UI, **{"config.pipelines": pipelines})
    assert parsed(found, tmp_path)["namespaces"] == ("logs", "text", "mine")
    pipelines[0]["recipe"] = "ours.toml"
    settings = {"ui": UI, "config.pipelines": pipelines}
    done = helm_chart.template(MINIMAL, home=tmp_path, settings=settings)
    assert "ui.namespaces is empty, and a pipeline has the recipe ours.toml" in done.stderr


@pytest.mark.parametrize("case", ["full", "hpa"])
def test_the_web_application_is_selected_apart_from_workers(case: str) -> None:
    found = objects(case)
    own = found["ui Deployment"]["spec"]["template"]["metadata"]["labels"]
    theirs = workload(found)["spec"]["template"]["metadata"]["labels"]
    selectors = {
        "ui": [found["ui Deployment"]["spec"]["selector"]["matchLabels"],
               found["ui Service"]["spec"]["selector"],
               *_match_labels(found.get("ui NetworkPolicy", {}), "podSelector")],
        "worker": [workload(found)["spec"]["selector"]["matchLabels"],
                   found["Service"]["spec"]["selector"],
                   *_match_labels(found.get("NetworkPolicy", {}), "podSelector")],
    }  # fmt: skip
    for selector in selectors["ui"]:
        assert selector.items() <= own.items()
        assert not selector.items() <= theirs.items()
    for selector in selectors["worker"]:
        assert not selector.items() <= own.items()


@pytest.mark.parametrize("case", ["full", "hpa"])
def test_the_web_application_is_restricted_as_workers_are(case: str) -> None:
    found = objects(case)
    own = found["ui Deployment"]["spec"]["template"]["spec"]
    (only,) = own["containers"]
    assert own["securityContext"] == pod(found)["securityContext"]
    assert only["securityContext"] == container(found)["securityContext"]
    assert not own["automountServiceAccountToken"]
    assert not own["enableServiceLinks"]
    assert only["resources"]["limits"]["memory"]
    assert all(each["readOnly"] for each in only["volumeMounts"])
    (named,) = only["ports"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert only[probe]["httpGet"] == {"path": "/healthz", "port": named["name"]}
    (served,) = found["ui Service"]["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (named["containerPort"], named["name"])


def test_a_policy_of_the_network_lets_only_those_named_in() -> None:
    policy = objects("full")["ui NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [
        {
            "from": [{"podSelector": {"matchLabels": {"app": "oauth2-proxy"}}}],
            "ports": [{"port": "http", "protocol": "TCP"}],
        }
    ]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [
        [53, 53], [6380]]  # fmt: skip


# ------------------------------------------------------------ how it runs


@pytest.mark.parametrize("case", CASES)
def test_pods_are_restricted(case: str) -> None:
    found = objects(case)
    assert pod(found)["securityContext"]["runAsNonRoot"]
    assert pod(found)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod(found)["automountServiceAccountToken"]
    assert not pod(found)["enableServiceLinks"]
    assert container(found)["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(each["readOnly"] for each in container(found)["volumeMounts"][:2] if case != "hpa")


@pytest.mark.parametrize("case", CASES)
def test_all_that_selects_selects_the_pods(case: str) -> None:
    found = objects(case)
    labels = workload(found)["spec"]["template"]["metadata"]["labels"]
    spread = pod(found).get("topologySpreadConstraints", [])
    selectors = [
        workload(found)["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        *_match_labels(found.get("PodDisruptionBudget", {}), "selector"),
        *_match_labels(found.get("NetworkPolicy", {}), "podSelector"),
        *[each["labelSelector"]["matchLabels"] for each in spread],
    ]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()
    for selector in _match_labels(found.get("ServiceMonitor", {}), "selector"):
        assert selector.items() <= found["Service"]["metadata"]["labels"].items()


def _match_labels(manifest: Manifest, name: str) -> Iterator[dict[str, str]]:
    if manifest:
        yield manifest["spec"][name]["matchLabels"]


@pytest.mark.parametrize(
    ("case", "kind"), [("full", "ScaledObject"), ("hpa", "HorizontalPodAutoscaler")]
)
def test_a_scaler_has_the_workload_to_itself(case: str, kind: str) -> None:
    found = objects(case)
    target = found[kind]["spec"]["scaleTargetRef"]
    owner = workload(found)
    assert (owner["kind"], owner["metadata"]["name"]) == (target["kind"], target["name"])
    assert "replicas" not in owner["spec"]


def test_keda_watches_the_groups_and_topics_of_the_worker(tmp_path: Path) -> None:
    found = objects("full")
    config = loaded(found, tmp_path)
    triggers = [each["metadata"] for each in found["ScaledObject"]["spec"]["triggers"]]
    assert [(p.group_id, topic) for p in config.pipelines for topic in p.topics] == [
        (each["consumerGroup"], each["topic"]) for each in triggers
    ]
    assert {",".join(config.kafka.bootstrap_servers)} == {t["bootstrapServers"] for t in triggers}
    assert {(each["sasl"], each["tls"]) for each in triggers} == {("scram_sha512", "enable")}


def test_keda_knows_the_groups_that_the_worker_derives(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"autoscaling.type": "keda"}
    found = with_minimal(tmp_path, **settings)
    (trigger,) = found["ScaledObject"]["spec"]["triggers"]
    (pipeline,) = loaded(found, tmp_path).pipelines
    assert pipeline.group_id == trigger["metadata"]["consumerGroup"]
    assert "authenticationRef" not in trigger


def test_the_hpa_asks_for_an_existing_metric() -> None:
    pods, _ = objects("hpa")["HorizontalPodAutoscaler"]["spec"]["metrics"]
    name = pods["pods"]["metric"]["name"].removeprefix("stream_dedup_")
    assert name in GAUGES


# ------------------------------------------------------------ the page


def page_values() -> list[str]:
    return [b.text for b in blocks(PAGE) if b.language == "text" and b.text.startswith("# values")]


@pytest.mark.parametrize("text", page_values())
def test_the_values_that_the_page_shows_are_taken(text: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text, "utf-8")
    done = helm_chart.template(MINIMAL, file, home=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded(manifests(done.stdout), tmp_path)


def test_the_page_shows_values() -> None:
    assert page_values()
