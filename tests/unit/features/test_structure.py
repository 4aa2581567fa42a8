"""Layout and content of XML, HTML and JSON; and markup by those who mean no good."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup import Deduplicator
from stream_dedup.features.fields import MAX_NAME
from stream_dedup.features.recipe import Recipe, replace
from stream_dedup.features.structure import (
    EXTRACTORS,
    MAX_DEPTH,
    MAX_NODES,
    html_nodes,
    json_nodes,
    xml_nodes,
)
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.simhash import distance
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from tests.strategies import documents as json_documents
from tests.strategies import raw_bytes

SIZE = 65_536
FORMATS = ("xml", "html", "json")


def taken(extractor: str, text: bytes) -> list[bytes]:
    return [feature for feature, _ in EXTRACTORS[extractor](text)]


def distances(recipe: Recipe, *values: bytes) -> list[int]:
    """From the first to each of the others."""
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    numbers = fingerprinter.fingerprints(fingerprinter.prepare(values, None), full=True)
    first, *others = numbers.low
    return [distance(first, other) for other in others]


# ---------------------------------------------------------------- what is taken


@pytest.mark.parametrize(
    ("text", "layout", "content"),
    [
        (b"", "", ""),
        (b"<a/>", "/a", ""),
        (
            b'<?xml version="1.0"?><a x="one two"><b>three</b>four<!-- no --></a>',
            "/a /a/@x /a/b /a/b/#text /a/#text /a/#comment",
            "one two three four",
        ),
        (b"<a> \n <b/> </a>", "/a /a/b", ""),
        (b"<a><![CDATA[<b>x</b>]]></a>", "/a /a/#text", "b x b"),
        (b"<a>&lt;&#228;&amp;</a>", "/a /a/#text", "ä"),
        (b'<n:a xmlns:n="urn:x" n:k="v"/>', "/n:a /n:a/@n:k", "v"),
        (b"<!DOCTYPE a SYSTEM 'a.dtd'><a>x</a>", "/a /a/#text", "x"),
        ("<é>ß</é>".encode("utf-16"), "/é /é/#text", "ß"),
        (b"\xef\xbb\xbf<a>x</a>", "/a /a/#text", "x"),
        (b"<a>\x1aipv4 b\x00c</a>", "/a /a/#text", "ipv4 b c"),
        # what is malformed or cut off, as far as it goes
        (b"<a><b>one</b><c>tw", "/a /a/b /a/b/#text /a/c /a/c/#text", "one tw"),
        (b"<a><b>one</a>", "/a /a/b /a/b/#text", "one"),
        (b"<a>one &nope; two</a>", "/a /a/#text", "one"),
        (b"no markup", "", ""),
    ],
)
def test_xml_is_taken_apart(text: bytes, layout: str, content: str) -> None:
    assert layout.split() == [feature.decode() for feature in taken("xml-layout", text)]
    assert content.split() == [feature.decode() for feature in taken("xml-content", text)]


@pytest.mark.parametrize(
    ("text", "layout", "content"),
    [
        (b"", "", ""),
        (b"plain", "/#text", "plain"),
        (b"<P Class='a' hidden class=b>Hi", "/p /p/@class /p/@hidden /p/#text", "Hi"),
        (b"<!DOCTYPE html><br><br/>x", "/br /br /#text", "x"),
        (b"<ul><li>a<li>b</ul>c", "/ul /ul/li /ul/li/#text /ul/li /ul/li/#text /#text", "a b c"),
        (b"<tr><td>1<td>2<tr>", "/tr /tr/td /tr/td/#text /tr/td /tr/td/#text /tr", "1 2"),
        (b"<p>a<div>b</div>", "/p /p/#text /div /div/#text", "a b"),
        (b"<script>if (a<b) '</p>'</SCRIPT >x", "/script /#text", "x"),
        (b"<style>p{}", "/style", ""),
        (b"<!-- <p> --><p>", "/#comment /p", ""),
        (b"<!-- open", "/#comment", ""),
        (b"a < b &amp;&uuml;&#x41; <3 <", "/#text", "a b üA 3"),
        (b"</nope><b></i></b>x", "/b /#text", "x"),
        (b"<a href=/x?y=1>t</a>", "/a /a/@href /a/#text", "t"),
        (b'<a title="a > b">t', "/a /a/@title /a/#text", "t"),
        (b'<a title="open>t', "/a /a/@title", ""),
        (b"<![if x]><?php echo ?>x", "/#text", "x"),
    ],
)  # fmt: skip
def test_html_is_taken_apart(text: bytes, layout: str, content: str) -> None:
    assert layout.split() == [feature.decode() for feature in taken("html-layout", text)]
    assert content.split() == [feature.decode() for feature in taken("html-content", text)]


@pytest.mark.parametrize(
    ("text", "layout", "content"),
    [
        (b"", "", ""),
        (b'"one two"', "/#string", "one two"),
        (
            b'{"b": [1, -2.5, "x y"], "c": null, "d": true}',
            (
                "/#object /b /b/#array /b/[] /b/[]/#number /b/[] /b/[]/#number /b/[] "
                "/b/[]/#string /c /c/#null /d /d/#boolean"
            ),
            "1 2 5 x y true",
        ),
        (
            b'{"a": {"b": {}}, "e": {}, "f": []}',
            "/#object /a /a/#object /a/b /a/b/#object /e /e/#object /f /f/#array",
            "",
        ),
        (b'{"k\\u0065y": "\\"a\\nb\\u00e4"}', "/#object /key /key/#string", "a bä"),
        (b"[[1],2]", "/#array /[] /[]/#array /[]/[] /[]/[]/#number /[] /[]/#number", "1 2"),
        (b'{"a": "x"} {"a": "y"}', "/#object /a /a/#string /#object /a /a/#string", "x y"),
        # as far as it goes
        (b'{"a": "one two', "/#object /a /a/#string", "one two"),
        (b'{"a": "x\\', "/#object /a /a/#string", "x"),
        (b'{"a": "\\uZZ b"', "/#object /a /a/#string", "uZZ b"),
        (b"]}]", "", ""),
        (b"nonsense", "/#number", "nonsense"),
        (b'\xff{"a":1}', "/#number /#object /a /a/#number", "1"),
    ],
)  # fmt: skip
def test_json_is_taken_apart(text: bytes, layout: str, content: str) -> None:
    assert layout.split() == [feature.decode() for feature in taken("json-layout", text)]
    assert content.split() == [feature.decode() for feature in taken("json-content", text)]


@pytest.mark.parametrize("name", FORMATS)
@given(text=raw_bytes | st.text("<>/!-a='\"&;[]{}:,\\ ").map(str.encode))
def test_both_are_layout_and_content_and_nothing_fails(name: str, text: bytes) -> None:
    layout, content = taken(f"{name}-layout", text), taken(f"{name}-content", text)

    assert sorted(layout + content) == sorted(taken(name, text))
    assert all(feature.startswith(b"/") for feature in layout)
    assert not any(feature.startswith(b"/") for feature in content)


@pytest.mark.parametrize("reader", [xml_nodes, html_nodes, json_nodes])
@given(text=raw_bytes | st.text("<>/abp ='\"[]{}:,").map(str.encode))
def test_no_walk_goes_up_more_often_than_down(reader: Any, text: bytes) -> None:
    depth = 0
    for node in reader(text):
        depth += {"open": 1, "close": -1, "leaf": 0}[node.kind]
        assert depth >= 0


@given(document=json_documents)
def test_a_json_documents_layout_does_not_depend_on_how_it_is_written(document: Any) -> None:
    close, wide = (
        json.dumps(document, ensure_ascii=ascii_, indent=indent).encode()
        for ascii_, indent in ((False, None), (True, 3))
    )

    assert taken("json", close) == taken("json", wide)


def steps_of(node: object, path: str, words: list[str]) -> Iterator[str]:
    """The paths of a decoded JSON document, by recursion; its words are added to `words`."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object",
             list: "array", type(None): "null"}  # fmt: skip
    yield f"{path}/#{kinds[type(node)]}"
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else [("[]", below) for below in node]
        for key, below in items:
            yield f"{path}/{key}"
            yield from steps_of(below, f"{path}/{key}", words)
    elif node is not None:
        words += re.findall(r"\w+", node if isinstance(node, str) else json.dumps(node))


