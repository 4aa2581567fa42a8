"""The section ``[otel]``: traces and metrics to OpenTelemetry's collector."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field, model_validator

from stream_dedup.config.fields import FOREVER, Seconds, SecondsOrOff, Secret, Section, wrong

PROTOCOL = "http/protobuf"

VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "endpoint",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "traces_endpoint",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "metrics_endpoint",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "protocol",
    "OTEL_EXPORTER_OTLP_HEADERS": "headers",
}
"""The standard's variables that give a key too."""

SDK_DISABLED, INTERVAL_MS = "OTEL_SDK_DISABLED", "OTEL_METRIC_EXPORT_INTERVAL"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e\t]*")


class Otel(Section):
    """Traces and metrics to a collector."""

    SECRETS: ClassVar[tuple[str, ...]] = ("headers",)

    enabled: bool = Field(
        default=False,
        description="Whether they are sent. Needs the extra: pip install 'stream-dedup[otel]'.",
    )
    endpoint: str = Field(
        default="http://127.0.0.1:4318",
        description="The collector that takes OTLP over HTTP; /v1/traces and /v1/metrics are "
        "added. OTEL_EXPORTER_OTLP_ENDPOINT in the environment gives it too.",
    )
    traces_endpoint: str = Field(
        default="",
        description="Where traces go, if elsewhere: the whole URL. "
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT gives it too.",
    )
    metrics_endpoint: str = Field(
        default="",
        description="Where metrics go, if elsewhere: the whole URL. "
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT gives it too.",
    )
    protocol: str = Field(
        default=PROTOCOL,
        description=f"{PROTOCOL} is the only one. OTEL_EXPORTER_OTLP_PROTOCOL gives it too.",
    )
    headers: Secret = Field(
        default=None,
        description="Sent with each request, as name=value,name=value; commas and such in a value "
        "as %2C. OTEL_EXPORTER_OTLP_HEADERS gives them too.",
    )
    headers_file: str = Field(default="", description="File whose first line is these headers.")
    sample_ratio: float = Field(
        default=0.1,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Share of batches that are traced; 0: none. OTEL_TRACES_SAMPLER wins.",
    )
    metrics_every_s: SecondsOrOff = Field(
        default=15.0,
        description="How often metrics are sent; off: not at all. OTEL_METRIC_EXPORT_INTERVAL, in "
        "milliseconds, gives it too.",
    )
    timeout_s: Seconds = Field(
        default=10.0, description="How long one request may take, tries again included."
    )

    @model_validator(mode="after")
    def _check(self) -> Otel:
        if not self.enabled:
            return self
        if self.protocol != PROTOCOL:
            remedy = f"give {PROTOCOL}, which collectors take at port 4318, or set enabled to false"
            raise wrong(f"is {self.protocol!r}, which is not spoken", remedy, "protocol")
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
        """The headers. Secrets.

        Raises:
            ValueError: they are not such; the message repeats none.
        """
        return read_headers(self.secret("headers") or "")

    @property
    def traces_url(self) -> str:
        """Where traces go; empty if they go nowhere."""
        return self._url(self.traces_endpoint, "traces") if self.sample_ratio else ""

    @property
    def metrics_url(self) -> str:
        """Where metrics go; empty if they go nowhere."""
        goes = self.metrics_every_s < FOREVER
        return self._url(self.metrics_endpoint, "metrics") if goes else ""

    def _url(self, own: str, signal: str) -> str:
        return own or f"{self.endpoint.rstrip('/')}/v1/{signal}"


def _check_url(name: str, url: str) -> None:
    remedy = "write http://host:4318, or https://"
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong("is no URL", remedy, name) from None
    if parts.username is not None or parts.password is not None:
        raise wrong("holds a user or a password", "give an authorization header instead", name)
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not plain:
        raise wrong("is not the URL of a collector", remedy, name)
    if parts.query or parts.fragment:
        raise wrong("has something behind a ? or #", "leave it out", name)


def read_headers(text: str) -> dict[str, str]:
    """Headers as the standard's variable gives them.

    >>> read_headers("x-tenant=a%2Cb, authorization=Basic Zm9v=")
    {'x-tenant': 'a,b', 'authorization': 'Basic Zm9v='}

    Raises:
        ValueError: they are not such; the message repeats none.
    """
    found = {}
    for number, pair in enumerate(filter(str.strip, text.split(",")), 1):
        name, equals, value = pair.partition("=")
        name, value = unquote(name.strip()), unquote(value).strip(" \t")
        if not equals or not _NAME.fullmatch(name):
            raise ValueError(f"number {number} has no name and value")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"number {number} has a value of other characters than ASCII's")
        found[name.lower()] = value
    return found


class Standard(NamedTuple):
    """A key that a variable of the standard gives."""

    key: str
    value: str
    variable: str


def standard(environment: Mapping[str, str]) -> Iterator[Standard]:
    """What the standard's variables give; empty ones, and numbers that are none, say nothing."""
    if environment.get(SDK_DISABLED, "").strip().lower() == "true":
        yield Standard("enabled", "false", SDK_DISABLED)
    for variable, key in VARIABLES.items():
        if environment.get(variable, "").strip():
            yield Standard(key, environment[variable].strip(), variable)
    every_ms = environment.get(INTERVAL_MS, "").strip()
    if every_ms.isascii() and every_ms.isdecimal() and int(every_ms):
        yield Standard("metrics_every_s", f"{every_ms}ms", INTERVAL_MS)
