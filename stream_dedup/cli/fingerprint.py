"""``stream-dedup fingerprint``: what a recipe makes of lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec
from rich.table import Table
from rich.text import Text

from stream_dedup.cli.options import recipe_of, recipe_option, set_option
from stream_dedup.cli.show import bits, console, hexadecimal, shown, write_whole
from stream_dedup.clustering.comparison import Inspector, Look
from stream_dedup.errors import InputError
from stream_dedup.fingerprint.hashing import MASK64
from stream_dedup.fingerprint.reference import Feature
from stream_dedup.io.files import MAX_LINE_BYTES


@click.command()
@click.argument("lines", nargs=-1, metavar="[LINE]...")
@recipe_option
@set_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def fingerprint(
    lines: tuple[str, ...], recipe: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """Show what a recipe makes of lines: masks, tokens, features, weights and bits.

    Takes the LINEs given, or those of standard input.

    \b
    stream-dedup fingerprint "Failed password for root from 10.0.0.7 port 4422 ssh2"
    head -3 app.log | stream-dedup fingerprint --json
    """
    chosen = recipe_of(recipe, settings)
    inspector = Inspector(chosen)
    given = (line.encode("utf-8", "surrogateescape") for line in lines)
    for line in given if lines else _standard_input():
        look = inspector.look(line)
        if as_json:
            text = msgspec.json.encode(_object(look, inspector)) + b"\n"
            write_whole(sys.stdout.buffer, text)
        else:
            _print(look, inspector)


def _standard_input() -> Iterator[bytes]:
    if sys.stdin is None:
        raise InputError("standard input: is closed; give LINEs, or something to read")
    while line := sys.stdin.buffer.readline(MAX_LINE_BYTES):
        yield line.rstrip(b"\n")


def _print(look: Look, inspector: Inspector) -> None:
    settings = inspector.recipe.fingerprint
    out = console()
    for name, value in (
        ("text", shown(look.text, 400)),
        ("pattern", look.pattern),
        ("exact hash", f"{look.exact:016x}"),
        ("fingerprint", hexadecimal(look.fingerprint, settings.width)),
        ("bits", bits(look.fingerprint, settings.width)),
        *((("key", f"{look.key:016x}"),) if settings.kind == "minhash" else ()),
        ("words", f"{look.words} of {len(look.taken.features)} features"),
    ):
        out.print(Text(f"{name:11}  {value}"), soft_wrap=True)
    table = Table("feature", "weight", "hash", "stands for", box=None, padding=(0, 2, 0, 2))
    counted = {id(feature) for feature in look.counted}
    for feature in look.taken.features:
        weight = str(feature.weight) if id(feature) in counted else "again"
        stands_for = f"{inspector.named(feature)}  {shown(feature.text)}"
        table.add_row(
            Text("<*>" if feature.variable else shown(feature.text)),
            weight,
            _hash(feature),
            Text(stands_for if feature.variable else ""),
        )
    out.print(table)
    out.print()


def _hash(feature: Feature) -> str:
    return f"{feature.bits & MASK64:016x}"


def _object(look: Look, inspector: Inspector) -> dict[str, object]:
    width = inspector.recipe.fingerprint.width
    counted = {id(feature) for feature in look.counted}
    return {
        "text": look.text.decode("utf-8", "backslashreplace"),
        "pattern": look.pattern,
        "exact": f"{look.exact:016x}",
        "fingerprint": hexadecimal(look.fingerprint, width),
        **({"key": f"{look.key:016x}"} if inspector.recipe.fingerprint.kind == "minhash" else {}),
        "words": look.words,
        "features": [
            {
                "text": "<*>" if f.variable else f.text.decode("utf-8", "backslashreplace"),
                "placeholder": f.variable,
                "stands_for": f.text.decode("utf-8", "backslashreplace") if f.variable else None,
                "weight": f.weight,
                "counted": id(f) in counted,
                "hash": _hash(f),
            }
            for f in look.taken.features
        ],
    }
