"""When tests of containers are skipped, and when they fail, before any engine runs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services import docker
from tests.services.docker import Docker, Engine
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
    monkeypatch.setattr(docker, "_DATA", tmp_path / "cache" / "docker")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return folder


def program(folder: Path, name: str, script: str) -> None:
    """Write a program."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def engine_that_says(programs: Path, words: str) -> None:
    """Start an engine that ends at once."""
    program(programs, "docker", "exit 1")
    (programs / "words").write_text(f"level=info msg=starting\n{words}\n")
    program(programs, "dockerd", f"cat '{programs}/words'; exit 1")
    with ExitStack() as stack, Engine(stack, programs / "docker"):
        pass


def engine_whose_containers_say(programs: Path, words: str, *, failing: str) -> None:
    """Start an engine that answers, and of whose commands one fails."""
    program(programs, "dockerd", "exec sleep 60")
    (programs / "words").write_text(f"{words}\n")
    script = f"""\
case $1 in
  version) test -n "$DOCKER_HOST" ;;
  {failing}) cat '{programs}/words' >&2; exit 125 ;;
  run) exit 127 ;;
esac"""
    program(programs, "docker", script)
    with Docker():
        pass


@pytest.mark.parametrize(
    "words",
    [
        "failed to start daemon: Error initializing network controller: Operation not permitted",
        "failed to mount overlay: permission denied",
        "dockerd needs to be started with root privileges.",
        "failed to start daemon: Devices cgroup isn't mounted",
        "failed to start daemon: iptables failed: Permission denied\n (exit status 4)",
    ],
)
def test_an_engine_the_kernel_refuses_is_skipped_with_its_reason(
    programs: Path, words: str
) -> None:
    with pytest.raises(pytest.skip.Exception, match="no Docker engine can run here") as skipped:
        engine_that_says(programs, words)
    assert str(skipped.value).endswith(": " + " ".join(words.split()))


def test_whatever_else_ends_an_engine_is_a_failure(programs: Path) -> None:
    with pytest.raises(ServiceError, match="no space left on device"):
        engine_that_says(programs, "failed to start daemon: no space left on device")


def test_an_earlier_refusal_does_not_excuse_another_failure(
    programs: Path,
) -> None:
    words = 'level=warning msg="permission denied"\nfailed to start daemon: no such disk'
    with pytest.raises(ServiceError, match="no such disk"):
        engine_that_says(programs, words)


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        ("import", "Error creating mount namespace before pivot: operation not permitted"),
        ("run", "runc create failed: mkdir /sys/fs/cgroup/cpuset/docker/0a: read-only file system"),
    ],
)
def test_a_refused_container_is_skipped_with_its_reason(
    programs: Path, failing: str, words: str
) -> None:
    with pytest.raises(pytest.skip.Exception, match="no Docker engine can run here") as skipped:
        engine_whose_containers_say(programs, words, failing=failing)
    assert str(skipped.value).endswith(f": {words}")


def test_whatever_else_keeps_a_container_from_being_made_is_a_failure(programs: Path) -> None:
    with pytest.raises(ServiceError, match="shim task: no such file"):
        engine_whose_containers_say(programs, "shim task: no such file", failing="run")


def test_a_container_that_could_be_made_is_all_that_is_asked_for(programs: Path) -> None:
    engine_whose_containers_say(programs, "", failing="nothing")


def test_every_image_that_may_have_a_stand_in_is_named_once() -> None:
    recipes = (REPOSITORY / "tests" / "services" / "images" / "Dockerfile").read_text("utf-8")
    for variable, service in STAND_INS.items():
        assert variable in settings()
        assert f" AS {service}\n" in recipes
    with_image = {name for name in settings() if name.endswith("_IMAGE")}
    assert with_image - set(STAND_INS) == {"GRAFANA_IMAGE", "STREAM_DEDUP_IMAGE"}
