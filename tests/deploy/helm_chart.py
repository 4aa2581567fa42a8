"""Render the chart with Helm.

``python -m tests.deploy.helm_chart`` writes the golden files again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.services.helm import KUBERNETES, helm

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "stream-dedup"

_FOLDER = Path(__file__).with_name("helm")
CASES = sorted(path.stem for path in (_FOLDER / "values").glob("*.yaml"))
"""Sets of values, each with a golden file."""

RELEASE = "logs"
NAMESPACE = "streams"

REFRESH = "run `python -m tests.deploy.helm_chart` and read what it changes"

Manifest = dict[str, Any]


def values_of(case: str) -> Path:
    return _FOLDER / "values" / f"{case}.yaml"


def golden_of(case: str) -> Path:
    return _FOLDER / "golden" / f"{case}.yaml"


def template(
    *values: Path,
    home: Path,
    settings: dict[str, Any] | None = None,
    release: str = RELEASE,
    chart: Path = CHART,
) -> subprocess.CompletedProcess[str]:
    """Run `helm template`.

    Args:
        values: files of values, the last wins.
        home: where Helm may keep files of its own.
        settings: single values over them, by their dotted names.
        release: the release's name.
        chart: the chart's folder.
    """
    return helm(
        *["template", release, str(chart), "--namespace", NAMESPACE],
        *["--kube-version", f"{KUBERNETES[-1]}.0"],
        *[word for path in values for word in ("--values", str(path))],
        *_set(settings or {}),
        home=home,
    )


def lint(*values: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run `helm lint --strict`."""
    files = [word for path in values for word in ("--values", str(path))]
    return helm("lint", "--strict", str(CHART), *files, home=home)


def manifests(text: str) -> dict[str, Manifest]:
    """Kind → the object of that kind; a chart has one of each at most.

    Objects of the web application are named apart: `ui Service`.
    """
    found = [each for each in yaml.safe_load_all(text) if each]
    kinds = {_kind(each): each for each in found}
    assert len(kinds) == len(found)
    return kinds


def _kind(manifest: Manifest) -> str:
    labels = manifest.get("metadata", {}).get("labels", {})
    of_ui = labels.get("app.kubernetes.io/component") == "ui"
    return f"ui {manifest['kind']}" if of_ui else str(manifest["kind"])


def _set(settings: dict[str, Any]) -> list[str]:
    given = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return [word for setting in given for word in ("--set-json", setting)]


def refresh() -> int:
    """Write the golden files again; 1 if Helm refuses a case."""
    for case in CASES:
        with tempfile.TemporaryDirectory() as home:
            done = template(values_of(case), home=Path(home))
        if done.returncode:
            sys.stderr.write(f"{values_of(case)}: {done.stderr}")
            return 1
        golden_of(case).write_text(done.stdout, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(refresh())
