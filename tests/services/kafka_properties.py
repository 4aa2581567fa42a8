"""The server properties of brokers that tests start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.services.certificates import Certificates
from tests.services.kafka_security import (
    ClientCertificates,
    Security,
    listener_properties,
    protocol,
)

# Whom tests and the broker itself come as, over the listeners OPERATOR and CONTROL.
OPERATOR = "tests-operator"

# What holds for every broker that is alone; also in a container.
LONE_BROKER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROL",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    # All there is of a partition is on this broker.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Tests do not wait.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "controller.quorum.append.linger.ms": "1",
    # So long does a broker that was killed wait until it is let in again.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    # Records of any time are kept.
    "log.retention.ms": "-1",
    # Little memory, few threads.
    "log.segment.bytes": "1048576",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
}

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def all_listeners(
    kinds: Sequence[Security],
    *,
    port: int,
    advertised: Sequence[int],
    users: Mapping[str, str],
    operator_password: str,
    certificates: Certificates | None,
    client_certificates: ClientCertificates,
) -> dict[str, str]:
    """A listener for each kind of security, then one for tests and one for the controller.

    Args:
        kinds: What clients must do to be let in.
        port: The first listener's; the others follow it.
        advertised: For each kind, the port on 127.0.0.1 that clients connect to.
        users: Names and passwords of clients.
        operator_password: The password of `OPERATOR`.
        certificates: The broker's own, if a kind is encrypted.
        client_certificates: Whether encrypted listeners ask for them.
    """
    names = [f"CLIENT{number}" for number in range(len(kinds))] + ["OPERATOR", "CONTROL"]
    every: list[Security] = [*kinds, "sasl_plain", "sasl_plain"]
    ports = range(port, port + len(names))
    found = {
        "listeners": _addresses(names, ports),
        "advertised.listeners": _addresses(names[:-1], [*advertised, ports[-2]]),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol(kind)}" for name, kind in zip(names, every, strict=True)
        ),
        "controller.quorum.voters": f"1@127.0.0.1:{ports[-1]}",
        "inter.broker.listener.name": "OPERATOR",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
    }
    for name, kind in zip(names, every, strict=True):
        found |= listener_properties(
            name,
            kind,
            users={OPERATOR: operator_password} if name in names[-2:] else users,
            certificates=certificates,
            client_certificates=client_certificates,
        )
    return found


def authorizer_properties() -> dict[str, str]:
    """Refuse clients what nothing allows, except the operator."""
    return {"authorizer.class.name": _AUTHORIZER, "super.users": f"User:{OPERATOR}"}


def _addresses(names: Sequence[str], ports: Sequence[int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True))
