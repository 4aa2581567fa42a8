"""JSON field selection: the parts of a decoded event that a recipe reads, and their names.

A path's steps are keys; an integer picks an element of an array, ``*`` matches any key or element,
``**`` every value below. A value's name is its path with ``*`` for array indexes, so an element
keeps its name when the array grows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

MAX_DEPTH = 32
"""Below this depth ``**`` takes a value as one text."""

MAX_VALUES = 1_000
"""Maximum values of a path in one event."""


class Value(NamedTuple):
    """A selected value: its name and its text."""

    name: str
    text: bytes


def parse_path(path: str) -> tuple[str, ...]:
    """Return the steps of a dotted path, or of a JSON pointer (RFC 6901) that starts with a slash.

    >>> parse_path("user.name"), parse_path("/a.b/c~1d")
    (('user', 'name'), ('a.b', 'c/d'))

    Raises:
        ValueError: a step is empty, or an escape is wrong.
    """
    if path.startswith("/"):
        if re.search("~(?![01])", path):
            raise ValueError(f"{path!r}: in a JSON pointer ~ is written ~0, and a slash ~1")
        return tuple(s.replace("~1", "/").replace("~0", "~") for s in path[1:].split("/"))
    steps = tuple(path.split("."))
    if "" in steps:
        raise ValueError(f"{path!r} has an empty step; keys that hold dots are written /a.b/c")
    return steps


def select(document: object, steps: tuple[str, ...]) -> Iterator[Value]:
    """Yield the values at a path, in the document's order; null is not a value.

    >>> [value for value in select({"a": [{"b": 1}, {"b": "x"}]}, ("a", "*", "b"))]
    [Value(name='a.*.b', text=b'1'), Value(name='a.*.b', text=b'x')]
    """
    # A stack, not recursion: documents may nest as deep as their decoder allows.
    stack: list[tuple[object, int, tuple[str, ...]]] = [(document, 0, ())]
    found = 0
    while stack and found < MAX_VALUES:
        node, step, name = stack.pop()
        wildcard = steps[step] if step < len(steps) else ""
        if step == len(steps) or (wildcard == "**" and _is_leaf(node, name)):
            if node is not None:
                found += 1
                yield Value(".".join(name), text_of(node))
            continue
        below = step if wildcard == "**" else step + 1
        stack.extend(
            (child, below, (*name, shortened(key)))
            for key, child in reversed(_children(node, wildcard))
        )


UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding any bytes as JSON."""


def decoded(text: bytes) -> object:
    """Return decoded JSON; None if the text was cut short, or is not JSON."""
    try:
        return msgspec.json.decode(text)
    except UNDECODABLE:
        return None


MAX_NAME = 128
"""Maximum characters of a key, or of a group's value."""


def shortened(name: str) -> str:
    """Shorten a name to `MAX_NAME` characters: its beginning and its hash.

    The hash is cryptographic, so nobody can make two names equal; it has no key, because names are
    shown to people and must be the same everywhere.
    """
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[: MAX_NAME - 33]}~{digest}"


def text_of(node: object) -> bytes:
    """Return a value as text: strings as they are, everything else as JSON.

    A value that nests deeper than the interpreter's stack has an empty text.
    """
    if isinstance(node, str):
        return node.encode("utf-8", "surrogatepass")
    try:
        return msgspec.json.encode(node)
    except UnicodeEncodeError:  # half a surrogate pair, which other decoders accept
        return json.dumps(node, separators=(",", ":")).encode()
    except RecursionError:
        return b""


def _is_leaf(node: object, name: tuple[str, ...]) -> bool:
    return not isinstance(node, dict | list) or len(name) >= MAX_DEPTH


def _children(node: object, step: str) -> list[tuple[str, object]]:
    any_step = step in ("*", "**")
    if isinstance(node, dict):
        if any_step:
            return [(str(key), child) for key, child in node.items()]
        return [(step, node[step])] if step in node else []
    if isinstance(node, list):
        if any_step:
            return [("*", child) for child in node[:MAX_VALUES]]
        if step.isdecimal() and len(step) < 10 and int(step) < len(node):
            return [("*", node[int(step)])]
    return []