@given(document=json_documents)
def test_json_nodes_equal_those_of_a_decoder_and_recursion(document: Any) -> None:
    words: list[str] = []
    paths = [path for path in steps_of(document, "", words) if len(path) <= MAX_NAME]
    text = json.dumps(document).encode()

    layout = [feature.decode() for feature in taken("json-layout", text)]
    assert [path for path in layout if "~" not in path] == paths
    assert [feature.decode() for feature in taken("json-content", text)] == words


_names = st.sampled_from(["div", "span", "em", "b", "x-y"])
_said = st.text("ab <>&\"'é\n", max_size=6)


@st.composite
def elements(draw: st.DrawFn, depth: int = 3) -> ET.Element:
    """Trees of elements that close only where they say so."""
    element = ET.Element(draw(_names), draw(st.dictionaries(_names, _said, max_size=2)))
    element.text = draw(_said)
    for _ in range(draw(st.integers(0, 3)) if depth else 0):
        below = draw(elements(depth=depth - 1))
        below.tail = draw(_said)
        element.append(below)
    return element


def walked(element: ET.Element, path: str, *, values: bool) -> Iterator[tuple[str, list[str]]]:
    """(path, words) of a tree's nodes in order, by recursion."""
    path = f"{path}/{element.tag}"
    yield path, []
    for key, value in element.attrib.items():
        yield f"{path}/@{key}", re.findall(r"\w+", value) if values else []
    for said, below in zip([element.text, *(e.tail for e in element)], [*element, None],
                           strict=True):  # fmt: skip
        if said and not said.isspace():
            yield f"{path}/#text", re.findall(r"\w+", said)
        if below is not None:
            yield from walked(below, path, values=values)


