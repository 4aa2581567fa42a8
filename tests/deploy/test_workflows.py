"""The GitHub workflows are valid, pinned, and limited in time and rights."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.services.helm import built

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = "v1.7.12"
TIMEOUT_S = 60

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

USED = re.compile(r"^ *-? *uses: (.+)$", re.MULTILINE)
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+(\.\d+)*")
"""An action's commit, which nobody can move to other code, and the version that it is."""


def named(path: Path) -> str:
    return path.name


def jobs() -> dict[str, dict[str, Any]]:
    """All jobs, by their workflow's name and their own."""
    found = {}
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text("utf-8"))["jobs"].items():
            found[f"{path.stem} {name}"] = job
    return found


def test_actionlint_finds_nothing() -> None:
    # Its helpers are not on every machine, and would find other things on each.
    linter = built("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", ACTIONLINT)
    command = [str(linter), "-no-color", "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_workflows_are_these() -> None:
    assert {path.stem for path in WORKFLOWS} == {"audit", "image", "release", "site", "tests"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_actions_are_pinned_to_commits(path: Path) -> None:
    used = USED.findall(path.read_text("utf-8"))
    assert used
    assert [action for action in used if not PINNED.fullmatch(action)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=named)
def test_a_workflow_has_no_rights_and_runs_once_at_a_time(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["group"] == "${{ github.workflow }}-${{ github.ref }}"


@pytest.mark.parametrize(("name", "job"), list(jobs().items()))
def test_a_job_has_a_timeout_and_writes_from_main_or_a_tag(name: str, job: dict[str, Any]) -> None:
    assert 0 < job["timeout-minutes"] <= 90
    if "write" in job["permissions"].values():
        of_main, of_tags = "github.ref == 'refs/heads/main'", "github.ref_type == 'tag'"
        assert job["if"] == (of_main if name.startswith("site ") else of_tags)


@pytest.mark.parametrize(("name", "job"), list(jobs().items()))
def test_a_job_keeps_no_credentials_and_its_scripts_are_fixed(
    name: str, job: dict[str, Any]
) -> None:
    del name
    for step in job["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert "${{" not in step.get("run", "")


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    scripts = [step.get("run", "") for job in jobs().values() for step in job["steps"]]
    lines = "\n".join(scripts)
    targets = set(re.findall(r"^make ([\w-]+)", lines, re.MULTILINE))
    assert targets == {"audit", "sbom", "site", "test-all", "test-docker", "test-helm"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_wheels_are_built_for_every_supported_python() -> None:
    project = PROJECT["project"]
    start = "Programming Language :: Python :: 3."
    promised = {each.removeprefix(start) for each in project["classifiers"] if start in each}
    wheels = PROJECT["tool"]["cibuildwheel"]["build"].split()
    tried = jobs()["tests test"]["strategy"]["matrix"]["python"]
    assert {f"cp3{minor}-*" for minor in promised} == set(wheels)
    assert {f"3.{minor}" for minor in promised} >= set(tried)
    assert project["requires-python"] == f">=3.{min(promised, key=int)}"
