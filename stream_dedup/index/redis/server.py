"""One Redis service, however it is deployed: runs scripts and commands, and retries what may pass.

Theory of operation
-------------------
A call fails in one of three ways::

    passes by itself   connection lost, timeout, LOADING, READONLY, BUSY, OOM, CLUSTERDOWN, …
                       → tried again after a growing, jittered delay, for `Patience.within_s`;
                         then `IndexUnavailable`, or `IndexFull` for OOM
    the script's word  SDRESET, SDFENCE, SDUNCLAIMED, … → `Refusal`, for the store to understand
    does not pass      credentials, permissions, a bug → `IndexRefused`

A script that the server does not know is loaded and run. If it was forgotten again in between (a
SCRIPT FLUSH, a failover), that passes too.

A call whose answer was lost may have run. Making it again is safe: see the port and the scripts.
The driver's own retries are off, so that there is one policy.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import redis.asyncio as driver
from redis import exceptions

from stream_dedup.errors import IndexFull, IndexRefused, IndexUnavailable
from stream_dedup.index.redis.address import parse
from stream_dedup.index.redis.clients import Asks, Tls, make_client
from stream_dedup.index.redis.scripts import Script

log = logging.getLogger(__name__)

T = TypeVar("T")

Argument = bytes | str | int

Arguments = Sequence[Argument] | Callable[[], Sequence[Argument]]
"""Of a script; or what gives those of each attempt."""

Command = Sequence[Argument]

AT_ONCE = 50
"""Calls on their way at once; others wait here. The driver's pools hold 100 connections, and refuse
what is beyond."""

PIPELINE = 500
"""Commands sent at once: others wait for a millisecond or two."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call is waited for and tried again.

    Attributes:
        within_s: a call that fails and may pass is tried again for so long. Longer than a failover
            takes (Sentinel's default is 30 s until a master is given up, so for it give more).
        first_s: the longest delay before the second try; doubled from try to try.
        most_s: no delay is longer.
        timeout_s: an answer that takes longer counts as lost. A script takes milliseconds, but
            may have to wait for others and for the server's fork.
    """

    within_s: float = 30.0
    first_s: float = 0.05
    most_s: float = 2.0
    timeout_s: float = 5.0


class Refusal(Exception):  # noqa: N818 -- the script's word, understood by the store
    """A script said why it did nothing."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code} {detail}")
        self.code = code
        self.detail = detail


_PASSES = (
    "BUSY ",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
)
"""Errors of the server that pass by themselves, or with an operator's help."""

_PASSING_ANSWERS = (
    exceptions.ClusterError,
    exceptions.NoScriptError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
)

_NO_ANSWERS = (
    exceptions.ConnectionError,
    exceptions.RedisClusterException,
    exceptions.TimeoutError,
    OSError,
)

_NOT_AWAY = (exceptions.MaxConnectionsError, exceptions.NoScriptError)
"""Passing errors that are no fault of the server: too much at once here, a script was flushed."""

_DOES_NOT_PASS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)


_NO_PERMISSION_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")
"""How Redis 7.0 and later ones say it; neither with a code of its own."""


async def _cancellable(attempt: Awaitable[T]) -> T:
    """Wait for an attempt, and see to it that a cancellation meanwhile is heard.

    The driver waits with `asyncio.wait_for`, which in Python 3.11 forgets a cancellation that comes
    as what it waits for is done (https://github.com/python/cpython/issues/86296). It is heard as
    the attempt ends then, well or not: at the latest after `Patience.timeout_s`.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        answer = await attempt
    except Exception:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer


def _root(error: BaseException) -> BaseException:
    """What a cluster's node said: the driver wraps it."""
    while isinstance(error, exceptions.RedisClusterException):
        inner = error.__cause__
        if inner is None and "Cluster mode is not enabled" in str(error):
            inner = error.__context__  # the driver's guess at why the node refused
        if inner is None:
            return error
        error = inner
    return error


def _distrusts(error: BaseException) -> bool:
    """Whether server or client refused the other's certificate."""
    inner = error.__cause__ or error.__context__
    reason = inner.reason or "" if isinstance(inner, ssl.SSLError) else ""
    return "CERTIFICATE" in reason or "UNKNOWN_CA" in reason


