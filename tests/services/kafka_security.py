"""How a Kafka listener and its clients prove who they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tests.services.certificates import Certificates

Security = Literal[
    "plaintext",
    "ssl",
    "sasl_plain",
    "scram-256",
    "scram-512",
    "sasl_plain+ssl",
    "scram-256+ssl",
    "scram-512+ssl",
]
ClientCertificates = Literal["none", "requested", "required"]

_MODULES = "org.apache.kafka.common.security"


def is_encrypted(security: Security) -> bool:
    return security.endswith("ssl")


def mechanism(security: Security) -> str | None:
    """The SASL mechanism, or None where there are no users."""
    first = security.removesuffix("+ssl")
    if first == "sasl_plain":
        return "PLAIN"
    return f"SCRAM-SHA-{first.removeprefix('scram-')}" if first.startswith("scram") else None


def protocol(security: Security) -> str:
    """What servers and clients call `security.protocol`."""
    kind = "SSL" if is_encrypted(security) else "PLAINTEXT"
    return kind if mechanism(security) is None else f"SASL_{kind}"


def listener_properties(
    listener: str,
    security: Security,
    *,
    users: Mapping[str, str],
    certificates: Certificates | None = None,
    client_certificates: ClientCertificates = "none",
) -> dict[str, str]:
    """The server properties of one listener, apart from its address and its protocol."""
    found: dict[str, str] = {}
    prefix = f"listener.name.{listener.lower()}."
    sasl = mechanism(security)
    if sasl is not None:
        found[f"{prefix}sasl.enabled.mechanisms"] = sasl
        found[f"{prefix}{sasl.lower()}.sasl.jaas.config"] = _login_module(sasl, users)
    if certificates is not None and is_encrypted(security):
        found[f"{prefix}ssl.keystore.type"] = "PEM"
        found[f"{prefix}ssl.keystore.location"] = str(_key_store(certificates))
        found[f"{prefix}ssl.truststore.type"] = "PEM"
        found[f"{prefix}ssl.truststore.location"] = str(certificates.ca_file)
        found[f"{prefix}ssl.client.auth"] = client_certificates
    return found


def client_config(
    security: Security, *, user: str, password: str, ca_file: Path | None
) -> dict[str, str]:
    """What librdkafka needs to be let in, apart from the address."""
    found = {"security.protocol": protocol(security)}
    sasl = mechanism(security)
    if sasl is not None:
        found |= {"sasl.mechanism": sasl, "sasl.username": user, "sasl.password": password}
    if is_encrypted(security):
        found["ssl.ca.location"] = str(ca_file)
    return found


def _login_module(sasl: str, users: Mapping[str, str]) -> str:
    if sasl != "PLAIN":
        # Its users stand in the metadata.
        return f"{_MODULES}.scram.ScramLoginModule required;"
    options = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    # The first two are who the broker itself is, when it connects to the controller.
    user, password = next(iter(users.items()))
    own = f'username="{user}" password="{password}"'
    return f"{_MODULES}.plain.PlainLoginModule required {own} {options};"


def _key_store(certificates: Certificates) -> Path:
    """Key and certificate in one file, as a broker reads them."""
    store = certificates.cert_file.with_name("keystore.pem")
    store.write_text(certificates.key_file.read_text() + certificates.cert_file.read_text())
    store.chmod(0o600)
    return store
