"""A real Docker engine: the one that answers, or one of our own; and Compose."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import msgspec
import pytest

from tests.services.debian import find_program
from tests.services.processes import Daemon, ServiceError, file_lock, spawn

COMPOSE = "v2.32.4"

# Outside of the checkout, so that a fresh one, as a CI's, need not build again.
CACHE = Path.home() / ".cache" / "stream-dedup-tests"

START_S, STOP_S = 120.0, 60.0
"""How long an engine may take, on a machine that does something else too."""

CALL_S = 120.0

_PACKAGE = "docker.io"
_DATA, _RUN = CACHE / "docker", CACHE / "docker-run"
# The messages without root, or where root itself has no rights to networks, mounts or
# cgroups.
_REFUSED = re.compile(
    r"operation not permitted|permission denied|root privileges|devices cgroup isn't mounted"
    r"|/sys/fs/cgroup\S*: read-only file system",
    re.IGNORECASE,
)
_LAST_WORDS = "failed to start daemon"
"""Begins what dockerd says at its end, which may take several lines."""

_EMPTY = "stream-dedup-tests/empty:1"


class Docker:
    """A Docker engine, steered by its command line; a context manager.

    An engine that answers is taken as it is, and nothing of it is touched but what was made here.
    Else one is started, whose images stay in the cache for the next run.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._host = ""

    def __enter__(self) -> Self:
        self._command = find_program("docker", _PACKAGE, "these tests run containers")
        if self.done("version").returncode:
            with ExitStack() as stack:
                engine = Engine(stack, self._command)
                self._host = stack.enter_context(engine).host
                self._sweep()
                self._try()
                self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead programs to this engine."""
        return {**os.environ, **({"DOCKER_HOST": self._host} if self._host else {})}

    def done(
        self, *args: str, within_s: float = CALL_S, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run the command ``docker`` to its end, whatever that is.

        Raises:
            ServiceError: it takes longer.
        """
        return _ended([str(self._command), *args], self.environment, within_s, stdin)

    def run(self, *args: str, within_s: float = CALL_S, stdin: bytes = b"") -> str:
        """What ``docker`` prints, which must succeed.

        Raises:
            ServiceError: it does not, or takes longer.
        """
        return _output(self.done(*args, within_s=within_s, stdin=stdin))

    def inspect(self, name: str) -> dict[str, Any]:
        """All that the engine knows of a container or an image."""
        (found,) = msgspec.json.decode(self.run("inspect", name))
        return dict(found)

    def all_of(self, project: str) -> dict[str, list[str]]:
        """Containers, volumes and networks that Compose made for a project."""
        label = ("--filter", f"label=com.docker.compose.project={project}", "--quiet")
        return {
            "containers": self.run("ps", "--all", *label).split(),
            "volumes": self.run("volume", "ls", *label).split(),
            "networks": self.run("network", "ls", *label).split(),
        }

    def compose(
        self, file: Path, *args: str, settings: Mapping[str, str], within_s: float = 300.0
    ) -> str:
        """What ``docker compose`` prints, which must succeed.

        Args:
            file: the Compose file; the ``.env`` beside it is read.
            args: the command and its options.
            settings: variables that win over it.
            within_s: how long it may take.

        Raises:
            ServiceError: it does not succeed, or takes longer.
        """
        command = [str(find_compose()), "--ansi", "never", "--progress", "plain", "--file"]
        environment = {**self.environment, **settings}
        return _output(_ended([*command, str(file), *args], environment, within_s, b""))

    def _try(self) -> None:
        """Make an image and a container; where this machine lets nobody do that, skip."""
        archive_of_nothing = bytes(10_240)
        made = self.done("import", "-", _EMPTY, stdin=archive_of_nothing)
        if made.returncode:
            _fail_or_skip("docker import failed", made.stdout + made.stderr)
        ran = self.done("run", "--rm", _EMPTY, "/nothing")
        self.done("image", "rm", "--force", _EMPTY)
        # The program is not there, so all that comes before it has gone well.
        if ran.returncode != 127:
            _fail_or_skip("docker run failed", ran.stdout + ran.stderr)

    def _sweep(self) -> None:
        """Remove what a run that was killed has left in our own engine; images stay."""
        if left := self.run("ps", "--all", "--quiet").split():
            self.run("rm", "--force", "--volumes", *left)
        for kind in ("network", "volume"):
            self.run(kind, "prune", "--force")
        if left := self.run("volume", "ls", "--quiet").split():
            self.run("volume", "rm", "--force", *left)


