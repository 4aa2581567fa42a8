"""The documentation is correct: its commands, code, options, keys and links are tested."""

from __future__ import annotations

import doctest
import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from docs.blocks import ROOT, Block, blocks, missing, pages, prepare, run, says, steps
from docs.commands import commands, options, subcommands
from docs.generate import CLI_PAGE, CONFIGURATION_PAGE, cli_page, configuration_page
from docs.helm_schema import SCHEMA, schema_text
from stream_dedup.cli.main import cli
from stream_dedup.config import load
from stream_dedup.config.document import Key
from stream_dedup.config.document import keys as configuration_keys
from stream_dedup.features.folding import fold
from stream_dedup.features.masks import NAMED, compile_pattern
from stream_dedup.features.outcome_fields import (
    EXIT_FIELDS,
    LEVEL_FIELDS,
    PARENTS,
    STATUS_FIELDS,
    TRACE_FIELDS,
    WORD_FIELDS,
    spellings,
)
from stream_dedup.features.recipe import Recipe, load_recipe, shipped
from stream_dedup.io.decoder import TEXT_FIELDS

PAGES = pages()
RECIPES = (ROOT / "docs" / "recipes.md").read_text("utf-8")
RECIPE_KEYS = (ROOT / "docs" / "recipe-keys.md").read_text("utf-8")
LOG_LINES = (ROOT / "docs" / "log-lines.md").read_text("utf-8")
CODE = re.compile(r"`([^`]+)`")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(block.language == language for block in blocks(page))]


# ------------------------------------------------------------ blocks


@pytest.mark.parametrize("page", pages_with("console"), ids=named)
def test_commands_print_what_the_page_shows(page: Path, folder: Path) -> None:
    wrong = []
    for block in blocks(page):
        if block.language != "console":
            continue
        for step in steps(block.text):
            if missing(step.command):
                continue
            printed = run(step.command, folder)
            if not says(step.expected, printed):
                wrong.append(f"line {block.line}: $ {step.command}{printed}")
    assert wrong == [], "run `make docs` and read what it changes"


@pytest.mark.parametrize("page", pages_with("python"), ids=named)
def test_python_does_what_the_page_shows(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    report: list[str] = []
    for block in blocks(page):
        if block.language == "python":
            _execute(block, names, report)
    assert report == [], f"in {folder}"


def _execute(block: Block, names: dict[str, Any], report: list[str]) -> None:
    if ">>> " not in block.text:
        exec(compile(block.text, f"{block.page}:{block.line}", "exec"), names)  # noqa: S102 -- ours
        return
    test = doctest.DocTestParser().get_doctest(
        block.text, names, named(block.page), str(block.page), block.line - 1
    )
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)


def test_every_block_names_its_language() -> None:
    languages = {(named(b.page), b.line, b.language) for page in PAGES for b in blocks(page)}
    known = {"console", "python", "sh", "toml", "text", "ini"}
    assert {place for place in languages if place[2] not in known} == set()


# ------------------------------------------------------------ reference


def test_the_reference_of_commands_is_up_to_date() -> None:
    assert cli_page() == CLI_PAGE.read_text("utf-8"), "run `make docs`"


def test_the_schema_of_the_charts_values_is_up_to_date() -> None:
    assert schema_text() == SCHEMA.read_text("utf-8"), "run `make docs`"


@pytest.mark.parametrize(("name", "found"), list(commands(cli, "stream-dedup")))
def test_every_option_is_in_the_reference_with_its_help(name: str, found: click.Command) -> None:
    _, _, below = CLI_PAGE.read_text("utf-8").partition(f"\n## {name}\n")
    section = below.partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    for option in options(found):
        row = next((r for r in rows if re.search(rf"{max(option.opts, key=len)}[ `]", r)), "")
        assert row, f"{max(option.opts, key=len)} is missing"
        assert (option.help or "")[:20].replace("|", r"\|") in row


def test_the_table_of_commands_names_each_of_them() -> None:
    _, _, below = (ROOT / "docs" / "index.md").read_text("utf-8").partition("## Which command?")
    table = below.partition("\n## ")[0]
    assert [name for name in subcommands(cli) if not re.search(rf"\b{name}\b", table)] == []


def test_the_reference_of_the_configuration_is_up_to_date() -> None:
    assert configuration_page() == CONFIGURATION_PAGE.read_text("utf-8"), "run `make docs`"


@pytest.mark.parametrize("key", list(configuration_keys()), ids=lambda key: key.variable)
def test_every_configuration_key_is_in_the_reference(key: Key) -> None:
    assert key.meaning.endswith(".")
    _, _, below = CONFIGURATION_PAGE.read_text("utf-8").partition(f"\n## {key.section}\n")
    row = re.search(rf"^\| `{key.name}` \| (.+) \|$", below.partition("\n## ")[0], re.MULTILINE)
    assert row is not None
    assert key.meaning.partition("<")[0].replace("|", r"\|") in row[1]


def test_the_example_configuration_is_valid(folder: Path) -> None:
    (folder / "kafka-password").write_text("secret\n")
    (block,) = (b for b in blocks(CONFIGURATION_PAGE) if b.language == "toml")
    (folder / "stream-dedup.toml").write_text(block.text)
    config = load("stream-dedup.toml").config
    assert (config.pipelines[0].name, config.pipelines[0].summary_every_s) == ("app", 30.0)
    assert config.kafka.secret("sasl_password") == "secret"


