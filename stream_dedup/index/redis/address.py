"""Where a Redis service is: its URL, taken apart."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from stream_dedup.errors import IndexRefused


class Address(NamedTuple):
    """A parsed URL.

    Attributes:
        kind: standalone, unix, cluster or sentinel.
        secure: whether TLS is used.
        hosts: (host, port) of the server, or of those that know it.
        path: the socket's path, or the name of Sentinel's service.
        database: its number.
        username: None for the default user.
        password: None without.
    """

    kind: str
    secure: bool
    hosts: list[tuple[str, int]]
    path: str
    database: int
    username: str | None
    password: str | None

    def __repr__(self) -> str:
        """As it is shown: without secrets."""
        return str(self)

    def __str__(self) -> str:
        """The URL without secrets."""
        scheme = "rediss" if self.secure else "redis"
        if self.kind == "unix":
            return f"unix://{self.path}"
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        kind = "" if self.kind == "standalone" else f"+{self.kind}"
        tail = f"/{self.path}" if self.kind == "sentinel" else f"/{self.database or ''}"
        return f"{scheme}{kind}://{hosts}{tail}".rstrip("/")


_SCHEMES = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "unix": ("unix", False),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
}


def parse(url: str) -> Address:
    """Take a URL apart.

    >>> str(parse("redis+sentinel://me:secret@a:26379,b/logs"))
    'redis+sentinel://a:26379,b:26379/logs'

    Raises:
        IndexRefused: it is none; the message repeats no secrets.
    """
    try:
        split = urlsplit(url)
    except ValueError:
        raise IndexRefused("the Redis URL has a '[' or ']' out of place") from None
    if split.scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise IndexRefused(f"a Redis URL begins with one of {known}; this one does not")
    kind, secure = _SCHEMES[split.scheme]
    if split.query or split.fragment:
        raise IndexRefused("a Redis URL holds address, credentials and database; no '?' or '#'")
    if "@" in split.path:
        raise _misplaced(split)  # a '/' in the password: what follows is not a path
    credentials, _, hosts = split.netloc.rpartition("@")
    username, colon, password = credentials.partition(":")
    path = unquote(split.path.lstrip("/"))
    if kind == "standalone" and "," in hosts:
        raise IndexRefused(
            f"{split.scheme}:// takes one host; for several give {split.scheme}+cluster:// or "
            f"{split.scheme}+sentinel://"
        )
    if kind == "unix":
        path, hosts = unquote(split.path), ""
    return Address(
        kind=kind,
        secure=secure,
        hosts=_hosts(hosts, 26379 if kind == "sentinel" else 6379, split) if hosts else [],
        path=path,
        database=_database(kind, path),
        username=unquote(username) or None,
        password=unquote(password) if colon else None,
    )


def _hosts(text: str, default: int, split: SplitResult) -> list[tuple[str, int]]:
    hosts = []
    for part in text.split(","):
        one = urlsplit(f"//{part}")
        try:
            port = one.port
        except ValueError:
            port = 0
        if not one.hostname or port == 0:
            raise _misplaced(split)
        hosts.append((one.hostname, port or default))
    return hosts


def _misplaced(split: SplitResult) -> IndexRefused:
    """The error for a wrong host. The text may be part of a password, so it is not repeated."""
    return IndexRefused(
        f"the {split.scheme}:// URL holds no host or host:port where one should be; in a "
        "password write '/', '@', ':', '%' as %2F, %40, %3A, %25, and in a path '@' as %40"
    )


def _database(kind: str, path: str) -> int:
    if kind == "sentinel":
        if not path:
            raise IndexRefused("a Sentinel URL ends with the service's name: …://host:26379/name")
        return 0
    if kind == "unix" or not path:
        return 0
    if not path.isdecimal():
        raise IndexRefused("a Redis URL ends with host:port/ and the database's number, or without")
    if kind == "cluster" and int(path):
        raise IndexRefused("a Redis Cluster has database 0 alone")
    return int(path)
