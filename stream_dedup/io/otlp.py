"""OpenTelemetry's exporters by OTLP over HTTP, with a stricter HTTP session.

With their own session, the exporters would take a redirection for a success, though nothing is
sent to its target; read the whole of an answer, however long and slow; log a header that cannot be
sent; and replace the configured authorization by that of a ``.netrc``. This session reads only the
head of an answer: the exporters use nothing of its body. Needs the extra ``otel``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from requests import PreparedRequest, RequestException, Response, Session
from requests.exceptions import InvalidHeader

_PRINTS_SECRETS = "opentelemetry.util.re"
"""The logger that writes headers which it cannot parse."""

_CREDENTIALS = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER"
"""The SDK's variables that name a provider of sessions, for both signals or for one."""


class HeadSession(Session):
    """Sends requests, and reads only the heads of their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _unchanged

    def request(self, *args: Any, **options: Any) -> Response:  # noqa: ANN401 -- the base's
        """Send a request; see the base class.

        Raises:
            RequestException: it failed, or was redirected; the message contains no header.
        """
        try:
            response = super().request(*args, **{**options, "stream": True})
        except InvalidHeader:
            text = "a header begins or ends with a blank, or holds what HTTP does not take"
            raise InvalidHeader(text) from None
        if response.headers.get("Content-Length") == "0":
            response.content  # noqa: B018 -- read, so that the connection is reused
        else:
            response.close()
        if 300 <= response.status_code < 400:
            text = f"leads elsewhere ({response.status_code} {response.reason})"
            raise RequestException(f"{text}; give the address that it leads to")
        return response


def span_exporter(url: str, headers: Mapping[str, str], timeout_s: float) -> OTLPSpanExporter:
    """An exporter of traces.

    Args:
        url: the receiver.
        headers: sent with each request, besides those of the environment; secrets.
        timeout_s: the limit for one export, retries included.

    Raises:
        ValueError, RuntimeError: a variable of OpenTelemetry's cannot be used.
    """
    session = _session("TRACES")
    return OTLPSpanExporter(url, headers=headers, timeout=timeout_s, session=session)


def metric_exporter(url: str, headers: Mapping[str, str], timeout_s: float) -> OTLPMetricExporter:
    """An exporter of metrics; see `span_exporter`."""
    session = _session("METRICS")
    return OTLPMetricExporter(url, headers=headers, timeout=timeout_s, session=session)


def _unchanged(request: PreparedRequest) -> PreparedRequest:
    """Keep a request's own authorization."""
    return request


def _session(signal: str) -> HeadSession | None:
    """Our session, unless the environment names a provider, which the exporter then asks."""
    logging.getLogger(_PRINTS_SECRETS).setLevel(logging.CRITICAL)
    theirs = (_CREDENTIALS.format(""), _CREDENTIALS.format(f"{signal}_"))
    return None if any(map(os.environ.get, theirs)) else HeadSession()
