"""Processes, ports and directories of the services that tests start.

Nothing outlives the test process, even when it is killed: the kernel kills the services with it
(`PR_SET_PDEATHSIG`), and a reaper that waits for the end of a pipe removes their files.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".services"

READY_S = 120.0
"""For a machine that now and then does nothing for half a minute."""

STOP_S = 10.0

# Below the range that the kernel hands out to clients (32768 and up), also with 10000 added, which
# is where a cluster's nodes talk to each other.
_PORTS = range(10_000, 22_000)

# PR_SET_PDEATHSIG fires at the end of the thread that started the process. Tests may start services
# from threads that end early, so one thread, which lives as long as the interpreter, starts all.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="services")


class ServiceError(AssertionError):
    """A service did not do what a test relies on."""


class PortReservation:
    """A port of an address that only the service it was reserved for will listen on.

    The socket is bound and never listens, so that clients are refused. It is bound exclusively, so
    that no other run gets the same port, and made reusable afterwards, which lets a server with
    `SO_REUSEADDR` bind beside it, again after each restart.
    """

    def __init__(self, *, offsets: Sequence[int] = (0,), host: str = "127.0.0.1") -> None:
        self._host = host
        self._sockets: list[socket.socket] = []
        for _attempt in range(200):
            self.port = random.SystemRandom().choice(_PORTS)
            try:
                for offset in offsets:
                    self._bind(self.port + offset)
            except OSError:
                self.release()
            else:
                return
        raise ServiceError(f"no free port in {_PORTS}; end some of the servers that run here")

    def _bind(self, port: int) -> None:
        held = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        self._sockets.append(held)
        held.bind((self._host, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def release(self) -> None:
        for held in self._sockets:
            held.close()
        self._sockets.clear()


_reserved: list[PortReservation] = []


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody else gets as long as this process lives."""
    _reserved.append(PortReservation(host=host))
    return _reserved[-1].port


class Daemon(ABC):
    """A server process in a directory of its own; a context manager.

    Attributes:
        directory: All that the server writes, removed by `close`.
    """

    def __init__(self, name: str, *, port_offsets: Sequence[int] = (0,)) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_root()))
        self.log = self.directory / "log"
        self._reservation = PortReservation(offsets=port_offsets)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> list[str]:
        """What to run, with everything it needs in place."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server can be used now."""

    @property
    def port(self) -> int:
        return self._reservation.port

    @property
    def running(self) -> bool:
        """Whether the process lives, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None or self._process.poll() is not None:
            raise ServiceError(f"the server of port {self.port} does not run; call start()")
        return self._process.pid

    def start(self) -> None:
        """Start the server, and return once it answers."""
        if not self.running:
            self._process = spawn(self._command(), directory=self.directory, log=self.log)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Return once the server answers.

        Raises:
            ServiceError: It ended, or did not answer in two minutes; with its log.
        """
        end = time.monotonic() + READY_S
        while self.running and time.monotonic() < end:
            if self._answers():
                return
            time.sleep(0.01)
        why = f"no answer in {READY_S:.0f} s" if self.running else "the process ended"
        self.kill()
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        raise ServiceError(f"{type(self).__name__} on port {self.port}: {why}; its log:\n{text}")

    def stop(self) -> None:
        """End the server as its operator would, with SIGTERM, also when it is paused."""
        if self._process is None:
            return
        if self.running:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End the server as a crash would, with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let the server hang: the kernel still accepts connections, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: _all_stopped(self.pid), what="all threads are stopped")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove all it wrote."""
        self.kill()
        self._reservation.release()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Group(ABC):
    """Several servers that work together; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @abstractmethod
    def _start(self, stack: ExitStack) -> None:
        """Start all servers, have `stack` close them, and return once they work together."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def spawn(command: Sequence[str], *, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one. Its output is appended to `log`."""
    # Without setpriv, which only Linux has, a killed test run leaves its servers behind.
    setpriv = shutil.which("setpriv")
    wrapped = [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else command
    with log.open("ab") as output:
        return _spawner.submit(
            subprocess.Popen,
            wrapped,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the tests; they end the servers when they have cleaned up.
            start_new_session=True,
        ).result()


def _all_stopped(process: int) -> bool:
    """Whether no thread of a process runs: the signal that stops them takes its time."""
    states = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return all(state in {"T", "t", "Z", "X"} for state in states)


def wait_until(condition: Callable[[], bool], *, what: str, seconds: float = READY_S) -> None:
    """Return once a condition holds.

    Raises:
        ServiceError: It did not within `seconds`.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise ServiceError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Keep other test runs out of the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def _root() -> Path:
    """One directory for all that this process's services write, removed when the process ends."""
    root = Path(tempfile.mkdtemp(prefix="stream-dedup-services-"))
    reaper = subprocess.Popen(
        # The sleep lets servers that were killed with the test process end first.
        ["sh", "-c", 'cat >/dev/null; sleep 0.3; rm -rf "$0"', str(root)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )

    def remove() -> None:
        shutil.rmtree(root, ignore_errors=True)
        with reaper:
            reaper.kill()

    atexit.register(remove)
    return root
