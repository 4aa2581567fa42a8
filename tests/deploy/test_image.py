"""The image: what it contains, and that a worker in it works and stops when it is asked to."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from stream_dedup import __version__
from stream_dedup.native import EXTENSIONS
from tests.deploy.containers import Built
from tests.integration.worker.running import Trial, real_lines, wait_for
from tests.services.kafka import Kafka
from tests.services.processes import ServiceError, free_port

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2_400)]

LINES = real_lines(2_000)
USER = 10_001
HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true")
WITHIN_S = 120.0

# All programs but Python, its loader's cache included, and so every shell.
_BARE = """\
FROM {image}
USER 0
RUN ["python3", "-c", "import os; [os.remove(f'{{folder}}/{{name}}') \
for folder in ('/usr/bin', '/usr/sbin') for name in os.listdir(folder) \
if not name.startswith('python') and not os.path.isdir(f'{{folder}}/{{name}}')]"]
USER {user}:{user}
"""


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image without a shell, and without any other program that it does not need."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "Dockerfile").write_text(_BARE.format(image=built.image, user=USER))
    image = f"{built.image}-bare"
    file = folder / "compose.yaml"
    file.write_bytes(msgspec.json.encode({"services": {"bare": {"image": image, "build": "."}}}))
    built.docker.compose(file, "build", settings={})
    yield image
    built.docker.run("image", "rm", "--force", image)


@contextmanager
def container(built: Built, image: str, *args: str) -> Iterator[str]:
    """A running container; its log is printed if something fails."""
    name = f"stream-dedup-tests-{secrets.token_hex(4)}"
    built.docker.run("run", "--detach", "--name", name, *args[:-1], image, args[-1])
    try:
        yield name
    except BaseException as error:
        done = built.docker.done("logs", name)
        error.add_note(f"the container's log:\n{(done.stdout + done.stderr)[-4_000:]}")
        raise
    finally:
        built.docker.run("rm", "--force", "--volumes", name)


def test_its_user_has_no_rights_and_its_labels_describe_it(built: Built) -> None:
    found = built.docker.inspect(built.image)
    config = found["Config"]
    assert config["User"] == f"{USER}:{USER}"
    assert (config["Entrypoint"], config["Cmd"]) == (["stream-dedup"], ["run"])
    assert config["Healthcheck"]["Test"] == ["CMD", "stream-dedup", "health"]
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()}
    assert {"title", "description", "source", "licenses", "revision", "created"} < set(labels)
    assert labels["version"] == __version__
    base = built.docker.inspect(built.images["PYTHON_IMAGE"])["Size"]
    sizes = f"image: {found['Size'] / 1e6:.0f} MB, {base / 1e6:.0f} MB of them Python's image"
    print(sizes)  # noqa: T201 -- shown by pytest -s
    assert found["Size"] - base < 120e6


def test_it_contains_no_build_tools(built: Built) -> None:
    listed = built.docker.run(
        *("run", "--rm", "--network", "none", "--entrypoint", "python3", built.image, "-c"),
        "import pathlib; print(*pathlib.Path('/').glob('*'), *pathlib.Path('/opt').rglob('*'))",
    ).split()
    assert not {"/build", "/wheels", "/wheelhouse"} & set(listed)
    sources = [f"/{name.rpartition('.')[2]}.c" for name in EXTENSIONS]
    assert [name for name in listed if name.endswith((".whl", *sources))] == []
    assert any(name.endswith("/stream_dedup/features/recipes/logs.toml") for name in listed)


@pytest.mark.parametrize("module", EXTENSIONS)
def test_the_native_code_is_in_use(built: Built, module: str) -> None:
    code = f"import stream_dedup.{module} as found; print(found.__file__)"
    python = ("--entrypoint", "python", built.image, "-I", "-W", "error", "-c", code)
    assert built.docker.run("run", "--rm", *HARDENED, *python).strip().endswith(".so")
    said = built.docker.run("run", "--rm", *HARDENED, built.image, "--version")
    assert "native kernel" in said


def test_commands_run_without_network_or_writable_files(built: Built, bare: str) -> None:
    given = b"disk sda1 is 91% full\ndisk sdb7 is 64% full\nout of memory\n"
    args = ("run", "--rm", "--interactive", "--network", "none", *HARDENED, bare, "dedup")
    out = built.docker.run(*args, "--emit", "drop", stdin=given)
    assert out.splitlines() == ["disk sda1 is 91% full", "out of memory"]


def test_it_works_without_a_shell(built: Built, bare: str) -> None:
    for program in ("sh", "bash", "cat"):
        with pytest.raises(ServiceError, match=r"no such file|not found"):
            built.docker.run("run", "--rm", "--entrypoint", program, bare)


def test_a_worker_is_healthy_and_stops_regularly(built: Built, bare: str, kafka: Kafka) -> None:
    trial = Trial(kafka, "")
    own = {"http__port": free_port(), "http__host": "127.0.0.1", "index__kind": "memory"}
    settings = {k: v for k, v in (trial.settings | own).items() if k != "index__url"}
    options = ["--network", "host", *HARDENED]
    for key, value in settings.items():
        options += ["--env", f"STREAM_DEDUP__{key.upper()}={value}"]
    with container(built, bare, *options, "run") as name:
        trial.write(LINES)
        wait_for(lambda: left(trial) == len(LINES), "all has left", WITHIN_S)
        wait_for(lambda: health(built, name) == "healthy", "it is healthy", WITHIN_S)
        (process,) = built.docker.run("top", name, "-eo", "uid,pid,args").splitlines()[1:]
        assert str(USER) == process.split()[0]
        trial.write(LINES)
        built.docker.run("stop", "--time", "60", name)
        state = built.docker.inspect(name)["State"]
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
        # What it had begun is delivered: no event after those that are committed has left.
        assert trial.committed() == len(kafka.consume(trial.out))
        assert built.docker.run("diff", name).splitlines() == []


def left(trial: Trial) -> int:
    """Events that have left."""
    return sum(trial.kafka.end_offsets(trial.out).values())


def health(built: Built, name: str) -> str:
    """What Docker makes of the health check."""
    found: str = built.docker.inspect(name)["State"]["Health"]["Status"]
    return found


def test_the_health_check_fails_where_nothing_answers(built: Built, bare: str) -> None:
    """Three times make a container unhealthy."""
    args = ("run", "--rm", "--network", "none", *HARDENED, bare, "health", "--url")
    done = built.docker.done(*args, "http://127.0.0.1:9464")
    assert done.returncode == 1
    assert "no answer" in done.stderr


def test_a_wrong_configuration_is_reported_and_ends_it(built: Built, tmp_path: Path) -> None:
    file = tmp_path / "stream-dedup.toml"
    file.write_text('[kafka]\ngroup = "a"\n')
    args = ["--volume", f"{file}:/etc/stream-dedup/stream-dedup.toml:ro"]
    args += ["--env", "STREAM_DEDUP_CONFIG=/etc/stream-dedup/stream-dedup.toml"]
    done = built.docker.done("run", "--rm", "--network", "none", *HARDENED, *args, built.image)
    assert done.returncode == 2
    assert "/etc/stream-dedup/stream-dedup.toml: kafka.group: unknown key" in done.stderr
