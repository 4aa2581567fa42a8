"""Load the configuration: defaults < TOML file < environment < flags.

Each source becomes a layer: a flat mapping from the path of a setting (``("kafka", "group_id")`` or
``("pipelines", "0", "topics")``) to its value and its origin. Updating one layer with the next one
merges them, and every setting keeps its origin. In the environment and in flags, a pipeline can be
given by its number or by its name.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import SecretStr, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from stream_dedup.config.model import DELIMITER, PREFIX, SECTIONS, Config
from stream_dedup.config.values import without_user
from stream_dedup.errors import MISSING, ConfigError, ConfigProblem

MAX_FILE_BYTES = 1 << 20
"""People write configurations; a larger file is a mistake."""

REDIS_VARIABLE = "STREAM_DEDUP_REDIS"
"""Gives ``index.url`` too, as it does to the commands ``stream-dedup index``."""

OTEL_VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "endpoint",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "traces_endpoint",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "metrics_endpoint",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "protocol",
    "OTEL_EXPORTER_OTLP_HEADERS": "headers",
}
"""Variables of OpenTelemetry's standard, and the keys of ``[otel]`` that they give."""

OTEL_DISABLED, OTEL_INTERVAL_MS = "OTEL_SDK_DISABLED", "OTEL_METRIC_EXPORT_INTERVAL"

PIPELINES = "pipelines"

NEAR_PREFIX = "STREAM_DEDUP_"
"""Begins variables that miss an underscore."""

FLAG = "--set"

NOWHERE = "configuration"
"""Origin of what is missing, if there is no file."""

_TRUE = {"true", "1", "on", "yes", "y", "t"}

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Given(NamedTuple):
    """A value and the file, variable or flag that gave it."""

    value: Any
    origin: str


Keys = tuple[str, ...]
Layer = dict[Keys, Given]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and the origins of its values.

    Attributes:
        config: the configuration.
        origins: dotted key → file, environment variable or flag that gave it. What is missing has
            its default value.
    """

    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)


def load(file: str | None = None, settings: Sequence[str] = ()) -> Loaded:
    """Load the configuration.

    Args:
        file: the TOML file, if any.
        settings: the values of ``--set``, as ``key=value``.

    Raises:
        ConfigError: names origin, key, problem and remedy of everything wrong; no secrets.
    """
    lowest = _read_file(file) if file else {}
    environment = _read_environment(lowest)
    flags = _read_flags(settings, _merge(lowest, environment))
    otel = _read_otel_variables(_merge(lowest, environment, flags))
    layer = _merge(lowest, otel, environment, flags)
    document = _nest(layer)
    origins = {".".join(path): given.origin for path, given in layer.items()}
    try:
        return Loaded(Config(**document), origins)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [
            _explain(each, document, origins, file or NOWHERE)
            for each in found
            if not _follows(each, document)
        ]
    # Outside of the handler: pydantic's error contains the values, and secrets among them.
    raise ConfigError(*dict.fromkeys(problems))


def _wrong(origin: str, key: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(ConfigProblem(origin, key, problem, remedy))


def _merge(*layers: Layer) -> Layer:
    """Merge layers, the last one wins. Pipelines given as one value replace those below."""
    merged: Layer = {}
    for layer in layers:
        if (PIPELINES,) in layer:
            merged = {path: given for path, given in merged.items() if path[0] != PIPELINES}
        merged |= layer
    return merged


# ------------------------------------------------------------ the file


def _read_file(file: str) -> Layer:
    """Read a TOML file, or a pipe. Files named in it are relative to its folder.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    path = Path(file)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _wrong(file, "", "larger than 1 MiB", "give a configuration file")
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise _wrong(file, "", problem, "check path and permissions") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(file, "", f"not TOML: {error}", "correct it there") from error
    except ValueError:  # its message contains the bytes that could not be decoded
        raise _wrong(file, "", "not TOML in UTF-8", "save it as UTF-8") from None
    return {
        keys: Given(_relative_to(path.parent, keys[-1], value), file)
        for keys, value in _flatten(document)
    }


