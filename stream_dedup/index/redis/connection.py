"""The driver's clients, one for each way to deploy Redis, over connections of our own.

A client connects when it is first used. Its connections differ from the driver's in two ways, both
through methods that the driver lets a connection class define:

- Commands are packed natively, where the extension was built; else by the driver.
- Sending a command and reading its answer are limited with `asyncio.timeout`. The driver limits
  sending with `asyncio.wait_for`, which in Python 3.11 makes a task of it (the command then leaves
  a turn of the event loop later, behind the batches of other partitions) and may swallow a
  cancellation (https://github.com/python/cpython/issues/86296).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import redis.asyncio as driver
from redis import exceptions
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

from stream_dedup.errors import IndexRefused
from stream_dedup.index.redis.address import Address
from stream_dedup.native import native_or

pack_command: Callable[[tuple[Any, ...]], bytes] | None = native_or(
    "index.redis._resp", "pack_command", None
)
"""Packs a command natively; None where the extension was not built, or is not wanted."""

Client = driver.Redis | driver.RedisCluster


@dataclass(frozen=True, slots=True)
class Tls:
    """How a ``rediss://`` server is trusted, and how it trusts us.

    Attributes:
        ca_file: certificates of authorities, PEM; the system's without.
        cert_file: the client's certificate, where the server asks for one.
        key_file: its key.
        check_hostname: whether the certificate has to name the host.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    check_hostname: bool = True


class _Connection(AbstractConnection):
    """A connection that packs natively and limits time without `asyncio.wait_for`.

    Args:
        socket_timeout: seconds to send a command, and seconds to read its answer.
        options: the driver's.
    """

    def __init__(self, *, socket_timeout: float, **options: Any) -> None:  # noqa: ANN401 -- the driver's
        # The driver applies no limits of its own where it has no timeout.
        super().__init__(socket_timeout=None, **options)
        self._limit_s = socket_timeout

    def pack_command(self, *args: Any) -> list[bytes]:  # noqa: ANN401 -- as the driver's
        if pack_command is None:
            packed: list[bytes] = super().pack_command(*args)
            return packed
        if " " in str(args[0]):  # the driver writes some as "SCRIPT LOAD"
            args = (*args[0].split(), *args[1:])
        return [pack_command(args)]

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await super().send_packed_command(command, check_health)
        except TimeoutError:
            raise self._timed_out("not sent") from None

    async def read_response(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 -- as the driver's
        try:
            async with asyncio.timeout(self._limit_s):
                return await super().read_response(*args, **options)
        except TimeoutError:
            raise self._timed_out("no answer") from None

    def _timed_out(self, what: str) -> exceptions.TimeoutError:
        return exceptions.TimeoutError(f"{what} within {self._limit_s} s")


class _Tcp(_Connection, Connection): ...


class _Tls(_Connection, SSLConnection): ...


class _Unix(_Connection, UnixDomainSocketConnection): ...


class _SentinelTcp(_Connection, SentinelManagedConnection): ...


class _SentinelTls(_Connection, SentinelManagedSSLConnection): ...


def _options(address: Address, timeout_s: float, tls: Tls) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 3,
        "retry": Retry(NoBackoff(), 0),  # `RedisClient` retries
        "client_name": "stream-dedup",
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
    return options | (_tls_options(tls) if address.secure else {})


def _tls_options(tls: Tls) -> dict[str, Any]:
    for file in filter(None, (tls.ca_file, tls.cert_file, tls.key_file)):
        if not os.access(file, os.R_OK):
            raise IndexRefused(f"{file} cannot be read; TLS needs it")
    return {
        "ssl_ca_certs": tls.ca_file,
        "ssl_certfile": tls.cert_file,
        "ssl_keyfile": tls.key_file,
        "ssl_check_hostname": tls.check_hostname,
        "ssl_min_version": ssl.TLSVersion.TLSv1_2,
    }


def make_client(
    address: Address, timeout_s: float, tls: Tls, sentinel_password: str | None = None
) -> tuple[Client, list[driver.Redis]]:
    """Make the driver's client for an address.

    Returns:
        The client, and the clients of Sentinels, which are to be closed as well.

    Raises:
        IndexRefused: a file that TLS needs cannot be read.
    """
    options = _options(address, timeout_s, tls)
    connection_class = _Tls if address.secure else _Tcp
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        cluster = driver.RedisCluster(startup_nodes=nodes, ssl=address.secure, **options)
        # The driver has no argument for the class: it takes it from these options, which it shares
        # with every node that it discovers. (The nodes given here only name the others.)
        cluster.get_connection_kwargs()["connection_class"] = connection_class
        return cluster, []
    if address.kind == "sentinel":
        sentinels = Sentinel(  # type: ignore[no-untyped-call]
            address.hosts,
            socket_timeout=timeout_s,
            socket_connect_timeout=min(1.0, timeout_s),
            retry=Retry(NoBackoff(), 0),
            password=sentinel_password,
            **({"ssl": True, **_tls_options(tls)} if address.secure else {}),
        )
        pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
            address.path,
            sentinels,
            connection_class=_SentinelTls if address.secure else _SentinelTcp,
            **options,
        )
        return driver.Redis.from_pool(pool), sentinels.sentinels
    if address.kind == "unix":
        options |= {"path": address.path, "connection_class": _Unix}
    else:
        ((host, port),) = address.hosts or [("127.0.0.1", 6379)]
        options |= {"host": host, "port": port, "connection_class": connection_class}
    return driver.Redis.from_pool(driver.ConnectionPool(db=address.database, **options)), []
