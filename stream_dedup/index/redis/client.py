"""One Redis service, however it is deployed: runs scripts and commands, and retries what may pass.

Theory of operation
-------------------
A call fails in one of three ways::

    transient          connection lost, timeout, LOADING, READONLY, BUSY, OOM, CLUSTERDOWN, …
                       → retried after a growing, jittered delay, for `RetryPolicy.within_s`;
                         then `IndexUnavailable`, or `IndexFull` for OOM
    a script's error   SDRESET, SDFENCE, SDUNCLAIMED, … → `Refusal`, which the store understands
    permanent          credentials, permissions, a bug → `IndexRefused`

A script that the server does not know is loaded and run. If it was forgotten again in between (a
SCRIPT FLUSH, a failover), that is transient too.

A call whose answer was lost may have run. Making it again is safe: see the port and the scripts.
The driver's own retries are off, so that there is one policy.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import redis.asyncio as driver
from redis import exceptions
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import AbstractBackoff

from stream_dedup.clock import US_PER_S
from stream_dedup.errors import IndexFull, IndexRefused, IndexUnavailable
from stream_dedup.index.redis.address import parse
from stream_dedup.index.redis.connection import Tls, make_client
from stream_dedup.index.redis.keys import ShardKeys
from stream_dedup.index.redis.scripts import Argument, Script

log = logging.getLogger(__name__)

T = TypeVar("T")

Arguments = Sequence[Argument] | Callable[[], Sequence[Argument]]
"""Of a script; or a function that returns those of each attempt."""

Command = Sequence[Argument]

MAX_CONCURRENT_CALLS = 50
"""More calls wait here. The driver's pools hold 100 connections, and refuse any beyond."""

PIPELINE_COMMANDS = 500
"""Commands sent at once: other clients wait for a millisecond or two."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a call is retried.

    Attributes:
        within_s: a call with a transient error is retried for so long. Longer than a failover takes
            (Sentinel's default is 30 s until a master is given up, so give more for it).
        first_delay_s: the longest delay before the second attempt; doubled at each attempt.
        max_delay_s: no delay is longer.
        timeout_s: an answer that takes longer counts as lost. A script takes milliseconds, but
            may have to wait for others and for the server's fork.
    """

    within_s: float = 30.0
    first_delay_s: float = 0.05
    max_delay_s: float = 2.0
    timeout_s: float = 5.0

    def longest_delay_s(self, failures: int) -> float:
        """The longest delay after so many failed attempts."""
        return min(self.first_delay_s * 2.0 ** min(failures - 1, 60), self.max_delay_s)


class _Backoff(AbstractBackoff):
    """Delays of a policy: at random in the upper half of what it allows."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy

    def compute(self, failures: int) -> float:
        longest_s = self._policy.longest_delay_s(failures)
        return random.uniform(longest_s / 2, longest_s)  # noqa: S311 -- spreads retries, guards nothing


class Refusal(Exception):  # noqa: N818 -- an answer of a script, for the store
    """A script answered with an error code of its own, and did nothing.

    Attributes:
        code: ``SDRESET``, ``SDFENCE`` and so on.
        detail: what follows the code.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code} {detail}")
        self.code = code
        self.detail = detail


_TRANSIENT_REPLIES = (
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

_TRANSIENT = (
    exceptions.ClusterError,
    exceptions.NoScriptError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
    exceptions.ConnectionError,
    exceptions.RedisClusterException,
    exceptions.TimeoutError,
    OSError,
)

_NOT_THE_SERVERS_FAULT = (exceptions.MaxConnectionsError, exceptions.NoScriptError)
"""Transient errors of a server that serves: too many calls at once here, a script was flushed."""

_CREDENTIALS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)

_DRIVER_ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)

_NO_PERMISSION_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")
"""How Redis 7.0 and later ones begin this error, which has no code of its own."""


async def _raise_cancellation(attempt: Awaitable[T]) -> T:
    """Wait for an attempt; raise a cancellation that the driver swallowed meanwhile.

    To discover a Cluster the driver sends over a connection of its own, with `asyncio.wait_for`
    (see `connection`). A cancellation that it swallows is raised when the attempt ends, whether it
    succeeds or fails: after `RetryPolicy.timeout_s` at the latest.
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
    """The error of a Cluster's node, which the driver wraps."""
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


def _is_transient(error: BaseException) -> bool:
    error = _root(error)
    if isinstance(error, _CREDENTIALS) or _distrusts(error):
        return False
    if isinstance(error, exceptions.ResponseError) and str(error).startswith(_TRANSIENT_REPLIES):
        return True
    return isinstance(error, _TRANSIENT)


def _none_for_another_type(answer: object) -> object:
    """An answer of a pipeline; None if the key was of another type."""
    if isinstance(answer, Exception):
        if str(answer).startswith(("WRONGTYPE", "no such key", "ERR no such key")):
            return None
        raise answer
    return answer


