"""What the driver of Kafka is told: keyword arguments, made of the section ``[kafka]``."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from typing import Any, Protocol

from stream_dedup.errors import BrokerRefused


class Access(Protocol):
    """How brokers are reached, as the section ``[kafka]`` has it."""

    @property
    def bootstrap_servers(self) -> Sequence[str]:
        """Brokers to ask first, as host or host:port."""

    @property
    def client_id(self) -> str:
        """How brokers call us."""

    @property
    def security_protocol(self) -> str:
        """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    @property
    def sasl_mechanism(self) -> str:
        """How a password is proved."""

    @property
    def sasl_username(self) -> str:
        """The user."""

    @property
    def ssl_ca_file(self) -> str:
        """Authorities' certificates; the system's if empty."""

    @property
    def ssl_cert_file(self) -> str:
        """Our certificate; none if empty."""

    @property
    def ssl_key_file(self) -> str:
        """Its key, if it is not in the same file."""

    @property
    def ssl_check_hostname(self) -> bool:
        """Whether a certificate has to name the host."""

    @property
    def request_timeout_s(self) -> float:
        """An answer that takes longer counts as lost."""

    def secret(self, name: str) -> str | None:
        """``sasl_password`` or ``ssl_key_password``; None if there is none."""


class Reading(Access, Protocol):
    """How topics are read."""

    @property
    def group_instance_id(self) -> str:
        """The name of a static member; none if empty."""

    @property
    def session_timeout_s(self) -> float:
        """Who is silent for so long is out."""

    @property
    def heartbeat_interval_s(self) -> float:
        """How often we are heard of."""

    @property
    def max_poll_interval_s(self) -> float:
        """Who does not read for so long is out."""

    @property
    def isolation(self) -> str:
        """Whether events of open and aborted transactions are read."""

    @property
    def max_partition_fetch_bytes(self) -> int:
        """Fetched of a partition at once."""


class Writing(Access, Protocol):
    """How topics are written."""

    @property
    def compression(self) -> str:
        """The codec, or none."""


def client_options(access: Access) -> dict[str, Any]:
    """Keyword arguments that every client of the driver takes.

    Raises:
        BrokerRefused: a certificate or key cannot be used.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": list(access.bootstrap_servers),
        "client_id": access.client_id,
        "request_timeout_ms": _ms(access.request_timeout_s),
        "security_protocol": access.security_protocol,
    }
    if access.security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(access)
    if access.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = access.sasl_mechanism
        options["sasl_plain_username"] = access.sasl_username
        options["sasl_plain_password"] = access.secret("sasl_password")
    return options


def consumer_options(reading: Reading) -> dict[str, Any]:
    """Keyword arguments of a consumer; where it begins, and its group, are the caller's."""
    return client_options(reading) | {
        "group_instance_id": reading.group_instance_id or None,
        "session_timeout_ms": _ms(reading.session_timeout_s),
        "heartbeat_interval_ms": _ms(reading.heartbeat_interval_s),
        "max_poll_interval_ms": _ms(reading.max_poll_interval_s),
        "isolation_level": reading.isolation,
        "max_partition_fetch_bytes": reading.max_partition_fetch_bytes,
    }


def producer_options(writing: Writing) -> dict[str, Any]:
    """Keyword arguments of a producer; acknowledgements and transactions are the caller's."""
    codec = None if writing.compression == "none" else writing.compression
    return client_options(writing) | {"compression_type": codec}


def ssl_context(access: Access) -> ssl.SSLContext:
    """How brokers are trusted, and how they trust us.

    Raises:
        BrokerRefused: a certificate or key cannot be used; the file is named.
    """
    for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file"):
        file: str = getattr(access, name)
        if file and not os.access(file, os.R_OK):
            raise BrokerRefused(f"kafka.{name}: {file} cannot be read; check path and permissions")
    try:
        context = ssl.create_default_context(cafile=access.ssl_ca_file or None)
    except (ssl.SSLError, OSError) as error:
        raise BrokerRefused(
            f"kafka.ssl_ca_file: {access.ssl_ca_file} holds no certificates in PEM ({error}); give "
            "those of the authority that signed the brokers'"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = access.ssl_check_hostname
    if access.ssl_cert_file:
        password = access.secret("ssl_key_password") or ""
        try:
            # A function, even without password: else a locked key makes OpenSSL ask the terminal.
            context.load_cert_chain(
                access.ssl_cert_file, access.ssl_key_file or None, lambda: password
            )
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BrokerRefused(
                f"kafka.ssl_cert_file: {access.ssl_cert_file} and its key cannot be used "
                f"({error}); give both in PEM, belonging together, with the right ssl_key_password"
            ) from error
    return context


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