@pytest.mark.parametrize("name", ["xml", "html"])
@given(tree=elements())
def test_markup_gives_the_nodes_of_the_tree_it_was_made_from(
    name: Literal["xml", "html"], tree: ET.Element
) -> None:
    text = ET.tostring(tree, encoding="utf-8", method=name)
    expected = list(walked(tree, "", values=name == "xml"))

    layout = [feature.decode() for feature in taken(f"{name}-layout", text)]
    assert [path for path, _ in expected] == layout
    content = [feature.decode() for feature in taken(f"{name}-content", text)]
    assert [word for _, words in expected for word in words] == content


# ---------------------------------------------------------------- near and far

WORDS = {
    "one": "the harvest was good this year and the cellars are full of wine and apples",
    "other": "engineers replaced two pumps below the bridge after water rose on tuesday night",
}


ATTRIBUTE = " class='x'"
"""In XML its value would be text."""


def table_page(text: str) -> dict[str, bytes]:
    """The words in one layout, in every format."""
    words = text.split()
    cells = [("head", words[:3]), ("main", words[3:9]), ("foot", words[9:])]
    rows = "".join(f"<tr><th>{' '.join(w)}</th><td{ATTRIBUTE}>y</td></tr>" for _, w in cells)
    html = f"<html><body><h1>title</h1><table>{rows}</table><footer>end</footer></body></html>"
    document = {"page": {k: {"text": " ".join(w), "tags": ["y", "end"]} for k, w in cells}}
    return {
        "html": html.encode(),
        "xml": f"<?xml version='1.0'?>{html.replace(ATTRIBUTE, '')}".encode(),
        "json": json.dumps(document | {"title": "title"}).encode(),
    }


