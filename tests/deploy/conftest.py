"""Fixtures of the container tests: an engine, images, and our image built from a copy."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import msgspec
import pytest

from tests.deploy.containers import Built
from tests.services.docker import Docker
from tests.services.docker_images import find_images, make_checkout


@pytest.fixture(scope="session")
def built(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The image, built by the shipped Dockerfile without a network."""
    images = find_images(docker)
    folder = tmp_path_factory.mktemp("image")
    checkout = make_checkout(docker, images, folder / "checkout")
    image = f"stream-dedup-tests/worker:{secrets.token_hex(4)}"
    made = Built(docker, image, checkout, images)
    # The Compose file's own build, with the network cut off.
    cut = {"services": {"worker": {"build": {"network": "none"}}}}
    override = folder / "override.yaml"
    override.write_bytes(msgspec.json.encode(cut))
    docker.compose(
        made.compose_file,
        *("--file", str(override), "build", "worker"),
        settings=made.settings,
        within_s=900,
    )
    try:
        yield made
    finally:
        docker.run("image", "rm", "--force", image)
