"""The sections ``[index]``, ``[worker]``, ``[http]``, ``[log]`` and ``[otel]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from stream_dedup.config.values import (
    FOREVER,
    Seconds,
    SecondsOrOff,
    SecondsOrZero,
    Secret,
    Section,
    Size,
    Words,
    without_user,
    wrong,
)
from stream_dedup.errors import IndexRefused
from stream_dedup.index.base import Limits
from stream_dedup.index.redis.address import Address, parse

if TYPE_CHECKING:
    from stream_dedup.index.redis.client import RedisClient, RetryPolicy
    from stream_dedup.index.redis.connection import Tls


class IndexConfig(Section):
    """Where clusters are stored."""

    SECRETS: ClassVar[tuple[str, ...]] = ("password", "sentinel_password")

    kind: Literal["redis", "memory"] = "redis"
    """redis: clusters are shared by all workers and survive them. memory: each worker has its own
    clusters, which are lost when it stops."""
    url: SecretStr = SecretStr("redis://127.0.0.1:6379")
    """Address of Redis: redis://, rediss:// (TLS), unix://, redis+cluster:// or redis+sentinel://
    with hosts. The environment variable STREAM_DEDUP_REDIS gives it too."""
    password: Secret = None
    """Password, if the URL holds none."""
    password_file: str = ""
    """File whose first line is that password."""
    sentinel_password: Secret = None
    """Password of the Sentinels themselves."""
    sentinel_password_file: str = ""
    """File whose first line is that password."""
    ca_file: str = ""
    """Certificates of the authorities that sign Redis's certificate, PEM; the system's if empty."""
    cert_file: str = ""
    """Certificate of the worker, PEM, where Redis asks for one."""
    key_file: str = ""
    """Private key of cert_file, PEM."""
    check_hostname: bool = True
    """Whether Redis's certificate must name the host that the worker connects to."""
    timeout_s: Seconds = 5.0
    """Time after which a command that Redis has not answered counts as failed."""
    within_s: SecondsOrZero = 30.0
    """How long a command that fails for a temporary reason is retried before the error is reported.
    A worker then logs the error and continues to retry. Give more than a failover takes."""
    max_clusters: Annotated[int, Field(ge=1)] = 20_000
    """Open clusters in a namespace. Above this, those not seen for the longest time are closed."""
    max_candidates: Annotated[int, Field(ge=1)] = 2_000
    """Entries compared in one search; a search that would need more is cut short."""
    max_verified: Annotated[int, Field(ge=1)] = 64
    """Clusters whose words are compared with those of an event. If more are near, only the nearest
    are compared."""
    shards: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of shards, each in one hash slot of a Redis Cluster. Each group is in one shard,
    unless shard_by is "fingerprint". Fixed when the namespace is created."""
    shard_by: Literal["group", "fingerprint"] = "group"
    """How events are assigned to shards. group: all events of a group to one shard. fingerprint:
    each event by its fingerprint, so all nodes share the work of one large group, which costs more
    in all. Fixed when the namespace is created. docs/sharding-by-fingerprint.md says when to use
    it."""
    near_cache_size: Annotated[int, Field(ge=0)] = 200_000
    """Size of each of the two halves of the near cache: a worker remembers up to twice this many
    exact hashes, some 440 bytes each, and does not ask Redis about them. 0: no near cache."""
    mirror_size: Annotated[int, Field(ge=0)] = 100_000
    """A worker keeps a copy (mirror) of the fingerprints of each shard that has at most this many,
    so Redis need not search them; 0: no copy."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        try:
            parse(url.get_secret_value())
        except IndexRefused as error:
            raise wrong("cannot be read", str(error)) from None  # it contains no secrets
        return url

    @model_validator(mode="after")
    def _check(self) -> IndexConfig:
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
        """The parsed URL; prints no secrets."""
        return parse(self.url.get_secret_value())

    @property
    def redis_url(self) -> str:
        """The URL with the password: a secret."""
        url, password = self.url.get_secret_value(), self.secret("password")
        if password is None:
            return url
        split = urlsplit(url)
        credentials, _, hosts = split.netloc.rpartition("@")
        user = credentials.partition(":")[0]
        netloc = f"{user}:{quote(password, safe='')}@{hosts}"
        # Not geturl: it loses the credentials of unix:///path.
        return f"{split.scheme}://{netloc}{split.path}"

    def limits(self) -> Limits:
        """Return how much the index may hold."""
        return Limits(
            max_clusters=self.max_clusters,
            max_candidates=self.max_candidates,
            max_verified=self.max_verified,
        )

    def retry_policy(self) -> RetryPolicy:
        """Return how long calls of Redis are retried."""
        from stream_dedup.index.redis.client import RetryPolicy  # noqa: PLC0415 -- an extra

        return RetryPolicy(within_s=self.within_s, timeout_s=self.timeout_s)

    def client(self, retry_policy: RetryPolicy | None = None) -> RedisClient:
        """Make a client of Redis; by default with the section's own `retry_policy`.

        Raises:
            IndexRefused: the URL cannot be used.
        """
        from stream_dedup.index.redis.client import RedisClient  # noqa: PLC0415 -- an extra

        return RedisClient(
            self.redis_url,
            retry_policy=retry_policy or self.retry_policy(),
            tls=self.tls(),
            sentinel_password=self.secret("sentinel_password"),
        )

    def tls(self) -> Tls:
        """Return the certificates of connections."""
        from stream_dedup.index.redis.connection import Tls  # noqa: PLC0415 -- an extra

        return Tls(
            ca_file=self.ca_file or None,
            cert_file=self.cert_file or None,
            key_file=self.key_file or None,
            check_hostname=self.check_hostname,
        )


