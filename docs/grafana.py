"""A Grafana dashboard's JSON, made of rows of panels.

Grafana gives panels a place on a grid of 24 columns. Here they flow: from left to right, and into
the next line where there is no more room. A panel's description is what the table of metrics says
of the metrics in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from docs.promql import metrics_in, values
from stream_dedup.metrics import METRICS

COLUMNS = 24
SCHEMA_VERSION = 39
"""The layout of the JSON: Grafana 10.4's. Later ones bring it up to theirs."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Unit = Literal["short", "percentunit", "s", "eps", "cps", "Bps", "bytes", "dateTimeAsIso"]
"""Grafana's names: a number, a share of 1, seconds, events and other things a second, bytes."""

Kind = Literal["timeseries", "stat"]
_SIZE: dict[Kind, tuple[int, int]] = {"timeseries": (8, 8), "stat": (4, 4)}


class Query(NamedTuple):
    """An expression and what its lines are called, as in ``{{pipeline}}``."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A panel.

    Attributes:
        title: what it shows.
        unit: of its values.
        queries: its lines.
        kind: lines over time, or the last value as a number.
        stacked: whether its lines add up to something.
        alarm: from this value on, a number is red.
        note: what to know beyond the metrics' own help.
    """

    title: str
    unit: Unit
    queries: Sequence[Query]
    kind: Kind = "timeseries"
    stacked: bool = False
    alarm: float | None = None
    note: str = ""


class Row(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


def dashboard(uid: str, title: str, rows: Sequence[Row], links: dict[str, str]) -> str:
    """The JSON text of a dashboard.

    Args:
        uid: what its address is made of; the same for ever.
        title: its name.
        rows: what it shows.
        links: names and addresses of pages about it.
    """
    document = {
        "uid": uid,
        "title": title,
        "tags": ["stream-dedup"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # the same moment is marked in all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {"title": name, "type": "link", "url": url, "targetBlank": True, "icon": "doc"}
            for name, url in links.items()
        ],
        "annotations": {"list": []},
        "templating": {"list": list(_variables())},
        "panels": list(_panels(rows)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    yield _variable("job", "Deployment", values("job", "ready"), several=False)
    yield _variable("pipeline", "Pipeline", values("pipeline", "commits_total", "job"))
    yield _variable("instance", "Worker", values("instance", "ready", "job"))


def _variable(name: str, label: str, query: str, *, several: bool = True) -> dict[str, Any]:
    every = {"text": ["All"], "value": ["$__all"]}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # whenever the time range changes
        "sort": 1,  # by the alphabet
        "multi": several,
        "includeAll": several,
        **({"allValue": ".+", "current": every} if several else {}),
    }


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number = top = 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False,
               "panels": [], "gridPos": place}  # fmt: skip
        top, left, below = top + 1, 0, top + 1
        for panel in row.panels:
            width, height = _SIZE[panel.kind]
            if left + width > COLUMNS:
                top, left = below, 0
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": width, "h": height})
            left, below = left + width, max(below, top + height)
        top = below


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    is_stat = panel.kind == "stat"
    names = dict.fromkeys(name for query in panel.queries for name in metrics_in(query.expr))
    helps = [f"{METRICS[name].help}" for name in names]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": " ".join([panel.note, *helps]).strip(),
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": DATASOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": is_stat,
                "range": not is_stat,
            }
            for at, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _STAT_OPTIONS if is_stat else _LINE_OPTIONS,
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    field: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "timeseries":
        field["color"] = {"mode": "palette-classic"}
        field["custom"] = {
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return field


_STAT_OPTIONS = {
    "colorMode": "value",
    "graphMode": "none",
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
}
_LINE_OPTIONS = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
