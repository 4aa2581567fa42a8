"""``stream-dedup health``: a container's health check of its worker."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import urlsplit

import click

from stream_dedup.cli.common import config_option, load_config, set_config_option
from stream_dedup.features.patterns import readable

EXIT_UNHEALTHY = 1
TIMEOUT_S = 5.0
"""The worker's own limit for a request."""

MAX_ANSWER_BYTES = 64 * 1024
"""An answer has a few hundred bytes, and some for each reason."""

MAX_REASON = 1_000
"""Characters shown of the reasons."""

_NO_WORKER = "this is not how a worker answers; another program listens there"
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 -- not listened at
"""The local address of a worker that listens on all addresses."""


@click.command()
@config_option
@set_config_option
@click.option("--url", metavar="URL",
              help="Where the worker is, without looking into a configuration.")  # fmt: skip
@click.option("--ready", is_flag=True, help="Ask whether it does its work, not only whether it "
              "is alive.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1, 300), default=TIMEOUT_S,
              show_default=True, metavar="SECONDS",
              help="How long to wait for an answer.")  # fmt: skip
@click.pass_context
def health(
    ctx: click.Context,
    /,
    file: str | None,
    settings: tuple[str, ...],
    url: str | None,
    ready: bool,
    timeout_s: float,
) -> None:
    """Ask a worker on this machine whether it is alive.

    For containers: a health check without a shell or another program. It asks /healthz, or /readyz
    with --ready, at http.host and http.port of the configuration that the worker has, or at --url;
    one of the two is needed.

    A worker that waits for Kafka or Redis is alive but not ready; a restart would not help. Restart
    a worker that is not alive.

    Exit codes: 0 it is; 1 it is not, or does not answer; 2 an option or the configuration is
    wrong.

    \b
    stream-dedup health
    stream-dedup health --ready --url http://localhost:9464
    """
    host, port = _split(url) if url is not None else _configured(file, settings)
    path = "/readyz" if ready else "/healthz"
    shown = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        body = response.read(MAX_ANSWER_BYTES)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        _fail(ctx, f"{shown}: no answer ({why}); is the worker running, and is this its port?")
    except http.client.HTTPException:
        _fail(ctx, f"{shown}: {_NO_WORKER}")
    finally:
        connection.close()
    answer = _object(body)
    if not isinstance(answer.get("ready" if ready else "alive"), bool):
        _fail(ctx, f"{shown}: {_NO_WORKER}")
    if response.status != HTTPStatus.OK:
        _fail(ctx, f"{shown}: {_reason(answer)}")
    click.echo("ready" if ready else f"alive, last beat {answer.get('last_beat_s')} s ago")


def _configured(file: str | None, settings: tuple[str, ...]) -> tuple[str, int]:
    """Host and port of the worker that has this configuration."""
    found = load_config(file, settings).config.http
    if not found.port:
        raise click.UsageError("http.port is 0: such a worker has no port to ask; give it one")
    return _LOCAL.get(found.host, found.host.strip("[]")), found.port


def _split(url: str) -> tuple[str, int]:
    """Host and port of a URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise click.BadParameter(f"{url!r}: {error}", param_hint="'--url'") from error
    if parts.scheme != "http" or not host or parts.path not in {"", "/"} or not host.isprintable():
        raise click.BadParameter(
            f"{url!r} is not of the form http://HOST:PORT", param_hint="'--url'"
        )
    return host, 80 if port is None else port


def _object(body: bytes) -> dict[str, Any]:
    """The answer's JSON object; empty if it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(answer: dict[str, Any]) -> str:
    """Why it is unhealthy, in one line."""
    if "alive" in answer:
        return f"its event loop is stuck, last beat {answer.get('last_beat_s')} s ago"
    reasons = answer.get("reasons")
    shown = [
        f"{each.get('name')}: {each.get('reason')}"
        for each in (reasons if isinstance(reasons, list) else [])
        if isinstance(each, dict)
    ]
    text = " ".join("; ".join(shown or ["not ready"]).split())
    return readable(text.encode("utf-8", "replace"), MAX_REASON)


def _fail(ctx: click.Context, text: str) -> NoReturn:
    click.echo(f"stream-dedup: {text}", err=True)
    ctx.exit(EXIT_UNHEALTHY)
