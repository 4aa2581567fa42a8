"""HTML made of elements. What is put into an element is text, unless it is an element itself.

So whatever comes from topics, errors or files can only ever be read, never obeyed: there is no way
to put markup in as a string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from stream_dedup.worker.telemetry.log_fields import clean_text

MAX_TEXT_CHARS = 400
"""Characters shown of one text."""

MAX_ROWS = 20
"""Shown of a list; then it is said how many more there are."""

_NAMES = {"class_": "class", "view_box": "viewBox", "http_equiv": "http-equiv"}
"""Attributes' names that Python does not take, or would not."""


def make(tag: str, *inside: Element | str, **attributes: str) -> Element:
    """An element.

    >>> as_html(make("p", "a ", make("b", "<i>"), " c", id="x"))
    '<p id="x">a <b>&lt;i&gt;</b> c</p>'

    Args:
        tag: its name.
        inside: elements and texts, in order.
        attributes: its attributes, some by other names; see `_NAMES`.
    """
    element = Element(tag, {_NAMES.get(name, name): value for name, value in attributes.items()})
    last: Element | None = None
    for part in inside:
        if isinstance(part, str):
            if last is None:
                element.text = (element.text or "") + part
            else:
                last.tail = (last.tail or "") + part
        else:
            element.append(part)
            last = part
    return element


def as_html(element: Element) -> str:
    """An element as it is sent."""
    return tostring(element, encoding="unicode", method="html")


def shown(text: str) -> str:
    r"""A text from outside as it may be shown: secrets hidden, one line, printable, not too long.

    >>> shown("redis://me:hunter2@host is away\x00\n")
    'redis://me:[hidden]@host is away\\x00\\n'
    """
    text = clean_text(text)
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"


def names(given: Sequence[str]) -> str:
    """Names from outside, one after the other.

    >>> names([f"t{number}" for number in range(22)]).partition("t18")[2]
    ', t19, … and 2 more'
    """
    told = [shown(name) for name in given[:MAX_ROWS]]
    return ", ".join([*told, *more(len(given) - MAX_ROWS)])


def more(left_out: int, what: str = "") -> list[str]:
    """What to say of so many that are not shown; nothing of none."""
    return [f"… and {left_out:,} more {what}".rstrip()] if left_out > 0 else []


def notes(texts: Iterable[str]) -> list[Element]:
    """Texts below something, in small print."""
    return [make("p", text, class_="note") for text in texts]


def facts(*pairs: tuple[str, str]) -> Element:
    """Terms and what is to be said of each."""
    rows = [make("div", make("dt", term), make("dd", told)) for term, told in pairs]
    return make("dl", *rows, class_="facts")


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0
) -> Element:
    """A table whose last columns, so many, are numbers; a row's first cell is its heading."""
    first_number = len(heads) - numbers
    kinds = [{"class_": "number"} if at >= first_number else {} for at in range(len(heads))]
    head = make(
        "tr",
        *(make("th", text, scope="col", **kind) for text, kind in zip(heads, kinds, strict=True)),
    )
    body = make("tbody")
    for name, *cells in rows:
        body.append(
            make(
                "tr",
                make("th", name, scope="row"),
                *(make("td", cell, **kind) for cell, kind in zip(cells, kinds[1:], strict=True)),
            )
        )
    above = [make("caption", caption)] if caption else []
    return make("table", *above, make("thead", head), body)
