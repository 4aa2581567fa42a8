"""Where settings are given: a TOML file, the environment, flags; each as a layer over the last.

A layer is flat: it maps the path of a setting (``("kafka", "group_id")``, or ``("pipelines", "0",
"topics")``) to its value and the place that gave it. So layers are merged by updating one with the
next, and every setting can tell where it comes from. In the environment and in flags a pipeline
goes by its number, or by its name.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_settings import EnvSettingsSource, SettingsError

from stream_dedup.config.model import DELIMITER, PREFIX, Config
from stream_dedup.config.otel import standard
from stream_dedup.errors import ConfigError, ConfigProblem

MAX_FILE_BYTES = 1 << 20
"""A configuration is written by people; a larger file is a mistake."""

REDIS_VARIABLE = "STREAM_DEDUP_REDIS"
"""Gives ``index.url`` too, as to the commands ``stream-dedup index``."""

PIPELINES = "pipelines"

FLAG = "--set"

_TRUE = {"true", "1", "on", "yes", "y", "t"}

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

Keys = tuple[str, ...]


class Given(NamedTuple):
    """A value, and where it was given."""

    value: Any
    place: str


Layer = dict[Keys, Given]


# ------------------------------------------------------------ the file


def file_layer(file: str) -> Layer:
    """What a file gives. Files that it names are relative to its folder.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    path = Path(file)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            problem = ConfigProblem(file, "", "larger than 1 MiB", "give a configuration's file")
            raise ConfigError(problem)
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problem = ConfigProblem(
            file, "", f"cannot be read ({error.strerror})", "check path and permissions"
        )
        raise ConfigError(problem) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(ConfigProblem(file, "", f"not TOML: {error}", "mend it there")) from error
    except ValueError:  # its message repeats what it could not read
        problem = ConfigProblem(file, "", "not TOML in UTF-8", "save it as UTF-8")
        raise ConfigError(problem) from None
    return {
        keys: Given(_based(keys[-1], value, path.parent), file) for keys, value in flat(document)
    }


def flat(value: Any, above: Keys = ()) -> Iterator[tuple[Keys, Any]]:  # noqa: ANN401 -- TOML's
    """(path, value) of all settings in a document."""
    if above == (PIPELINES,) and isinstance(value, list | tuple):
        value = {str(index): table for index, table in enumerate(value)}
    # An empty table says nothing, but that there is a pipeline.
    if isinstance(value, Mapping) and (value or above[:1] != (PIPELINES,)):
        for name, below in value.items():
            yield from flat(below, (*above, name))
    else:
        yield above, value


def _based(key: str, value: object, folder: Path) -> object:
    """A file's path, from the folder of the file that names it."""
    if not isinstance(value, str) or not value:
        return value
    is_path = key.endswith("_file") or (
        key == "recipe" and (os.sep in value or value.endswith(".toml"))
    )
    return str(folder / value) if is_path else value


# ------------------------------------------------------------ the environment


def environment_layer(below: Mapping[Keys, Given]) -> Layer:
    """What environment variables give.

    Args:
        below: the layers below; pipelines are found there by name.

    Raises:
        ConfigError: a variable means no setting, or is not JSON where it has to be.
    """
    names = {name.lower(): name for name in os.environ if name.upper().startswith(PREFIX)}
    _check_sections(names.values())
    layer: Layer = {}
    if os.environ.get(REDIS_VARIABLE):
        layer["index", "url"] = Given(os.environ[REDIS_VARIABLE], REDIS_VARIABLE)
    try:
        document = EnvSettingsSource(Config)()
    except SettingsError:
        # Its message, and what it is made of, may repeat a secret.
        problem = ConfigProblem(
            PREFIX + PIPELINES.upper(),
            PIPELINES,
            "is not JSON",
            f"write a JSON list of objects, or set {PREFIX}PIPELINES__0__TOPICS and so on",
        )
        raise ConfigError(problem) from None
    for keys, value in flat(document):
        variable = (PREFIX + DELIMITER.join(keys)).lower()
        place = names.get(variable, (PREFIX + keys[0]).upper())
        layer[_addressed(keys, below, place)] = Given(value, place)
    return layer


def otel_layer(below: Mapping[Keys, Given]) -> Layer:
    """What OpenTelemetry's own variables give, where `otel.enabled` is true.

    Elsewhere they are others': whoever sends nothing need not be able to read them.

    Args:
        below: what all layers give together.
    """
    enabled = below.get(("otel", "enabled"), Given(False, ""))
    if str(enabled.value).strip().lower() not in _TRUE:
        return {}
    found = standard(os.environ)
    return {("otel", key): Given(value, variable) for key, value, variable in found}


