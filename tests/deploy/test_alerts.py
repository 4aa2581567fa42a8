"""The alert rules are valid for Prometheus's promtool, and the runbook has a remedy for each."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.blocks import ROOT, blocks
from stream_dedup.metrics import FIXED, METRICS, PREFIX
from tests.docs.test_docs import anchors
from tests.services.prometheus import promtool

PROMETHEUS = ROOT / "deploy" / "prometheus"
OPERATIONS = ROOT / "docs" / "how-to" / "operations.md"
RUNBOOK = ROOT / "docs" / "how-to" / "runbook.md"
RUNBOOK_URL = "https://github.com/stream-dedup/stream-dedup/blob/main/docs/how-to/runbook.md#"

OF_PROMETHEUS = {"up", "process_start_time_seconds"}
"""Metrics of Prometheus and the client library beside the worker's own."""

DOCUMENT: dict[str, Any] = msgspec.yaml.decode((PROMETHEUS / "alerts.yaml").read_bytes())
ALERTS = {rule["alert"]: rule for group in DOCUMENT["groups"] for rule in group["rules"]}
CASES: list[dict[str, Any]] = msgspec.yaml.decode((PROMETHEUS / "alerts_test.yaml").read_bytes())[
    "tests"
]

alerts = pytest.mark.parametrize("name", ALERTS)


def metrics_of(text: str) -> set[str]:
    """The metrics of an expression, without the ends that parts of histograms have."""
    names = set(re.findall(rf"\b{PREFIX}(\w+)", text))
    return {metric_of(name) for name in names}


def metric_of(series: str) -> str:
    return series if series in METRICS else re.sub("_(bucket|count|sum)$", "", series)


# ------------------------------------------------------------ promtool


@pytest.mark.parametrize(
    "command",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "--lint-fatal", "alerts.yaml"),
        ("test", "rules", "alerts_test.yaml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing_wrong(command: tuple[str, ...]) -> None:
    done = promtool(*command, directory=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_the_unit_tests_notice_a_rule_that_never_fires(tmp_path: Path) -> None:
    shutil.copy(PROMETHEUS / "alerts_test.yaml", tmp_path)
    text = (PROMETHEUS / "alerts.yaml").read_text("utf-8")
    assert "stream_dedup_ready == 0\n        for" in text
    broken = text.replace("stream_dedup_ready == 0\n        for", "vector(0) > 1\n        for")
    (tmp_path / "alerts.yaml").write_text(broken, "utf-8")
    done = promtool("test", "rules", "alerts_test.yaml", directory=tmp_path)
    assert done.returncode != 0
    assert "StreamDedupNotReady" in done.stdout + done.stderr


@alerts
def test_an_alert_has_unit_tests_that_fire_and_do_not(name: str) -> None:
    fires: list[str] = []
    silent: list[str] = []
    for case in CASES:
        if not case["name"].startswith(f"{name} ") or "promql_expr_test" not in case:
            continue
        (test,) = case["promql_expr_test"]
        assert test["expr"] == 'count by (alertname) (ALERTS{alertstate="firing"})'
        given = " ".join(series["series"] for series in case["input_series"])
        assert metrics_of(given) <= set(METRICS)
        named = metrics_of(given) or set(re.findall(r"\w+(?=\{)", given))
        asked = metrics_of(ALERTS[name]["expr"])
        assert named & (asked or OF_PROMETHEUS), "the test gives it nothing to judge"
        (fires if test["exp_samples"] else silent).append(case["name"])
        if test["exp_samples"]:
            expected = [{"labels": f'{{alertname="{name}"}}', "value": 1}]
            assert test["exp_samples"] == expected
    assert all(f"{name} fires" in case for case in fires)
    assert all(f"{name} is silent" in case for case in silent)
    assert fires
    assert silent


def test_every_unit_test_names_an_existing_alert() -> None:
    assert {case["name"].split()[0] for case in CASES} == set(ALERTS)


# ------------------------------------------------------------ what the rules say


@alerts
def test_metrics_and_labels_of_an_alert_exist(name: str) -> None:
    expression = ALERTS[name]["expr"]
    metrics = metrics_of(expression)
    assert metrics <= set(METRICS)
    assert metrics or any(each in expression for each in OF_PROMETHEUS)
    has = {"job", "instance", "le"}.union(*(METRICS[metric].labels for metric in metrics))
    grouped = {
        label
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
        for label in labels.split(", ")
    }
    assert grouped <= has
    for metric, chosen in re.findall(rf"\b{PREFIX}(\w+)\{{([^}}]*)\}}", expression):
        for label, value in re.findall(r'(\w+)!?="([^"]*)"', chosen):
            assert label in METRICS[metric_of(metric)].labels
            assert value in FIXED[label]


@alerts
def test_an_alert_has_severity_summary_and_remedy(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    texts = rule["annotations"]
    assert all(text.endswith(".") for text in (texts["summary"], texts["description"]))
    assert "$labels." in texts["summary"], "it does not say which one"
    by = set(re.findall(r"\bby \(([^)]*)\)", rule["expr"]))
    kept = {label for labels in by for label in labels.split(", ")} - {"le"}
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(texts.values())))
    assert named <= (kept or {"job", "instance"})
    assert texts["runbook_url"] == RUNBOOK_URL + name.lower()


@alerts
def test_the_runbook_explains_every_alert_and_its_remedy(name: str) -> None:
    _, _, below = RUNBOOK.read_text("utf-8").partition(f"\n### {name}\n")
    section = re.split(r"^##", below, maxsplit=1, flags=re.MULTILINE)[0]
    parts = re.findall(r"^\*\*(.+?)\*\*", section, re.MULTILINE)
    assert parts == ["It means", "Look", "Do", "Do not"]
    asked = metrics_of(ALERTS[name]["expr"]) - {"ready", "decisions_total"}
    assert asked <= metrics_of(section), "it does not say how to see what the alert saw"


def test_the_runbook_has_one_section_for_each_alert() -> None:
    headings = re.findall(r"^### (StreamDedup\w+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    assert headings == list(ALERTS)
    assert {name.lower() for name in ALERTS} <= anchors(RUNBOOK)


def test_the_queries_of_the_runbook_are_promql(tmp_path: Path) -> None:
    queries = [
        line
        for block in blocks(RUNBOOK)
        if block.language == "text"
        for line in block.text.splitlines()
    ]
    rules = [{"record": f"line:{at}", "expr": query} for at, query in enumerate(queries)]
    groups = {"groups": [{"name": "runbook", "rules": rules}]}
    (tmp_path / "rules.yaml").write_bytes(msgspec.yaml.encode(groups))
    done = promtool("check", "rules", "rules.yaml", directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(queries)} rules found" in done.stdout
    assert metrics_of("\n".join(queries)) <= set(METRICS)


def test_alerts_and_the_operations_table_name_the_same_metrics() -> None:
    _, _, below = OPERATIONS.read_text("utf-8").partition("\n## What to alert on\n")
    rows = re.findall(r"^\| `(\w+)`[^|]*\|", below.partition("\n## ")[0], re.MULTILINE)
    judged = set().union(
        *(metrics_of(rule["expr"]) for rule in ALERTS.values()),
        *(set(re.findall(r"\w+", rule["expr"])) & OF_PROMETHEUS for rule in ALERTS.values()),
    )
    compared = {"decisions_total", "events_total", "outputs_total", "stage_seconds"}
    assert set(rows) == judged - compared
