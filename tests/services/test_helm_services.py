"""A missing tool is named, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services import helm


@pytest.fixture
def nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helm, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("nothing_is_there")
@pytest.mark.parametrize(
    ("program", "find"),
    [
        ("helm", helm.find_helm.__wrapped__),
        ("kubeconform", helm.find_kubeconform.__wrapped__),
    ],
)
def test_without_go_the_remedy_is_named(program: str, find: Callable[[], Path]) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"{program}, which needs Go: install Go 1.24"):
        find()


@pytest.mark.usefixtures("nothing_is_there")
def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho no way to the proxy >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(pytest.fail.Exception, match=r"GOPROXY\):\nno way to the proxy"):
        helm.find_helm.__wrapped__()
    assert list((tmp_path / "cache" / "bin").iterdir()) == []


@pytest.mark.usefixtures("nothing_is_there")
def test_without_the_registry_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(
        pytest.fail.Exception, match=r"could not be had from PyPI .kubernetes-valid"
    ):
        helm.find_schemas.__wrapped__()
