"""Make ``docs/api.md``, the page of the Python interface, from docstrings of public names.

griffe parses the sources and docstrings without importing them; this module turns them into
Markdown. Doctests become ``python`` blocks, which the tests of the pages run too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import griffe

from docs.blocks import ROOT

API_PAGE = ROOT / "docs" / "api.md"

HEAD = """\
<!-- Written by `make docs` from the docstrings: change them, not this page. -->

# The Python interface

Every public name with its docstring. [The guide](library.md) shows how to use them together. Times
are whole microseconds; their names end in `_us`. Names that are not on this page may change in any
version.
"""


class Part(NamedTuple):
    """The public names of one module.

    Attributes:
        module: the module to import from.
        names: its public names.
        extra: the extra that it needs, if any.
    """

    module: str
    names: Sequence[str]
    extra: str = ""


PARTS = (
    Part(
        "stream_dedup",
        (
            "Deduplicator",
            "Decision",
            "Kind",
            "Summary",
            "Recipe",
            "load_recipe",
            "Windows",
            "Summaries",
            "Limits",
        ),
    ),
    Part(
        "stream_dedup.testing",
        (
            "assert_counts_add_up",
            "clusters_of",
            "decisions_of",
            "ManualClock",
            "MemoryIndex",
            "MemoryMetrics",
        ),
    ),
    Part("stream_dedup.offline.pairs", ("find_pairs", "Effort")),
    Part("stream_dedup.offline.clusters", ("find_clusters", "find_line_clusters")),
    Part("stream_dedup.contrib.faust", ("FaustDedup", "Decided"), "faust"),
)

_DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def api_page() -> str:
    """The text of ``docs/api.md``."""
    package = griffe.load("stream_dedup", search_paths=[str(ROOT)], docstring_parser="google")
    assert isinstance(package, griffe.Module)
    lines = [HEAD]
    for part in PARTS:
        lines.append(f"## {part.module}\n")
        if part.extra:
            lines.append(f"Needs the extra: `pip install 'stream-dedup[{part.extra}]'`.\n")
        imported = ", ".join(part.names)
        if len(imported) > 60:
            imported = "(\n" + "".join(f"...     {name},\n" for name in part.names) + "... )"
        lines.append(f"```python\n>>> from {part.module} import {imported}\n\n```\n")
        for name in part.names:
            lines += _named(_found(package, f"{part.module}.{name}"), name)
    return "\n".join(lines)


def _found(package: griffe.Module, path: str) -> griffe.Object:
    found = package.modules_collection[path]
    return found.final_target if isinstance(found, griffe.Alias) else found


def _named(found: griffe.Object, name: str) -> Iterator[str]:
    """A class with its methods, or a function."""
    yield f"### {name}\n"
    if isinstance(found, griffe.Function):
        yield _signature(found, name)
    elif isinstance(found, griffe.Class) and "__init__" in found.members:
        constructor = found.members["__init__"]
        if isinstance(constructor, griffe.Function):
            yield _signature(constructor, name)
    yield from _described(found)
    for member in found.members.values():
        if member.name.startswith("_") or member.is_alias or not member.docstring:
            continue
        yield f"#### {name}.{member.name}\n"
        if isinstance(member, griffe.Function):
            yield _signature(member, member.name)
        yield from _described(member)


def _signature(found: griffe.Function, name: str) -> str:
    """The signature; a long one has one argument on each line."""
    given: list[str] = []
    kinds = griffe.ParameterKind
    for each in found.parameters:
        if each.name in {"self", "cls"}:
            continue
        if each.kind is kinds.keyword_only and "*" not in given and not _stars(given):
            given.append("*")
        star = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(each.kind, "")
        annotation = f": {each.annotation}" if each.annotation else ""
        default = f" = {each.default}" if each.default is not None and not star else ""
        given.append(f"{star}{each.name}{annotation}{default}")
    prefix = "async " if "async" in found.labels else ""
    result = f" -> {found.returns}" if found.returns and found.name != "__init__" else ""
    line = f"{prefix}{name}({', '.join(given)}){result}"
    if len(line) > 90:
        line = f"{prefix}{name}(\n" + "".join(f"    {each},\n" for each in given) + f"){result}"
    return f"```text\n{line}\n```\n"


def _stars(given: Sequence[str]) -> bool:
    return any(each.startswith("*") for each in given)


def _described(found: griffe.Object | griffe.Alias) -> Iterator[str]:
    """The sections of a docstring."""
    if not found.docstring:
        return
    for section in found.docstring.parse("google"):
        match section:
            case griffe.DocstringSectionText():
                yield _prose(section.value)
            case griffe.DocstringSectionAdmonition():
                yield _prose(section.value.description)
            case griffe.DocstringSectionParameters() | griffe.DocstringSectionAttributes():
                yield _listed(section.value)
            case griffe.DocstringSectionRaises():
                yield "**Raises**\n\n" + _listed_errors(section.value)
            case griffe.DocstringSectionReturns() | griffe.DocstringSectionYields():
                yield "**Returns** " + " ".join(_line(each.description) for each in section.value)
                yield ""
            case _:
                raise ValueError(f"{found.path}: what to do with {section.kind.value}?")


def _prose(text: str) -> str:
    return _DOCTEST.sub(lambda test: f"```python\n{test[0]}\n\n```", text) + "\n"


def _listed(
    items: Sequence[griffe.DocstringParameter] | Sequence[griffe.DocstringAttribute],
) -> str:
    return "".join(f"- `{each.name}`: {_line(each.description)}\n" for each in items)


def _listed_errors(items: Sequence[griffe.DocstringRaise]) -> str:
    return "".join(
        f"- `{str(each.annotation).strip('()')}`: {_line(each.description)}\n" for each in items
    )


def _line(text: str) -> str:
    return " ".join(text.split())
