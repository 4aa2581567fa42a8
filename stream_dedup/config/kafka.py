"""The section ``[kafka]``, and the arguments of Kafka clients that follow from it."""

from __future__ import annotations

import os
import re
import ssl
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from stream_dedup.config.values import Seconds, Secret, Section, Size, Words, without_user, wrong
from stream_dedup.errors import BrokerRefused
from stream_dedup.kafka.codecs import MAX_UNPACKED_BYTES

_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class KafkaConfig(Section):
    """Brokers, credentials, and how topics are read."""

    SECRETS: ClassVar[tuple[str, ...]] = ("sasl_password", "ssl_key_password")

    bootstrap_servers: Annotated[Words, Field(min_length=1)] = ("127.0.0.1:9092",)
    """Brokers to contact first, as host:port. One is enough to find the others; with several, the
    worker can start while one is down."""
    group_id: Annotated[str, Field(min_length=1, max_length=200)] = "stream-dedup"
    """Prefix of the consumer groups: a pipeline joins the group named group_id, a hyphen and the
    pipeline's name."""
    group_instance_id: Annotated[str, Field(max_length=249)] = ""
    """Name that this worker keeps over restarts (static membership): if it is back within
    session_timeout_s, no partition moves. Every worker needs a different one."""
    client_id: str = "stream-dedup"
    """Name of the worker in the brokers' logs and quotas."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether connections are encrypted (SSL) and authenticated (SASL)."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """How the worker proves that it knows the password. PLAIN sends the password itself: use it
    with SASL_SSL only."""
    sasl_username: str = ""
    """User, for SASL."""
    sasl_password: Secret = None
    """Password of that user."""
    sasl_password_file: str = ""
    """File whose first line is that password."""
    ssl_ca_file: str = ""
    """Certificates of the authorities that sign the brokers' certificates, PEM; the system's if
    empty."""
    ssl_cert_file: str = ""
    """Certificate of the worker, PEM, where brokers ask for one; may contain the key too."""
    ssl_key_file: str = ""
    """Private key of ssl_cert_file, PEM."""
    ssl_key_password: Secret = None
    """Password that encrypts that key."""
    ssl_key_password_file: str = ""
    """File whose first line is that password."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must name the host that the worker connects to."""
    session_timeout_s: Seconds = 45.0
    """A worker that sends no heartbeat for this long loses its partitions to the others. Must lie
    between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms."""
    heartbeat_interval_s: Seconds = 1.0
    """Time between heartbeats; half of session_timeout_s at most. A worker learns of a rebalance
    with a heartbeat, and the others wait for it meanwhile."""
    max_poll_interval_s: Seconds = 300.0
    """A worker that reads nothing for this long loses its partitions. A rebalance waits this long
    for all members."""
    request_timeout_s: Seconds = 40.0
    """Time after which a request that a broker has not answered counts as failed."""
    metadata_max_age_s: Seconds = 60.0
    """How often the worker asks for the partitions of its topics. It notices new partitions, and
    topics that were deleted and created again, within this time. Give all workers the same."""
    start: Literal["earliest", "latest", "fail"] = "earliest"
    """Where the worker begins to read a partition if neither the group nor the index has an offset
    for it, or if that offset no longer exists. earliest: at the oldest event. latest: at new
    events. fail: the worker ends with an error."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether events of open and aborted transactions are skipped (read_committed)."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    """How output is compressed. `lz4` takes little time of the worker, and often halves the bytes.
    Consumers in Python need a package for it, such as aiokafka[lz4]."""
    max_partition_fetch_bytes: Annotated[Size, Field(ge=1, le=(1 << 31) - 1)] = 1 << 20
    """Bytes fetched from a partition at once."""
    max_unpacked_bytes: Annotated[Size, Field(ge=1 << 20, le=1 << 30)] = MAX_UNPACKED_BYTES
    """Bytes that a compressed batch of records may unpack to. A batch that would unpack to more is
    not unpacked: on_unreadable says what happens to it. There is no such limit if the fast path
    does not fit the installed aiokafka, which the log says."""
    transactional_id_prefix: Annotated[str, Field(max_length=200)] = Field(
        default="", validate_default=True
    )
    """Prefix of transactional ids, before a hyphen and the pipeline's name; if empty, group_id."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_servers(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            match = _SERVER.fullmatch(server)
            if match is None or int((match[2] or ":9092")[1:]) not in range(1, 65_536):
                raise wrong(
                    f"holds {without_user(server)!r}", "write brokers as host:port,host:port"
                )
        return servers

    @field_validator("transactional_id_prefix")
    @classmethod
    def _default_prefix(cls, prefix: str, info: ValidationInfo) -> str:
        return prefix or str(info.data.get("group_id", ""))

    @model_validator(mode="after")
    def _check(self) -> KafkaConfig:
        protocol = self.security_protocol
        sasl, secure = protocol.startswith("SASL"), protocol.endswith("SSL")
        given = {
            "sasl_username": bool(self.sasl_username),
            "sasl_password": bool(self.secret("sasl_password")),
        }
        for name, is_given in given.items():
            if sasl and not is_given:
                raise wrong(f"missing, though security_protocol is {protocol}", "", name)
            if is_given and not sasl:
                remedy = "set security_protocol to SASL_SSL, or leave it out"
                raise wrong(f"is given, but security_protocol is {protocol}", remedy, name)
        for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file"):
            if getattr(self, name) and not secure:
                remedy = f"set security_protocol to {'SASL_' if sasl else ''}SSL, or leave it out"
                raise wrong(f"is given, but security_protocol is {protocol}", remedy, name)
        if self.ssl_key_file and not self.ssl_cert_file:
            raise wrong(
                "is given without ssl_cert_file", "give the certificate too", "ssl_key_file"
            )
        if self.heartbeat_interval_s * 2 > self.session_timeout_s:
            why = "a lost heartbeat ends the session"
            if "heartbeat_interval_s" in self.model_fields_set:
                problem = f"is more than half of session_timeout_s: {why}"
                raise wrong(problem, "give a third of it", "heartbeat_interval_s")
            problem = f"is less than twice heartbeat_interval_s: {why}"
            raise wrong(problem, "give three times as much", "session_timeout_s")
        return self

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments that every Kafka client takes.

        Raises:
            BrokerRefused: a certificate or key cannot be used.
        """
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "client_id": self.client_id,
            "request_timeout_ms": _ms(self.request_timeout_s),
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            options["ssl_context"] = self._ssl_context()
        if self.security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.sasl_username
            options["sasl_plain_password"] = self.secret("sasl_password")
        return options

    def consumer_options(self) -> dict[str, Any]:
        """Return the keyword arguments of a consumer; the caller adds group and start."""
        return self.client_options() | {
            "group_instance_id": self.group_instance_id or None,
            "session_timeout_ms": _ms(self.session_timeout_s),
            "heartbeat_interval_ms": _ms(self.heartbeat_interval_s),
            "max_poll_interval_ms": _ms(self.max_poll_interval_s),
            "isolation_level": self.isolation,
            "max_partition_fetch_bytes": self.max_partition_fetch_bytes,
            "metadata_max_age_ms": _ms(self.metadata_max_age_s),
        }

    def producer_options(self) -> dict[str, Any]:
        """Return the keyword arguments of a producer; the caller adds those of transactions."""
        codec = None if self.compression == "none" else self.compression
        return self.client_options() | {
            "compression_type": codec,
            "metadata_max_age_ms": _ms(self.metadata_max_age_s),
        }

    def _ssl_context(self) -> ssl.SSLContext:
        for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file"):
            file: str = getattr(self, name)
            if file and not os.access(file, os.R_OK):
                raise BrokerRefused(
                    f"kafka.{name}: {file} cannot be read; check path and permissions"
                )
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_file or None)
        except (ssl.SSLError, OSError) as error:
            raise BrokerRefused(
                f"kafka.ssl_ca_file: {self.ssl_ca_file} holds no certificates in PEM ({error}); "
                "give those of the authority that signed the brokers'"
            ) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_cert_file:
            password = self.secret("ssl_key_password") or ""
            try:
                # A function, even without password: else OpenSSL asks the terminal for the password
                # of an encrypted key.
                context.load_cert_chain(
                    self.ssl_cert_file, self.ssl_key_file or None, lambda: password
                )
            except (ssl.SSLError, OSError, ValueError) as error:
                raise BrokerRefused(
                    f"kafka.ssl_cert_file: {self.ssl_cert_file} and its key cannot be used "
                    f"({error}); give both in PEM, belonging together, with the right "
                    "ssl_key_password"
                ) from error
        return context


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
