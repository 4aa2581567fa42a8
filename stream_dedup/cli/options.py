"""Options that several commands share."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable
from typing import Any, TypeVar

import click

from stream_dedup.cli.completion import complete_recipe
from stream_dedup.clustering.windows import FOREVER_US
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.units import OFF, read_duration_us

T = TypeVar("T")


# Generic since click 8.4, which Faust does not take.
class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A duration such as ``90s``, ``5m`` or ``1h``; ``off`` for none. In microseconds."""

    name = "duration"

    def __init__(self, off: int | None) -> None:
        self._off = off

    def convert(
        self,
        value: Any,  # noqa: ANN401 -- as click hands it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int | None:
        if not isinstance(value, str):
            number: int | None = value
            return number
        if value in OFF:
            return self._off
        try:
            length_us = read_duration_us(value)
        except ValueError:
            length_us = 0.0
        if length_us < 1:
            self.fail(f"{value!r} is no duration; write 90s, 5m, 1h, 2d or off", param, ctx)
        return FOREVER_US if length_us >= FOREVER_US else round(length_us)


recipe_option = click.option(
    "-r",
    "--recipe",
    default="logs",
    show_default=True,
    metavar="NAME|FILE",
    shell_complete=complete_recipe,
    help="What counts as near: a shipped recipe or a TOML file (see: stream-dedup recipes).",
)

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the recipe, as in match.k=4 or text.masks=['ipv4']. Repeatable.",
)


def recipe_of(name: str, settings: tuple[str, ...]) -> Recipe:
    """The recipe that the options name.

    Raises:
        RecipeError: there is none, or it is wrong.
        click.BadParameter: a setting is not of the form ``key=value``.
    """
    recipe = load_recipe(name)
    changes: dict[str, Any] = {}
    for setting in settings:
        if any("\ud800" <= character <= "\udfff" for character in setting):
            raise click.BadParameter(f"{setting!r} is not UTF-8", param_hint="'--set'")
        key, equals, value = setting.partition("=")
        if not equals or not re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", key.strip()):
            raise click.BadParameter(
                f"{setting!r} is not KEY=VALUE, as in match.k=4", param_hint="'--set'"
            )
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value.strip()  # a bare word
        changes[key.strip().replace(".", "__")] = parsed
    return replace(recipe, **changes) if changes else recipe


_REDIS_OPTIONS = (
    click.option(
        "--redis",
        envvar="STREAM_DEDUP_REDIS",
        default="redis://127.0.0.1:6379",
        show_default=True,
        metavar="URL",
        help="Where Redis is, else what STREAM_DEDUP_REDIS says: redis://, rediss://, unix://, "
        "redis+cluster:// or redis+sentinel:// with hosts (see: stream-dedup index --help).",
    ),
    click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                 help="Certificates of authorities, PEM, for rediss://; else the system's."),
    click.option("--cert-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                 help="The client's certificate, PEM, where the server asks for one."),
    click.option("--key-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                 help="The key of --cert-file, PEM."),
    click.option("--no-check-hostname", is_flag=True,
                 help="Take a certificate that names another host."),
    click.option("--password-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                 help="Its first line is the password; so no process list shows it."),
    click.option("--timeout", type=click.FloatRange(0.1), default=10.0, show_default=True,
                 metavar="SECONDS", help="A call that fails is tried again for so long."),
    click.option("--format", type=click.Choice(["table", "json"]), default="table",
                 show_default=True, help="json is one object."),
)  # fmt: skip


def redis_options(*, namespace: bool = True) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The options of commands over Redis, handed on as one argument, ``options``.

    Args:
        namespace: whether a namespace has to be given.
    """
    named = click.option(
        "-n",
        "--namespace",
        required=namespace,
        default=None if namespace else "",
        metavar="NAME",
        help="The namespace; without it, all are listed."
        if not namespace
        else "The namespace (see: stream-dedup index stats).",
    )

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def gathered(**arguments: Any) -> T:  # noqa: ANN401 -- as click hands them
            own = {name: arguments.pop(name) for name in _REDIS_NAMES}
            return function(options=own, **arguments)

        for option in reversed((named, *_REDIS_OPTIONS)):
            gathered = option(gathered)
        return gathered

    return decorate


_REDIS_NAMES = (
    "redis", "namespace", "ca_file", "cert_file", "key_file", "no_check_hostname",
    "password_file", "timeout", "format",
)  # fmt: skip