class WorkerConfig(Section):
    """How a worker reads and commits events."""

    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"
    """at_least_once: after a crash some output is sent again, byte for byte. exactly_once: Kafka
    transactions; a read-committed consumer sees each event's output once."""
    max_batch_events: Annotated[int, Field(ge=1, le=100_000)] = 4_000
    """Events in a batch, at most."""
    max_batch_bytes: Annotated[Size, Field(ge=1)] = 4 << 20
    """Bytes of events in a batch, about."""
    batch_wait_s: SecondsOrZero = 0.02
    """How long a batch waits for more events; adds to latency when few events arrive."""
    ahead_batches: Annotated[int, Field(ge=1, le=100)] = 2
    """Batches of a partition in progress at the same time, between reading and delivery."""
    commit_every_s: SecondsOrZero = 0.5
    """Time between commits of offsets (at_least_once); 0: after each batch."""
    delivery_timeout_s: Seconds = 120.0
    """How long the delivery of a batch may take. After that the worker gives it up and reads the
    partition again from its committed offset. At least kafka.request_timeout_s."""
    drain_s: SecondsOrZero = 10.0
    """How long a stop or a rebalance waits for batches in progress; less than
    kafka.max_poll_interval_s."""
    stalled_after_s: Seconds = 10.0
    """A worker is not ready when events wait for a step (reading, deciding, delivering, committing)
    and it has not moved for this long."""


