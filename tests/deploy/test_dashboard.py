"""The dashboard for operators is up to date, and its queries use metrics that workers export."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest

from docs.blocks import ROOT
from docs.dashboard import DASHBOARD, UID, dashboard_json
from docs.grafana import COLUMNS, Unit
from docs.promql import increase, metrics_in, or_zero, quantile, rate, values
from stream_dedup.metrics import FIXED, HISTOGRAMS, METRICS, PREFIX

PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
EVERYWHERE = {"job", "instance"}
MADE: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
PANELS = [panel for panel in MADE["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_dashboard_is_up_to_date() -> None:
    assert dashboard_json() == DASHBOARD.read_text("utf-8"), "run `make docs`"


# ------------------------------------------------------------ what it asks for


def shown_labels(name: str) -> set[str]:
    """The labels that a series has, of a metric or of a part of a histogram."""
    if name in PROCESS:
        return EVERYWHERE
    metric = name.removeprefix(PREFIX)
    if metric in METRICS and metric not in HISTOGRAMS:
        return EVERYWHERE | set(METRICS[metric].labels)
    metric, _, part = metric.rpartition("_")
    assert metric in HISTOGRAMS, f"{name} is not exported by workers"
    assert part in {"bucket", "sum", "count"}, name
    return EVERYWHERE | set(METRICS[metric].labels) | ({"le"} if part == "bucket" else set())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_and_labels_of_an_expression_exist(expression: str) -> None:
    series = re.findall(r"\b((?:stream_dedup|process)_\w+)\{([^}]*)\}", expression)
    assert len(series) == len(re.findall(r"\b(?:stream_dedup|process)_", expression)) > 0
    for name, chosen in series:
        has = shown_labels(name)
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', chosen):
            assert label in has, f"{name} has no label {label}"
            assert value == f"${label}" or value in FIXED[label]
        assert {label for label, _ in re.findall(r'(\w+)=~("\$)', chosen)} >= EVERYWHERE
        assert ("pipeline" in has) == ('pipeline=~"$pipeline"' in chosen)
    every = set().union(*(shown_labels(name) for name, _ in series))
    for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        assert set(filter(None, labels.split(", "))) <= every


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_legend_names_labels_that_the_expression_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        kept = re.findall(r"\bby \(([^)]*)\)", target["expr"])
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert target["legendFormat"]
        assert named <= {label for labels in kept for label in labels.split(", ")}


def test_every_metric_is_on_it() -> None:
    shown = {name for expression in EXPRESSIONS for name in metrics_in(expression)}
    assert shown == set(METRICS)


# ------------------------------------------------------------ how it looks


def test_it_keeps_its_address_and_accepts_any_datasource() -> None:
    assert (MADE["uid"], UID) == (UID, "stream-dedup-worker")
    assert MADE["title"]
    assert not {"id", "version"} & set(MADE)  # Grafana's own, which differ by installation
    variables = {variable["name"]: variable for variable in MADE["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "pipeline", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    asked = [target["datasource"] for panel in PANELS for target in panel["targets"]]
    asked += [panel["datasource"] for panel in PANELS]
    asked += [each["datasource"] for name, each in variables.items() if name != "datasource"]
    assert {(each["type"], each["uid"]) for each in asked} == {("prometheus", "${datasource}")}


def test_panels_have_titles_units_and_words() -> None:
    ids = [panel["id"] for panel in MADE["panels"]]
    assert sorted(set(ids)) == ids
    for panel in PANELS:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in get_args(Unit)
        names = {name for target in panel["targets"] for name in metrics_in(target["expr"])}
        assert all(METRICS[name].help in panel["description"] for name in names)
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_titles_of_a_row_are_unique() -> None:
    rows: list[list[str]] = []
    for panel in MADE["panels"]:
        if panel["type"] == "row":
            rows.append([])
        rows[-1].append(panel["title"])
    titles = [title for title, *_ in rows]
    wanted = [
        "Overview",
        "Progress",
        "Decisions",
        "Batches",
        "Redis",
        "Index",
        "Kafka",
        "Invalid events",
        "Workers",
    ]
    assert wanted == titles
    assert all(len(set(row)) == len(row) for row in rows)


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in MADE["panels"]]
    assert all(0 <= place["x"] <= COLUMNS - place["w"] for place in places)
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    order = [(place["y"], place["x"]) for place in places]
    assert all(first < second for first, second in pairwise(order))


# ------------------------------------------------------------ what is not in the table


def test_a_name_or_label_that_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such metric as 'events'"):
        rate("events")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has the labels"):
        rate("events_total", "reason")
    with pytest.raises(ValueError, match="has the labels"):
        increase("events_total", reason="late")
    with pytest.raises(ValueError, match="decision is one of"):
        rate("decisions_total", decision="duplicates")
    with pytest.raises(ValueError, match="has the labels"):
        quantile(0.5, "redis_seconds", "stage")
    with pytest.raises(ValueError, match="has the labels"):
        or_zero(rate("passed_total", "reason"), "commits_total", "reason")
    with pytest.raises(ValueError, match="has the labels"):
        values("pipeline", "ready")


# ------------------------------------------------------------ how Grafana finds it


def test_provisioning_names_datasource_and_dashboard_folder() -> None:
    (source,) = (PROVISIONING / "datasources").iterdir()
    (given,) = msgspec.yaml.decode(source.read_bytes())["datasources"]
    assert (given["type"], given["isDefault"]) == ("prometheus", True)
    (provider,) = (PROVISIONING / "dashboards").iterdir()
    (found,) = msgspec.yaml.decode(provider.read_bytes())["providers"]
    assert found["type"] == "file"
    assert found["options"]["path"].startswith("/")
    assert list(DASHBOARD.parent.iterdir()) == [DASHBOARD]
