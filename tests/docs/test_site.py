"""The documentation site is complete: it builds, its links work, it needs no other server.

These tests check the links again, in the HTML: the generator checks links between pages, but not
those of its own templates and pictures.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs import website
from docs.blocks import ROOT
from docs.website import CONFIG, DOCS, REPOSITORY, SiteError, build, for_the_site

PICTURES = DOCS / "images"

PLAIN = {
    "http://blog.jebu.net/2009/08/simhashing-in-erlang-beauty-with-binary-comprehension/",
}
"""Links as their authors gave them, to old pages that were written without encryption."""

_ADDRESSES = {"a": "href", "link": "href", "script": "src", "img": "src", "source": "srcset"}
_LOADED = {"img", "script", "iframe", "audio", "video", "source", "object", "embed"}


class Page(HTMLParser):
    """What a page links to and loads, and where links can lead in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.pictures: list[dict[str, str | None]] = []
        self.language = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if tag == "html":
            self.language = given.get("lang") or ""
        if tag == "img":
            self.pictures.append(given)
        address = given.get(_ADDRESSES.get(tag, ""))
        if address:
            self.links.append(address)
        if tag in _LOADED or (tag == "link" and given.get("rel") != "canonical"):
            self.loaded += [
                given[name] or "" for name in ("src", "srcset", "href") if name in given
            ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "built"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return read(site)


def sources() -> list[str]:
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


# ------------------------------------------------------------ what is in it


def test_every_page_is_published_and_nothing_else(site: Path) -> None:
    assert {Path(name).with_suffix(".html").as_posix() for name in sources()} <= {
        path.relative_to(site).as_posix() for path in site.rglob("*.html")
    }
    published = {path.suffix for path in site.rglob("*") if path.is_file()}
    assert published & {".py", ".pyc", ".toml", ".md", ".log", ".jsonl"} == set()


def test_every_page_is_in_the_navigation_once() -> None:
    def named(part: object) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            for below in part.values():
                yield from named(below)
        elif isinstance(part, list):
            for each in part:
                yield from named(each)

    config = tomllib.loads(CONFIG.read_text("utf-8"))
    assert sources() == sorted(named(config["project"]["nav"]))


# ------------------------------------------------------------ links


def read(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def dead_links(site: Path) -> list[str]:
    """Links within a site that lead to no file of it, or to no anchor of a page."""
    pages = read(site)
    dead = []
    for path, page in pages.items():
        for link in page.links:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = urllib.parse.unquote(address.path)
            base = site if target.startswith("/") else path.parent
            there = (base / target.lstrip("/")).resolve() if target else path
            if there.is_dir():
                there /= "index.html"
            anchor = urllib.parse.unquote(address.fragment)
            found = there.is_file() and there.is_relative_to(site)
            if not found or (anchor and there in pages and anchor not in pages[there].anchors):
                dead.append(f"{path.relative_to(site)}: {link}")
    return dead


def test_no_link_anchor_or_picture_is_dead(site: Path) -> None:
    assert dead_links(site) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.html").write_text('<h1 id="top">B</h1><a href="../a.html#here">a</a>')
    (tmp_path / "a.html").write_text(
        '<p id="here"></p><a href="sub/b.html#top"></a><a href="#here"></a><a href="/a.html"></a>'
        '<a href="sub/b.html#gone"></a><a href="c.html"></a><img src="no.png"><a href="../x"></a>'
    )
    expected = ["sub/b.html#gone", "c.html", "no.png", "../x"]
    assert [link.removeprefix("a.html: ") for link in dead_links(tmp_path)] == expected


def test_external_links_are_well_formed_and_encrypted(pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            address = urllib.parse.urlsplit(link)
            inside = not address.scheme and not address.netloc
            if inside or address.hostname == "localhost" or link in PLAIN:
                continue
            well = address.scheme == "https" and re.fullmatch(r"[\w-]+(\.[\w-]+)+", address.netloc)
            if not well or re.search(r"[\s<>\"{}|\\^`]", link):
                wrong.append(f"{path.name}: {link}")
    assert wrong == []


def test_links_to_the_repository_lead_to_existing_files(pages: dict[Path, Page]) -> None:
    seen = set()
    for page in pages.values():
        for link in page.links:
            if match := re.match(rf"{REPOSITORY}/(blob|tree)/main/([^#]+)", link):
                seen.add(match[2])
                there = ROOT / urllib.parse.unquote(match[2])
                assert there.is_dir() if match[1] == "tree" else there.is_file(), link
    assert {"README.md", "CHANGELOG.md"} <= seen


def test_a_link_to_a_missing_file_stops_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = DOCS / "index.md"
    for text in (
        "[gone](../gone.txt)",
        "[above](../../../../../../etc/passwd)",
        "![](images/no.png)",
    ):
        copy = tmp_path / "page.md"
        copy.write_text(text, "utf-8")
        monkeypatch.setattr(website, "ROOT", tmp_path)
        with pytest.raises(SiteError, match="does not exist"):
            for_the_site(copy)
    monkeypatch.undo()
    assert f"{REPOSITORY}/blob/main/README.md" in for_the_site(page)


def test_a_dead_anchor_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Home\n\n[there](#nowhere)\n", "utf-8")
    text = CONFIG.read_text("utf-8")
    before, _, below = text.partition("nav = [\n")
    after = below.partition("\n]\n")[2]
    config = tmp_path / "zensical.toml"
    config.write_text(f"{before}{after}".replace('extra_css = ["stylesheets/site.css"]\n', ""))
    monkeypatch.setattr(website, "ROOT", tmp_path)
    monkeypatch.setattr(website, "DOCS", docs)
    monkeypatch.setattr(website, "CONFIG", config)
    with pytest.raises(SiteError, match="nowhere"):
        build(tmp_path / "site")
    assert not (tmp_path / "site").exists()
    (docs / "index.md").write_text("# Home\n\n[there](#home)\n", "utf-8")
    build(tmp_path / "site")
    assert (tmp_path / "site" / "index.html").exists()


def test_a_folder_that_is_not_a_site_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(SiteError, match="is not a site"):
        build(tmp_path)
    assert (tmp_path / "letters.txt").read_text() == "dear"


def test_code_in_tables_looks_as_on_code_hosts(site: Path) -> None:
    text = (site / "cli.html").read_text("utf-8")
    assert "<code>--format table|json</code>" in text
    cells = re.findall(r"<td.*?</td>", "".join(p.read_text("utf-8") for p in site.rglob("*.html")))
    assert len(cells) > 1000
    assert [cell for cell in cells if "\\|" in cell] == []


# ------------------------------------------------------------ for all, from nobody else


def test_a_page_loads_nothing_from_other_servers(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert [each for each in page.loaded if re.match(r"(?:[a-z]+:)?//", each)] == [], path.name
    for sheet in site.rglob("*.css"):
        assert (
            re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text("utf-8")) == []
        )
    for picture in PICTURES.glob("*.svg"):
        assert "href" not in picture.read_text("utf-8")


def test_search_is_in_the_site(site: Path) -> None:
    index = (site / "search.json").read_text("utf-8")
    assert "StreamDedupLagGrowing" in index
    assert "max_candidates" in index


def test_pages_have_a_language_and_pictures_a_description(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert page.language == "en", path.name
        assert all(picture.get("alt") for picture in page.pictures), path.name


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_is_valid_described_and_for_light_and_dark(path: Path) -> None:
    root = ET.parse(path).getroot()  # noqa: S314 -- ours
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.findtext(f"{space}title")
    assert root.findtext(f"{space}desc")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{space}style") or "")


def test_make_builds_it() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "site"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "-m docs.website" in done.stdout
