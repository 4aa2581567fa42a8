"""Layout and content: features of XML, HTML and JSON texts.

Problem: two pages may be one form filled with other words, or the same words in another form. Cut
into words, markup and text are one heap, and neither question has an answer.

Idea: walk the tree (`trees`). *Layout* features are the paths from the root to every node, with
the names of elements and attributes and the kinds of nodes, and no text. *Content* features are
the words of the text, and no names. Either alone, or both with a weight each.

Of ``<p class="a">Hi there</p>``::

    layout   /p   /p/@class   /p/#text
    content  Hi   there       (in XML also a, the attribute's value)

A path longer than `MAX_NAME` characters is cut, with the hash of the whole at its end. Below
`MAX_DEPTH` nodes go by the path of the last one above it. So a node costs no more than its own
name, however deep it lies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from stream_dedup.features.fields import shortened
from stream_dedup.features.trees import Node, html_nodes, json_nodes, xml_nodes

MAX_DEPTH = 64
"""Steps of a path."""

_WORD = re.compile(r"\w+")

READERS: dict[str, Callable[[bytes], Iterator[Node]]] = {
    "xml": xml_nodes,
    "html": html_nodes,
    "json": json_nodes,
}
"""What reads the nodes of a format; the extractor of this name takes layout and content."""


def features(
    nodes: Iterable[Node], layout: int | None, content: int | None
) -> Iterator[tuple[bytes, int]]:
    """The features of a walk through a tree.

    Args:
        nodes: as the readers give them.
        layout: weight of every node's path; None takes no paths.
        content: weight of every word of the text; None takes no words.
    """
    paths = [""]  # from the root to where the walk is
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
    """The extractor of layout and content of a format, with a weight for each."""
    return partial(_extract, READERS[name], layout, content)


EXTRACTORS = {
    f"{name}{ending}": partial(_extract, reader, layout, content)
    for name, reader in READERS.items()
    for ending, layout, content in (("", 1, 1), ("-layout", 1, None), ("-content", None, 1))
}
"""By name: ``xml``, ``xml-layout``, ``xml-content``, and the same of ``html`` and ``json``."""
