"""Loads the configuration (defaults < TOML file < environment < flags), or says what is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from stream_dedup.config import layers
from stream_dedup.config.model import Config
from stream_dedup.errors import ConfigError, ConfigProblem

NOWHERE = "configuration"
"""The place of what nobody gave, without a file."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where it comes from.

    Attributes:
        config: the configuration.
        origins: dotted key → file, environment variable or flag that gave it; what is not there is
            a default.
    """

    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)


def load(file: str | None = None, settings: Sequence[str] = ()) -> Loaded:
    """Load the configuration.

    Args:
        file: the TOML file, if there is one.
        settings: what flags say, as ``key=value``.

    Raises:
        ConfigError: names place, key, problem and remedy of all that is wrong; no secrets.
    """
    lowest = layers.file_layer(file) if file else {}
    environment = layers.environment_layer(lowest)
    flags = layers.flag_layer(settings, layers.merged(lowest, environment))
    layer = layers.merged(layers.merged(lowest, environment), flags)
    lowest |= layers.otel_layer(layer)
    layer = layers.merged(layers.merged(lowest, environment), flags)
    document = layers.document(layer)
    origins = {".".join(path): given.place for path, given in layer.items()}
    try:
        config = Config(**document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [_explained(each, document, origins, file or NOWHERE) for each in found]
    else:
        return Loaded(config, origins)
    # Outside of the handler: the original repeats what it was given, secrets too.
    raise ConfigError(*dict.fromkeys(problems))


def _explained(
    error: Mapping[str, Any], document: Mapping[str, Any], origins: Mapping[str, str], default: str
) -> ConfigProblem:
    """One of pydantic's errors as ours."""
    path = [str(part) for part in error["loc"]]
    kind: str = error["type"]
    if kind == "wrong":
        told = error["ctx"]
        path += told["key"].split(".") if told["key"] else []
        problem, remedy = told["problem"], told["remedy"]
    elif kind == "extra_forbidden":
        known = list(_model(path[:-1]).model_fields)
        close = difflib.get_close_matches(path[-1].lower(), known, 1, 0.5)
        problem = "unknown key"
        remedy = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
    elif kind == "missing":
        problem, remedy = "is missing", _call_for(path)
    elif kind in {"too_short", "string_too_short"}:
        problem, remedy = "is empty", _call_for(path)
    else:
        problem, remedy = _shown(path, document), _plain(error)
    key = ".".join(path)
    return ConfigProblem(_place(key, origins, default), key, problem, remedy)


def _place(key: str, origins: Mapping[str, str], default: str) -> str:
    """Who gave a key, or something below or above it."""
    above = [key.rsplit(".", count)[0] for count in range(key.count(".") + 1)]
    for name in above:
        if name in origins:
            return origins[name]
    below = (place for name, place in origins.items() if name.startswith(f"{key}."))
    return next(below, default)


def _call_for(path: list[str]) -> str:
    if path == ["pipelines"]:
        return "add a table [[pipelines]] with topics and output_topic"
    info = _model(path[:-1]).model_fields.get(path[-1])
    return f"give it: {(info and info.description) or ''}".rstrip(".: ")


def _plain(error: Mapping[str, Any]) -> str:
    """What pydantic asks for, as we say it."""
    told = error.get("ctx", {})
    if error["type"] == "literal_error":
        return f"use {told['expected']}"
    message = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value ")
    if error["type"] in {"model_type", "dict_type", "model_attributes_type"}:
        return "give a table with its keys"
    return f"give {message}" if message != error["msg"] else message[:1].lower() + message[1:]


def _shown(path: list[str], document: Mapping[str, Any]) -> str:
    """A value that is wrong; not that of a secret, nor of a table, which may hold one."""
    info = _model(path[:-1]).model_fields.get(path[-1])
    secret = info is not None and SecretStr in (info.annotation, *get_args(info.annotation))
    value: Any = document
    for part in path:
        value = value[int(part)] if isinstance(value, list) and part.isdecimal() else value
        value = value.get(part) if isinstance(value, Mapping) else value
    plain = isinstance(value, str | int | float | bool)
    open_ = info is not None and plain and not secret and len(path) > 1
    return f"is {value!r}" if open_ else "is not what it must be"


def _model(path: Sequence[str]) -> type[BaseModel]:
    """The section of a path, or the last one on its way."""
    model: type[BaseModel] = Config
    for part in path:
        info = model.model_fields.get(part)
        if info is not None:
            model = next(filter(_is_model, (info.annotation, *get_args(info.annotation))), model)
    return model


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def settings() -> Iterator[tuple[str, str, Any]]:
    """(section, key, pydantic's field) of every setting there is, in order."""
    for section in Config.model_fields:
        for name, each in _model([section]).model_fields.items():
            yield section, name, each
