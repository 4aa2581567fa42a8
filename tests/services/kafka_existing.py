"""A Kafka that the environment names, instead of a broker of our own."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Self

import pytest
from testcontainers.core.container import DockerContainer

from tests.services.kafka_client import Kafka
from tests.services.kafka_jars import KAFKA_VARIABLE, VERSION
from tests.services.kafka_properties import LONE_BROKER
from tests.services.processes import PortReservation, ServiceError, wait_until

IMAGE = f"apache/kafka:{VERSION}"

# Pulling the image is not part of it.
_PORT = 9092


class ExistingKafka(Kafka, AbstractContextManager["ExistingKafka"]):
    """A Kafka that somebody else runs, without security, where tests may create topics."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def _operator_config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap}

    def __enter__(self) -> Self:
        try:
            self.topics()
        except ServiceError as error:
            pytest.fail(
                f"{KAFKA_VARIABLE} names {self._bootstrap}, which does not answer; correct or unset"
                f" it: {error}"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass  # it is not ours to end


class DockerKafka(Kafka, AbstractContextManager["DockerKafka"]):
    """A broker in a container, by testcontainers: for machines with Docker and without Java."""

    def __init__(self, image: str = IMAGE) -> None:
        self._image = image
        self._stack = ExitStack()
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def _operator_config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap}

    def __enter__(self) -> Self:
        try:
            with ExitStack() as stack:
                self._start(stack)
                self._stack = stack.pop_all()
        except Exception as error:  # noqa: BLE001 - Docker's client has errors of many libraries
            pytest.fail(
                f"{KAFKA_VARIABLE}=docker: {self._image} does not run; see that `docker run"
                f" {self._image}` does, or unset the variable: {error}"
            )
        return self

    def _start(self, stack: ExitStack) -> None:
        # The broker's advertised address is needed before Docker would choose the port. Docker
        # binds it for itself, so it cannot stay reserved.
        reservation = PortReservation()
        reservation.release()
        container = DockerContainer(self._image).with_bind_ports(_PORT, reservation.port)
        self._bootstrap = f"{container.get_docker_client().host()}:{reservation.port}"
        properties = {
            **LONE_BROKER,
            "listeners": f"CLIENT://:{_PORT},ITSELF://:9093,CONTROL://:9094",
            # A broker sends the ends of transactions to itself, and inside of the container it does
            # not find the port outside.
            "advertised.listeners": f"CLIENT://{self._bootstrap},ITSELF://localhost:9093",
            "inter.broker.listener.name": "ITSELF",
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CLIENT", "ITSELF", "CONTROL")
            ),
            "controller.quorum.voters": "1@localhost:9094",
        }
        for name, value in properties.items():
            # So does the image spell properties.
            container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
        container.with_env("KAFKA_HEAP_OPTS", "-Xmx512m")
        stack.enter_context(container)
        try:
            wait_until(self._answers, what="the container answers")
        except ServiceError as error:
            printed = b"".join(container.get_logs()).decode(errors="replace")
            raise ServiceError(f"{error}; its log:\n{printed}") from error

    def _answers(self) -> bool:
        try:
            self.topics(timeout_s=1.0)
        except ServiceError:
            return False  # not yet listening, or not yet in office
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def named_kafka() -> ExistingKafka | DockerKafka | None:
    """What `STREAM_DEDUP_TEST_KAFKA` names, to be entered, or nothing if it is not set."""
    named = os.environ.get(KAFKA_VARIABLE)
    if not named:
        return None
    return DockerKafka() if named == "docker" else ExistingKafka(named)
