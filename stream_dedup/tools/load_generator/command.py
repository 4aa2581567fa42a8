"""``stream-dedup produce``: writes events made from real lines, to try a deployment."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from stream_dedup import signals
from stream_dedup.cli.common import (
    config_option,
    load_config,
    set_config_option,
    worker_extra,
)
from stream_dedup.cli.completion import complete_file
from stream_dedup.clock import SystemClock
from stream_dedup.errors import MISSING, BrokerRefused, ConfigError, InputError
from stream_dedup.io.files import expand
from stream_dedup.tools.load_generator.events import Sample, Samples, read_samples, replayed
from stream_dedup.tools.load_generator.sender import Event, Load, LoadGenerator

if TYPE_CHECKING:
    from stream_dedup.config import Config
    from stream_dedup.worker.telemetry.status_line import Rate

EXIT_FAILED = 1
SIGNALLED = 128
SHOWN_EVERY_S = 0.5
CHECK_TIMEOUT_S = 10.0
"""How long the broker may take to describe the topic."""

Shape = Literal["text", "json"]


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@click.option("-t", "--topic", required=True, metavar="NAME", help="Topic to write to.")
@config_option
@set_config_option
@click.option("--rate", type=click.FloatRange(0), default=1000, show_default=True,
              metavar="NUMBER", help="Events a second; 0: as fast as possible.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), metavar="N",
              help="Number of events; by default the number of lines of the FILEs.")  # fmt: skip
@click.option("--loop", is_flag=True, help="Continue until Ctrl-C or SIGTERM.")
@click.option("--duplicates", type=click.FloatRange(0, 1), default=0.95, show_default=True,
              metavar="SHARE", help="Share of events that repeat an earlier line with other "
              "numbers.")  # fmt: skip
@click.option("--partitions", type=click.Choice(["round-robin", "key"]), default="round-robin",
              show_default=True, help="round-robin: each event to the next partition, without a "
              "key. key: the service is the key, which decides the partition.")  # fmt: skip
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="text: only the line. json: an object with message and "
              "service.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="N",
              help="Equal seeds, FILEs and options give equal events.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Show no progress line.")
@click.pass_context
def produce(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Write events to a topic, to try a deployment.

    Reads the FILEs to their end (text or JSON lines, plain or compressed; standard input
    without FILE or for "-") and keeps one line of each pattern. Writes these lines again and again
    with other numbers, addresses and times, so that a known share of the events are near-duplicates
    and none are exact copies. New events are lines not used yet; after that, lines with unseen
    words.

    Brokers and credentials are those of the section [kafka]. The service of an event is the field
    service of its line, or else the file's name up to the first dot. A running count is shown on
    standard error. Needs the extra: pip install 'stream-dedup[worker]'.

    Exit codes: 0 all events were written; 1 a FILE cannot be read or the topic cannot be written; 2
    an option or the configuration is wrong; 130 and 143 ended by Ctrl-C or SIGTERM, after the
    current batch was written.

    \b
    stream-dedup produce app.log --topic app-logs --count 10000 --rate 500
    stream-dedup produce 'logs/*.gz' --topic app-logs --loop --config stream-dedup.toml
    stream-dedup produce app.log --topic app-logs --rate 0 --count 1000000 --duplicates 0.5
    kubectl logs deploy/api | stream-dedup produce -t trial --format json --partitions key
    """
    if options["loop"] and options["count"]:
        raise click.UsageError("--loop goes on without end; leave out --count, or --loop")
    if not files and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError(
            "give a FILE, or lines on standard input; the sources have some in examples/logs"
        )
    config = _config(options["file"], options["settings"], options["topic"])
    try:
        lines = read_samples(list(expand(files)) or ["-"])
    except InputError as error:
        click.echo(f"stream-dedup: {error}", err=True)
        ctx.exit(EXIT_FAILED)
    if not lines.samples:
        click.echo("stream-dedup: there is no line to write; all are blank", err=True)
        ctx.exit(EXIT_FAILED)
    ctx.exit(asyncio.run(_produce(config, lines, options)))


def _config(file: str | None, settings: tuple[str, ...], topic: str) -> Config:
    """Load the configuration. Pipelines may be missing, as only [kafka] is used."""
    try:
        return load_config(file, settings).config
    except ConfigError as error:
        if not any(p.key == "pipelines" and p.problem == MISSING for p in error.problems):
            raise
    some = (f"pipelines.0.topics={topic}", f"pipelines.0.output_topic={topic}.")
    return load_config(file, (*settings, *some)).config