class RedisClient:
    """Runs scripts and commands on a Redis service. Tasks of one event loop may share it.

    Args:
        url: ``redis://``, ``rediss://`` (TLS), ``unix://``, ``redis+sentinel://h1,h2/name`` or
            ``redis+cluster://h1,h2``, with ``user:password@`` where needed.
        retry_policy: how long calls are retried.
        tls: for the secure ones.
        sentinel_password: where the Sentinels themselves ask for one.

    Attributes:
        address: where the service is, for messages; prints no secrets.
        counts: calls by script or command; and ``retries``, ``reloads`` of scripts.
        retrying: whether a call has failed since the last answer, and is being retried.
    """

    def __init__(
        self,
        url: str,
        *,
        retry_policy: RetryPolicy | None = None,
        tls: Tls | None = None,
        sentinel_password: str | None = None,
    ) -> None:
        self.address = parse(url)
        self.counts: Counter[str] = Counter()
        self.retrying = False
        self._policy = retry_policy or RetryPolicy()
        self._driver, self._sentinels = make_client(
            self.address, self._policy.timeout_s, tls or Tls(), sentinel_password
        )
        self._retry = Retry(_Backoff(self._policy), -1, _DRIVER_ERRORS)  # type: ignore[arg-type]
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._driver.aclose()
        for sentinel in self._sentinels:  # the driver leaves their connections open
            await sentinel.aclose()

    async def run(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Arguments,
    ) -> Any:  # noqa: ANN401 -- each script documents what it returns
        """Run a script.

        Args:
            script: the script.
            keys: its keys, which share a hash tag.
            arguments: its arguments, or a function that returns those of each attempt.

        Raises:
            Refusal: the script answered with an error code of its own.
            IndexUnavailable: the error did not pass in time; see `RetryPolicy`.
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
            IndexUnavailable: the error did not pass in time; see `RetryPolicy`.
            IndexRefused: it cannot be run.
        """
        return await self._with_retries(str(command[0]).lower(), lambda: self._send(key, command))

    async def open_clusters(self, shard: ShardKeys, count: int) -> AsyncIterator[list[bytes]]:
        """Yield the ids of the open clusters of a shard, about `count` with each command.

        All that were open when it began are among them, some perhaps twice: a cluster stays in
        `ShardKeys.recency` until it closes.

        Raises:
            IndexUnavailable: the error did not pass in time; see `RetryPolicy`.
            IndexRefused: the command cannot be run.
        """
        cursor = 0
        while True:
            command = ("ZSCAN", shard.recency, cursor, "COUNT", count)
            cursor, members = await self.command(shard.meta, *command)
            yield [member for member, *_ in members if len(member) == 8]
            cursor = int(cursor)
            if not cursor:
                return

    async def time_us(self, key: bytes) -> int:
        """Ask the node that holds a key for its time, in microseconds since 1970-01-01 UTC.

        Raises:
            IndexUnavailable: the error did not pass in time; see `RetryPolicy`.
            IndexRefused: the user may not ask.
        """
        seconds, microseconds = await self.command(key, "TIME")
        return int(seconds) * US_PER_S + int(microseconds)

    async def many(self, key: bytes, commands: Sequence[Command]) -> list[Any]:
        """Run commands whose keys share `key`'s tag; None where a key is of another type.

        They are sent in chunks of `PIPELINE_COMMANDS`, one after the other, and are not atomic. A
        chunk that fails is sent again as a whole.

        Raises:
            IndexUnavailable: the error did not pass in time; see `RetryPolicy`.
            IndexRefused: one of them cannot be run.
        """
        answers: list[Any] = []
        for start in range(0, len(commands), PIPELINE_COMMANDS):
            attempt = partial(self._pipe, key, commands[start : start + PIPELINE_COMMANDS])
            answers += cast(list[Any], await self._with_retries("pipeline", attempt))
        return answers

    async def primaries(self) -> list[ClusterNode | None]:
        """The nodes that hold keys, for `command_at`; None alone outside a Redis Cluster.

        Raises:
            IndexUnavailable: the error did not pass in time; see `RetryPolicy`.
            IndexRefused: the user may not ask for them.
        """
        if not isinstance(self._driver, driver.RedisCluster):
            return [None]
        await self._with_retries("cluster", self._driver.initialize)
        return list(self._driver.get_primaries())

    async def command_at(self, node: ClusterNode | None, *command: Argument) -> Any:  # noqa: ANN401 -- as `run`
        """Run a command on one of the `primaries`.

        Raises:
            IndexUnavailable: the error did not pass in time; see `RetryPolicy`.
            IndexRefused: it cannot be run.
        """
        target: dict[str, Any] = {} if node is None else {"target_nodes": node}
        execute = cast(Any, self._driver).execute_command  # has no types
        return await self._with_retries(
            str(command[0]).lower(), partial(execute, *command, **target)
        )

    # ------------------------------------------------------------ one attempt

    async def _send(self, key: bytes, command: Command) -> object:
        if isinstance(self._driver, driver.RedisCluster):
            await self._driver.initialize()
            # Naming the node spares the driver from hashing every key of the command.
            node = self._driver.get_node_from_key(cast(str, key))
            return await self._driver.execute_command(*command, target_nodes=node)
        return await cast(Any, self._driver).execute_command(*command)

    async def _pipe(self, key: bytes, commands: Sequence[Command]) -> list[Any]:
        client = cast(Any, self._driver)  # its methods have no types
        target: dict[str, Any] = {}
        if isinstance(self._driver, driver.RedisCluster):
            await self._driver.initialize()
            target["target_nodes"] = self._driver.get_node_from_key(cast(str, key))
            pipeline = client.pipeline()
        else:
            pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command, **target)
        answers = await pipeline.execute(raise_on_error=False)
        return [_none_for_another_type(answer) for answer in answers]

    async def _load(self, key: bytes, script: Script) -> None:
        """Load a script into the node of a key; in a Redis Cluster then into all others as well.

        While slots move, or a replica takes over, another node than the key's may be asked to run
        it. A node that cannot be reached now is given it when it answers that it does not know it.
        """
        command = ("SCRIPT LOAD", script.text)
        await self._send(key, command)
        client = self._driver
        if isinstance(client, driver.RedisCluster):
            own = client.get_node_from_key(cast(str, key))
            others = (node for node in client.get_primaries() if node is not own)
            await asyncio.gather(
                *(client.execute_command(*command, target_nodes=node) for node in others),
                return_exceptions=True,
            )

    # ------------------------------------------------------------ retries

    async def _with_retries(self, name: str, attempt: Callable[[], Awaitable[object]]) -> object:
        self.counts[name] += 1
        clock = asyncio.get_running_loop().time
        until_s = clock() + self._policy.within_s

        async def once() -> object:
            async with self._slots:
                return await _raise_cancellation(attempt())

        async def failed(error: Exception, failures: int) -> None:
            if clock() + self._policy.longest_delay_s(failures) > until_s:
                raise self._given_up(name, error) from error
            if not isinstance(_root(error), _NOT_THE_SERVERS_FAULT):
                if not self.retrying:
                    log.warning("%s: call %r failed, trying again: %s", self.address, name, error)
                self.retrying = True
                self.counts["retries"] += 1
            if isinstance(error, exceptions.ReadOnlyError) and isinstance(
                self._driver, driver.Redis
            ):
                # A server that became a replica keeps its connections: look for the master again.
                await self._driver.connection_pool.disconnect(inuse_connections=False)

        try:
            answer = await self._retry.call_with_retry(
                once, failed, _is_transient, with_failure_count=True
            )
        except _DRIVER_ERRORS as error:
            raise self._permanent(name, _root(error)) from error
        if self.retrying:
            log.warning("%s: answers again", self.address)
            self.retrying = False
        return answer

    def _given_up(self, name: str, error: Exception) -> IndexUnavailable:
        tried = f"{self.address}: call {name!r} has failed for {self._policy.within_s:g} s"
        if isinstance(error, exceptions.OutOfMemoryError) or str(error).startswith("OOM"):
            return IndexFull(
                f"{tried}: the server's memory is full ({error}); raise maxmemory, or lower "
                "max_clusters, idle or max_age"
            )
        said = str(error).rstrip(".") or type(error).__name__
        unreachable = isinstance(error, exceptions.ConnectionError | OSError)
        remedy = "; check host and port, and that the server runs" if unreachable else ""
        return IndexUnavailable(f"{tried}: {said}{remedy}")

    def _permanent(self, name: str, error: BaseException) -> Exception:
        code, _, detail = str(error).partition(" ")
        if code.startswith("SD"):
            return Refusal(code, detail)
        if isinstance(error, exceptions.NoPermissionError) or str(error).startswith(
            _NO_PERMISSION_IN_SCRIPT
        ):
            return IndexRefused(
                f"{self.address}: {error}; give the user the permissions that "
                "docs/how-to/redis-security.md lists (stream-dedup config check names those that "
                "are missing)"
            )
        if isinstance(error, _CREDENTIALS):
            said = str(error).rstrip(".")
            if said.startswith("HELLO must be called"):  # the server's advice is for drivers
                said = "the server asks for a password, and none was given"
            return IndexRefused(f"{self.address}: {said}; check user and password")
        if _distrusts(error):
            return IndexRefused(f"{self.address}: {error}; check the certificates of both sides")
        return IndexRefused(f"{self.address}: call {name!r} failed: {error}")