def _flatten(value: Any, above: Keys = ()) -> Iterator[tuple[Keys, Any]]:  # noqa: ANN401 -- TOML's
    """Yield path and value of all settings in a document."""
    if above == (PIPELINES,) and isinstance(value, list | tuple):
        value = {str(index): table for index, table in enumerate(value)}
    # An empty table sets nothing, except that it makes a pipeline.
    if isinstance(value, Mapping) and (value or above[:1] != (PIPELINES,)):
        for name, below in value.items():
            yield from _flatten(below, (*above, name))
    else:
        yield above, value


def _relative_to(folder: Path, key: str, value: object) -> object:
    """Resolve the path of a file, if the value is one."""
    if not isinstance(value, str) or not value:
        return value
    is_path = key.endswith("_file") or (
        key == "recipe" and (os.sep in value or value.endswith(".toml"))
    )
    return str(folder / value) if is_path else value


# ------------------------------------------------------------ the environment


def _read_environment(below: Layer) -> Layer:
    """Read the environment variables.

    Args:
        below: the layers below, for the names of pipelines.

    Raises:
        ConfigError: a variable matches no setting, or is not JSON where it must be.
    """
    names = {name.lower(): name for name in os.environ if name.upper().startswith(PREFIX)}
    _check_sections(names.values())
    _check_underscores(os.environ)
    layer: Layer = {}
    if os.environ.get(REDIS_VARIABLE):
        layer["index", "url"] = Given(os.environ[REDIS_VARIABLE], REDIS_VARIABLE)
    try:
        document = EnvSettingsSource(Config)()
    except SettingsError:
        # Its message and its cause may contain a secret.
        remedy = f"write a JSON list of objects, or set {PREFIX}PIPELINES__0__TOPICS and so on"
        raise _wrong(PREFIX + PIPELINES.upper(), PIPELINES, "is not JSON", remedy) from None
    if (whole := names.get((PREFIX + PIPELINES).lower())) is not None:
        layer[(PIPELINES,)] = Given({}, whole)
    for keys, value in _flatten(document):
        variable = (PREFIX + DELIMITER.join(keys)).lower()
        origin = names.get(variable, (PREFIX + keys[0]).upper())
        layer[_numbered(keys, below, origin)] = Given(value, origin)
    return layer


def _check_sections(names: Iterable[str]) -> None:
    for name in sorted(names):
        section, *keys = name[len(PREFIX) :].split(DELIMITER)
        whole = section.lower() == PIPELINES and not keys
        if section.lower() not in SECTIONS or not (whole or (keys and all(keys))):
            close = difflib.get_close_matches(section.lower(), list(SECTIONS), 1, 0.5)
            example = f"{PREFIX}{(close or ['kafka'])[0].upper()}{DELIMITER}..."
            raise _wrong(name, "", "means no setting", f"write {example}")


def _check_underscores(variables: Mapping[str, str]) -> None:
    """Refuse a variable that would be a setting if it had the right number of underscores.

    Kubernetes gives variables such as STREAM_DEDUP_HTTP_PORT=tcp://… for services of such names;
    those are left alone.

    Raises:
        ConfigError: there is one.
    """
    for name, value in sorted(variables.items()):
        if not name.upper().startswith(NEAR_PREFIX) or "://" in value[:8]:
            continue
        section, _, rest = name.upper().removeprefix(NEAR_PREFIX).partition("_")
        if section.lower() not in SECTIONS:
            continue
        meant = _setting(section.lower(), re.sub("_+", "_", rest.strip("_")))
        if meant or rest.startswith("_"):
            variable = f"{PREFIX}{section}{DELIMITER}{meant or '...'}"
            remedy = f"write {variable}, with two underscores between its parts"
            raise _wrong(name, "", "means no setting", remedy)


def _setting(section: str, name: str) -> str:
    """Find the setting of a section whose variable ends with a name, but for underscores."""
    for key in sorted(SECTIONS[section].model_fields, key=len, reverse=True):
        pipeline, found, after = name.rpartition(key.upper())
        if found and not after:
            if section == PIPELINES and pipeline.strip("_"):
                return f"{pipeline.strip('_')}{DELIMITER}{found}"
            if section != PIPELINES and not pipeline:
                return found
    return ""


