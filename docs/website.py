"""Build the documentation site: ``python -m docs.website``.

The pages are written for code hosts, where a link may lead to any file of the repository. The site
has only the pages, and its generator publishes every file in its folder. So the pages, pictures and
styles in ``docs`` are copied, and links to other files of the repository become addresses on the
code host. Zensical (https://zensical.org) makes HTML from the copy, and fails if a link or an
anchor between pages leads nowhere.

One more difference is handled: in tables, code hosts remove the backslash of an escaped bar between
backticks. Python's Markdown, which Zensical uses, keeps it and does not need it, so it is removed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from docs.blocks import ROOT

DOCS = ROOT / "docs"
CONFIG = DOCS / "zensical.toml"
SITE = ROOT / "build" / "site"
REPOSITORY = "https://github.com/stream-dedup/stream-dedup"

PUBLISHED = {".md", ".png", ".svg", ".css"}
"""Suffixes of the files that belong to the site."""

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ELSEWHERE = re.compile(r"[a-z]+:|#")


class SiteError(Exception):
    """The site cannot be built; the message says why."""


def published() -> list[Path]:
    """The files that belong to the site."""
    return sorted(path for path in DOCS.rglob("*") if path.suffix in PUBLISHED)


def for_the_site(page: Path) -> str:
    """The text of a page for the generator (see above).

    Raises:
        SiteError: a link leads to a file that is not in the repository.
    """
    parts = _FENCED.split(page.read_text("utf-8"))
    for at in range(0, len(parts), 2):  # the text between fenced blocks
        linked = _TARGET.sub(lambda target: _address(page, target[0]), parts[at])
        parts[at] = _ROW.sub(lambda row: _CODE.sub(_without_escapes, row[0]), linked)
    return "".join(parts)


def _address(page: Path, target: str) -> str:
    """The target of a page's link, seen from the site."""
    if _ELSEWHERE.match(target):
        return target
    path, mark, anchor = target.partition("#")
    there = (page.parent / path).resolve()
    if not there.is_relative_to(ROOT) or not there.exists():
        raise SiteError(f"{page.relative_to(ROOT)} links to {target}, which does not exist")
    if there.is_relative_to(DOCS) and there.suffix in PUBLISHED:
        return target
    kind = "tree" if there.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{there.relative_to(ROOT).as_posix()}{mark}{anchor}"


def _without_escapes(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def build(site: Path) -> None:
    """Build the site into a folder, and replace a site that is there.

    Raises:
        SiteError: a link is dead, Zensical reports a problem or is not installed, or the folder
            contains something other than a site.
    """
    if site.exists() and not (site / "search.json").exists():
        raise SiteError(f"{site} is not a site; give a folder that does not exist yet")
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder).resolve()
        for path in published():
            copy = project / "docs" / path.relative_to(DOCS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                copy.write_text(for_the_site(path), "utf-8")
            else:
                shutil.copy(path, copy)
        shutil.copy(CONFIG, project)
        _generate(project)
        shutil.rmtree(site, ignore_errors=True)
        site.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(project / "site", site)


def _generate(project: Path) -> None:
    if not find_spec("zensical"):
        raise SiteError("zensical is not installed: pip install 'stream-dedup[docs]'")
    done = subprocess.run(  # noqa: S603 -- our own arguments
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", CONFIG.name],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        said = _COLOUR.sub("", done.stdout.decode("utf-8", "replace"))
        raise SiteError(said.partition("Traceback")[0])


def main() -> None:
    """Build the site, and print its address or the reason why it cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m docs.website", description=__doc__)
    parser.add_argument("--to", type=Path, default=SITE, help="the folder (default: build/site)")
    site: Path = parser.parse_args().to
    try:
        build(site.resolve())
    except SiteError as error:
        sys.exit(f"docs.website: {error}")
    print(f"{site}/index.html")  # noqa: T201 -- a command's output


if __name__ == "__main__":
    main()
