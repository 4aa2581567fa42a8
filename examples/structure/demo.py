"""How far the same page with other text, and the same text in another layout, are from a page.

Run it anywhere: ``python examples/structure/demo.py``.
"""

from __future__ import annotations

from pathlib import Path

from stream_dedup.clustering.comparison import Inspector
from stream_dedup.features.recipe import load_recipe, replace

FOLDER = Path(__file__).parent
EXTRACTORS = ("html-layout", "html-content", "html")


def main() -> None:
    """Print a line for each extractor."""
    page, other_text, other_layout = (
        (FOLDER / name).read_bytes()
        for name in ("page.html", "other-text.html", "other-layout.html")
    )
    print(f"{'distance from page.html':24} {'other text':>12} {'other layout':>14}")
    for extractor in EXTRACTORS:
        inspector = Inspector(replace(load_recipe("words"), features__extractor=extractor))
        to_text, to_layout = (
            inspector.compare(page, other).distance for other in (other_text, other_layout)
        )
        print(f"{extractor:24} {to_text:12} {to_layout:14}")


if __name__ == "__main__":
    main()