def _read_otel_variables(below: Layer) -> Layer:
    """Read OpenTelemetry's own variables, if `otel.enabled` is true.

    If it is not, the variables belong to other programs, and may hold what we do not support.
    Empty variables, and intervals that are not numbers, give nothing.
    """
    enabled = below.get(("otel", "enabled"), Given(False, ""))
    if str(enabled.value).strip().lower() not in _TRUE:
        return {}
    layer: Layer = {}
    if os.environ.get(OTEL_DISABLED, "").strip().lower() == "true":
        layer["otel", "enabled"] = Given("false", OTEL_DISABLED)
    for variable, key in OTEL_VARIABLES.items():
        if value := os.environ.get(variable, "").strip():
            layer["otel", key] = Given(value, variable)
    interval_ms = os.environ.get(OTEL_INTERVAL_MS, "").strip()
    if interval_ms.isascii() and interval_ms.isdecimal() and int(interval_ms):
        layer["otel", "metrics_every_s"] = Given(f"{interval_ms}ms", OTEL_INTERVAL_MS)
    return layer


# ------------------------------------------------------------ flags


def _read_flags(settings: Sequence[str], below: Layer) -> Layer:
    """Read the values of ``--set key=value``.

    Args:
        settings: the values.
        below: the layers below, for the names of pipelines.

    Raises:
        ConfigError: one is not a key and a value.
    """
    layer: Layer = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            shown = key.encode("utf-8", "backslashreplace").decode() if equals else "a setting"
            remedy = f"write {FLAG} KEY=VALUE, as in {FLAG} kafka.group_id=audit"
            problem = f"{shown} is not a key and a value"
            raise _wrong(FLAG, "", problem, remedy)
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise _wrong(FLAG, key, "is not UTF-8", "give UTF-8")
        keys = _numbered(tuple(key.split(".")), below | layer, FLAG)
        layer[keys] = Given(_unquote(value), FLAG)
    return layer


def _unquote(value: str) -> str:
    """Remove quotes around a value: a shell removes them, a file with arguments does not."""
    text = value.strip()
    if text[:1] in {'"', "'"}:
        try:
            found = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return value
        return found if isinstance(found, str) else value
    return value


# ------------------------------------------------------------ pipelines


def _numbered(keys: Keys, below: Layer, origin: str) -> Keys:
    """Replace a pipeline's name in a path by its number."""
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
        raise _wrong(origin, ".".join(keys), problem, remedy)
    return (PIPELINES, number, *keys[2:])


def _nest(layer: Layer) -> dict[str, Any]:
    """Turn a layer into nested tables.

    Raises:
        ConfigError: a value is given where a table must be, or the number of a pipeline is missing.
    """
    document: dict[str, Any] = {}
    for path, given in layer.items():
        table = document
        for index, key in enumerate(path[:-1]):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                origin = layer[path[: index + 1]].origin
                where = ".".join(path[: index + 1])
                raise _wrong(origin, where, "is not a table", f"give [{where}] its keys")
        table[path[-1]] = given.value
    pipelines = document.get(PIPELINES)
    if isinstance(pipelines, dict):
        document[PIPELINES] = _listed(pipelines, layer)
    return document


def _listed(pipelines: dict[str, Any], layer: Layer) -> list[Any]:
    numbered = {int(number): table for number, table in pipelines.items() if number.isdecimal()}
    for wanted, number in enumerate(sorted(numbered)):
        if wanted != number:
            key = f"{PIPELINES}.{number}"
            origin = next(g.origin for p, g in layer.items() if p[:2] == (PIPELINES, str(number)))
            problem = f"there is no {PIPELINES}.{wanted} before it"
            raise _wrong(origin, key, problem, "number them 0, 1, 2 and so on")
    return [numbered[number] for number in sorted(numbered)]


# ------------------------------------------------------------ errors


