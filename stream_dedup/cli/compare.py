"""``stream-dedup compare``: two texts' hashes and fingerprints, number by number."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.cells import cell_len
from rich.text import Text

from stream_dedup.cli.options import recipe_of, recipe_option, set_option
from stream_dedup.cli.show import console, hexadecimal, shown, write_whole
from stream_dedup.clustering.comparison import Comparison, Inspector, Look
from stream_dedup.features.recipe import Fingerprint
from stream_dedup.fingerprint.reference import Feature

JAVA_INT_BITS = 32
"""Where Java's hash makes fingerprints of these, they are Java's ints."""


@click.command()
@click.argument("first")
@click.argument("second")
@recipe_option
@set_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="json is one object; long numbers are strings.")  # fmt: skip
def compare(first: str, second: str, recipe: str, settings: tuple[str, ...], form: str) -> None:
    """Compare two texts' fingerprints, number by number.

    Prints the hash of every feature of both texts, their fingerprints in decimal and binary, and
    in how many bits they differ. Made to be held against what another system prints: the recipes
    java32, md5-128, minhash-n, window-cyclic and letters5 rebuild five. Fingerprints of 32 bits by
    Java's hash are printed as Java prints an int. Whether two lines would merge: explain.

    \b
    stream-dedup compare --recipe java32 "this is string1" "this is string2"
    stream-dedup compare --recipe letters5 banana cabana --format json
    """
    found = Inspector(recipe_of(recipe, settings)).compare(
        first.encode("utf-8", "surrogateescape"), second.encode("utf-8", "surrogateescape")
    )
    if form == "json":
        write_whole(sys.stdout.buffer, msgspec.json.encode(_object(found)) + b"\n")
        return
    out = console()
    for line in _lines(found):
        out.print(Text(line), soft_wrap=True)


def decimal(value: int, settings: Fingerprint) -> str:
    """A hash or fingerprint in decimal: with a sign where it is an int of Java's."""
    if _is_java_int(settings) and value >> (JAVA_INT_BITS - 1):
        value -= 1 << JAVA_INT_BITS
    return str(value)


def binary(value: int, settings: Fingerprint) -> str:
    """The same in binary: all digits, or those that ``Integer.toBinaryString`` gives."""
    return f"{value:b}" if _is_java_int(settings) else f"{value:0{settings.width}b}"


def _is_java_int(settings: Fingerprint) -> bool:
    return (settings.hash, settings.width) == ("java", JAVA_INT_BITS)


def _voting(feature: Feature, settings: Fingerprint) -> int:
    """The bits of a feature's hash that vote."""
    return feature.bits & (1 << settings.width) - 1


def _name(feature: Feature) -> str:
    return "<*>" if feature.variable else shown(feature.text)


def _lines(found: Comparison) -> list[str]:
    settings = found.recipe.fingerprint
    lines: list[str] = []
    for name, look in (("first", found.left), ("second", found.right)):
        lines.append(f"{name:11}  {shown(look.text, 400)}")
        lines += _features(look, settings)
        lines.append(f"fingerprint  {decimal(look.fingerprint, settings)}")
        lines += [f"binary       {binary(look.fingerprint, settings)}", ""]
    note = "; least hashes are equal or tell nothing" if settings.kind == "minhash" else ""
    lines.append(f"distance     {found.distance} of {settings.width} bits{note}")
    return lines


def _features(look: Look, settings: Fingerprint) -> list[str]:
    """A line a feature: its name, its weight, the bits with which it votes."""
    if not look.taken.features:
        return []
    counted = {id(feature) for feature in look.counted}
    rows = [("feature", "weight", "hash")]
    for feature in look.taken.features:
        weight = str(feature.weight) if id(feature) in counted else "again"
        rows.append((_name(feature), weight, binary(_voting(feature, settings), settings)))
    room = max(cell_len(row[0]) for row in rows)
    width = max(len(row[2]) for row in rows[1:])
    return [
        f"  {name}{' ' * (room - cell_len(name))}  {weight:>6}  {value:>{width}}"
        for name, weight, value in rows
    ]


def _object(found: Comparison) -> dict[str, Any]:
    recipe = found.recipe
    return {
        "recipe": recipe.name,
        "digest": recipe.digest,
        "width": recipe.fingerprint.width,
        "texts": [_text_object(look, recipe.fingerprint) for look in (found.left, found.right)],
        "distance": found.distance,
    }


def _text_object(look: Look, settings: Fingerprint) -> dict[str, Any]:
    counted = {id(feature) for feature in look.counted}
    return {
        "text": look.text.decode("utf-8", "backslashreplace"),
        "features": [
            {
                "text": "<*>" if f.variable else f.text.decode("utf-8", "backslashreplace"),
                "placeholder": f.variable,
                "weight": f.weight,
                "counted": id(f) in counted,
                "hash": _numerals(_voting(f, settings), settings),
            }
            for f in look.taken.features
        ],
        "fingerprint": _numerals(look.fingerprint, settings),
    }


def _numerals(value: int, settings: Fingerprint) -> dict[str, str]:
    return {
        "decimal": decimal(value, settings),
        "binary": binary(value, settings),
        "hex": hexadecimal(value, settings.width),
    }
