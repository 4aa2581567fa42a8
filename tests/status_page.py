"""Reads a worker's status page back, as a browser would take it apart."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree.ElementTree import Element, TreeBuilder

_VOID = {"meta", "link", "br", "hr", "img", "input"}


class _Tree(HTMLParser):
    """Makes a tree; what is opened must be closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.made = TreeBuilder()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.made.start(tag, {name: value or "" for name, value in attrs})
        if tag in _VOID:
            self.made.end(tag)
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self.made.end(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self.made.data(data)


class Page:
    """A page that was read.

    Attributes:
        root: its elements.
        sections: its sections by their headings.
    """

    def __init__(self, html: str | bytes) -> None:
        tree = _Tree()
        tree.feed(html if isinstance(html, str) else html.decode())
        tree.close()
        self.root = tree.made.close()
        found = self.root.iter("section")
        self.sections = {text(section.find("h2")): Section(section) for section in found}

    @property
    def state(self) -> str:
        """Whether the worker is ready, as the page says it."""
        return text(self.root.find(".//header/p"))

    @property
    def elements(self) -> set[str]:
        """The kinds of elements there are."""
        return {element.tag for element in self.root.iter()}


class Section:
    """A part of it.

    Attributes:
        values: the texts under each term: the figure, then what explains it.
        tables: the rows under each heading, the column heads first.
        text: all of its text.
    """

    def __init__(self, section: Element) -> None:
        self.text = text(section)
        self.values = {
            text(pair.find("dt")): [text(value) for value in pair.findall("dd")]
            for pair in section.findall("dl/div")
        }
        parts = [(text(part.find("h3")), part) for part in section.findall("div/div")]
        parts.append(("", section))
        self.tables = {
            heading: [[text(cell) for cell in row] for row in table.iter("tr")]
            for heading, part in parts
            for table in part.findall("table")
        }

    def row(self, heading: str, *begin: str) -> list[str]:
        """What follows in the one row that begins so."""
        (found,) = (row for row in self.tables[heading] if tuple(row[: len(begin)]) == begin)
        return found[len(begin) :]


def text(element: Element | None) -> str:
    """The text within an element."""
    return "" if element is None else "".join(element.itertext())
