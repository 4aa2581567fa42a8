"""The images that deploy/ names, pulled, or stand-ins of Debian's packages; and wheels for ours.

A stand-in has a name of its own (``stream-dedup-tests/…``), so that nobody takes it for the real
image; its user gives the name as a variable of ``deploy/.env``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.services.debian import find_program
from tests.services.docker import CACHE, Docker
from tests.services.kafka_jars import find_kafka
from tests.services.processes import REPOSITORY, ServiceError, file_lock

DEPLOY = REPOSITORY / "deploy"

STAND_INS = {
    "PYTHON_IMAGE": "python-slim",
    "BUILD_IMAGE": "python",
    "KAFKA_IMAGE": "kafka",
    "REDIS_IMAGE": "redis",
    "PROMETHEUS_IMAGE": "prometheus",
}
"""Variables of ``deploy/.env``, and the service of ``images/compose.yaml`` for each."""

PULL_S = 180.0
"""Where there is a way to a registry, none of the images takes so long."""

BUILD_S = 900.0

_RECIPES = Path(__file__).with_name("images")
_NEEDED = (
    *(".dockerignore", "LICENSE", "README.md", "deploy", "examples/logs"),
    *("pyproject.toml", "setup.py", "stream_dedup"),
)
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def settings() -> dict[str, str]:
    """The variables of ``deploy/.env``."""
    lines = (DEPLOY / ".env").read_text("utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def find_images(docker: Docker) -> dict[str, str]:
    """The variables of `STAND_INS` that let Compose find its images on this machine."""
    named = {variable: settings()[variable] for variable in STAND_INS}
    if _pulled(docker, named.values()):
        return named
    with file_lock(CACHE / "docker-images.lock"):
        return _stand_ins(docker)


def make_checkout(docker: Docker, images: Mapping[str, str], folder: Path) -> Path:
    """A copy of what the image is built from, with wheels in its wheelhouse.

    Args:
        docker: where pip runs.
        images: what `find_images` found.
        folder: where the copy goes, which is not there yet.

    Returns:
        The folder.
    """
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.whl")
    for name in _NEEDED:
        source = REPOSITORY / name
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    wheels = _find_wheels(docker, images["BUILD_IMAGE"])
    shutil.copytree(wheels, folder / "deploy" / "wheelhouse", dirs_exist_ok=True)
    return folder


def _pulled(docker: Docker, names: Iterable[str]) -> bool:
    """Whether all of these are here, or could be fetched."""
    for name in names:
        if docker.done("image", "inspect", name).returncode == 0:
            continue
        try:
            if docker.done("pull", "--quiet", name, within_s=PULL_S).returncode:
                return False
        except ServiceError:
            return False  # too slow to be of use
    return True


def _stand_ins(docker: Docker) -> dict[str, str]:
    """Build those that are missing; their names are of all that they are made from."""
    digest = hashlib.sha256()
    for path in sorted(each for each in _RECIPES.rglob("*") if each.is_file()):
        digest.update(path.read_bytes())
    tag = digest.hexdigest()[:12]
    found = {v: f"stream-dedup-tests/{service}:{tag}" for v, service in STAND_INS.items()}
    if any(docker.done("image", "inspect", name).returncode for name in found.values()):
        with tempfile.TemporaryDirectory(prefix="docker-images-") as temporary:
            folder = Path(temporary) / "images"
            shutil.copytree(_RECIPES, folder)
            shutil.copytree(find_kafka(), folder / "kafka" / "opt" / "libs")
            docker.compose(
                folder / "compose.yaml",
                *("build", "--quiet"),
                settings={"BASE": _debian(docker), "TAG": tag},
                within_s=BUILD_S,
            )
    return found


def _debian(docker: Docker) -> str:
    """An image of a small Debian, made by its own means once a machine."""
    name = "stream-dedup-tests/bookworm:1"
    if docker.done("image", "inspect", name).returncode:
        docker.run("import", str(_root_file_system()), name)
    return name


def _root_file_system() -> Path:
    archive = CACHE / "bookworm.tar"
    if archive.exists():
        return archive
    program = find_program(
        "mmdebstrap", "mmdebstrap", "images cannot be pulled here, so Debian's packages must do"
    )
    half_done = archive.with_name("bookworm-half-done.tar")
    command = ["--variant=apt", "--include=ca-certificates", "bookworm", str(half_done)]
    done = _run(program, command)
    if done:
        raise ServiceError(
            f"no Debian could be made; give mmdebstrap a way to deb.debian.org:\n{done}"
        )
    half_done.rename(archive)
    return archive


def _run(program: Path, args: list[str]) -> str:
    """What a program says if it fails."""
    done = subprocess.run(
        [str(program), *args], capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    return done.stdout + done.stderr if done.returncode else ""


def _find_wheels(docker: Docker, image: str) -> Path:
    """A folder with the wheels that our image is built from, fetched by the Python of an image."""
    needed = sorted(set(_requirements()))
    digest = hashlib.sha256("\n".join([image, *needed]).encode()).hexdigest()[:12]
    folder = CACHE / f"wheels-{digest}"
    with file_lock(CACHE / "wheels.lock"):
        if not folder.exists():
            half_done = folder.with_name(f"{folder.name}-half-done")
            shutil.rmtree(half_done, ignore_errors=True)
            half_done.mkdir()
            options = ["--rm", "--network", "host", "--volume", f"{half_done}:/wheels"]
            if _CERTIFICATES.exists():
                # Where this machine trusts authorities of its own, pip has to, too.
                options += ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
                options += ["--env", f"PIP_CERT={_CERTIFICATES}"]
            for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"):
                options += ["--env", name] if name in os.environ else []
            download = ["download", "--quiet", "--only-binary", ":all:", "--dest", "/wheels"]
            docker.run(
                *("run", *options, "--entrypoint", "python", image, "-m", "pip", *download),
                *needed,
                within_s=BUILD_S,
            )
            half_done.rename(folder)
    return folder


def _requirements() -> Iterator[str]:
    """What `pip` installs for the image, and to build it."""
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    yield from document["build-system"]["requires"]
    yield from document["project"]["dependencies"]
    for extra in settings()["EXTRAS"].split(","):
        yield from _extra(document["project"], extra)


def _extra(project: Mapping[str, Any], name: str) -> Iterator[str]:
    """An extra's requirements; one may name others of this project."""
    for requirement in project["optional-dependencies"][name]:
        if requirement.startswith(f"{project['name']}["):
            for other in requirement.partition("[")[2].rstrip("]").split(","):
                yield from _extra(project, other.strip())
        else:
            yield requirement
