"""OTLP over HTTP: OpenTelemetry's exporters, over a session that takes an answer with care.

Their own session takes a redirection for a success, though nothing arrives where it leads; it reads
the whole of an answer, however long and slow; and it repeats a header that it cannot send in its
error, which is logged. And where a user has a ``.netrc``, what that says of a host would take the
place of the authorization that was configured. Ours looks at the head of an answer alone, as its
body says nothing that the exporters use. Needs the extra ``otel``.
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
"""The logger that repeats headers which it cannot read."""

_CREDENTIALS = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER"
"""The SDK's variables that name who makes the session, for all or for one of the two."""


class HeadSession(Session):
    """Sends requests, and looks at no more than the heads of their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _as_it_is

    def request(self, *args: Any, **options: Any) -> Response:  # noqa: ANN401 -- the base's
        """Send a request; see the base class.

        Raises:
            RequestException: it failed, or leads elsewhere; the message repeats no header.
        """
        try:
            response = super().request(*args, **{**options, "stream": True})
        except InvalidHeader:
            text = "a header begins or ends with a blank, or holds what HTTP does not take"
            raise InvalidHeader(text) from None
        if response.headers.get("Content-Length") == "0":
            response.content  # noqa: B018 -- it is read, so that the connection serves again
        else:
            response.close()
        if 300 <= response.status_code < 400:
            text = f"leads elsewhere ({response.status_code} {response.reason})"
            raise RequestException(f"{text}; give the address that it leads to")
        return response


def span_exporter(url: str, headers: Mapping[str, str], timeout_s: float) -> OTLPSpanExporter:
    """What sends traces.

    Args:
        url: takes them.
        headers: sent with each request, besides those of the standard's variables; secrets.
        timeout_s: how long one export may take, tries again included.

    Raises:
        ValueError, RuntimeError: a variable of OpenTelemetry's cannot be used.
    """
    session = _session("TRACES")
    return OTLPSpanExporter(url, headers=headers, timeout=timeout_s, session=session)


def metric_exporter(url: str, headers: Mapping[str, str], timeout_s: float) -> OTLPMetricExporter:
    """What sends metrics; see `span_exporter`."""
    session = _session("METRICS")
    return OTLPMetricExporter(url, headers=headers, timeout=timeout_s, session=session)


def _as_it_is(request: PreparedRequest) -> PreparedRequest:
    """A request with the authorization that it has."""
    return request


def _session(signal: str) -> HeadSession | None:
    """Ours, unless the environment names who makes one; then the exporter asks for it."""
    logging.getLogger(_PRINTS_SECRETS).setLevel(logging.CRITICAL)
    theirs = (_CREDENTIALS.format(""), _CREDENTIALS.format(f"{signal}_"))
    return None if any(map(os.environ.get, theirs)) else HeadSession()
