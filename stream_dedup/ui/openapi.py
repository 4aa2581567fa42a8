"""The description of the JSON interface, as OpenAPI 3.1, made from the types of its answers."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from stream_dedup._version import __version__
from stream_dedup.rules.model import MAX_PER_MINUTE
from stream_dedup.ui.comparing import Chosen
from stream_dedup.ui.deciding import NewRule, NewUndo
from stream_dedup.ui.patterns import Query
from stream_dedup.ui.views.changes import ChangeList
from stream_dedup.ui.views.details import PatternDetails
from stream_dedup.ui.views.pairs import NeighbourList, PatternPair
from stream_dedup.ui.views.patterns import CountList, PatternList
from stream_dedup.ui.views.rules import AuditList, Rule, RuleList
from stream_dedup.ui.views.sources import SourceState
from stream_dedup.ui.views.volume import VolumeList

_TEMPLATE = "#/components/schemas/{name}"
_OF_PATTERN = ("source", "identity")
_DESCRIBED = {
    "source": "A source's name, as `/api/v1/sources` lists it.",
    "identity": "A cluster's id: 16 hexadecimal digits.",
    "other": "Another cluster's id.",
    "rule": "A rule's id.",
}
_PAGE = {
    "name": "page", "in": "query", "description": "From 1 on.",
    "schema": {"type": "integer", "minimum": 1, "default": 1},
}  # fmt: skip
_PER_MINUTE = {
    "name": "per_minute", "in": "query", "description": "Events that a rule would keep.",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PER_MINUTE, "default": 10},
}  # fmt: skip
_CHANGE_REFUSED = (
    (403, "Rules may not be changed here, or a page of another site has sent it."),
    (
        409,
        "The rule contradicts another, which is named; or somebody else was faster all the time.",
    ),
    (415, "The body is not named as JSON."),
    (422, "The rule is wrong."),
)


class Problem(Struct, frozen=True):
    """What is wrong."""

    error: str


OPERATIONS: dict[str, tuple[str, tuple[str, ...], Any]] = {
    "/api/v1/sources": ("The sources, and what is known of them.", (), list[SourceState]),
    "/api/v1/sources/{source}/patterns": ("A page of patterns.", ("source",), PatternList),
    "/api/v1/patterns/{source}/{identity}": (
        "Everything about a pattern.", _OF_PATTERN, PatternDetails),
    "/api/v1/patterns/{source}/{identity}/counts": (
        "Its events over time.", _OF_PATTERN, CountList),
    "/api/v1/patterns/{source}/{identity}/neighbours": (
        "The most similar patterns, and why they are others.", _OF_PATTERN, NeighbourList),
    "/api/v1/patterns/{source}/{identity}/with/{other}": (
        "Two patterns side by side, and why they did not merge.", (*_OF_PATTERN, "other"),
        PatternPair),
    "/api/v1/sources/{source}/volume": (
        "A page of patterns by the bytes that they take, and what rules would save.",
        ("source",), VolumeList),
    "/api/v1/sources/{source}/changes": (
        "Two periods, or files, compared: the least likely changes first.", ("source",),
        ChangeList),
    "/api/v1/sources/{source}/rules": (
        "A page of the rules that act, the newest first.", ("source",), RuleList),
    "/api/v1/sources/{source}/audit": (
        "What was done with rules, the latest first.", ("source",), AuditList),
}  # fmt: skip
"""For each path: what it returns, its parameters, and the type of its answer."""

CHANGES: dict[str, tuple[str, tuple[str, ...], Any]] = {
    "/api/v1/sources/{source}/rules": ("Add a rule.", ("source",), NewRule),
    "/api/v1/sources/{source}/rules/{rule}/undo": ("Undo a rule.", ("source", "rule"), NewUndo),
}
"""For each path that changes rules: what it does, its parameters, and the type of its body."""


@cache
def document() -> dict[str, Any]:
    """The whole description."""
    answers = [answer for _, _, answer in OPERATIONS.values()]
    bodies = [body for _, _, body in CHANGES.values()]
    types = [Query, Chosen, Problem, Rule, *answers, *bodies]
    schemas, components = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, Any] = {}
    for path, (summary, parameters, answer) in OPERATIONS.items():
        operation = _operation(summary, parameters, by_type[repr(answer)])
        paths[path] = {"get": operation}
        if answer in (RuleList, AuditList, VolumeList):
            operation["parameters"].append(_PAGE)
        if answer is VolumeList:
            operation["parameters"].append(_PER_MINUTE)
        if answer is ChangeList:
            fields = components[Chosen.__name__]["properties"].items()
            operation["parameters"] += [
                {"name": name, "in": "query", "schema": schema} for name, schema in fields
            ]
        if answer is PatternList:
            fields = components[Query.__name__]["properties"].items()
            in_query = [
                {"name": name, "in": "query", "schema": schema}
                for name, schema in fields
                if name not in {"words", "group"}
            ]
            body = {"content": _json(by_type[repr(Query)]), "required": False}
            paths[path] = {
                "get": {**operation, "parameters": [*operation["parameters"], *in_query]},
                "post": {**operation, "requestBody": body},
            }
    for path, (summary, parameters, body_type) in CHANGES.items():
        operation = _operation(summary, parameters, by_type[repr(Rule)])
        problem = {"$ref": _TEMPLATE.format(name=Problem.__name__)}
        operation["responses"] |= {
            str(code): {"description": text, "content": _json(problem)}
            for code, text in _CHANGE_REFUSED
        }
        body = {"content": _json(by_type[repr(body_type)]), "required": True}
        paths.setdefault(path, {})["post"] = {**operation, "requestBody": body}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stream-dedup ui",
            "version": __version__,
            "description": "What a stream was merged to. Words to search for are sent by POST, so "
            "that no address holds anything of an event.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(summary: str, parameters: tuple[str, ...], schema: Any) -> dict[str, Any]:  # noqa: ANN401 -- as msgspec makes it
    problem = {"$ref": _TEMPLATE.format(name=Problem.__name__)}
    refused = {
        str(code): {"description": text, "content": _json(problem)}
        for code, text in (
            (400, "The request is not valid."),
            (401, "The token is missing or wrong."),
            (404, "There is no such source or cluster."),
            (503, "The source cannot be read now."),
        )
    }
    return {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "description": _DESCRIBED[name],
             "schema": {"type": "string"}}
            for name in parameters
        ],
        "responses": {"200": {"description": summary, "content": _json(schema)}, **refused},
    }  # fmt: skip


def _json(schema: Any) -> dict[str, Any]:  # noqa: ANN401 -- as msgspec makes it
    return {"application/json": {"schema": schema}}
