"""Reading XML, HTML and JSON as a tree's nodes in order: for layout and content.

Problem: events come from strangers. Entities that expand to gigabytes, files named to be read,
a hundred thousand elements in each other and markup that was cut off must cost no more than their
bytes, and what can be read of them should be.

Idea: a reader yields nodes as it meets them, in one pass, and holds no tree. Whoever takes them
keeps the path, to a depth of its choice, and stops when it has enough.

- XML by expat, which opens nothing by itself. A document type may be named and is not fetched;
  where one *declares an entity* the reading ends, so none is ever expanded. Default attributes of
  a document type are not added.
- HTML and JSON by scanners of our own. Their patterns are possessive and match whatever stands
  there (an open string or tag ends with the text), so time is linear in it. The standard library's
  HTML parser takes the square of the length on hostile text, fails on some, and reads broken
  markup differently from one Python to the next, which would change fingerprints.

Nodes of ``<p class="a">Hi</p>``::

    open  p          leaf  @class  a          leaf  #text  Hi          close p
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple
from xml.parsers import expat

MAX_NODES = 100_000
"""Nodes read of one XML text; the other readers stop when nobody takes more."""

MAX_OPEN = 128
"""HTML elements whose names are remembered until they close; deeper ones close with these."""


class Node(NamedTuple):
    """One step of a walk through a tree.

    Attributes:
        kind: ``open`` goes down to a child, ``close`` up again, ``leaf`` is what has no children.
        name: an element's name or an object's key, ``[]`` for an array's elements; of a leaf
            ``@name`` for an attribute, ``#kind`` for everything else.
        text: what a person reads there.
    """

    kind: Literal["open", "close", "leaf"]
    name: str
    text: str = ""


CLOSE = Node("close", "")

# What a mask leaves (0x1A) and other control characters are no XML; white space takes their place.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def decoded(text: bytes) -> str:
    """Any bytes as text: UTF-16 if a byte order mark says so, else UTF-8, replaced where wrong."""
    wide = text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return text.decode("utf-16" if wide else "utf-8", "replace").removeprefix("\ufeff")


# ---------------------------------------------------------------- XML


class _EnoughError(Exception):
    """Ends the reading: an entity is declared, or there are too many nodes."""


def xml_nodes(text: bytes) -> Iterator[Node]:
    """The nodes of an XML text; of one that is malformed or cut off, those before the fault.

    Values of attributes are text: events in XML often keep all they say there. Namespace
    declarations are not.

    >>> [node.name or node.kind for node in xml_nodes(b'<a x="1">hi<b/></a>')]
    ['a', '@x', '#text', 'b', 'close', 'close']
    """
    nodes: list[Node] = []
    held: list[str] = []  # expat gives text in pieces

    def end_text() -> None:
        found = "".join(held)
        held.clear()
        if found and not found.isspace():
            nodes.append(Node("leaf", "#text", found))

    def start(name: str, attributes: list[str]) -> None:
        end_text()
        if len(nodes) > MAX_NODES:
            raise _EnoughError
        nodes.append(Node("open", name))
        for key, value in zip(attributes[::2], attributes[1::2], strict=True):
            if key != "xmlns" and not key.startswith("xmlns:"):
                nodes.append(Node("leaf", f"@{key}", value))

    def end(_name: str) -> None:
        end_text()
        nodes.append(CLOSE)

    def comment(_text: str) -> None:
        end_text()
        nodes.append(Node("leaf", "#comment"))

    def entity(*_declared: object) -> None:
        raise _EnoughError

    parser = expat.ParserCreate("utf-8")  # whatever the text says of itself
    parser.ordered_attributes = True
    parser.specified_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = held.append
    parser.CommentHandler = comment
    parser.EntityDeclHandler = entity
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(_CONTROLS.sub(" ", decoded(text)).encode("utf-8", "replace"), True)
    except (expat.ExpatError, _EnoughError):
        pass  # what was read until here is what there is
    end_text()
    return iter(nodes[:MAX_NODES])


# ---------------------------------------------------------------- HTML

_MARKUP = re.compile(
    r"<!--(?P<comment>.*?)(?:-->|\Z)"
    r"|<(?P<end>/?+)(?P<name>[A-Za-z][^\s/>]*+)"
    r"|<[!?/][^>]*+>?+"  # a document type, an instruction, nonsense
    r"|(?P<text>(?:[^<]++|<(?![A-Za-z!?/]))++)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(
    r"""[\s/]*+([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>]*+))?+"""
)
_TAG_END = re.compile(r"[\s/]*+>?+")
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])|\Z", re.IGNORECASE) for name in ("script", "style")}

_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_ENDS_P = (
    "address article aside blockquote div dl fieldset footer form h1 h2 h3 h4 h5 h6 header hr main "
    "nav ol p pre section table ul"
).split()
_ENDS = {
    **dict.fromkeys(_ENDS_P, frozenset({"p"})),
    "li": frozenset({"li", "p"}),
    "dt": frozenset({"dt", "dd", "p"}),
    "dd": frozenset({"dt", "dd", "p"}),
    "option": frozenset({"option"}),
    "td": frozenset({"td", "th", "p"}),
    "th": frozenset({"td", "th", "p"}),
    "tr": frozenset({"tr", "td", "th", "p"}),
    "tbody": frozenset({"thead", "tbody", "tr", "td", "th", "p"}),
}
"""Elements that end with the next such one, though no tag says so."""


def html_nodes(text: bytes) -> Iterator[Node]:
    """The nodes of an HTML text, however broken. Scripts and styles have no text.

    Values of attributes are no text either: they hold addresses and classes.

    >>> [node.name or node.kind for node in html_nodes(b"<ul><li>one<li>two<br></ul>")]
    ['ul', 'li', '#text', 'close', 'li', '#text', 'br', 'close', 'close', 'close']
    """
    page = decoded(text)
    names: list[str] = []  # of open elements, MAX_OPEN at most
    at = 0
    while at < len(page):
        match = _MARKUP.match(page, at)
        assert match is not None  # one of the four fits any text
        at = match.end()
        if match["text"] is not None:
            if not match["text"].isspace():
                yield Node("leaf", "#text", unescaped(match["text"]))
        elif match["comment"] is not None:
            yield Node("leaf", "#comment")
        elif match["name"] is not None:
            name = match["name"].lower()
            attributes: list[str] = []
            while (attribute := _ATTRIBUTE.match(page, at)) is not None:
                attributes.append(attribute[1].lower())
                at = attribute.end()
            tag_end = _TAG_END.match(page, at)
            assert tag_end is not None  # all of it may be missing
            at = tag_end.end()
            if match["end"]:
                while name in names:
                    yield CLOSE
                    if names.pop() == name:
                        break
                continue
            ended = _ENDS.get(name, frozenset())
            while names and names[-1] in ended:
                names.pop()
                yield CLOSE
            yield Node("open", name)
            for key in dict.fromkeys(attributes):
                yield Node("leaf", f"@{key}")
            if name in _RAW:
                raw_end = _RAW[name].search(page, at)
                assert raw_end is not None  # the text's own end, if nothing else
                at = raw_end.start()
            if name in _VOID or len(names) == MAX_OPEN:
                yield CLOSE
            else:
                names.append(name)
    for _ in names:
        yield CLOSE


def unescaped(text: str) -> str:
    """Character references replaced: ``&amp;``, ``&#228;``. None expands to more than two."""
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


