"""The section ``[kafka]``: where the brokers are, who we are to them, and how we read."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from stream_dedup.config.fields import Seconds, Secret, Section, Size, Words, wrong

_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class Kafka(Section):
    """Brokers, credentials, and how topics are read."""

    SECRETS: ClassVar[tuple[str, ...]] = ("sasl_password", "ssl_key_password")

    bootstrap_servers: Words = Field(
        default=("127.0.0.1:9092",),
        min_length=1,
        description="Brokers to ask for all others, as host:port; one is enough, more outlive it.",
    )
    group_id: str = Field(
        default="stream-dedup",
        min_length=1,
        max_length=200,
        description="Pipelines join the group of this name, a hyphen and their own.",
    )
    group_instance_id: str = Field(
        default="",
        max_length=249,
        description="Name that this worker keeps over restarts (static membership): if it is back "
        "within session_timeout_s, no partition moves. Each worker needs another.",
    )
    client_id: str = Field(
        default="stream-dedup", description="How brokers call us in logs and quotas."
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT",
        description="Whether connections are encrypted (SSL) and ask who we are (SASL).",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="PLAIN",
        description="How the password is proved. PLAIN sends it: use it with SASL_SSL only.",
    )
    sasl_username: str = Field(default="", description="User, for SASL.")
    sasl_password: Secret = Field(default=None, description="The user's password.")
    sasl_password_file: str = Field(
        default="", description="File whose first line is that password."
    )
    ssl_ca_file: str = Field(
        default="",
        description="Certificates of authorities that brokers are trusted by, PEM; "
        "else the system's.",
    )
    ssl_cert_file: str = Field(
        default="",
        description="Our certificate, PEM, where brokers ask for one; may hold the key too.",
    )
    ssl_key_file: str = Field(default="", description="The key of ssl_cert_file, PEM.")
    ssl_key_password: Secret = Field(default=None, description="What that key is locked with.")
    ssl_key_password_file: str = Field(
        default="", description="File whose first line is that password."
    )
    ssl_check_hostname: bool = Field(
        default=True,
        description="Whether a broker's certificate has to name the host it is reached at.",
    )
    session_timeout_s: Seconds = Field(
        default=45.0,
        description="A worker that is not heard of for so long loses its partitions to the others; "
        "within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    heartbeat_interval_s: Seconds = Field(
        default=3.0,
        description="How often the worker is heard of; a third of session_timeout_s at most.",
    )
    max_poll_interval_s: Seconds = Field(
        default=300.0,
        description="A worker that has read nothing for so long loses its partitions; how long a "
        "rebalance waits for all members.",
    )
    request_timeout_s: Seconds = Field(
        default=40.0, description="A broker's answer that takes longer counts as lost."
    )
    start: Literal["earliest", "latest", "fail"] = Field(
        default="earliest",
        description="Where a group begins that has stored no offset, or one that is gone: with the "
        "oldest events, with new ones, or not at all.",
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="Whether events of open and aborted transactions are left out.",
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="lz4",
        description="How output is compressed. `lz4` costs the worker little, and saves the broker "
        "more. Consumers in Python need its package: aiokafka[lz4], say.",
    )
    max_partition_fetch_bytes: Size = Field(
        default=1 << 20, ge=1, le=(1 << 31) - 1, description="Bytes fetched of a partition at once."
    )
    transactional_id_prefix: str = Field(
        default="",
        max_length=200,
        description="What transactional ids begin with, then a hyphen and the pipeline's name; "
        "group_id without.",
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_servers(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            match = _SERVER.fullmatch(server)
            if match is None or int((match[2] or ":9092")[1:]) not in range(1, 65_536):
                raise wrong(f"holds {server!r}", "write brokers as host:port,host:port")
        return servers

    @model_validator(mode="after")
    def _check(self) -> Kafka:
        if not self.transactional_id_prefix:
            self.__dict__["transactional_id_prefix"] = self.group_id
        protocol = self.security_protocol
        sasl, secure = protocol.startswith("SASL"), protocol.endswith("SSL")
        for name in ("sasl_username", "sasl_password"):
            given = bool(self.sasl_username) if name == "sasl_username" else self.secret(name)
            if sasl and not given:
                raise wrong(f"is missing, and security_protocol is {protocol}", "give it", name)
            if given and not sasl:
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
            problem = "is more than half of session_timeout_s: a lost heartbeat ends the session"
            raise wrong(problem, "give a third of it", "heartbeat_interval_s")
        return self
