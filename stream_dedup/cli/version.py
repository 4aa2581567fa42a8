"""``stream-dedup --version``: what a report of a bug should begin with.

The version, which kernel serves, and the Python it runs in. There are five native extensions; any
may be missing where it could not be compiled.
"""

from __future__ import annotations

import importlib
import os
import platform
import sysconfig

import click

from stream_dedup._version import __version__

EXTENSIONS = (
    "fingerprint._kernel",
    "tables._native",
    "offline._native",
    "connectors._batches",
    "columns._native",
    "index.redis._resp",
)


def version_line() -> str:
    """Such as ``stream-dedup 0.1.0 (native kernel, CPython 3.11.7, linux-x86_64)``."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"stream-dedup {__version__} ({_kernel()}, {python}, {sysconfig.get_platform()})"


def _kernel() -> str:
    if os.environ.get("STREAM_DEDUP_PURE_PYTHON"):
        return "kernel in Python: STREAM_DEDUP_PURE_PYTHON is set"
    missing = [name for name in EXTENSIONS if not _loads(name)]
    if not missing:
        return "native kernel"
    if len(missing) == len(EXTENSIONS):
        return "kernel in Python: built without a C compiler"
    return f"native kernel without {' and '.join(missing)}"


def _loads(name: str) -> bool:
    try:
        importlib.import_module(f"stream_dedup.{name}")
    except ImportError:
        return False
    return True


def _show(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    del param
    if wanted and not ctx.resilient_parsing:
        click.echo(version_line())
        ctx.exit()


version_option = click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show,
    help="Show the version, the kernel and the Python, and exit.",
)
