"""The driver's clients, one a way to deploy Redis; they connect when they are used."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import hiredis
import redis.asyncio as driver
from redis import exceptions
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
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

pack_command: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
if not os.environ.get("STREAM_DEDUP_PURE_PYTHON"):
    try:
        from stream_dedup.index.redis import _resp
    except ImportError:
        pass  # `fingerprint.kernel` warns: the extensions are built together, or none is
    else:
        pack_command = _resp.pack_command

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


class Asks:
    """Connections that ask at less cost than the driver's.

    Commands are packed natively. And a script's call and its answer have one limited time, but in a
    Cluster, whose driver keeps its connections to itself: the driver gives each its own, the call's
    with `asyncio.wait_for`, which in Python 3.11 makes a task, so that it would leave a turn of the
    loop later, behind the batches of other partitions.
    """

    socket_timeout: float | None

    def pack_command(self, *args: Any) -> list[bytes]:  # noqa: ANN401 -- as the driver's
        if " " in str(args[0]):  # the driver writes some as "SCRIPT LOAD"
            args = (*args[0].split(), *args[1:])
        return [pack_command(args)]

    async def ask(self, *command: bytes | str | int) -> object:
        """Send a command, and wait for its answer."""
        connection = cast(Connection, self)
        timeout_s, self.socket_timeout = self.socket_timeout, None
        try:
            async with asyncio.timeout(timeout_s):
                await connection.send_command(*command)
                return await connection.read_response()
        except TimeoutError:
            raise exceptions.TimeoutError(f"no answer within {timeout_s} s") from None
        finally:
            self.socket_timeout = timeout_s


class _Plain(Asks, Connection): ...


class _Secure(Asks, SSLConnection): ...


class _Unix(Asks, UnixDomainSocketConnection): ...


class _ManagedPlain(Asks, SentinelManagedConnection): ...


class _ManagedSecure(Asks, SentinelManagedSSLConnection): ...


def _options(address: Address, timeout_s: float, tls: Tls) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 3,
        "retry": Retry(NoBackoff(), 0),
        "client_name": "stream-dedup",
    }
    return options | (_secured(tls) if address.secure else {})


def _secured(tls: Tls) -> dict[str, Any]:
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
) -> Client:
    """The driver's client for an address; it connects when it is used."""
    options = _options(address, timeout_s, tls)
    quiet = MaintNotificationsConfig(enabled=False)
    if address.kind == "cluster":
        client = driver.RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            ssl=address.secure,
            maint_notifications_config=quiet,
            **options,
        )
        packing = _Secure if address.secure else _Plain
        client.connection_kwargs["connection_class"] = packing
        client.nodes_manager.connection_kwargs["connection_class"] = packing
        for node in client.nodes_manager.startup_nodes.values():
            node.connection_class = packing
        return client
    options["maint_notifications_config"] = quiet
    if address.kind == "sentinel":
        sentinels = Sentinel(  # type: ignore[no-untyped-call]
            address.hosts,
            socket_timeout=timeout_s,
            socket_connect_timeout=min(1.0, timeout_s),
            retry=Retry(NoBackoff(), 0),
            password=sentinel_password,
            **({"ssl": True, **_secured(tls)} if address.secure else {}),
        )
        pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
            address.path,
            sentinels,
            connection_class=_ManagedSecure if address.secure else _ManagedPlain,
            **options,
        )
        return driver.Redis.from_pool(pool)
    if address.kind == "unix":
        options |= {"path": address.path, "connection_class": _Unix}
    else:
        ((host, port),) = address.hosts or [("127.0.0.1", 6379)]
        packing = _Secure if address.secure else _Plain
        options |= {"host": host, "port": port, "connection_class": packing}
    return driver.Redis.from_pool(driver.ConnectionPool(db=address.database, **options))