def list_page(text: str) -> dict[str, bytes]:
    """The same words in another layout."""
    items = "".join(f"<li><em>{word}</em></li>" for word in text.split())
    html = f"<div><section{ATTRIBUTE}><h2>title</h2><ul>{items}</ul><p>y end</p></section></div>"
    return {
        "html": html.encode(),
        "xml": html.replace(ATTRIBUTE, "").encode(),
        "json": json.dumps([["title", {"say": text}], {"more": "y end"}]).encode(),
    }


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("name", FORMATS)
def test_layout_and_content_are_separate(name: str, width: int) -> None:
    page = table_page(WORDS["one"])[name]
    other_text = table_page(WORDS["other"])[name]
    other_layout = list_page(WORDS["one"])[name]

    def recipe(ending: str) -> Recipe:
        return replace(Recipe(), features__extractor=name + ending, fingerprint__width=width)

    by_layout = distances(recipe("-layout"), page, other_text, other_layout)
    by_content = distances(recipe("-content"), page, other_text, other_layout)

    assert 0 == by_layout[0] < 10 < by_layout[1]
    assert 0 == by_content[1] < 10 < by_content[0]


@pytest.mark.parametrize("name", FORMATS)
def test_of_both_the_heavier_decides(name: str) -> None:
    page = table_page(WORDS["one"])[name]
    others = table_page(WORDS["other"])[name], list_page(WORDS["one"])[name]

    def weighed(layout: int, content: int) -> list[int]:
        weights = {"layout": layout, "content": content}
        recipe = replace(Recipe(), features__extractor=name, features__weights=weights)
        return distances(recipe, page, *others)

    for_layout, for_content = weighed(9, 1), weighed(1, 9)
    assert for_layout[0] < for_layout[1]
    assert for_content[1] < for_content[0]
    alone = replace(Recipe(), features__extractor=f"{name}-layout")
    assert distances(alone, page, *others) == weighed(1, 0)


def test_pages_merge_by_their_layout_or_by_their_content() -> None:
    pages = [
        table_page(WORDS["one"])["html"],
        table_page(WORDS["other"])["html"],
        list_page(WORDS["one"])["html"],
    ]

    def decided(extractor: str) -> list[str]:
        recipe = replace(Recipe(), features__extractor=extractor, match__jaccard=0.8)
        return [decision.kind.value for decision in Deduplicator(recipe).process(pages)]

    assert decided("html-layout") == ["new", "duplicate", "new"]
    assert decided("html-content") == ["new", "new", "duplicate"]
    assert decided("html") == ["new", "new", "new"]


# ---------------------------------------------------------------- hostile


@pytest.fixture
def quick() -> Iterator[None]:
    """What is done meanwhile takes little time."""
    began = time.process_time()
    yield
    assert time.process_time() - began < 5


