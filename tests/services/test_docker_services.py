"""When tests of containers are skipped, and when they fail, before any engine runs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services import docker
from tests.services.docker import Engine
from tests.services.docker_images import STAND_INS, settings
from tests.services.processes import REPOSITORY, ServiceError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that are found first, and a cache of the test's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(docker, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(docker, "_RUN", tmp_path / "cache" / "docker-run")
    return folder


def engine_that_says(programs: Path, words: str) -> None:
    """Start an engine that ends at once."""
    for name, code in (("dockerd", 1), ("docker", 1)):
        program = programs / name
        program.write_text(
            f"#!/bin/sh\necho 'level=info msg=starting'; echo '{words}'\nexit {code}\n"
        )
        program.chmod(0o755)
    with ExitStack() as stack, Engine(stack, programs / "docker"):
        pass


@pytest.mark.parametrize(
    "words",
    [
        "failed to start daemon: Error initializing network controller: Operation not permitted",
        "failed to mount overlay: permission denied",
        "dockerd needs to be started with root privileges.",
    ],
)
def test_where_the_kernel_lets_nobody_run_an_engine_its_words_are_the_reason(
    programs: Path, words: str
) -> None:
    with pytest.raises(pytest.skip.Exception, match="no Docker engine can run here") as skipped:
        engine_that_says(programs, words)
    assert words in str(skipped.value)


def test_whatever_else_ends_an_engine_is_a_failure(programs: Path) -> None:
    with pytest.raises(ServiceError, match="no space left on device"):
        engine_that_says(programs, "failed to start daemon: no space left on device")


def test_every_image_that_may_have_a_stand_in_is_named_once() -> None:
    recipes = (REPOSITORY / "tests" / "services" / "images" / "Dockerfile").read_text("utf-8")
    for variable, service in STAND_INS.items():
        assert variable in settings()
        assert f" AS {service}\n" in recipes
    with_image = {name for name in settings() if name.endswith("_IMAGE")}
    assert {"GRAFANA_IMAGE", "STREAM_DEDUP_IMAGE"} == with_image - set(STAND_INS)
