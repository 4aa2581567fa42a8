"""One real Kafka broker, started and broken as tests wish."""

from __future__ import annotations

import base64
import secrets
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.services.certificates import Certificates, make_certificates
from tests.services.kafka_acls import Authorizing
from tests.services.kafka_client import Kafka
from tests.services.kafka_jars import class_archive, find_java, find_kafka
from tests.services.kafka_properties import (
    LONE_BROKER,
    OPERATOR,
    all_listeners,
    authorizer_properties,
)
from tests.services.kafka_security import (
    ClientCertificates,
    Security,
    client_config,
    is_encrypted,
)
from tests.services.processes import READY_S, Daemon, ServiceError, spawn
from tests.services.toxiproxy import Proxy, Toxiproxy

USERS = {"alice": "alice-secret", "bob": "bob-secret"}

_JAVA_OPTIONS = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
    *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"),
)


class KafkaBroker(Daemon, Kafka, Authorizing):
    """A broker and its controller in one process, running inside a `with` block.

    Tests steer it past its security and past `link`, over a listener of their own.

    Args:
        security: What clients must do to be let in; several kinds make a port for each.
        users: Names and passwords, of letters, digits and dashes, for all kinds with SASL.
        client_certificates: Whether encrypted listeners ask for them.
        authorizer: Refuse clients what no `allow` permits.
        proxied: Have clients come through proxies, `links`, that tests can cut.
        extra: More server properties. They win over the ones made here.

    Attributes:
        links: The proxy before the port of each kind of security.
        users: As given.
    """

    def __init__(
        self,
        *,
        security: Security | Sequence[Security] = "plaintext",
        users: Mapping[str, str] | None = None,
        client_certificates: ClientCertificates = "none",
        authorizer: bool = False,
        proxied: Toxiproxy | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self._jars = find_kafka()
        self._kinds: list[Security] = [security] if isinstance(security, str) else list(security)
        super().__init__("kafka", port_offsets=range(len(self._kinds) + 2))
        self._data = self.directory / "data"
        self._config = self.directory / "server.properties"
        self._archive: Path | None = None
        self._operator_password = secrets.token_hex(8)
        self.users = dict(USERS if users is None else users)
        self.links: dict[Security, Proxy] = {}
        self._certificates: Certificates | None = None
        if any(is_encrypted(kind) for kind in self._kinds):
            self._certificates = make_certificates(self.directory / "tls")
        if proxied is not None:
            ports = enumerate(self._kinds, self.port)
            self.links = {kind: proxied.proxy(port) for port, kind in ports}
        properties = {
            **LONE_BROKER,
            "log.dirs": str(self._data),
            **all_listeners(
                self._kinds,
                port=self.port,
                advertised=[self._client_port(kind) for kind in self._kinds],
                users=self.users,
                operator_password=self._operator_password,
                certificates=self._certificates,
                client_certificates=client_certificates,
            ),
            **(authorizer_properties() if authorizer else {}),
            **(extra or {}),
        }
        lines = [f"{name}={value}" for name, value in properties.items()]
        self._config.write_text("\n".join(lines).replace("\\", "\\\\") + "\n")

    def log_file(self, topic: str, partition: int) -> Path:
        """What it keeps of a partition, while that is less than a segment."""
        return self._data / f"{topic}-{partition}" / f"{0:020}.log"

    @property
    def bootstrap(self) -> str:
        """Where clients connect, with the first kind of security."""
        return self.bootstrap_of(self._kinds[0])

    def bootstrap_of(self, security: Security) -> str:
        """Where clients connect with this kind of security."""
        return f"127.0.0.1:{self._client_port(security)}"

    @property
    def link(self) -> Proxy:
        """The listener name of the first kind of security."""
        if not self.links:
            raise ServiceError("the broker was made without proxied=")
        return self.links[self._kinds[0]]

    @property
    def certificates(self) -> Certificates:
        if self._certificates is None:
            raise ServiceError("the broker was made without a kind of security that has ssl")
        return self._certificates

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that signed the broker's."""
        return self.certificates.ca_file

    def client_config(
        self,
        security: Security | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
    ) -> dict[str, str]:
        """What librdkafka needs to be let in as a user; by default the first one.

        Args:
            security: One of the broker's kinds; the first by default.
            user: A name, which need not be right.
            password: Its password, if it is not the one that the broker knows.
        """
        kind = self._kinds[0] if security is None else security
        name = next(iter(self.users), "") if user is None else user
        word = self.users.get(name, "") if password is None else password
        ca_file = self._certificates.ca_file if self._certificates else None
        known = client_config(kind, user=name, password=word, ca_file=ca_file)
        return {"bootstrap.servers": self.bootstrap_of(kind), **known}

    def start(self) -> None:
        if not self._data.exists():
            self._format()
        super().start()

    def stop(self) -> None:
        process = self._process
        super().stop()
        if process is not None and process.returncode == _JAVA_TERMINATED:
            self._keep_archive()

    def restart(self) -> None:
        """Stop, and start again on the same ports with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        if self._archive is not None and self.running:
            self.stop()
        for link in self.links.values():
            link.close()
        self.links = {}
        super().close()
        if self._archive is not None:
            self._archive.unlink(missing_ok=True)

    def _client_port(self, security: Security) -> int:
        if security in self.links:
            return self.links[security].port
        if security not in self._kinds:
            raise ServiceError(f"the broker has no listener for {security}, only {self._kinds}")
        return self.port + self._kinds.index(security)

    def _operator_config(self) -> dict[str, Any]:
        login = {"user": OPERATOR, "password": self._operator_password}
        port = self.port + len(self._kinds)
        return {
            "bootstrap.servers": f"127.0.0.1:{port}",
            **client_config("sasl_plain", **login, ca_file=None),
        }

    def _command(self) -> list[str]:
        archive = class_archive()
        if archive.exists():
            return self._java(f"-XX:SharedArchiveFile={archive}", _SERVER, str(self._config))
        # The first broker that ends in good order leaves it for all later ones.
        self._archive = archive.with_name(f"{secrets.token_hex(8)}.half-done")
        return self._java(f"-XX:ArchiveClassesAtExit={self._archive}", _SERVER, str(self._config))

    def _java(self, archive: str, *program: str) -> list[str]:
        return [str(find_java()), *_JAVA_OPTIONS, archive, "-cp", f"{self._jars}/*", *program]

    def _keep_archive(self) -> None:
        if self._archive is not None and self._archive.exists():
            self._archive.rename(class_archive())
        self._archive = None

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port + len(self._kinds)), 1.0).close()
            listed = self.admin().list_topics(timeout=1.0)
        except (OSError, KafkaException):
            return False  # not yet listening, or not yet in office
        # A broker that was killed is let back in when the controller has given the old one up.
        partitions = (
            each for topic in listed.topics.values() for each in topic.partitions.values()
        )
        return bool(listed.brokers) and all(each.leader >= 0 for each in partitions)

    def _format(self) -> None:
        """Make the directory of the data, with the users of SCRAM."""
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java(f"-XX:SharedArchiveFile={class_archive()}", _FORMAT, "format")
        # With a sign between, as it may begin with a hyphen.
        command += ["-c", str(self._config), f"--cluster-id={identity}"]
        if any(kind.startswith("scram") for kind in self._kinds):
            for user, password in self.users.items():
                for number in (256, 512):
                    known = f"SCRAM-SHA-{number}=[name={user},password={password}]"
                    command += ["--add-scram", known]
        process = spawn(command, directory=self.directory, log=self.log)
        try:
            code = process.wait(READY_S)
        except subprocess.TimeoutExpired:
            code = -1
            process.kill()
            process.wait()
        if code:
            text = self.log.read_text(errors="replace")
            raise ServiceError(f"the broker's directory could not be formatted:\n{text}")


# Java's own code for an end in good order after SIGTERM.
_JAVA_TERMINATED = 128 + signal.SIGTERM
_SERVER = "kafka.Kafka"
_FORMAT = "kafka.tools.StorageTool"