@pytest.fixture
def small() -> Iterator[None]:
    """What is done meanwhile takes little memory."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


def laughs(levels: int, times: int) -> bytes:
    entities = "".join(
        f'<!ENTITY l{level} "{f"&l{level - 1};" * times}">' for level in range(1, levels)
    )
    return (
        f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY l0 "lol">{entities}]>'
        f'<a x="&l{levels - 1};">&l{levels - 1};</a>'
    ).encode()


@pytest.mark.usefixtures("quick", "small")
@pytest.mark.parametrize("levels", [1, 10, 30])
@pytest.mark.parametrize("name", FORMATS)
def test_no_entity_is_expanded(name: str, levels: int) -> None:
    for extractor in (name, f"{name}-layout", f"{name}-content"):
        found = taken(extractor, laughs(levels, 10))

        assert len(found) < 1000
        if name == "xml":
            assert found == []


def test_nothing_outside_of_the_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("topsecret")
    dtd = tmp_path / "a.dtd"
    dtd.write_text('<!ENTITY s "topsecret"><!ATTLIST a d CDATA "topsecret">')

    def connect(*_arguments: object) -> None:
        pytest.fail("it went to the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    texts = [
        f'<!DOCTYPE a [<!ENTITY s SYSTEM "file://{secret}">]><a>&s;</a>',
        f'<!DOCTYPE a [<!ENTITY % s SYSTEM "file://{dtd}">%s;]><a>&s;</a>',
        f'<!DOCTYPE a SYSTEM "file://{dtd}"><a>&s;</a>',
        '<!DOCTYPE a PUBLIC "x" "http://127.0.0.1:9/a.dtd"><a>&s;</a>',
        f'<a xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="{secret}"/></a>',
        f'<?xml-stylesheet href="{secret}"?><a/>',
    ]
    for text in texts:
        for name in EXTRACTORS:
            assert not any(b"topsecret" in feature for feature in taken(name, text.encode()))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("xml", b"<a>" * 100_000),
        ("xml", b"<a>" * 100_000 + b"x" + b"</a>" * 100_000),
        ("html", b"<div>" * 100_000),
        ("html", b"<div>" * 100_000 + b"x" + b"</div>" * 100_000),
        ("json", b"[" * 100_000 + b"1" + b"]" * 100_000),
        ("json", b'{"a":' * 100_000),
    ],
)
def test_nesting_is_followed_to_a_depth_and_costs_no_stack(name: str, text: bytes) -> None:
    layout = set(taken(f"{name}-layout", text))

    assert MAX_DEPTH <= len(layout) <= 3 * MAX_DEPTH
    assert all(len(feature) <= MAX_NAME for feature in layout)


@pytest.mark.usefixtures("quick", "small")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("xml", b'<a x="%b"/>' % (b"y " * 500_000)),
        ("xml", b"<a " + b" ".join(b'x%d=""' % n for n in range(20_000)) + b"/>"),
        ("xml", b"<%b>" % (b"a" * 1_000_000) + b"<b/>" * 1000),
        ("xml", b'<!DOCTYPE a [<!ATTLIST a x CDATA "%b">]><a>' % (b"y" * 500_000) + b"<a/>" * 9999),
        ("html", b'<a x="%b">' % (b"y " * 500_000)),
        ("html", b"<%b>" % (b"a" * 1_000_000) + b"<b></b>" * 1000),
        ("html", b"<a " + b"x=1 " * 200_000),
        ("json", b'{"%b": [%b]}' % (b"k" * 1_000_000, b"1," * 1000)),
    ],
)
def test_long_names_and_attributes_cost_their_length_once(name: str, text: bytes) -> None:
    assert sum(len(feature) for feature in taken(name, text)) < 20 << 20


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "piece",
    ["<a", "<a ", "<!--", "<!", "<![CDATA[", "<?", "</", '<a x="', "<a x='", "<a/", "<a =", "</a ",
     "<script>", "<p>", "<li><b>", "&#", "&lt", "&#9999999999", '"\\"', '"\\', '"', "{", "}", "[]",
     '{"a":', "\\", "a ", "<\x00", "\ufeff"],
)  # fmt: skip
def test_time_is_linear_whatever_is_repeated(piece: str) -> None:
    text = (piece * SIZE).encode()[:SIZE]
    for name in EXTRACTORS:
        assert len(taken(name, text)) <= 3 * SIZE


def test_invalid_character_references_stay_as_they_are() -> None:
    assert taken("html-content", b"&#" + b"9" * 5000 + b";") == [b"9" * 5000]


def test_readers_stop_when_their_caller_does() -> None:
    assert sum(1 for _ in xml_nodes(b"<a>" + b"<b/>" * MAX_NODES)) == MAX_NODES


def test_a_hostile_event_is_passed_and_the_next_one_decided() -> None:
    dedup = Deduplicator(replace(Recipe(), features__extractor="xml"))

    decided = dedup.process([laughs(10, 10), b"<a>one two</a>", b"<a>one two</a>"])

    assert [decision.kind.value for decision in decided] == ["passed", "new", "duplicate"]


# ---------------------------------------------------------------- the example


def test_the_example_distinguishes_layout_from_content() -> None:
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, root / "examples" / "structure" / "demo.py"],
        capture_output=True,
        text=True,
        check=True,
    )

    _, *rows = (line.split() for line in done.stdout.splitlines())
    found = {name: (int(text), int(layout)) for name, text, layout in rows}
    assert 0 == found["html-layout"][0] < 10 < found["html-layout"][1]
    assert 0 == found["html-content"][1] < 10 < found["html-content"][0]
    readme = (root / "examples" / "structure" / "README.md").read_text("utf-8")
    assert done.stdout in readme
