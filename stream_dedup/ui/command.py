"""``stream-dedup ui``: the web application."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from stream_dedup import listening
from stream_dedup.cli.common import (
    Failed,
    Parsed,
    connection_options,
    imports_of_extra,
    parse_duration,
    recipe_of,
    set_option,
)
from stream_dedup.cli.completion import complete_file, complete_recipe
from stream_dedup.cli.reading import reading_of, reading_options
from stream_dedup.cli.rules import author_of, read_rules
from stream_dedup.cli.terminal import note
from stream_dedup.clock import SystemClock
from stream_dedup.errors import IndexUnavailable, InputError
from stream_dedup.features.recipe import Recipe
from stream_dedup.index.redis.keys import ShardKeys, check_namespace
from stream_dedup.io.files import InputFile, expand, is_live
from stream_dedup.rules.book import RuleBook

if TYPE_CHECKING:
    from stream_dedup.ui.sources import Source

EXTRA = frozenset({"anyio", "h11", "hiredis", "jinja2", "redis", "starlette", "uvicorn"})
"""What the extra ``ui`` brings."""

DEFAULT_PORT = 9465

_DEFAULT_WINDOW = "1h"


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="A namespace in Redis instead of FILEs, or a pattern such as 'prod-*'. Repeatable.",
)
@connection_options
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Where to listen.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65_535), default=DEFAULT_PORT, show_default=True,
              help="Where to listen.")  # fmt: skip
@click.option(
    "--token-file",
    metavar="FILE",
    shell_complete=complete_file,
    help="File whose first line readers must know: a browser asks for it once.",
)
@click.option(
    "--user-header",
    default="",
    metavar="NAME",
    help="Header in which a proxy in front names the user it has signed in, as X-Forwarded-User. "
    "Whoever reaches the port without the proxy can send it too.",
)
@click.option("--open", "is_open", is_flag=True,
              help="Whoever reaches the address may read.")  # fmt: skip
@click.option(
    "--changes/--read-only",
    "changes",
    default=None,
    help="Let everybody who may read change rules (the default, but not with --open); with "
    "--read-only nobody can.",
)
@click.option(
    "--rules",
    "rules_path",
    metavar="FILE",
    shell_complete=complete_file,
    help="Rules about patterns of FILEs, a TOML file that the pages change; it may be a new one. "
    "Those of a namespace are stored there.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A further name by which the pages may be asked for; .example.org for all below it. "
    "Repeatable.",
)
@click.option(
    "--window",
    "window_us",
    type=Parsed("duration", partial(parse_duration, off=None)),
    default=_DEFAULT_WINDOW,
    show_default=True,
    metavar="DURATION",
    help="How far back counts over time go, of a namespace and of what is read live.",
)
@click.option(
    "-r",
    "--recipe",
    default="",
    metavar="NAME|FILE",
    shell_complete=complete_recipe,
    help="Decides what counts as near in FILEs, by default logs; of a namespace, names its recipe "
    "if it is not a shipped one.",
)
@set_option
@reading_options()
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Read the FILEs live, with what is added to them, also after a rotation, as tail -F does.",
)
@click.option("--max-clusters", type=click.IntRange(1), default=100_000, show_default=True,
              help="Of FILEs: with more, the least recently seen is closed.")  # fmt: skip
def ui(**options: Any) -> None:  # noqa: ANN401 -- as click passes them
    """Look at patterns in a browser: what was merged, how often, when, and why.

    Shows the patterns of FILEs; of standard input ("-"), other pipes and FILEs that grow
    (--follow), live; or, with --namespace, of workers that share Redis, live. You can also make
    lasting decisions about patterns there: merge, keep apart, name, mute, limit (see:
    stream-dedup rules --help). Ctrl-C ends it.

    Needs the extra: pip install 'stream-dedup[ui]'. Listens on 127.0.0.1; on another address only
    with --token-file, --user-header or --open.

    \b
    stream-dedup ui app.log --rules rules.toml
    kubectl logs -f deploy/api | stream-dedup ui -
    stream-dedup ui --follow /var/log/app.log
    stream-dedup ui --namespace logs --redis redis://10.0.0.7:6379
    stream-dedup ui -n 'prod-*' --host 0.0.0.0 --token-file token

    Exit codes: 0 ended by a signal; 2 an option is wrong, the address cannot be listened on, a FILE
    cannot be read at the start, or the server refuses. It waits for a server that does not answer.
    """
    with imports_of_extra("ui", EXTRA):
        from stream_dedup.ui import server  # noqa: PLC0415 -- an extra
        from stream_dedup.ui.app import Application  # noqa: PLC0415
        from stream_dedup.ui.security import Access, read_token  # noqa: PLC0415
    if bool(options["files"]) == bool(options["namespaces"]):
        raise click.UsageError("give FILEs, - for standard input, or --namespace")
    if options["follow"] and (options["namespaces"] or "-" in options["files"]):
        raise click.UsageError("--follow takes FILEs; pipes and namespaces are followed anyway")
    if options["namespaces"] and options["rules_path"]:
        raise click.UsageError(
            "--rules is of FILEs; the rules of a namespace are in Redis: stream-dedup rules import "
            "FILE --namespace NAME"
        )
    host: str = options["host"]
    token = read_token(options["token_file"]) if options["token_file"] else ""
    guarded = bool(token or options["user_header"])
    if not (guarded or options["is_open"] or _is_local(host)):
        raise click.UsageError(
            f"--host {host} can be reached from other machines: give --token-file, --user-header, "
            "or --open to let everybody read"
        )
    names = listening.HostNames([*options["allowed_hosts"], host])
    changes = options["changes"]
    if changes is None:
        changes = guarded or not options["is_open"]
    author = "" if guarded or options["is_open"] else author_of("")
    access = Access(names, token, options["user_header"], changes=changes, author=author)
    sock = listening.listen(host, options["port"])
    with sock:
        sources = _files(options) if options["files"] else _namespaces(options)
        place = listening.url(host, options["port"])
        app = Application(sources, access).asgi()
        server.serve(app, sock, lambda: click.echo(f"stream-dedup: {place}", err=True))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _files(options: dict[str, Any]) -> Sequence[Source]:
    from stream_dedup.ui.files import FileSource  # noqa: PLC0415 -- as above
    from stream_dedup.ui.live import ACTS, LiveSource  # noqa: PLC0415 -- as above
    from stream_dedup.ui.rules import InFile, SourceRules  # noqa: PLC0415 -- as above

    if options["input_format"] in {"csv", "parquet"}:
        raise click.UsageError("tables are not shown; give lines of text or JSON")
    recipe = recipe_of(options["recipe"] or "logs", options["settings"])
    reading = reading_of(options, guesses_times=not options["time_field"])
    paths = list(expand(options["files"]))
    most, follow = options["max_clusters"], options["follow"]
    live = follow or is_live(paths)
    for path in paths:
        try:
            # A pipe is opened once only; a file that is followed may come later.
            if not is_live([path]) and not (follow and not os.path.lexists(path)):
                InputFile(path, encoding=reading.encoding).close()
        except InputError as error:
            raise Failed(str(error)) from error
    rules = None
    if options["rules_path"]:
        read_rules(options["rules_path"], missing=RuleBook())
        place = options["rules_path"]
        rules = SourceRules(InFile(place, ACTS) if live else InFile(place))
    if not live:
        return [FileSource(paths, recipe, reading, most, rules)]

    return [
        LiveSource(
            paths, recipe, reading, most, options["window_us"], SystemClock(), note, rules,
            follow=follow,
        )
    ]  # fmt: skip


def _namespaces(options: dict[str, Any]) -> Sequence[Source]:
    from stream_dedup.tools.index_inspector.command import (  # noqa: PLC0415 -- needs an extra
        call,
        reader_factory,
        recipe_of_namespace,
    )
    from stream_dedup.tools.index_inspector.namespaces import find_all  # noqa: PLC0415
    from stream_dedup.tools.index_inspector.reader import (  # noqa: PLC0415
        Namespace,
        Progress,
        Reader,
    )
    from stream_dedup.ui.redis import RedisSource  # noqa: PLC0415

    async def all_names(reader: Reader, _: Progress) -> list[str]:
        return [name for name, _ in (await find_all(reader))[0]]

    async def ask(reader: Reader, _: Progress) -> None:
        with suppress(IndexUnavailable):  # it may come later
            for name in names:
                meta = ShardKeys(name, 0).meta
                await reader.command(meta, "HMGET", meta, "layout")

    names: dict[str, None] = {}
    for given in options["namespaces"]:
        if not set(given) & set("*?["):
            try:
                names[check_namespace(given)] = None
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint="'--namespace'") from error
            continue
        found = [name for name in call(options["options"], all_names) if fnmatchcase(name, given)]
        if not found:
            raise Failed(f"no namespace is named as {given!r}; stream-dedup index stats lists all")
        names.update(dict.fromkeys(found))
    call(options["options"], ask)  # a wrong password ends the command
    recipe = options["recipe"]

    def recipe_of_it(namespace: Namespace) -> Recipe | None:
        return recipe_of_namespace(namespace.name, namespace.recipe, namespace.digest, recipe)

    reader = cache(reader_factory(options["options"]))
    clock, window_us = SystemClock(), options["window_us"]
    return [RedisSource(reader, name, recipe_of_it, window_us, clock) for name in names]