_HOST = re.compile(r"\*|\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


class HttpConfig(Section):
    """The port of metrics, health and status page."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen at; 0.0.0.0: all."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 9464
    """Port of metrics, health and status page; 0: none."""
    allowed_hosts: Words = ()
    """Names by which the worker may be asked, besides addresses, names without a dot, and names in
    localhost, svc, cluster.local and internal: for example a reverse proxy's. `.example.com` allows
    all names below it, `*` any. Other names are refused: a web page could use them to read through
    a browser in your network (DNS rebinding)."""

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise wrong(f"holds {host!r}", "write names without a port, such as a.example.com")
        return hosts


class LogConfig(Section):
    """What the worker logs."""

    format: Literal["auto", "json", "console"] = "auto"
    """auto: console at a terminal, JSON lines elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Messages of this level and above are written."""

    @field_validator("level", mode="before")
    @classmethod
    def _lower(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level


# ------------------------------------------------------------ OpenTelemetry

PROTOCOL = "http/protobuf"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


class OtelConfig(Section):
    """Traces and metrics to an OpenTelemetry collector."""

    SECRETS: ClassVar[tuple[str, ...]] = ("headers",)

    enabled: bool = False
    """Whether they are sent. Needs the extra: pip install 'stream-dedup[otel]'."""
    endpoint: str = "http://127.0.0.1:4318"
    """Collector that accepts OTLP over HTTP; /v1/traces and /v1/metrics are added.
    OTEL_EXPORTER_OTLP_ENDPOINT in the environment gives it too."""
    traces_endpoint: str = ""
    """Whole URL for traces, if they go elsewhere. OTEL_EXPORTER_OTLP_TRACES_ENDPOINT gives it
    too."""
    metrics_endpoint: str = ""
    """Whole URL for metrics, if they go elsewhere. OTEL_EXPORTER_OTLP_METRICS_ENDPOINT gives it
    too."""
    protocol: str = PROTOCOL
    """Must be http/protobuf. OTEL_EXPORTER_OTLP_PROTOCOL gives it too."""
    headers: Secret = None
    """Headers of each request, as name=value,name=value; write a comma in a value as %2C.
    OTEL_EXPORTER_OTLP_HEADERS gives them too."""
    headers_file: str = ""
    """File whose first line is these headers."""
    sample_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.1
    """Share of batches that are traced; 0: none. OTEL_TRACES_SAMPLER takes precedence."""
    metrics_every_s: SecondsOrOff = 15.0
    """Time between exports of metrics; off: none. OTEL_METRIC_EXPORT_INTERVAL, in milliseconds,
    gives it too."""
    timeout_s: Seconds = 10.0
    """How long an export may take, with all its retries."""

    @model_validator(mode="after")
    def _check(self) -> OtelConfig:
        if not self.enabled:
            return self
        if self.protocol != PROTOCOL:
            remedy = f"give {PROTOCOL}, which collectors take at port 4318, or set enabled to false"
            raise wrong(
                f"is {without_user(self.protocol)!r}, which is not supported", remedy, "protocol"
            )
        for name in ("endpoint", "traces_endpoint", "metrics_endpoint"):
            if name == "endpoint" or getattr(self, name):
                _check_url(name, getattr(self, name))
        try:
            self.read_headers()
        except ValueError as error:
            remedy = "write them as name=value,name=value"
            raise wrong(str(error), remedy, "headers") from None
        return self

    def read_headers(self) -> dict[str, str]:
        """Return the headers, which are secrets.

        Raises:
            ValueError: they cannot be read; the message contains none of them.
        """
        return read_headers(self.secret("headers") or "")

    @property
    def traces_url(self) -> str:
        """Where traces go; empty if they are not sent."""
        return self._url(self.traces_endpoint, "traces") if self.sample_ratio else ""

    @property
    def metrics_url(self) -> str:
        """Where metrics go; empty if they are not sent."""
        sent = self.metrics_every_s < FOREVER
        return self._url(self.metrics_endpoint, "metrics") if sent else ""

    def _url(self, own: str, signal: str) -> str:
        return own or f"{self.endpoint.rstrip('/')}/v1/{signal}"


def _check_url(name: str, url: str) -> None:
    remedy = "write http://host:4318, or https://"
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong("is not a URL", remedy, name) from None
    if parts.username is not None or parts.password is not None:
        raise wrong("holds a user or a password", "give an authorization header instead", name)
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not plain:
        raise wrong("is not the URL of a collector", remedy, name)
    if parts.query or parts.fragment:
        raise wrong("has something behind a ? or #", "leave it out", name)


def read_headers(text: str) -> dict[str, str]:
    """Read headers in the format of OTEL_EXPORTER_OTLP_HEADERS.

    >>> read_headers("x-tenant=a%2Cb, authorization=Basic Zm9v=")
    {'x-tenant': 'a,b', 'authorization': 'Basic Zm9v='}

    Raises:
        ValueError: the text has another format; the message contains none of it.
    """
    found = {}
    for number, pair in enumerate(filter(str.strip, text.split(",")), 1):
        name, equals, value = pair.partition("=")
        name, value = unquote(name.strip()), unquote(value).strip(" \t")
        if not equals or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"number {number} has no name and value")
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"number {number} has a value of other characters than ASCII's")
        found[name.lower()] = value
    return found
