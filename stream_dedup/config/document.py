"""Show the configuration: as a template, as it is in effect, and as tables of the reference.

Everything is made from the declarations of the settings.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin

import tomli_w
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from stream_dedup.config.model import DELIMITER, PREFIX, SECTIONS, Config
from stream_dedup.config.sources import Loaded
from stream_dedup.config.values import HIDDEN, Section, without_user
from stream_dedup.units import duration_text, size_text

DEFAULT = "default"
"""Origin of a value that no source gives."""

WIDTH = 98

HEAD = """\
# The configuration of a stream-dedup worker: stream-dedup run --config FILE
#
# Keys that are commented out show their defaults. A duration is a number of seconds, or a text
# such as "250ms", "60s", "1h" or "off"; a size is a number of bytes, or a text such as "64KiB" or
# "1MiB".
# The environment overrides this file (STREAM_DEDUP__KAFKA__GROUP_ID=audit,
# STREAM_DEDUP__PIPELINES__0__TOPICS=a,b), and flags override both (--set kafka.group_id=audit).
# Paths of files are relative to the folder of this file.
"""

_EXAMPLES = {"topics": '["logs"]', "output_topic": '"logs-deduplicated"'}
"""Values in the template of keys that must be given."""

_DERIVED = {
    "namespace": '"logs"',
    "group_id": '"stream-dedup-main"',
    "summary_topic": '"logs-deduplicated"',
    "transactional_id_prefix": '"stream-dedup"',
}
"""Values in the template of keys whose default follows from other keys."""


class Key(NamedTuple):
    """A setting in the reference. `default` is TOML; it is empty if the setting must be given."""

    section: str
    name: str
    type: str
    default: str
    variable: str
    meaning: str


def keys() -> Iterator[Key]:
    """Yield every setting, in order."""
    for section, model in SECTIONS.items():
        number = ["0"] if section == "pipelines" else []
        for name, info in model.model_fields.items():
            variable = PREFIX + DELIMITER.join([section, *number, name]).upper()
            default = ""
            if not info.is_required():
                value = info.get_default(call_default_factory=True, validated_data={})
                default = _toml(name, value)
            yield Key(section, name, _type(name, info), default, variable, _description(info))


def meaning_of(section: str) -> str:
    """Return the description of a section."""
    return _description(Config.model_fields[section])


def _description(info: FieldInfo) -> str:
    return " ".join((info.description or "").split())


def _type(name: str, info: FieldInfo) -> str:
    kind: Any = info.annotation
    if SecretStr in (kind, *get_args(kind)):
        return "URL" if name == "url" else "secret"
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind)) if len(get_args(kind)) < 3 else ", ".join(get_args(kind))
    if name.endswith("_file"):
        return "file"
    if name.endswith("_s"):
        return "duration"
    if name.endswith("_bytes"):
        return "size"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return names.get(kind, "list of texts")


def _value(name: str, value: object, *, url: str = HIDDEN) -> object:
    """Return a value as it is shown: secrets hidden, durations and sizes with units."""
    if isinstance(value, SecretStr):
        return url if name == "url" else HIDDEN * bool(value)
    if value is None:
        return ""
    if name.endswith("endpoint"):  # unchecked, while the section is not enabled
        return without_user(str(value))
    if name.endswith("_s") and isinstance(value, int | float):
        return duration_text(value)
    if name.endswith("_bytes") and isinstance(value, int):
        return size_text(value)
    return list(value) if isinstance(value, tuple) else value


def _toml(name: str, value: object) -> str:
    url = value.get_secret_value() if isinstance(value, SecretStr) else ""  # of a default: public
    shown = _value(name, value, url=url)
    if isinstance(shown, list):
        return "[" + ", ".join(tomli_w.dumps({"x": each})[4:].strip() for each in shown) + "]"
    return tomli_w.dumps({"x": shown})[4:].strip()


# ------------------------------------------------------------ the template


def template() -> str:
    """Return a valid file with every key, its default and its meaning."""
    lines = [HEAD]
    section = ""
    for key in keys():
        if key.section != section:
            section = key.section
            lines += ["", *_comment(meaning_of(section))]
            lines.append(f"[[{section}]]" if section == "pipelines" else f"[{section}]")
        lines += ["", *_comment(f"{key.meaning} ({key.type})")]
        in_pipeline = key.section == "pipelines"
        if in_pipeline and key.name in _EXAMPLES:
            lines.append(f"{key.name} = {_EXAMPLES[key.name]}")
        else:
            derived = _DERIVED.get(key.name) if not key.default.strip('"') else None
            lines.append(f"# {key.name} = {derived or key.default}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


# ------------------------------------------------------------ what is in effect


def effective(loaded: Loaded) -> Iterator[tuple[str, Any, str]]:
    """Yield dotted key, value (secrets hidden) and origin of every setting."""
    config = loaded.config
    url = str(config.index.address)  # without the password
    tables: dict[str, Section] = {name: getattr(config, name) for name in SECTIONS}
    del tables["pipelines"]
    tables |= {f"pipelines.{number}": each for number, each in enumerate(config.pipelines)}
    for table, section in tables.items():
        for name, value in section:
            key = f"{table}.{name}"
            yield key, _value(name, value, url=url), loaded.origins.get(key, DEFAULT)


def effective_toml(loaded: Loaded) -> str:
    """Return the settings in effect as TOML, with their origins as comments."""
    rows: list[tuple[str, str]] = []
    table = ""
    for key, value, origin in effective(loaded):
        above, _, name = key.rpartition(".")
        if above != table:
            table = above
            head, _, number = above.partition(".")
            rows.append(("", ""))
            rows.append((f"[[{head}]]" if number else f"[{head}]", ""))
        rows.append((f"{name} = {_toml(name, value)}", f"# {_printable(origin)}"))
    width = min(max(len(text) for text, _ in rows), 60)
    lines = (f"{text:{width}}  {origin}".rstrip() for text, origin in rows[1:])
    return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    """Escape control characters: the name of a file may contain any."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