async def _produce(config: Config, lines: Samples, options: dict[str, Any]) -> int:
    with worker_extra():
        from stream_dedup.kafka.producer import KafkaProducer  # noqa: PLC0415 -- an extra
    logging.getLogger().addHandler(logging.NullHandler())  # the final error says enough
    await _check_topic(config, options["topic"])
    sink = KafkaProducer(options=config.kafka.producer_options(), group_id="")
    generator = LoadGenerator(
        sink,
        options["topic"],
        _events(lines, options["duplicates"], options["seed"], options["shape"]),
        Load(options["rate"], None if options["loop"] else options["count"] or lines.count),
        placing=options["partitions"],
        clock=SystemClock(),
    )
    shown = _Shown(options["topic"], on=not options["quiet"] and sys.stderr.isatty())
    stop = _Stop()
    with signals.handled(stop.signalled, (signal.SIGINT, signal.SIGTERM)):
        try:
            await signals.ended_before(stop, sink.start())
            await generator.run(stop, shown.tick)
        finally:
            shown.clear()
            await sink.stop()
    shown.total(generator, quiet=options["quiet"])
    return SIGNALLED + stop.number if stop.number else 0


async def _check_topic(config: Config, topic: str) -> None:
    """Fail at once where a producer would wait in vain."""
    from stream_dedup.kafka.admin import connected  # noqa: PLC0415 -- an extra

    async with connected(config.kafka.client_options(), CHECK_TIMEOUT_S) as admin:
        found = (await admin.topics([topic])).get(topic)
    if found is None:
        raise BrokerRefused(
            f"no such topic: {topic}; create it, or let the user see it (Describe on the topic)"
        )
    if found.allowed is not None and "write" not in found.allowed:
        raise BrokerRefused(f"the user may not write {topic}; allow Write on the topic")


def _events(lines: Samples, duplicates: float, seed: int, shape: Shape) -> Iterator[Event]:
    for sample, text in replayed(lines.samples, duplicates, seed):
        value = text if shape == "text" else _object(sample, text)
        yield Event(sample.service.encode("utf-8", "replace"), value)


def _object(sample: Sample, text: bytes) -> bytes:
    """Return an event as a JSON object: the sample's own with another text."""
    changed = {sample.text_field: text.decode("utf-8", "replace")}
    return msgspec.json.encode({"service": sample.service, **sample.fields, **changed})


class _Stop(asyncio.Event):
    """Set by a signal; a second one ends the process at once."""

    number = 0

    def signalled(self, number: int) -> None:
        if self.number:
            os._exit(SIGNALLED + number)
        self.number = number
        self.set()


class _Shown:
    """The progress line, and the final one."""

    def __init__(self, topic: str, *, on: bool) -> None:
        from stream_dedup.worker.telemetry.status_line import Rate  # noqa: PLC0415 -- not needed for --help

        self._topic = topic
        self._on = on
        self._rate: Rate = Rate()
        self._next_s = 0.0
        self._after_s = 0.0

    def tick(self, sent: int, after_s: float) -> None:
        """Show the progress, every `SHOWN_EVERY_S` seconds at most."""
        self._after_s = after_s
        if not self._on or after_s < self._next_s:
            return
        self._next_s = after_s + SHOWN_EVERY_S
        rate = self._rate.after(sent, after_s)
        click.echo(f"\r{sent:,} events, {rate:,.0f} a second\x1b[K", err=True, nl=False)

    def clear(self) -> None:
        """Remove the progress line."""
        if self._on:
            click.echo("\r\x1b[K", err=True, nl=False)

    def total(self, generator: LoadGenerator, *, quiet: bool) -> None:
        """Print the totals."""
        if generator.left_out:
            click.echo(f"stream-dedup: {generator.left_out:,} events were too large for the topic "
                       "and left out; raise its max.message.bytes", err=True)  # fmt: skip
        if not quiet:
            rate = generator.sent / max(self._after_s, 0.001)
            click.echo(f"{generator.sent:,} events, {generator.size:,} bytes, to {self._topic} in "
                       f"{self._after_s:.1f} s: {rate:,.0f} a second", err=True)  # fmt: skip
