"""The shape of the package: what may import what, and that everything public is described."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MODULES = sorted((ROOT / "stream_dedup").rglob("*.py"))


def test_imports_keep_the_contracts() -> None:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_and_all_that_is_public_has_a_docstring(module: Path) -> None:
    tree = ast.parse(module.read_text("utf-8"))

    missing = [] if not tree.body or ast.get_docstring(tree) else ["the module"]
    missing += [node.name for node in public(tree.body) if not ast.get_docstring(node)]

    assert missing == []


def test_names_of_tests_have_at_most_60_characters() -> None:
    definitions = (
        node.name.removeprefix("test_")
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )

    assert [name for name in definitions if len(name) > 60] == []


def public(nodes: list[ast.stmt]) -> Iterator[Definition]:
    """Public classes and functions, and the public methods of ports."""
    for node in nodes:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            # What a port says of a method holds for all that fill it.
            if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases):
                yield from public(node.body)