def _passes(error: BaseException) -> bool:
    if isinstance(error, _DOES_NOT_PASS) or _distrusts(error):
        return False
    if isinstance(error, exceptions.ResponseError) and str(error).startswith(_PASSES):
        return True
    return isinstance(error, (*_PASSING_ANSWERS, *_NO_ANSWERS))


def _of_its_type(answer: object) -> object:
    """An answer of a pipeline; None if the key was of another type."""
    if isinstance(answer, Exception):
        if str(answer).startswith(("WRONGTYPE", "no such key", "ERR no such key")):
            return None
        raise answer
    return answer


class Server:
    """Runs scripts and commands on a Redis service.

    Args:
        url: ``redis://``, ``rediss://`` (TLS), ``unix://``, ``redis+sentinel://h1,h2/name`` or
            ``redis+cluster://h1,h2``, with ``user:password@`` where needed.
        patience: how long calls are waited for.
        tls: for the secure ones.
        sentinel_password: where the Sentinels themselves ask for one.

    Attributes:
        address: where it is, for messages; prints no secrets.
        counts: calls by script or command; and ``retries``, ``reloads`` of scripts.
        away: since the last answer a call has failed and is tried again.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: Patience | None = None,
        tls: Tls | None = None,
        sentinel_password: str | None = None,
    ) -> None:
        self.address = parse(url)
        self.counts: Counter[str] = Counter()
        self.away = False
        self._patience = patience or Patience()
        self._client = make_client(
            self.address, self._patience.timeout_s, tls or Tls(), sentinel_password
        )
        self._jitter = random.Random()  # noqa: S311 -- spreads retries, guards nothing
        self._room = asyncio.Semaphore(AT_ONCE)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()
        if self.address.kind == "sentinel":  # the driver leaves those to the sentinels open
            for sentinel in cast(Any, self._client).connection_pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    async def run(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Arguments,
    ) -> Any:  # noqa: ANN401 -- each script says what it returns
        """Run a script.

        Args:
            script: the script.
            keys: its keys, which share a hash tag.
            arguments: its arguments, or what gives those of each attempt.

        Raises:
            Refusal: the script said why it did nothing.
            IndexUnavailable: see `Patience`.
            IndexRefused: it cannot be run.
        """

        async def attempt() -> object:
            given = arguments() if callable(arguments) else arguments
            command = ("EVALSHA", script.sha, len(keys), *keys, *given)
            try:
                return await self._send(keys[0], command)
            except exceptions.NoScriptError:
                self.counts["reloads"] += 1
                await self._load(keys[0], script)
                return await self._send(keys[0], command)

        return await self._with_retries(script.name, attempt)

    async def command(self, key: bytes, *command: Argument) -> Any:  # noqa: ANN401 -- as `run`
        """Run a command on the node that holds a key.

        Raises:
            IndexUnavailable: see `Patience`.
            IndexRefused: it cannot be run.
        """
        return await self._with_retries(str(command[0]).lower(), lambda: self._send(key, command))

    async def many(self, key: bytes, commands: Sequence[Command]) -> list[Any]:
        """Answers of commands whose keys share `key`'s tag; None where a key is of another type.

        They are sent in chunks of `PIPELINE`, one after the other, and are not atomic. A chunk that
        fails is sent again as a whole.

        Raises:
            IndexUnavailable: see `Patience`.
            IndexRefused: one of them cannot be run.
        """
        answers: list[Any] = []
        for start in range(0, len(commands), PIPELINE):
            attempt = partial(self._pipe, key, commands[start : start + PIPELINE])
            answers += cast(list[Any], await self._with_retries("pipeline", attempt))
        return answers

    async def _pipe(self, key: bytes, commands: Sequence[Command]) -> list[Any]:
        client = cast(Any, self._client)  # its methods have no types
        target: dict[str, Any] = {}
        if isinstance(self._client, driver.RedisCluster):
            await self._client.initialize()
            target["target_nodes"] = self._client.get_node_from_key(cast(str, key))
            pipeline = client.pipeline()
        else:
            pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command, **target)
        answers = await pipeline.execute(raise_on_error=False)
        return [_of_its_type(answer) for answer in answers]

    async def _load(self, key: bytes, script: Script) -> None:
        """Give the node of a key a script; in a Redis Cluster then all others as well.

        While slots move, or a replica takes over, another node than the key's may be asked to run
        it. One that is away now is given it when it says that it does not know it.
        """
        command = ("SCRIPT LOAD", script.text)
        await self._send(key, command)
        client = self._client
        if isinstance(client, driver.RedisCluster):
            own = client.get_node_from_key(cast(str, key))
            others = (node for node in client.get_primaries() if node is not own)
            await asyncio.gather(
                *(client.execute_command(*command, target_nodes=node) for node in others),
                return_exceptions=True,
            )

    async def _send(self, key: bytes, command: Sequence[Argument]) -> object:
        if isinstance(self._client, driver.RedisCluster):
            await self._client.initialize()
            # Naming the node spares the driver from hashing every key of the command.
            node = self._client.get_node_from_key(cast(str, key))
            return await self._client.execute_command(*command, target_nodes=node)
        client = cast(Any, self._client)  # its methods have no types
        if command[0] != "EVALSHA":
            return await client.execute_command(*command)
        # Calls of scripts are most of it: they go past what the driver does beside.
        connection: Asks = await client.connection_pool.get_connection()
        try:
            return await connection.ask(*command)
        finally:
            await client.connection_pool.release(connection)

    async def _with_retries(self, name: str, attempt: Callable[[], Awaitable[object]]) -> object:
        self.counts[name] += 1
        clock = asyncio.get_running_loop().time
        until = clock() + self._patience.within_s
        delay_s = self._patience.first_s
        while True:
            try:
                async with self._room:
                    answer = await _cancellable(attempt())
            except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
                root = _root(error)
                if not _passes(root):
                    raise self._final(name, root) from error
                pause_s = self._jitter.uniform(delay_s / 2, delay_s)
                if clock() + pause_s > until:
                    raise self._given_up(name, error) from error
                if not isinstance(root, _NOT_AWAY):
                    if not self.away:
                        log.warning("%s: %s failed, trying again: %s", self.address, name, error)
                    self.away = True
                    self.counts["retries"] += 1
                await self._reconnect(error)
                await asyncio.sleep(pause_s)
                delay_s = min(2 * delay_s, self._patience.most_s)
            else:
                if self.away:
                    log.warning("%s: answers again", self.address)
                    self.away = False
                return answer

    async def _reconnect(self, error: Exception) -> None:
        """A server that became a replica keeps its connections: look for the master anew."""
        if isinstance(error, exceptions.ReadOnlyError) and isinstance(self._client, driver.Redis):
            await self._client.connection_pool.disconnect(inuse_connections=False)

    def _given_up(self, name: str, error: Exception) -> IndexUnavailable:
        tried = f"{self.address}: {name} failed for {self._patience.within_s:g} s"
        if isinstance(error, exceptions.OutOfMemoryError) or str(error).startswith("OOM"):
            return IndexFull(
                f"{tried}: the server's memory is full ({error}); raise maxmemory, or lower "
                "max_clusters, idle or max_age"
            )
        return IndexUnavailable(f"{tried}: {str(error) or type(error).__name__}")

    def _final(self, name: str, error: BaseException) -> Exception:
        code, _, detail = str(error).partition(" ")
        if code.startswith("SD"):
            return Refusal(code, detail)
        if isinstance(error, exceptions.NoPermissionError) or str(error).startswith(
            _NO_PERMISSION_IN_SCRIPT
        ):
            return IndexRefused(
                f"{self.address}: {error}; give the user the permissions that "
                "docs/how-to/redis-security.md lists"
            )
        if isinstance(error, _DOES_NOT_PASS):
            return IndexRefused(f"{self.address}: {error}; check user and password")
        if _distrusts(error):
            return IndexRefused(f"{self.address}: {error}; check the certificates of both sides")
        return IndexRefused(f"{self.address}: {name}: {error}")
