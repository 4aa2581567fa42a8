"""``stream-dedup produce``: events for a trial, made after real lines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from stream_dedup.cli.completion import complete_file
from stream_dedup.cli.config_options import (
    config_option,
    load_config,
    set_config_option,
    worker_extra,
)
from stream_dedup.clock import SystemClock
from stream_dedup.errors import BrokerRefused, ConfigError, InputError
from stream_dedup.io.files import expand
from stream_dedup.tools.load_generator.lines import Lines, read_lines
from stream_dedup.tools.load_generator.replay import Model, replayed
from stream_dedup.tools.load_generator.sender import Fed, Feed, Pace

if TYPE_CHECKING:
    from stream_dedup.config import Config
    from stream_dedup.worker.telemetry.status_line import Rate

EXIT_FAILED = 1
SIGNALLED = 128
SHOWN_EVERY_S = 0.5
LOOK_S = 10.0
"""How long a broker may take to say which topics it has."""

Shape = Literal["text", "json"]


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@click.option("-t", "--topic", required=True, metavar="NAME", help="Topic to write to.")
@config_option
@set_config_option
@click.option("--rate", type=click.FloatRange(0), default=1000, show_default=True,
              metavar="NUMBER", help="Events a second; 0: as fast as they are taken.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), metavar="N",
              help="Events in all; as many as FILEs have lines, if not given.")  # fmt: skip
@click.option("--loop", is_flag=True, help="Go on until Ctrl-C or SIGTERM.")
@click.option("--duplicates", type=click.FloatRange(0, 1), default=0.95, show_default=True,
              metavar="SHARE", help="Share of events that show an earlier line again.")  # fmt: skip
@click.option("--partitions", type=click.Choice(["round-robin", "key"]), default="round-robin",
              show_default=True, help="round-robin: each event to the next partition, without key. "
              "key: the service is the key, and says which.")  # fmt: skip
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="text: the line alone. json: an object with message and "
              "service.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="N",
              help="The same seed, FILEs and options make the same events.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress line.")
@click.pass_context
def produce(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Write events to a topic, to try a deployment.

    Takes the lines of FILEs (text or JSON lines, plain, gzip or Zstandard; standard input without
    FILE or for "-", read to its end first) that are not like each other, and writes them again and
    again with other numbers, addresses and times in them: events that differ in every byte that
    varies, and of which a known share are near-duplicates. Events that are to be new are lines not
    shown yet; when those are used up, lines of unseen words.

    Brokers and credentials are those of the section [kafka]. The service of an event is the field
    service of its line, else the file's name up to the first dot. A running count is shown on
    standard error. Needs the extra: pip install 'stream-dedup[worker]'.

    Exit codes: 0 all were written; 1 a FILE cannot be read, or the topic not be written; 2 an
    option or the configuration is wrong; 130, 143 ended by Ctrl-C or SIGTERM: what was begun was
    written.

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
        lines = read_lines(list(expand(files)) or ["-"])
    except InputError as error:
        click.echo(f"stream-dedup: {error}", err=True)
        ctx.exit(EXIT_FAILED)
    if not lines.models:
        click.echo("stream-dedup: there is no line to write; all are blank", err=True)
        ctx.exit(EXIT_FAILED)
    ctx.exit(asyncio.run(_produce(config, lines, options)))


def _config(file: str | None, settings: tuple[str, ...], topic: str) -> Config:
    """The configuration. One without pipelines will do: only its section for Kafka counts."""
    try:
        return load_config(file, settings).config
    except ConfigError as error:
        if not any(p.key == "pipelines" and p.problem == "is missing" for p in error.problems):
            raise
    some = (f"pipelines.0.topics={topic}", f"pipelines.0.output_topic={topic}.")
    return load_config(file, (*settings, *some)).config


async def _produce(config: Config, lines: Lines, options: dict[str, Any]) -> int:
    with worker_extra():
        from stream_dedup.kafka.producer import KafkaProducer  # noqa: PLC0415 -- an extra
    logging.getLogger().addHandler(logging.NullHandler())  # the error that ends it says it all
    await _look_at(config, options["topic"])
    sink = KafkaProducer(options=config.kafka.producer_options(), group_id="")
    feed = Feed(
        sink,
        options["topic"],
        _events(lines, options["duplicates"], options["seed"], options["shape"]),
        Pace(options["rate"], None if options["loop"] else options["count"] or lines.count),
        placing=options["partitions"],
        clock=SystemClock(),
    )
    shown = _Shown(options["topic"], on=not options["quiet"] and sys.stderr.isatty())
    with _signals() as asked:
        try:
            await _unless(asked, sink.start())
            await feed.run(asked, shown.tick)
        finally:
            shown.clear()
            await sink.stop()
    shown.total(feed, quiet=options["quiet"])
    return SIGNALLED + asked.number if asked.number else 0


async def _look_at(config: Config, topic: str) -> None:
    """Say at once what a producer would wait for in vain."""
    from stream_dedup.kafka.admin import connected  # noqa: PLC0415 -- an extra

    async with connected(config.kafka.client_options(), LOOK_S) as admin:
        found = (await admin.topics([topic])).get(topic)
    if found is None:
        raise BrokerRefused(
            f"no such topic: {topic}; create it, or let the user see it (Describe on the topic)"
        )
    if found.allowed is not None and "write" not in found.allowed:
        raise BrokerRefused(f"the user may not write {topic}; allow Write on the topic")


def _events(lines: Lines, duplicates: float, seed: int, shape: Shape) -> Iterator[Fed]:
    for model, text in replayed(lines.models, duplicates, seed):
        value = text if shape == "text" else _object(model, text)
        yield Fed(model.service.encode("utf-8", "replace"), value)


def _object(model: Model, text: bytes) -> bytes:
    """An event as a JSON object: the line's own, with its text changed."""
    told = {model.text_field: text.decode("utf-8", "replace")}
    return msgspec.json.encode({"service": model.service, **model.fields, **told})


