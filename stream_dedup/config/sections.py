"""The sections ``[index]``, ``[worker]``, ``[http]`` and ``[log]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from stream_dedup.config.fields import Seconds, SecondsOrZero, Secret, Section, Size, wrong
from stream_dedup.errors import IndexRefused
from stream_dedup.index.base import Limits
from stream_dedup.index.redis.address import Address, parse

if TYPE_CHECKING:
    from stream_dedup.index.redis.clients import Tls
    from stream_dedup.index.redis.server import Patience


class Index(Section):
    """Where clusters live."""

    SECRETS: ClassVar[tuple[str, ...]] = ("password", "sentinel_password")

    kind: Literal["redis", "memory"] = Field(
        default="redis",
        description="redis: shared by all workers, outlives them. memory: this worker's own, lost "
        "when it stops.",
    )
    url: SecretStr = Field(
        default=SecretStr("redis://127.0.0.1:6379"),
        description="Where Redis is: redis://, rediss:// (TLS), unix://, redis+cluster:// or "
        "redis+sentinel:// with hosts. STREAM_DEDUP_REDIS in the environment gives it too.",
    )
    password: Secret = Field(default=None, description="The password, if the URL holds none.")
    password_file: str = Field(default="", description="File whose first line is that password.")
    sentinel_password: Secret = Field(
        default=None, description="What the Sentinels themselves ask for."
    )
    sentinel_password_file: str = Field(
        default="", description="File whose first line is that password."
    )
    ca_file: str = Field(
        default="",
        description="Certificates of authorities that Redis is trusted by, PEM; else the system's.",
    )
    cert_file: str = Field(
        default="", description="Our certificate, PEM, where Redis asks for one."
    )
    key_file: str = Field(default="", description="The key of cert_file, PEM.")
    check_hostname: bool = Field(
        default=True,
        description="Whether Redis's certificate has to name the host it is reached at.",
    )
    timeout_s: Seconds = Field(
        default=5.0, description="An answer of Redis that takes longer counts as lost."
    )
    within_s: SecondsOrZero = Field(
        default=30.0,
        description="A call that fails and may pass is tried again for so long; longer than a "
        "failover takes.",
    )
    max_clusters: int = Field(
        default=20_000,
        ge=1,
        description="Open clusters of a namespace; above it the least recently seen are closed.",
    )
    max_candidates: int = Field(
        default=2_000,
        ge=1,
        description="Entries compared a search; beyond it a search is cut short.",
    )
    max_verified: int = Field(
        default=64, ge=1, description="Clusters held against an event; of more, the nearest."
    )
    shards: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Slots of a Redis Cluster over which groups are spread; fixed when a namespace "
        "is made.",
    )
    near_cache_size: int = Field(
        default=200_000,
        ge=0,
        description="Exact hashes that a worker remembers, so as not to ask Redis; 0 for none.",
    )
    mirror_size: int = Field(
        default=100_000,
        ge=0,
        description="Fingerprints of a shard up to which a worker keeps a copy of all of them, so "
        "that Redis need not search; 0 for none.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        try:
            parse(url.get_secret_value())
        except IndexRefused as error:
            raise wrong("cannot be read", str(error)) from None  # it repeats no secrets
        return url

    @model_validator(mode="after")
    def _check(self) -> Index:
        if self.secret("password") is not None and self.address.password is not None:
            raise wrong("holds a password, and password gives one too", "leave one out", "url")
        for name in ("ca_file", "cert_file", "key_file"):
            if getattr(self, name) and not self.address.secure:
                problem = f"is given, but {self.address} is without TLS"
                raise wrong(problem, "begin the URL with rediss, or leave it out", name)
        if self.key_file and not self.cert_file:
            raise wrong("is given without cert_file", "give the certificate too", "key_file")
        return self

    @property
    def address(self) -> Address:
        """Where Redis is; prints no secrets."""
        return parse(self.url.get_secret_value())

    @property
    def redis_url(self) -> str:
        """The URL, with the password. A secret."""
        url, password = self.url.get_secret_value(), self.secret("password")
        if password is None:
            return url
        split = urlsplit(url)
        credentials, _, hosts = split.netloc.rpartition("@")
        user = credentials.partition(":")[0]
        netloc = f"{user}:{quote(password, safe='')}@{hosts}"
        # Not geturl: it writes unix:///path with the credentials lost.
        return f"{split.scheme}://{netloc}{split.path}"

    def limits(self) -> Limits:
        """How much the index may hold."""
        return Limits(
            max_clusters=self.max_clusters,
            max_candidates=self.max_candidates,
            max_verified=self.max_verified,
        )

    def patience(self) -> Patience:
        """How long calls of Redis are waited for."""
        from stream_dedup.index.redis.server import Patience  # noqa: PLC0415 -- an extra

        return Patience(within_s=self.within_s, timeout_s=self.timeout_s)

    def tls(self) -> Tls:
        """How Redis is trusted."""
        from stream_dedup.index.redis.clients import Tls  # noqa: PLC0415 -- an extra

        return Tls(
            ca_file=self.ca_file or None,
            cert_file=self.cert_file or None,
            key_file=self.key_file or None,
            check_hostname=self.check_hostname,
        )


class Worker(Section):
    """How a worker takes its events."""

    guarantee: Literal["at_least_once", "exactly_once"] = Field(
        default="at_least_once",
        description="at_least_once: after a crash some output comes again, byte for byte. "
        "exactly_once: Kafka transactions; who reads committed sees each event's output once.",
    )
    max_batch_events: int = Field(
        default=4_000, ge=1, le=100_000, description="Events decided together at most."
    )
    max_batch_bytes: Size = Field(
        default=4 << 20, ge=1, description="Bytes of events decided together, about."
    )
    batch_wait_s: SecondsOrZero = Field(
        default=0.02,
        description="How long a batch waits to be filled; adds to latency when little comes.",
    )
    ahead_batches: int = Field(
        default=2,
        ge=1,
        le=100,
        description="Batches of a partition on their way between reading and delivery.",
    )
    commit_every_s: SecondsOrZero = Field(
        default=0.5,
        description="How often offsets are committed (at_least_once); 0: after each batch.",
    )
    drain_s: SecondsOrZero = Field(
        default=10.0,
        description="How long a stop or a rebalance waits for what is on its way; less than "
        "kafka.max_poll_interval_s.",
    )


class Http(Section):
    """The port of metrics and health."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to listen at; 0.0.0.0: all."
    )
    port: int = Field(
        default=9464, ge=0, le=65_535, description="Port of metrics and health; 0: none."
    )


class Log(Section):
    """What the worker says of itself."""

    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console at a terminal, JSON lines elsewhere."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least severe that is written."
    )

    @field_validator("level", mode="before")
    @classmethod
    def _lower(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level
