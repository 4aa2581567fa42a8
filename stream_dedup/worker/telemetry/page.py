"""The status page: what an operator opens first, to see whether a worker does what it should.

Whatever it shows was measured already; see `recent`. It is made when it is asked for, in a thread
of the HTTP server's. One file, without scripts and without anything from elsewhere, and its policy
lets a browser load nothing: so a text from outside could do no harm even if it were not escaped.

Its size is bounded: of long lists it shows the first, or those that matter most, and how many more
there are.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib import resources
from xml.etree.ElementTree import Element

from stream_dedup.clock import US_PER_S, Clock
from stream_dedup.config import Config
from stream_dedup.worker.telemetry import figures
from stream_dedup.worker.telemetry.health import Health, Unready
from stream_dedup.worker.telemetry.markup import (
    MAX_ROWS,
    as_html,
    facts,
    make,
    more,
    names,
    notes,
    shown,
    table,
)
from stream_dedup.worker.telemetry.page_pipeline import section
from stream_dedup.worker.telemetry.snapshots import Growth, RecentMetrics

REFRESH_S = 5
"""How often the page asks for itself again."""

OLD_S = 5
"""Readings are taken once a second: an older one means that the worker is busy, or stuck."""

STYLE = (resources.files(__package__) / "page.css").read_text("utf-8")

POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
    "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy: its own style, and nothing else."""


class StatusPage:
    """Makes the page. Any thread may ask for it.

    Args:
        config: the worker's configuration; no secrets are shown.
        health: whether it does its work.
        recent: what it measured.
        clock: the time that is shown; the worker started when the page was made.
        kernel: native or reference.
        version: the program's.
    """

    def __init__(
        self,
        config: Config,
        health: Health,
        recent: RecentMetrics,
        clock: Clock,
        *,
        kernel: str,
        version: str,
    ) -> None:
        self._config = config
        self._version = f"{version}, {kernel} kernel"
        self._since_us = clock.now_us()
        self._health = health
        self._recent = recent
        self._clock = clock

    def html(self, refresh: bool = True) -> bytes:
        """The page as it is now.

        Args:
            refresh: whether it asks for itself again.
        """
        reasons, pipelines = self._health.reasons(), self._config.pipelines
        head = make(
            "head",
            make("meta", charset="utf-8"),
            make("meta", name="viewport", content="width=device-width, initial-scale=1"),
            *([make("meta", http_equiv="refresh", content=str(REFRESH_S))] if refresh else []),
            make("title", f"{'Not ready' if reasons else 'Ready'} · stream-dedup"),
            make("style", STYLE),
        )
        now, lately = self._recent.now(), self._recent.growth()
        main = make("main", *self._why_not(reasons), self._worker(lately))
        for pipeline in pipelines[:MAX_ROWS]:
            rates = self._recent.rates("events_total", pipeline=pipeline.name)
            main.append(section(pipeline, now, lately, rates))
        main.extend(notes(more(len(pipelines) - MAX_ROWS, "pipelines")))
        body = make("body", _header(ready=not reasons), main, _footer(refresh=refresh))
        return f"<!doctype html>\n{as_html(make('html', head, body, lang='en'))}\n".encode()

    def _why_not(self, reasons: list[Unready]) -> list[Element]:
        """Why it is not ready; nothing when it is."""
        if not reasons:
            return []
        now_us = self._clock.now_us()
        rows = [
            (
                shown(name),
                shown(reason),
                f"{figures.moment(now_us - int(for_s * US_PER_S))} ({figures.lasting(for_s)})",
            )
            for name, reason, for_s in reasons[:MAX_ROWS]
        ]
        heads = ("What", "Why", "Since")
        rest = notes(more(len(reasons) - MAX_ROWS, "reasons"))
        return [make("section", make("h2", "Why it is not ready"), table("", heads, rows), *rest)]

    def _worker(self, lately: Growth) -> Element:
        """What it is; and of what time its rates are."""
        config, now_us = self._config, self._clock.now_us()
        lasted = figures.lasting((now_us - self._since_us) / US_PER_S)
        index = str(config.index.address) if config.index.kind == "redis" else "memory"
        told = "no rates yet"
        if lately.seconds:
            told = f"rates of the last {lately.seconds:.0f} s"
        if lately.age_s > OLD_S:
            told += f", {figures.lasting(lately.age_s)} ago"
        return make(
            "section",
            make("h2", "Worker"),
            facts(
                ("Version", shown(self._version)),
                ("Up since", f"{figures.moment(self._since_us)} ({lasted})"),
                ("Kafka", names(config.kafka.bootstrap_servers)),
                ("Index", shown(index)),
                ("Guarantee", shown(config.worker.guarantee).replace("_", " ")),
                ("Shown", f"{figures.moment(now_us)}; {told}"),
            ),
        )


def _header(*, ready: bool) -> Element:
    state = make("p", "✓ Ready", class_="state good")
    if not ready:
        state = make("p", "✗ Not ready", class_="state bad")
    links = [make("a", path, href=path) for path in ("metrics", "readyz", "healthz")]
    return make("header", make("h1", "stream-dedup"), state, make("nav", *links))


def _footer(*, refresh: bool) -> Element:
    if refresh:
        link = make("a", "Let it stand still", href="?refresh=off")
        return make("footer", f"Shown anew every {REFRESH_S} s. ", link)
    return make("footer", "It stands still. ", make("a", f"Every {REFRESH_S} s", href="?"))
