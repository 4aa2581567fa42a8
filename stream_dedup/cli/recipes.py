"""``stream-dedup recipes``: the recipes that are shipped, shown and checked."""

from __future__ import annotations

from typing import Any

import click
import msgspec
import tomli_w
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.common import console, recipe_of, set_option
from stream_dedup.cli.completion import complete_recipe
from stream_dedup.cli.group import Group
from stream_dedup.features.extractors import KERNEL_EXTRACTORS, load_extractor
from stream_dedup.features.recipe import Recipe, load_recipe, shipped


@click.group(cls=Group)
def recipes() -> None:
    """List, show and check recipes. A recipe decides what counts as near."""


@recipes.command("list")
def list_recipes() -> None:
    """List the recipes that come with stream-dedup."""
    table = Table("name", "digest", "description", box=None, padding=(0, 2, 0, 0))
    for name in shipped():
        recipe = load_recipe(name)
        table.add_row(name, recipe.digest, Text(recipe.description))
    console().print(table)


@recipes.command()
@click.argument("recipe", metavar="NAME|FILE", shell_complete=complete_recipe)
@set_option
@click.option("--all", "everything", is_flag=True, help="Show the defaults too.")
def show(recipe: str, settings: tuple[str, ...], everything: bool) -> None:
    """Show a recipe as TOML: the settings that differ from the defaults, or all of them."""
    chosen = recipe_of(recipe, settings)
    click.echo(f"# digest {chosen.digest}")
    click.echo(to_toml(chosen, everything=everything), nl=False)


@recipes.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="NAME|FILE...", shell_complete=complete_recipe
)
def check(files: tuple[str, ...]) -> None:
    """Check recipes. Stops at the first error and prints its key, its value and a remedy."""
    for name in files:
        recipe = load_recipe(name)
        if recipe.features.extractor not in KERNEL_EXTRACTORS:
            load_extractor(recipe.features.extractor, name)
        click.echo(f"{name}: good, digest {recipe.digest}")


def to_toml(recipe: Recipe, *, everything: bool = False) -> str:
    """Write a recipe as a TOML document, which gives the same recipe when it is read."""
    document = _whole(recipe) if everything else msgspec.to_builtins(recipe)
    return tomli_w.dumps(document)


def _whole(value: Any) -> Any:  # noqa: ANN401 -- any part of a recipe
    """Return the recipe's parts as dictionaries, with the defaults."""
    if isinstance(value, msgspec.Struct):
        return {name: _whole(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_whole(part) for part in value]
    return value
