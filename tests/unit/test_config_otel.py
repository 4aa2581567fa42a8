"""The section ``[otel]``: who gives it, what is refused, and that headers stay secret."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk import environment_variables

from docs.blocks import ROOT, blocks
from stream_dedup.assembly import make_telemetry
from stream_dedup.config import Loaded, OtelConfig, load
from stream_dedup.config.checks import Finding, check_otel
from stream_dedup.config.document import effective
from stream_dedup.config.sections import read_headers
from stream_dedup.config.sources import OTEL_DISABLED, OTEL_INTERVAL_MS, OTEL_VARIABLES
from stream_dedup.config.values import HIDDEN
from stream_dedup.errors import ConfigError
from stream_dedup.worker.telemetry.prometheus import PrometheusMetrics
from tests.services.otlp import METRICS, TRACES, OtlpReceiver

SECRET = "hunter2-s3cret"  # noqa: S105 -- looked for in all that is shown
PIPELINE = {"pipelines.0.topics": "a", "pipelines.0.output_topic": "b"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("OTEL_", "STREAM_DEDUP_")):
            monkeypatch.delenv(name)


def loaded(**settings: object) -> Loaded:
    given = {**PIPELINE, **{f"otel.{key}": value for key, value in settings.items()}}
    return load(settings=[f"{key}={value}" for key, value in given.items()])


def otel(**settings: object) -> OtelConfig:
    return loaded(**settings).config.otel


def refused(**settings: object) -> str:
    """What is said of settings that are wrong."""
    with pytest.raises(ConfigError) as caught:
        loaded(enabled=True, **settings)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    [problem] = caught.value.problems
    assert problem.problem
    return f"{problem.key}: {problem.problem}"


# ------------------------------------------------------------ values


def test_nothing_is_sent_until_it_is_asked_for() -> None:
    assert not otel().enabled


def test_both_go_to_one_endpoint_or_each_to_its_own() -> None:
    found = otel(endpoint="https://c:4318/otlp/")
    assert found.traces_url == "https://c:4318/otlp/v1/traces"
    assert found.metrics_url == "https://c:4318/otlp/v1/metrics"
    found = otel(traces_endpoint="http://t:1/x", metrics_endpoint="http://m:2/y")
    assert (found.traces_url, found.metrics_url) == ("http://t:1/x", "http://m:2/y")


def test_each_can_be_left_out() -> None:
    assert otel(sample_ratio=0).traces_url == ""
    assert otel(metrics_every_s="off").metrics_url == ""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"endpoint": "collector:4318"}, "otel.endpoint: is not the URL of a collector"),
        ({"endpoint": "grpc://c:4317"}, "otel.endpoint: is not the URL of a collector"),
        ({"endpoint": ""}, "otel.endpoint: is not the URL of a collector"),
        ({"endpoint": "http://"}, "otel.endpoint: is not the URL of a collector"),
        ({"endpoint": "http://h:0"}, "otel.endpoint: is not the URL of a collector"),
        ({"endpoint": "http://h/a b"}, "otel.endpoint: is not the URL of a collector"),
        ({"endpoint": "http://[::1"}, "otel.endpoint: is not a URL"),
        ({"endpoint": "http://h:99999"}, "otel.endpoint: is not a URL"),
        ({"endpoint": f"http://u:{SECRET}@h"}, "otel.endpoint: holds a user or a password"),
        ({"endpoint": "http://h?a=b"}, "otel.endpoint: has something behind a ? or #"),
        ({"traces_endpoint": "h"}, "otel.traces_endpoint: is not the URL of a collector"),
        ({"metrics_endpoint": "h"}, "otel.metrics_endpoint: is not the URL of a collector"),
        ({"protocol": "grpc"}, "otel.protocol: is 'grpc', which is not supported"),
        ({"headers": SECRET}, "otel.headers: number 1 has no name and value"),
        ({"headers": f"a=b,a b={SECRET}"}, "otel.headers: number 2 has no name and value"),
        (
            {"headers": f"a={SECRET}%0D%0Ab: c"},
            "otel.headers: number 1 has a value of other characters than ASCII's",
        ),
        ({"sample_ratio": 1.5}, "otel.sample_ratio: '1.5' is more than 1.0"),
        ({"sample_ratio": "nan"}, "otel.sample_ratio: 'nan' is not a number"),
        ({"timeout_s": "off"}, "otel.timeout_s: may not be off or infinite"),
        ({"metrics_every_s": 0}, "otel.metrics_every_s: is not above 0"),
    ],
)
def test_what_is_wrong_is_refused(settings: dict[str, object], says: str) -> None:
    assert refused(**settings) == says


def test_what_is_wrong_does_not_matter_while_nothing_is_sent() -> None:
    assert otel(endpoint="collector", protocol="grpc", headers="x").endpoint == "collector"


def test_headers_are_read_as_the_standard_writes_them() -> None:
    assert read_headers("") == {}
    assert read_headers(" A = b ,, c=d=e%2C%20f ") == {"a": "b", "c": "d=e, f"}
    assert read_headers("a=%20b%20c%09,d=%09e") == {"a": "b c", "d": "e"}  # no part of a value


def test_headers_are_secret(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"authorization=Bearer {SECRET}\n")
    for given in (
        loaded(enabled=True, headers=f"authorization=Bearer {SECRET}"),
        loaded(enabled=True, headers_file=file),
    ):
        assert given.config.otel.read_headers() == {"authorization": f"Bearer {SECRET}"}
        assert SECRET not in repr(given) + str(list(effective(given)))


# ------------------------------------------------------------ the standard's variables


def origin(found: Loaded, key: str) -> tuple[object, str]:
    return next((value, where) for name, value, where in effective(found) if name == f"otel.{key}")


def test_ours_override_the_standards_variables_and_these_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "worker.toml"
    file.write_text(
        '[otel]\nenabled = true\nendpoint = "http://file:1"\nmetrics_every_s = "1s"\n'
        'traces_endpoint = "http://file:2"\n[[pipelines]]\ntopics = ["a"]\noutput_topic = "b"\n'
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://standard:2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET}")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "30000")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    monkeypatch.setenv("STREAM_DEDUP__OTEL__METRICS_ENDPOINT", "http://ours:2")
    found = load(str(file))
    assert origin(found, "endpoint") == ("http://standard:1", "OTEL_EXPORTER_OTLP_ENDPOINT")
    assert ("http://file:2", str(file)) == origin(found, "traces_endpoint")
    assert found.config.otel.metrics_url == "http://ours:2"
    assert origin(found, "metrics_every_s") == ("30s", "OTEL_METRIC_EXPORT_INTERVAL")
    assert origin(found, "headers") == (HIDDEN, "OTEL_EXPORTER_OTLP_HEADERS")
    flagged = load(str(file), ["otel.endpoint=http://flag:1"])
    assert origin(flagged, "endpoint") == ("http://flag:1", "--set")


@pytest.mark.parametrize("value", ["", "0", "soon", "-1", "²"])
def test_an_interval_that_is_not_a_number_is_ignored(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", value)
    assert otel(enabled=True).metrics_every_s == 15


def test_the_standard_can_turn_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "worker.toml"
    file.write_text('[otel]\nenabled = true\n[[pipelines]]\ntopics = ["a"]\noutput_topic = "b"\n')
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not load(str(file)).config.otel.enabled
    assert load(str(file), ["otel.enabled=true"]).config.otel.enabled


def test_others_variables_do_not_matter_while_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://u:{SECRET}@h")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    found = loaded()
    assert found.config.otel.endpoint == "http://127.0.0.1:4318"
    assert SECRET not in str(list(effective(found)))
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL: otel"):
        loaded(enabled=True, endpoint="http://h")


def test_the_page_shows_settings_and_variables_that_exist(tmp_path: Path) -> None:
    (tmp_path / "otlp-headers").write_text("authorization=Bearer x\n")
    page = ROOT / "docs" / "how-to" / "opentelemetry.md"
    shown = [block for block in blocks(page) if block.language == "toml"]
    assert len(shown) > 1
    for block in shown:
        file = tmp_path / "worker.toml"
        file.write_text(f'{block.text}\n[[pipelines]]\ntopics = ["a"]\noutput_topic = "b"\n')
        assert load(str(file)).config.otel.enabled
    named = set(re.findall(r"`(OTEL_[A-Z_]+)`", page.read_text("utf-8")))
    assert {*OTEL_VARIABLES, OTEL_DISABLED, OTEL_INTERVAL_MS} <= named
    standards = {
        value for name, value in vars(environment_variables).items() if name.startswith("OTEL_")
    }
    assert named - standards == set()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_BSP_MAX_QUEUE_SIZE", "0"), ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "x")],
)
def test_a_variable_that_the_sdk_refuses_is_a_wrong_configuration(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    config = loaded(enabled=True, metrics_every_s="off").config
    with pytest.raises(ConfigError, match="environment: a variable of OpenTelemetry's cannot be"):
        make_telemetry(config, PrometheusMetrics())


# ------------------------------------------------------------ the check


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as running:
        yield running


def checked(within_s: float = 10.0, **settings: object) -> list[Finding]:
    section = otel(enabled=True, **settings)

    async def all_of_it() -> list[Finding]:
        return [found async for found in check_otel(section, within_s)]

    return asyncio.run(all_of_it())


def test_the_check_sends_nothing_and_sees_it_taken(receiver: OtlpReceiver) -> None:
    found = checked(endpoint=receiver.url, headers=f"authorization={SECRET}")
    assert found == [
        ("ok", f"otel {receiver.url}{TRACES}", "takes traces"),
        ("ok", f"otel {receiver.url}{METRICS}", "takes metrics"),
    ]
    assert [each.headers["authorization"] for each in receiver.requests()] == [SECRET] * 2
    assert receiver.spans() == []
    assert receiver.metrics() == {}


def test_the_check_says_what_a_collector_does_not_take(receiver: OtlpReceiver) -> None:
    receiver.status = 401
    traces, metrics = checked(endpoint=receiver.url, headers=f"authorization={SECRET}")
    assert (traces.level, metrics.level) == ("warning", "warning")
    assert "takes no traces: " in traces.text
    assert "401" in traces.text
    assert "the worker would go on without it" in metrics.text
    assert SECRET not in traces.text + metrics.text


def test_the_check_reports_a_redirection(receiver: OtlpReceiver) -> None:
    receiver.status = 308
    traces, metrics = checked(endpoint=receiver.url)
    assert (traces.level, metrics.level) == ("warning", "warning")
    assert "leads elsewhere (308 Permanent Redirect); give the address" in traces.text


@pytest.mark.parametrize("value", [SECRET, f"authorization=a%0A{SECRET}", f"a={SECRET}é"])
def test_the_check_repeats_no_header_that_cannot_be_sent(
    receiver: OtlpReceiver,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("opentelemetry.util.re").setLevel(logging.NOTSET)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", value)
    found = checked(endpoint=receiver.url)
    assert len(found) == 2
    assert SECRET not in str(found) + caplog.text


def test_the_check_says_which_variable_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nobody")
    [found] = checked()
    assert found.level == "error"
    assert "'nobody' not found" in found.text


def test_the_check_reports_a_refused_connection() -> None:
    with OtlpReceiver() as gone:
        url = gone.url
    [found] = checked(endpoint=url, metrics_every_s="off")
    assert found.level == "warning"
    assert "Connection refused" in found.text


def test_the_check_keeps_its_time_limit(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.hang.clear()
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    caplog.set_level(logging.WARNING, "opentelemetry.exporter")
    [found] = checked(endpoint=receiver.url, sample_ratio=0, within_s=0.5)
    assert found.level == "warning"


def test_without_the_extra_both_commands_say_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").write_text("")
    code = "import sys; from stream_dedup.cli.main import main; main()"
    flags = [f"--set={key}={value}" for key, value in PIPELINE.items()]
    flags += ["--set=otel.enabled=true", "--set=index.kind=memory", "--set=http.port=0"]
    flags += ["--set=kafka.bootstrap_servers=127.0.0.1:1"]
    outcome = {}
    for command in (["run"], ["config", "check", "--timeout", "1", "--format", "json"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *command, *flags],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        outcome[command[0]] = done
    remedy = "pip install 'stream-dedup[otel]', or set"
    ran = outcome["run"]
    assert ran.returncode == 2
    assert "configuration: otel.enabled: is true, but opentelemetry" in ran.stderr
    assert f"is not installed; {remedy} it to false" in ran.stderr
    assert outcome["config"].returncode == 1
    assert f"is not installed; {remedy} otel.enabled to false" in outcome["config"].stdout