class _Asked(asyncio.Event):
    """Set by a signal."""

    number = 0

    def signalled(self, number: int) -> None:
        if self.number:
            os._exit(SIGNALLED + number)
        self.number = number
        self.set()


@contextlib.contextmanager
def _signals() -> Iterator[_Asked]:
    """Take SIGINT and SIGTERM as a wish to end; a second one ends at once."""
    loop, asked = asyncio.get_running_loop(), _Asked()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, partial(asked.signalled, number))
    try:
        yield asked
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _unless(asked: _Asked, work: Any) -> None:  # noqa: ANN401 -- any coroutine
    """Do some work, unless a signal comes first."""
    doing, waiting = asyncio.ensure_future(work), asyncio.ensure_future(asked.wait())
    await asyncio.wait({doing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if doing.done():
        doing.result()
    doing.cancel()


class _Shown:
    """The line on the terminal, and the last one."""

    def __init__(self, topic: str, *, on: bool) -> None:
        from stream_dedup.worker.telemetry.status_line import Rate  # noqa: PLC0415 -- not needed for --help

        self._topic = topic
        self._on = on
        self._rate: Rate = Rate()
        self._next_s = 0.0
        self._after_s = 0.0

    def tick(self, sent: int, after_s: float) -> None:
        """Show where it stands, now and then."""
        self._after_s = after_s
        if not self._on or after_s < self._next_s:
            return
        self._next_s = after_s + SHOWN_EVERY_S
        rate = self._rate.after(sent, after_s)
        click.echo(f"\r{sent:,} events, {rate:,.0f} a second\x1b[K", err=True, nl=False)

    def clear(self) -> None:
        """Take the line away."""
        if self._on:
            click.echo("\r\x1b[K", err=True, nl=False)

    def total(self, feed: Feed, *, quiet: bool) -> None:
        """Say what was done."""
        if feed.left_out:
            click.echo(f"stream-dedup: {feed.left_out:,} events were too large for the topic "
                       "and left out; raise its max.message.bytes", err=True)  # fmt: skip
        if not quiet:
            rate = feed.sent / max(self._after_s, 0.001)
            click.echo(f"{feed.sent:,} events, {feed.size:,} bytes, to {self._topic} in "
                       f"{self._after_s:.1f} s: {rate:,.0f} a second", err=True)  # fmt: skip
