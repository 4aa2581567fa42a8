"""Where servers listen, and the names by which they may be asked."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
from collections.abc import Iterable

from stream_dedup.errors import ConfigError, ConfigProblem

LOCAL_DOMAINS = ("localhost", "svc", "cluster.local", "internal")
"""Domains that no public name server answers for, as those of Kubernetes."""


class HostNames:
    """The names by which the server may be asked.

    Those are addresses, as kubelets and Prometheus use them; names without a dot (``localhost``,
    the names of Compose services and pods); names in `LOCAL_DOMAINS`; the machine's own name; and
    those that the settings name.

    >>> names = HostNames(["metrics.example.com", ".example.org"])
    >>> [names.allow(host) for host in ("10.0.0.7:9464", "[::1]:9464", "worker-1", "example.com")]
    [True, True, True, False]
    >>> names.allow("metrics.example.com:9464"), names.allow("a.b.example.org")
    (True, True)

    Args:
        allowed: further names; ``.example.org`` stands for all names below it, ``*`` for any name.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        given = {name.lower().rstrip(".") for name in allowed}
        self._any = "*" in given
        self._names = {*given, socket.gethostname().lower()}
        own = (name for name in given if name.startswith("."))
        self._domains = (*own, *(f".{domain}" for domain in LOCAL_DOMAINS))

    def allow(self, host: str) -> bool:
        """Whether a request with this header may be answered."""
        if self._any:
            return True
        name = re.sub(r":[0-9]*$", "", host.strip()).lower().rstrip(".")
        if name.startswith("["):
            name = name.strip("[]")
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return "." not in name or name in self._names or name.endswith(self._domains)


def url(host: str, port: int) -> str:
    """The address of a server, for people.

    >>> url("::", 8080)
    'http://[::]:8080'
    """
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


def listen(host: str, port: int, otherwise: str = "") -> socket.socket:
    """Listen on an address.

    Args:
        host: the address or name; ``::`` is every address, IPv4 too.
        port: the port.
        otherwise: another remedy than a free port, for messages.

    Raises:
        ConfigError: it cannot be listened on.
    """
    try:
        found = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        both = family == socket.AF_INET6 and address[0] == "::"
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ConfigError(_problem(url(host, port), error, otherwise)) from error


def _problem(place: str, error: OSError, otherwise: str) -> ConfigProblem:
    remedy = f"choose another port{otherwise}"
    problem = f"cannot be listened on ({error.strerror or error})"
    if error.errno == errno.EADDRINUSE:
        problem = "another program, perhaps another stream-dedup, listens there"
        remedy = f"end that, or {remedy}"
    elif error.errno == errno.EACCES:
        remedy = f"choose a port from 1024 on{otherwise}"
    elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        remedy = "name an address of this machine: 0.0.0.0 or :: for all, 127.0.0.1 for itself"
    return ConfigProblem(place, "", problem, remedy)
