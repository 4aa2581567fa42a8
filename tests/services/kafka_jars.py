"""The jars of the real Kafka, and the Java that runs them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.services.debian import find_program
from tests.services.processes import file_lock

VERSION = "4.1.0"
KAFKA_VARIABLE = "STREAM_DEDUP_TEST_KAFKA"

# Outside of the checkout, so that a fresh one, as a CI's, need not fetch again.
CACHE = Path.home() / ".cache" / "stream-dedup-tests"

_HOME = CACHE / f"kafka-{VERSION}"
_POM = Path(__file__).with_name("kafka_pom.xml")
# What Debian calls the programs' packages.
_PACKAGES = {"java": "default-jre-headless", "mvn": "maven", "javac": "default-jdk-headless"}
_REMEDY = (
    "these tests run a real Kafka broker: install Java 17 or newer and, to fetch the broker once,"
    f" Maven (Debian: apt-get install {_PACKAGES['java']} {_PACKAGES['mvn']}). Or let the tests"
    f" that need no broker of their own use another one: {KAFKA_VARIABLE}=host:port for one that"
    f" runs without security, {KAFKA_VARIABLE}=docker for a container"
)


@functools.cache
def find_kafka() -> Path:
    """The folder of Kafka's jars; fetched from Maven Central if it is not there yet.

    Several test runs may ask at once: one fetches, into a folder that is renamed when it is whole.
    """
    folder = _HOME / "lib"
    if folder.exists():
        return folder
    with file_lock(CACHE / "kafka.lock"):
        if not folder.exists():
            _HOME.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="fetch-", dir=_HOME) as half_done:
                _fetch(Path(half_done))
                (Path(half_done) / "lib").rename(folder)
    return folder


@functools.cache
def find_java() -> Path:
    return _find("java")


@functools.cache
def find_compiler() -> Path:
    remedy = "hashes are compared with Java's own: install a JDK (Debian: apt-get install"
    return _find("javac", f"{remedy} {_PACKAGES['javac']})")


def class_archive() -> Path:
    """Where this Java keeps Kafka's classes as it wants them in memory; starting takes half.

    Only a cache: Java does without it where it is not there or does not fit.
    """
    return _HOME / f"classes-{find_java().resolve().stat().st_mtime_ns}.jsa"


def _fetch(directory: Path) -> None:
    maven = _find("mvn")
    # The pom is copied, so that nothing Maven writes lands beside it.
    shutil.copy(_POM, directory / "pom.xml")
    done = subprocess.run(
        [
            *[str(maven), "-q", "-B", "dependency:copy-dependencies"],
            *[f"-Dkafka.version={VERSION}", f"-DoutputDirectory={directory / 'lib'}"],
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(
            f"Maven could not fetch Kafka {VERSION}; give it a way to Maven Central or to a mirror"
            f" (~/.m2/settings.xml), or set {KAFKA_VARIABLE}:\n{done.stdout}{done.stderr}"
        )


def _find(program: str, remedy: str = _REMEDY) -> Path:
    return find_program(program, _PACKAGES[program], f"there is no {program}; {remedy}")
