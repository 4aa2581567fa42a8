"""What all sections share: durations, sizes, lists, and secrets that are read from files."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    SecretStr,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from stream_dedup.clock import US_PER_S
from stream_dedup.clustering.windows import FOREVER_US
from stream_dedup.units import OFF, read_duration_us, read_size

MAX_SECRET_BYTES = 1 << 16
"""A file with a password is small; a larger one must be some other file."""

FOREVER = math.inf
"""``off``, in seconds."""

DURATION_REMEDY = "write 250ms, 60s or 1h, for example"
SIZE_REMEDY = "write 65536, 64KiB or 1MiB, for example"


HIDDEN = "**********"
"""Shown in place of every secret."""


def without_user(url: str) -> str:
    """Hide user and password of a URL, also where they contain what a URL may not.

    >>> without_user("http://user:pa/ss@word@host:4318/v1")
    'http://**********@host:4318/v1'
    """
    before, at, host = url.rpartition("@")
    scheme, slashes, _ = before.partition("://")
    return f"{scheme + slashes if slashes else ''}{HIDDEN}@{host}" if at else url


def wrong(problem: str, remedy: str, key: str = "") -> PydanticCustomError:
    """Return a validator's error.

    Args:
        problem: what is wrong with the value; contains no secret.
        remedy: how to correct it.
        key: the setting, if it is one inside of what is validated.
    """
    context = {"problem": problem, "remedy": remedy, "key": key}
    return PydanticCustomError("wrong", "{problem}; {remedy}", context)


def _seconds(value: object) -> object:
    """Read a number of seconds, or a text such as 250ms or off."""
    if isinstance(value, str):
        text = value.strip()
        if text in OFF:
            return FOREVER
        try:
            return float(text) if _is_number(text) else read_duration_us(text) / US_PER_S
        except ValueError:
            raise wrong(f"{value!r} is not a duration", DURATION_REMEDY) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise wrong("is not a duration", DURATION_REMEDY)
    return float(value)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and text.isascii()


def _positive(value: float) -> float:
    if value * US_PER_S < 1:
        raise wrong("is not above 0", "give a duration of a microsecond or more")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise wrong("is below 0", "give 0 or more")
    return value


def _finite(value: float) -> float:
    if value > FOREVER_US / US_PER_S:
        raise wrong("may not be off or infinite", DURATION_REMEDY)
    return value


def _size(value: object) -> object:
    if isinstance(value, str):
        try:
            return read_size(value.strip())
        except ValueError:
            raise wrong(f"{value!r} is not a size", SIZE_REMEDY) from None
    if isinstance(value, bool):
        raise wrong("is not a size", SIZE_REMEDY)
    return value


def _words(value: object) -> object:
    """Read a list: a TOML list, or values with commas between them."""
    if not isinstance(value, str):
        return value
    if value.strip().startswith("["):
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            raise wrong(
                f"{without_user(value)!r} is not a list", "write a,b or ['a', 'b']"
            ) from None
    return [word.strip() for word in value.split(",") if word.strip()]


Seconds = Annotated[
    float, BeforeValidator(_seconds), AfterValidator(_finite), AfterValidator(_positive)
]
"""A duration above 0."""

SecondsOrZero = Annotated[
    float, BeforeValidator(_seconds), AfterValidator(_finite), AfterValidator(_not_negative)
]
"""A duration, or 0 for none."""

SecondsOrOff = Annotated[float, BeforeValidator(_seconds), AfterValidator(_positive)]
"""A duration above 0; infinite if off."""

Size = Annotated[int, BeforeValidator(_size)]
"""Bytes."""

Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
"""Several values."""


Secret = Annotated[SecretStr | None, BeforeValidator(lambda value: None if value == "" else value)]
"""A secret, or none; an empty environment variable gives none."""


def microseconds(seconds: float) -> int:
    """Convert a duration; an infinite one becomes `FOREVER_US`."""
    length_us = seconds * US_PER_S
    return FOREVER_US if length_us >= FOREVER_US else round(length_us)


class Section(BaseModel):
    """A table of the file. It is frozen, refuses unknown keys, and prints no secrets.

    The docstring of a field is the setting's description in the template and in the reference.
    A secret ``x`` has a key ``x_file`` beside it: the first line of that file is the secret.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    SECRETS: ClassVar[tuple[str, ...]] = ()

    _secrets: dict[str, SecretStr] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _read_secrets(self) -> Section:
        for name in self.SECRETS:
            given: SecretStr | None = getattr(self, name)
            file: str = getattr(self, f"{name}_file")
            if given is not None and file:
                raise wrong(f"and {name}_file are both given", "leave one of them out", name)
            if file:
                self._secrets[name] = _read_secret(file, f"{name}_file")
            elif given is not None:
                self._secrets[name] = given
        return self

    def secret(self, name: str) -> str | None:
        """Return a secret, from its key or from its file; None if neither gives it."""
        found = self._secrets.get(name)
        return None if found is None else found.get_secret_value()


def _read_secret(file: str, key: str) -> SecretStr:
    remedy = "name a small text file whose first line is the secret"
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_SECRET_BYTES + 1)
        first = next(iter(data.decode("utf-8").splitlines()), "")
    except OSError as error:
        problem = f"names {file!r}, which cannot be read ({error.strerror})"
        raise wrong(problem, "check path and permissions", key) from None
    except ValueError as error:  # not UTF-8, or a NUL in the path
        kind = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else "is not a path"
        raise wrong(f"names {file!r}, which {kind}", remedy, key) from None
    if len(data) > MAX_SECRET_BYTES:
        raise wrong(f"names {file!r}, which is larger than 64 KiB", remedy, key)
    if not first:
        raise wrong(f"names {file!r}, whose first line is empty", remedy, key)
    return SecretStr(first)