def keys(section: type[msgspec.Struct], prefix: str = "") -> list[tuple[str, object]]:
    """(dotted key, default) of a recipe's section and of all below it."""
    found: list[tuple[str, object]] = []
    for field in msgspec.structs.fields(section):
        name = f"{prefix}{field.name}"
        kinds = [field.type, *getattr(field.type, "__args__", ())]
        below = [k for k in kinds if isinstance(k, type) and issubclass(k, msgspec.Struct)]
        if field.type not in below:
            found.append((name, field.default))
        for part in below:
            found += keys(part, f"{name}.")
    return found


@pytest.mark.parametrize(("key", "default"), keys(Recipe), ids=str)
def test_every_recipe_key_is_in_the_reference_with_its_default(key: str, default: object) -> None:
    row = re.search(rf"^\| `{re.escape(key)}` \|(.*)\|$", RECIPE_KEYS, re.MULTILINE)
    assert row is not None
    cell = re.split(r"(?<!\\)\|", row[1])[1].strip()
    if default is msgspec.NODEFAULT:
        assert cell in ("required", "`{}`")
    elif key != "name":  # a file's own name, if it gives none
        written = msgspec.json.encode(default).decode()
        assert cell == f"`{written}`"


def test_the_reference_has_no_unknown_recipe_key() -> None:
    known = {key for key, _ in keys(Recipe)}
    sections = "|".join(field.name for field in msgspec.structs.fields(Recipe))
    written = re.findall(rf"^\| `((?:{sections})\.[a-z_.]+)` \|", RECIPE_KEYS, re.MULTILINE)
    assert set(written) - known == set()


@pytest.mark.parametrize("name", NAMED)
def test_every_mask_in_the_reference_matches_its_examples(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| (`.*`) \|$", RECIPE_KEYS, re.MULTILINE)
    assert row is not None
    for example in CODE.findall(row[1]):
        match = compile_pattern(NAMED[name]).search(f"at {example} it".encode())
        assert match is not None
        assert match.group().decode() == example


def test_the_disguises_on_the_page_fold_to_what_it_says() -> None:
    section = RECIPE_KEYS.partition("\n## Look-alikes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \| `([^`]+)` \|$", section, re.MULTILINE)
    texts = [html.unescape(text).encode() for text, _ in rows]

    assert len(rows) == 9
    assert [folded.encode() for _, folded in rows] == fold(texts)


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_is_listed_with_its_digest(name: str) -> None:
    assert f"| `{name}` |" in RECIPES
    assert re.search(rf"^{name} +{load_recipe(name).digest} ", RECIPES, re.MULTILINE)


def test_fields_beside_the_text_of_json_events_are_listed() -> None:
    heading = "\n### Levels and outcomes beside the text of a JSON event\n"
    section = LOG_LINES.partition(heading)[2].partition("\n## ")[0]
    fields = (LEVEL_FIELDS, WORD_FIELDS, STATUS_FIELDS, EXIT_FIELDS, TRACE_FIELDS)
    lists = re.findall(
        r"^- \*\*[^:]*:(.*?)(?:\sthat\s+holds|,\s+if\s+they)", section, re.MULTILINE | re.DOTALL
    )
    assert len(lists) == len(fields)
    for text, taken in zip(lists, fields, strict=True):
        named = CODE.findall(text)
        known = [each for name in named for each in spellings(name.replace("_", " "))]
        assert {*taken} <= {*known, *named}
        assert {*named} <= {*taken}
    around = re.search(r"one of the objects(.*?),\sas `", section, re.DOTALL)
    assert around is not None
    assert CODE.findall(around[1]) == list(PARENTS)


@pytest.mark.parametrize("page", ["docs/recipe-keys.md", "docs/how-to/pipe.md"])
def test_fields_that_hold_the_text_are_listed(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert re.search(r",\s".join(f"`{name}`" for name in TEXT_FIELDS), text)


# ------------------------------------------------------------ links and targets


def anchors(page: Path) -> set[str]:
    """The anchors that headings get, as GitHub makes them."""
    prose = FENCED.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        links = LINK.findall(FENCED.sub("", page.read_text("utf-8")))
        todo += [(page.parent / link.partition("#")[0]).resolve() for link in links]
    assert set(PAGES) - reached == set()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_every_named_make_target_exists() -> None:
    targets = {
        target
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {"demo", "test", "docs", "setup"} <= targets
    done = subprocess.run(
        ["make", "--dry-run", *sorted(targets - {"clean"})],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_contributing_says_where_names_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## To add or change")[2]
    text = " ".join(text.partition("\n### A new version")[0].split())
    path = r"`([\w/]+\.(?:py|lua|toml))`"
    found = re.findall(rf"`(\w[\w.]*)`(?:, `\w+` or `\w+`)? in {path}", text)
    found += [(name, file) for file, name in re.findall(rf"{path} \(`(\w[\w.]*)`", text)]
    assert len(found) > 10
    for name, file in found:
        folder = ROOT if file.startswith(("docs/", "tests/")) else ROOT / "stream_dedup"
        source = (folder / file).read_text("utf-8")
        for part in name.split("."):
            made = rf"^ *(async def|def|class|local function)? *{part}\b *[:=(]"
            assert re.search(made, source, re.MULTILINE), f"{name} is not made in {file}"
