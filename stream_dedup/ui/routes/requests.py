"""Reads requests, and makes the responses of pages and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

ID_DIGITS = 16
"""Of a cluster's id."""

T = TypeVar("T")


def identity_of(text: str) -> int:
    """Return the number of a cluster's id; -1 if it is none."""
    is_one = len(text) == ID_DIGITS and set(text) <= set("0123456789abcdef")
    return int(text, 16) if is_one else -1


def page_of(request: Request) -> int:
    """Return the page that an address asks for, from 1 on."""
    text = request.query_params.get("page", "")
    return max(1, int(text)) if text.isdecimal() and len(text) < 16 else 1


def number_of(text: str) -> int:
    """Return a number of at most seven digits; 0 if it is none."""
    return int(text) if text.isdecimal() and len(text) < 8 else 0


async def read_fields(request: Request) -> dict[str, list[str]]:
    """Read the fields of a form."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, max_num_fields=40)
    except ValueError:
        return {}


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form, the last of each name."""
    return {name: values[-1] for name, values in (await read_fields(request)).items()}


def converted(given: Mapping[str, object], kind: type[T], *, strict: bool = True) -> T:
    """Make a struct of what a form has sent.

    Raises:
        HTTPException: it is not valid.
    """
    try:
        return msgspec.convert(given, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error


def chosen(fields: Mapping[str, str], kind: type[T]) -> T:
    """Read what is asked for, from the fields of a form or an address; empty ones are not given.

    Raises:
        HTTPException: it is not valid.
    """
    given = {name: value for name, value in fields.items() if value}
    return converted(given, kind, strict=False)


async def read_change(request: Request, kind: type[T]) -> T:
    """Read a change from the body of a request.

    Raises:
        HTTPException: it is not valid, or not named as JSON: a foreign page cannot send JSON.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        problem = "send JSON, with Content-Type: application/json"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, problem)
    return await read_json(request, kind)


async def read_json(request: Request, kind: type[T]) -> T:
    """Read the body of a request.

    Raises:
        HTTPException: it is not valid.
    """
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error


def html_response(
    text: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a page, or a part of one."""
    body = text.encode("utf-8", "replace")
    return Response(body, status, dict(headers or {}), media_type="text/html")


def json_response(value: object) -> Response:
    """Return a value as a line of JSON."""
    return Response(msgspec.json.encode(value) + b"\n", media_type="application/json")
