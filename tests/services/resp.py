"""Just enough of the Redis protocol to steer a server, independent of any client library."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import BinaryIO, TypeAlias

Reply: TypeAlias = "bytes | int | list[Reply] | None"
Argument: TypeAlias = "bytes | str | int | float"


class RedisReplyError(Exception):
    """The server answered with an error."""


def call(
    port: int,
    commands: Iterable[tuple[Argument, ...]],
    *,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 10.0,
) -> list[Reply]:
    """Send commands over a connection of their own and return the replies.

    Raises:
        RedisReplyError: One of the commands failed.
        OSError: There was no connection, or no answer in time.
    """
    sent = list(commands)
    with socket.create_connection(("127.0.0.1", port), timeout_s) as plain:
        link = tls.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain
        with link, link.makefile("rb") as stream:
            link.sendall(b"".join(map(_encoded, sent)))
            replies = [_read(stream) for _ in sent]
    for reply in replies:
        if isinstance(reply, RedisReplyError):
            raise reply
    return [reply for reply in replies if not isinstance(reply, RedisReplyError)]


def _encoded(command: tuple[Argument, ...]) -> bytes:
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def _read(stream: BinaryIO) -> Reply | RedisReplyError:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b"-":
        return RedisReplyError(rest.decode(errors="replace"))
    number = int(rest)
    if kind == b":":
        return number
    if number < 0:
        return None
    if kind == b"$":
        return stream.read(number + 2)[:-2]
    items: list[Reply] = []
    for _ in range(number):
        item = _read(stream)
        items.append(str(item).encode() if isinstance(item, RedisReplyError) else item)
    return items
