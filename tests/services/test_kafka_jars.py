"""Kafka is fetched once, by whoever comes first, and a failure says what to do."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.services import debian, kafka_jars
from tests.services.kafka import find_kafka


def test_without_java_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "may_install", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    remedy = r"no java.*default-jre-headless maven.*=host:port.*=docker"
    with pytest.raises(pytest.fail.Exception, match=remedy):
        kafka_jars.find_java.__wrapped__()


def test_what_is_missing_is_installed_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    apt = tmp_path / "bin" / "apt-get"
    apt.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n'
        f"[ $4 = update ] || /bin/cp $0 {tmp_path}/bin/java\n"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert kafka_jars.find_java.__wrapped__() == tmp_path / "bin" / "java"
    asked = (tmp_path / "asked").read_text()
    assert "install -y --no-install-recommends default-jre-headless\n" in asked
    assert "maven" not in asked


def test_test_runs_that_start_at_once_fetch_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _fake_maven(monkeypatch, tmp_path, f"echo >>{tmp_path}/runs; sleep 0.3; mkdir lib")
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: find_kafka.__wrapped__(), range(4)))
    assert {tmp_path / "kafka" / "lib"} == found
    assert (tmp_path / "runs").read_text() == "\n"


def test_a_fetch_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _fake_maven(monkeypatch, tmp_path, "mkdir lib; touch lib/half.jar; echo no network; exit 1")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)mirror.*no network"):
        find_kafka.__wrapped__()
    assert list((tmp_path / "kafka").iterdir()) == []


def _fake_maven(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> None:
    maven = directory / "mvn"
    maven.write_text(f"#!/bin/sh\n{script}\n")
    maven.chmod(0o755)
    monkeypatch.setattr(kafka_jars, "_HOME", directory / "kafka")
    monkeypatch.setattr(kafka_jars, "_find", lambda _program: maven)
