"""Layout and content of XML, HTML and JSON: features of the tree that a text describes.

Problem: two pages may be the same form filled with other words, or the same words in another form.
Cut into words, markup and text are mixed, and neither question has an answer. And events come from
strangers: entities that expand to gigabytes, references to files, a hundred thousand nested
elements and markup that was cut off must cost no more than their bytes, and whatever can be read of
them should be read.

Idea: walk the tree. *Layout* features are the paths from the root to every node, with the names of
elements and attributes and the kinds of nodes, but no text. *Content* features are the words of the
text, without names. An extractor takes one of them, or both with a weight each.

Of ``<p class="a">Hi there</p>``::

    nodes    open p   leaf @class a   leaf #text "Hi there"   close p
    layout   /p   /p/@class   /p/#text
    content  Hi   there       (in XML also a, the attribute's value)

A path longer than `MAX_NAME` characters is cut and ends with the hash of the whole. Nodes below
`MAX_DEPTH` have the path of their last ancestor above it. So a node costs no more than its own
name, however deep it is.

A reader yields the nodes in one pass and builds no tree:

- XML is read by expat, which opens no files by itself. A document type may be named and is not
  fetched; reading ends where one *declares an entity*, so none is ever expanded. Default attributes
  of a document type are not added.
- HTML and JSON are read by our own scanners. Their patterns are possessive and match any text (an
  open string or tag ends with the text), so time is linear. The standard library's HTML parser
  takes quadratic time on hostile text, fails on some, and reads broken markup differently from one
  Python version to the next, which would change fingerprints.
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple
from xml.parsers import expat

from stream_dedup.features.fields import shortened

MAX_DEPTH = 64
"""Maximum steps of a path."""

MAX_NODES = 100_000
"""Maximum nodes of one XML text; the other readers stop when their caller does."""

MAX_OPEN = 128
"""Open HTML elements that are tracked; elements nested deeper are closed at once."""


class Node(NamedTuple):
    """One step of a walk through a tree.

    Attributes:
        kind: ``open`` goes down to a child, ``close`` goes up, ``leaf`` has no children.
        name: an element's name or an object's key, ``[]`` for an array's element; of a leaf
            ``@name`` for an attribute, ``#kind`` for anything else.
        text: the text of a leaf.
    """

    kind: Literal["open", "close", "leaf"]
    name: str
    text: str = ""


CLOSE = Node("close", "")

# Control characters are not valid in XML, nor is a mask's 0x1A: they become white space.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def decoded(text: bytes) -> str:
    """Decode any bytes: as UTF-16 if a byte order mark says so, else as UTF-8."""
    wide = text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return text.decode("utf-16" if wide else "utf-8", "replace").removeprefix("\ufeff")


# ---------------------------------------------------------------- XML


class _EnoughError(Exception):
    """Ends the reading: an entity is declared, or there are too many nodes."""


def xml_nodes(text: bytes) -> Iterator[Node]:
    """Return the nodes of an XML text; if it is malformed or cut off, those before the error.

    Values of attributes count as text, as XML events often hold their data there. Namespace
    declarations are left out.

    >>> [node.name or node.kind for node in xml_nodes(b'<a x="1">hi<b/></a>')]
    ['a', '@x', '#text', 'b', 'close', 'close']
    """
    nodes: list[Node] = []
    held: list[str] = []  # expat returns text in pieces

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

    parser = expat.ParserCreate("utf-8")  # overrides the encoding that the text declares
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
        pass  # keep the nodes read until here
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
"""The open elements that each element ends implicitly."""


def html_nodes(text: bytes) -> Iterator[Node]:
    """Yield the nodes of an HTML text, however broken.

    Scripts, styles and the values of attributes (addresses, classes) have no text.

    >>> [node.name or node.kind for node in html_nodes(b"<ul><li>one<li>two<br></ul>")]
    ['ul', 'li', '#text', 'close', 'li', '#text', 'br', 'close', 'close', 'close']
    """
    page = decoded(text)
    names: list[str] = []  # of open elements, at most MAX_OPEN
    at = 0
    while at < len(page):
        match = _MARKUP.match(page, at)
        assert match is not None  # one alternative matches any text
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
            assert tag_end is not None  # matches the empty string too
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
                assert raw_end is not None  # matches the end of the text, at the latest
                at = raw_end.start()
            if name in _VOID or len(names) == MAX_OPEN:
                yield CLOSE
            else:
                names.append(name)
    for _ in names:
        yield CLOSE


def unescaped(text: str) -> str:
    """Replace character references: ``&amp;``, ``&#228;``. Each gives at most two characters."""
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


# ---------------------------------------------------------------- JSON

_JSON = re.compile(rb'"((?:[^"\\]++|\\.)*+)"?+|([{}\[\],])|([^\s"{}\[\]:,\\]++)', re.DOTALL)
_JSON_KINDS = {"true": "#boolean", "false": "#boolean", "null": "#null"}


def json_nodes(text: bytes) -> Iterator[Node]:
    """Yield the nodes of a JSON text as far as its brackets show them, also if it is truncated.

    >>> [node.name or node.kind for node in json_nodes(b'{"a": [1, "x"]}')]
    ['#object', 'a', '#array', '[]', '#number', 'close', '[]', '#string', 'close', 'close']
    """
    if not text.isascii() or b"\x00" in text:
        text = decoded(text).encode()
    inside = bytearray()  # open brackets; each but the first belongs to an open node
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
            pass  # an invalid escape: use the text as it is
        else:
            return found
    return inner.decode("utf-8", "replace")


# ---------------------------------------------------------------- features

_WORD = re.compile(r"\w+")

READERS: dict[str, Callable[[bytes], Iterator[Node]]] = {
    "xml": xml_nodes,
    "html": html_nodes,
    "json": json_nodes,
}
"""Readers by format; the extractor of the same name takes layout and content."""


def features(
    nodes: Iterable[Node], layout: int | None, content: int | None
) -> Iterator[tuple[bytes, int]]:
    """Yield the features of a tree's nodes.

    Args:
        nodes: from a reader.
        layout: weight of every node's path; None for no paths.
        content: weight of every word of the text; None for no words.
    """
    paths = [""]  # from the root to the current node
    below = 0  # steps below the deepest path
    for kind, name, text in nodes:
        if kind == "close":
            if below:
                below -= 1
            elif len(paths) > 1:
                paths.pop()
            continue
        path = paths[-1] if below else shortened(f"{paths[-1]}/{shortened(name)}")
        if kind == "open":
            if len(paths) <= MAX_DEPTH:
                paths.append(path)
            else:
                below += 1
        if layout is not None:
            yield path.encode("utf-8", "surrogatepass"), layout
        if content is not None and text:
            for word in _WORD.findall(text):
                yield word.encode(), content


def _extract(
    reader: Callable[[bytes], Iterator[Node]],
    layout: int | None,
    content: int | None,
    text: bytes,
) -> Iterator[tuple[bytes, int]]:
    return features(reader(text), layout, content)


def both(name: str, layout: int, content: int) -> Callable[[bytes], Iterator[tuple[bytes, int]]]:
    """Make the extractor of layout and content of a format, with a weight for each."""
    return partial(_extract, READERS[name], layout, content)


EXTRACTORS = {
    f"{name}{ending}": partial(_extract, reader, layout, content)
    for name, reader in READERS.items()
    for ending, layout, content in (("", 1, 1), ("-layout", 1, None), ("-content", None, 1))
}
"""Extractors by name: ``xml``, ``xml-layout``, ``xml-content``; the same for html and json."""
