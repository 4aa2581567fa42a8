"""One real Redis server, started and broken as tests wish."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.services.certificates import Certificates, make_certificates
from tests.services.debian import find_program
from tests.services.processes import Daemon
from tests.services.resp import Argument, RedisReplyError, Reply, call

BINARY_VARIABLE = "STREAM_DEDUP_TEST_REDIS_BINARY"

_OPERATOR = "tests-operator"


@functools.cache
def find_redis() -> Path:
    """The redis-server to use; installed if it is missing and may be."""
    named = os.environ.get(BINARY_VARIABLE)
    if named is not None:
        if not os.access(named, os.X_OK):
            pytest.fail(f"{BINARY_VARIABLE} names {named}, which cannot run; correct or unset it")
        # Not resolved: redis-server may be a link, and its name decides what it runs as.
        return Path(named).absolute()
    remedy = f"these tests need a real server, or the binary that {BINARY_VARIABLE} names"
    return find_program("redis-server", "redis-server", remedy)


class RedisServer(Daemon):
    """A redis-server of our own on a free port of 127.0.0.1, running inside a `with` block.

    Args:
        appendonly: Keep an append-only file.
        save: When to write snapshots, in the words of the directive; never by default.
        extra: More directives, such as `{"maxmemory": "8mb"}`. They win over the ones made here.
        tls: Speak TLS only, with a certificate for 127.0.0.1 and localhost signed by `ca_file`.
        acl: Users in the words of the directive, `"app on >secret ~* +@all"`, one a line. The
            default user stays open unless a line says otherwise (`"default off"`).
        replica_of: The server, or its port, to follow.
        cluster: Be a node that can be made part of a cluster.
    """

    def __init__(
        self,
        *,
        appendonly: bool = False,
        save: str = "",
        extra: Mapping[str, str] | None = None,
        tls: bool = False,
        acl: str | None = None,
        replica_of: RedisServer | int | None = None,
        cluster: bool = False,
    ) -> None:
        self._binary = find_redis()
        super().__init__("redis", port_offsets=(0, 10_000) if cluster else (0,))
        self._data = self.directory / "data"
        self._certificates = make_certificates(self.directory / "tls") if tls else None
        self._operator_password = secrets.token_hex(8) if acl is not None else None
        self._requirepass = (extra or {}).get("requirepass")
        directives = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self._data),
            "appendonly": "yes" if appendonly else "no",
            "save": save or '""',
            "repl-diskless-sync-delay": "0",
        }
        if self._certificates is not None:
            directives |= _tls_directives(self.port, self._certificates)
        if replica_of is not None:
            followed = replica_of if isinstance(replica_of, int) else replica_of.port
            directives["replicaof"] = f"127.0.0.1 {followed}"
        if cluster:
            directives |= _CLUSTER_DIRECTIVES
        self._keeps_data = appendonly
        lines = [f"{name} {value}" for name, value in (directives | dict(extra or {})).items()]
        if acl is not None:
            # So that tests can steer the server whatever its users may do.
            lines.append(f"user {_OPERATOR} on >{self._operator_password} ~* &* +@all")
            lines += [f"user {line.strip()}" for line in acl.splitlines() if line.strip()]
        self._configure(lines)

    def _configure(self, lines: list[str]) -> None:
        """Write the configuration, once: a server may rewrite it, and a restart keeps that."""
        self._data.mkdir()
        self._config = self.directory / "redis.conf"
        self._config.write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        return [str(self._binary), str(self._config)]

    def _answers(self) -> bool:
        try:
            return self._call("PING", timeout_s=1.0) == b"PONG"
        except (OSError, RedisReplyError):
            return False  # not yet listening, or loading

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/0"

    def url_as(self, user: str, password: str) -> str:
        """The URL for one of the users of `acl`."""
        return f"{self._scheme}://{user}:{password}@127.0.0.1:{self.port}/0"

    @property
    def _scheme(self) -> str:
        return "redis" if self._certificates is None else "rediss"

    @property
    def certificates(self) -> Certificates:
        assert self._certificates is not None, "the server was made without tls=True"
        return self._certificates

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that signed the server's."""
        return self.certificates.ca_file

    def restart(self, *, keep_data: bool) -> None:
        """Stop, and start again on the same port.

        Args:
            keep_data: Bring back what was stored. A server that runs without an append-only file
                writes a snapshot first. After `kill`, what was on disk comes back.
        """
        if keep_data and not self._keeps_data and self.running:
            self.command("SAVE")
        self.stop()
        if not keep_data:
            shutil.rmtree(self._data)
            self._data.mkdir()
        self.start()

    def command(self, *arguments: Argument) -> Reply:
        """Send one command, as a user who may do anything, over a connection of its own."""
        return self._call(*arguments)

    def info(self, section: str = "default") -> dict[str, str]:
        """What INFO says about a section."""
        reply = self.command("INFO", section)
        assert isinstance(reply, bytes)
        pairs = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
        return {name: value for name, _, value in pairs}

    def cpu_us(self) -> int:
        """The processor time that the server has used so far, in user and system mode."""
        used = self.info("cpu")
        return sum(round(float(used[f"used_cpu_{mode}"]) * 1e6) for mode in ("user", "sys"))

    def _call(self, *arguments: Argument, timeout_s: float = 10.0) -> Reply:
        login: list[tuple[Argument, ...]] = []
        if self._operator_password is not None:
            login = [("AUTH", _OPERATOR, self._operator_password)]
        elif self._requirepass is not None:
            login = [("AUTH", self._requirepass)]
        commands = [*login, arguments]
        return call(self.port, commands, tls=self._tls_context, timeout_s=timeout_s)[-1]

    @functools.cached_property
    def _tls_context(self) -> ssl.SSLContext | None:
        if self._certificates is None:
            return None
        context = ssl.create_default_context(cafile=self._certificates.ca_file)
        # Tests may have the server ask for a client's certificate.
        context.load_cert_chain(self._certificates.cert_file, self._certificates.key_file)
        return context


_CLUSTER_DIRECTIVES = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-announce-ip": "127.0.0.1",
    "cluster-node-timeout": "1000",
}


def _tls_directives(port: int, certificates: Certificates) -> dict[str, str]:
    return {
        "port": "0",
        "tls-port": str(port),
        "tls-ca-cert-file": str(certificates.ca_file),
        "tls-cert-file": str(certificates.cert_file),
        "tls-key-file": str(certificates.key_file),
        "tls-auth-clients": "no",
    }