class Engine(Daemon):
    """Our own ``dockerd``, whose data outlive it. One test run at a time has it.

    Args:
        stack: ends the turn of this test run.
        command: the program ``docker``.
    """

    def __init__(self, stack: ExitStack, command: Path) -> None:
        self._binary = find_program("dockerd", _PACKAGE, "no Docker engine answers")
        self._client = command
        stack.enter_context(file_lock(CACHE / "docker.lock"))
        _RUN.mkdir(exist_ok=True)
        super().__init__("docker")
        self.host = f"unix://{self.directory}/docker.sock"

    def _command(self) -> list[str]:
        command = [
            str(self._binary),
            *("--host", self.host),
            *("--data-root", str(_DATA)),
            # Not in the directory, which goes at once when this process is killed: the engine takes
            # a while to end its containers.
            *("--exec-root", str(_RUN)),
            *("--pidfile", str(_RUN / "pid")),
        ]
        # Killed with this process it would leave its containers behind; asked to end it does not.
        # It takes a while then, so the next one waits for its data.
        if shutil.which("setpriv") is None:
            return command
        wait = ["flock", "--no-fork", str(CACHE / "docker-data.lock")]
        return ["setpriv", "--pdeathsig", "TERM", "--", *wait, *command]

    def _answers(self) -> bool:
        environment = {**os.environ, "DOCKER_HOST": self.host}
        return _ended([str(self._client), "version"], environment, CALL_S, b"").returncode == 0

    def start(self) -> None:
        """Start it; where this machine lets nobody run containers, skip."""
        self._process = spawn(self._command(), directory=self.directory, log=self.log)
        end = time.monotonic() + START_S
        while self.running and time.monotonic() < end:
            if self._answers():
                return
            time.sleep(0.1)
        said = self.log.read_text(errors="replace").strip()
        if self.running:
            raise ServiceError(f"dockerd: no answer in {START_S:.0f} s; its log:\n{said[-4_000:]}")
        _, begin, rest = said.rpartition(_LAST_WORDS if _LAST_WORDS in said else "\n")
        _fail_or_skip("dockerd: the process ended", said, begin + rest)

    def close(self) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        # It leaves its data and the namespace of its host's network mounted.
        for left in (*(_RUN / "netns").glob("*"), _DATA):
            subprocess.run(["umount", str(left)], capture_output=True, check=False)
        super().close()


@functools.cache
def find_compose() -> Path:
    """Compose as a program of its own; built with Go if it is not there yet."""
    installed = shutil.which("docker-compose")
    if installed and "v2" in _ended([installed, "version"], dict(os.environ), CALL_S, b"").stdout:
        return Path(installed)
    binary = CACHE / "bin" / f"docker-compose-{COMPOSE}"
    with file_lock(CACHE / "docker-compose.lock"):
        if not binary.exists():
            _build_compose(binary)
    return binary


def _build_compose(binary: Path) -> None:
    """Build it from its module, which `go install` refuses: it replaces some of its own."""
    module = f"github.com/docker/compose/v2@{COMPOSE}"
    go = shutil.which("go")
    if go is None:
        pytest.fail(
            "these tests build Docker Compose, which needs Go 1.22 or newer: install it (https://"
            "go.dev/doc/install), or put docker-compose, version 2, on the PATH"
        )
    environment = dict(os.environ)
    done = _ended([go, "mod", "download", "-json", module], environment, 600, b"")
    if done.returncode == 0:
        source = msgspec.json.decode(done.stdout)["Dir"]
        half_done = binary.with_name(f"{binary.name}.half-done")
        binary.parent.mkdir(parents=True, exist_ok=True)
        # The folder is read-only, and need not be otherwise.
        command = [go, "build", "-C", source, "-mod=mod", "-o", str(half_done), "./cmd"]
        done = _ended(command, environment, 1_800, b"")
        if done.returncode == 0:
            half_done.rename(binary)
            return
    pytest.fail(
        f"Docker Compose {COMPOSE} could not be built; give Go a way to its module proxy or to"
        f" another (GOPROXY):\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}"
    )


def _fail_or_skip(what: str, said: str, reason: str | None = None) -> NoReturn:
    """Skip where the machine refused; all else is a failure.

    Args:
        what: has failed.
        said: all that was said.
        reason: the part of it that gives the cause; all of it by default.
    """
    reason = said if reason is None else reason
    if _REFUSED.search(reason):
        pytest.skip(f"no Docker engine can run here: {' '.join(reason.split())}")
    raise ServiceError(f"{what}; it said:\n{said[-4_000:]}")


def _ended(
    command: Sequence[str], environment: Mapping[str, str], within_s: float, stdin: bytes
) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            input=stdin,
            capture_output=True,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = b"".join((error.stdout or b"", error.stderr or b"")).decode(errors="replace")
        raise ServiceError(f"{' '.join(command)}: not within {within_s:g} s:\n{said}") from error
    out, err = (each.decode(errors="replace") for each in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, out, err)


def _output(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        command = " ".join(map(str, done.args))
        raise ServiceError(
            f"{command}: code {done.returncode}:\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}"
        )
    return done.stdout