def _follows(error: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Return whether one of pydantic's errors only follows from another one."""
    if error["type"] == "default_factory_not_called":
        return True
    wrong_ones_left_out = error["type"] == "too_short" and error["loc"] == (PIPELINES,)
    return wrong_ones_left_out and bool(document.get(PIPELINES))


def _explain(
    error: Mapping[str, Any], document: Mapping[str, Any], origins: Mapping[str, str], default: str
) -> ConfigProblem:
    """Turn one of pydantic's errors into a problem with a remedy."""
    path = [str(part) for part in error["loc"]]
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "wrong":
        path += context["key"].split(".") if context["key"] else []
        problem, remedy = context["problem"], context["remedy"]
    elif kind == "extra_forbidden":
        known = list(SECTIONS[path[0]].model_fields if len(path) > 1 else SECTIONS)
        close = difflib.get_close_matches(path[-1].lower(), known, 1, 0.5)
        problem = "unknown key"
        remedy = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
    elif kind in {"missing", "too_short", "string_too_short"}:
        problem = MISSING if kind == "missing" else "is empty"
        remedy = _ask_for(path)
        if not document and default == NOWHERE:
            remedy = "give a file (--config); stream-dedup config init writes one"
    else:
        problem, remedy = _plain_problem(error, _show_value(path, document)), ""
    key = ".".join(path)
    return ConfigProblem(_origin_of(key, origins, default), key, problem, remedy)


def _origin_of(key: str, origins: Mapping[str, str], default: str) -> str:
    """Find the origin of a key, or of one above or below it."""
    above = [key.rsplit(".", count)[0] for count in range(key.count(".") + 1)]
    for name in above:
        if name in origins:
            return origins[name]
    below = (origin for name, origin in origins.items() if name.startswith(f"{key}."))
    return next(below, default)


def _ask_for(path: list[str]) -> str:
    if path == [PIPELINES]:
        return "add a table [[pipelines]] with topics and output_topic"
    info = SECTIONS[path[0]].model_fields.get(path[-1])
    described = ((info and info.description) or "value").partition(".")[0]
    return f"give the {described[:1].lower()}{described[1:]}"


_PROBLEMS = {
    "bool": "is not true or false",
    "dict": "is not a table with keys",
    "finite": "is not a number",
    "float": "is not a number",
    "int": "is not an integer",
    "list": "is not a list",
    "model": "is not a table with keys",
    "string": "is not a text",
    "tuple": "is not a list",
    "greater_than": "is not more than {gt}",
    "greater_than_equal": "is less than {ge}",
    "less_than": "is not less than {lt}",
    "less_than_equal": "is more than {le}",
    "string_too_long": "is longer than {max_length} characters",
}
"""What is wrong with a value, by pydantic's type of error, or how this begins."""


def _plain_problem(error: Mapping[str, Any], value: str) -> str:
    """Turn pydantic's message into a sentence about the value."""
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "literal_error":
        problem = f"is not one of {_listed_plainly(context['expected'])}"
    elif kind in _PROBLEMS:
        problem = _PROBLEMS[kind].format(**context)
    elif kind.endswith(("_type", "_parsing", "_from_float", "_number")):
        problem = _PROBLEMS.get(kind.partition("_")[0], "is not what it must be")
    else:
        problem = f"is wrong: {error['msg']}"
    return f"{value} {problem}".lstrip()


def _listed_plainly(expected: str) -> str:
    """Return pydantic's list of literals without quotes.

    >>> _listed_plainly("'earliest', 'latest' or 'fail'")
    'earliest, latest, fail'
    """
    return expected.replace("'", "").replace(" or ", ", ")


def _show_value(path: list[str], document: Mapping[str, Any]) -> str:
    """Show a wrong value; nothing if it is a secret, or a table, which may contain one."""
    info = SECTIONS[path[0]].model_fields.get(path[-1]) if len(path) > 1 else None
    value: Any = document
    for part in path:
        if isinstance(value, list) and part.isdecimal():
            value = value[int(part)]
        elif isinstance(value, Mapping):
            value = value.get(part)
    plain = isinstance(value, str | int | float | bool)
    secret = info is None or SecretStr in (info.annotation, *get_args(info.annotation))
    if isinstance(value, str) and "://" in value:
        value = without_user(value)
    return repr(value) if plain and not secret else ""