# ---------------------------------------------------------------- JSON

_JSON = re.compile(rb'"((?:[^"\\]++|\\.)*+)"?+|([{}\[\],])|([^\s"{}\[\]:,\\]++)', re.DOTALL)
_JSON_KINDS = {"true": "#boolean", "false": "#boolean", "null": "#null"}


def json_nodes(text: bytes) -> Iterator[Node]:
    """The nodes of a JSON text, as far as its brackets tell; one that is cut off too.

    >>> [node.name or node.kind for node in json_nodes(b'{"a": [1, "x"]}')]
    ['#object', 'a', '#array', '[]', '#number', 'close', '[]', '#string', 'close', 'close']
    """
    if not text.isascii() or b"\x00" in text:
        text = decoded(text).encode()
    inside = bytearray()  # the brackets that are open; for each, a node is, too, unless it is first
    key: str | None = None
    in_object = False
    for match in _JSON.finditer(text):
        string, mark, literal = match.groups()
        if mark in (b"}", b"]"):
            if inside:
                inside.pop()
                if inside:
                    yield CLOSE
            in_object = inside[-1:] == b"{"
            key = None
            continue
        if mark == b",":
            key = None
            continue
        if string is not None and in_object and key is None:
            key = _json_string(string)
            continue
        if inside:
            yield Node("open", (key or "") if in_object else "[]")
        key = None
        if mark is not None:
            inside += mark
            in_object = mark == b"{"
            yield Node("leaf", "#object" if in_object else "#array")
            continue
        if string is not None:
            yield Node("leaf", "#string", _json_string(string))
        else:
            word = literal.decode("utf-8", "replace")
            yield Node("leaf", _JSON_KINDS.get(word, "#number"), "" if word == "null" else word)
        if inside:
            yield CLOSE
    for _ in inside[1:]:
        yield CLOSE


def _json_string(inner: bytes) -> str:
    if b"\\" in inner:
        try:
            found: str = json.loads(b'"%b"' % inner, strict=False)
        except ValueError:
            pass  # an escape that is none: as it stands
        else:
            return found
    return inner.decode("utf-8", "replace")
