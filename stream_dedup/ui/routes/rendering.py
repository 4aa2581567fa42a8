"""Renders the templates of pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from stream_dedup._version import __version__
from stream_dedup.rules.model import RuleKind
from stream_dedup.ui.patterns import parts
from stream_dedup.ui.routes.requests import html_response
from stream_dedup.ui.sources import Source
from stream_dedup.volume.savings import shown_size

RULE_KINDS = {
    RuleKind.MERGE: "Merge", RuleKind.SPLIT: "Split off", RuleKind.NEVER_MERGE: "Never merge",
    RuleKind.ALWAYS_VARIABLE: "Always a variable", RuleKind.NEVER_VARIABLE: "Never a variable",
    RuleKind.NAME: "Name", RuleKind.MUTE: "Mute", RuleKind.KEEP: "Keep some a minute",
}  # fmt: skip
"""What pages call them."""


class Templates:
    """The templates of all pages.

    Args:
        sources: which each page links to.
        static: the address of the static files.
        signed_in: whether a reader has signed in, and can sign out.
    """

    def __init__(self, sources: Sequence[Source], static: str, *, signed_in: bool) -> None:
        self._environment = Environment(
            loader=PackageLoader("stream_dedup.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            parts=parts, spark=spark, static=static, version=__version__, sources=list(sources),
            signed_in=signed_in, kinds=RULE_KINDS, size=shown_size,
        )  # fmt: skip

    def render(self, name: str, **names: object) -> str:
        """Return a template filled with what its names stand for."""
        return self._environment.get_template(name).render(**names)

    def response(
        self,
        template: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
        **names: object,
    ) -> Response:
        """Return a template filled with what its names stand for."""
        return html_response(self.render(template, **names), status, headers)


def spark(counts: Sequence[int], width: int = 120, height: int = 24) -> str:
    """The points of a small line: a polygon from the base to each count.

    >>> spark([0, 2, 1], 20, 10)
    '0,10 0,10 10,0 20,5 20,10'
    """
    most, steps = max(counts, default=0) or 1, max(1, len(counts) - 1)
    points = (
        f"{width * number / steps:g},{height - height * count / most:.3g}"
        for number, count in enumerate(counts)
    )
    return f"0,{height} {' '.join(points)} {width},{height}"
