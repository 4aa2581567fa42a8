"""Names and properties of our image for the container tests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.services.docker import Docker


class Built(NamedTuple):
    """Our image.

    Attributes:
        docker: where it is.
        image: its name.
        checkout: the copy of the sources that it was built from.
        images: variables that name the images of other programs.
    """

    docker: Docker
    image: str
    checkout: Path
    images: dict[str, str]

    @property
    def settings(self) -> dict[str, str]:
        """Variables for the Compose file."""
        return {**self.images, "STREAM_DEDUP_IMAGE": self.image}

    @property
    def compose_file(self) -> Path:
        return self.checkout / "deploy" / "compose.yaml"
