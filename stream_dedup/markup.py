"""HTML as elements. A string in an element is text, so nothing from outside can become markup."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from xml.etree.ElementTree import Element, tostring

_NAMES = {"class_": "class", "view_box": "viewBox"}
"""Attributes' names that Python does not take, or would not."""


def make(tag: str, *inside: Element | str, **attributes: str) -> Element:
    """An element.

    >>> as_html(make("p", "a ", make("b", "<i>"), " c", id="x"))
    '<p id="x">a <b>&lt;i&gt;</b> c</p>'

    Args:
        tag: its name.
        inside: elements and texts, in order.
        attributes: its attributes, with ``_`` for ``-``, and two by other names; see `_NAMES`.
    """
    names = {name: _NAMES.get(name, name.replace("_", "-")) for name in attributes}
    element = Element(tag, {names[name]: value for name, value in attributes.items()})
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


def csp_hash(text: str) -> str:
    """Return the hash of a style or script, as a source of a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def as_html(element: Element) -> str:
    """An element as text."""
    return tostring(element, encoding="unicode", method="html")