def _check_sections(names: Iterable[str]) -> None:
    known = list(Config.model_fields)
    for name in sorted(names):
        section, *keys = name[len(PREFIX) :].split(DELIMITER)
        whole = section.lower() == PIPELINES and not keys
        if section.lower() not in known or not (whole or (keys and all(keys))):
            close = difflib.get_close_matches(section.lower(), known, 1, 0.5)
            example = f"{PREFIX}{(close or ['kafka'])[0].upper()}{DELIMITER}..."
            raise ConfigError(ConfigProblem(name, "", "means no setting", f"write {example}"))


# ------------------------------------------------------------ flags


def flag_layer(settings: Sequence[str], below: Mapping[Keys, Given]) -> Layer:
    """What ``--set key=value`` gives.

    Args:
        settings: the flags' values.
        below: as for `environment_layer`.

    Raises:
        ConfigError: one is no key and value.
    """
    layer: Layer = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        remedy = f"write {FLAG} KEY=VALUE, as in {FLAG} kafka.group_id=audit"
        if not equals or not _KEY.fullmatch(key):
            shown = key.encode("utf-8", "backslashreplace").decode() if equals else "a setting"
            raise ConfigError(ConfigProblem(FLAG, "", f"{shown} is no key and value", remedy))
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ConfigError(ConfigProblem(FLAG, key, "is not UTF-8", "give UTF-8"))
        keys = _addressed(tuple(key.split(".")), {**below, **layer}, FLAG)
        layer[keys] = Given(_unquoted(value), FLAG)
    return layer


def _unquoted(value: str) -> str:
    """What stands between quotes: shells take them away, files of flags do not."""
    text = value.strip()
    if text[:1] in {'"', "'"}:
        try:
            found = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return value
        return found if isinstance(found, str) else value
    return value


# ------------------------------------------------------------ pipelines


def _addressed(keys: Keys, below: Mapping[Keys, Given], place: str) -> Keys:
    """The path with the pipeline's number where its name was given."""
    if keys[0] != PIPELINES or len(keys) < 2 or keys[1].isdecimal():
        return keys
    names = {
        str(given.value).lower(): path[1]
        for path, given in below.items()
        if path[0] == PIPELINES and path[2:] == ("name",)
    }
    number = names.get(keys[1].lower())
    if number is None:
        known = ", ".join(sorted(names)) or "none has a name"
        remedy = f"give its number, from 0, or one of the names: {known}"
        problem = f"no pipeline is named {keys[1]!r}"
        raise ConfigError(ConfigProblem(place, ".".join(keys), problem, remedy))
    return (PIPELINES, number, *keys[2:])


def merged(lower: Layer, upper: Layer) -> Layer:
    """One layer over another. A list of pipelines given as a whole replaces the one below."""
    whole = {path[0] for path in upper if path == (PIPELINES,)}
    return {path: given for path, given in lower.items() if path[0] not in whole} | upper


def document(layer: Layer) -> dict[str, Any]:
    """The settings as tables in tables.

    Raises:
        ConfigError: a table was given as a value, or a pipeline left out.
    """
    made: dict[str, Any] = {}
    for path, given in layer.items():
        table = made
        for index, key in enumerate(path[:-1]):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                place = layer[path[: index + 1]].place
                where = ".".join(path[: index + 1])
                problem = ConfigProblem(place, where, "is no table", f"give [{where}] its keys")
                raise ConfigError(problem)
        table[path[-1]] = given.value
    pipelines = made.get(PIPELINES)
    if isinstance(pipelines, dict):
        made[PIPELINES] = _listed(pipelines, layer)
    return made


def _listed(pipelines: dict[str, Any], layer: Layer) -> list[Any]:
    numbered = {int(number): table for number, table in pipelines.items() if number.isdecimal()}
    for wanted, number in enumerate(sorted(numbered)):
        if wanted != number:
            key = f"{PIPELINES}.{number}"
            place = next(g.place for p, g in layer.items() if p[:2] == (PIPELINES, str(number)))
            problem = f"there is no {PIPELINES}.{wanted} before it"
            raise ConfigError(ConfigProblem(place, key, problem, "number them 0, 1, 2 and so on"))
    return [numbered[number] for number in sorted(numbered)]
