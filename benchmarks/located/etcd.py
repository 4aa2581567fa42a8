"""The log of three etcd members in trouble: `python -m benchmarks.located.etcd ETCD FOLDER`.

`ETCD` is the server, built from its Go module (`benchmarks/located/README.md` has the commands).
Three members run on ports of this machine with `--log-level debug --log-format console`; requests
go through the JSON gateway. Members are killed, started again, removed and added. Each line names
the place in the code that logged it; the level, the message and the fields as JSON remain.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.located.labels import Line, write_set

NAMES = ("m1", "m2", "m3")
TIMEOUT_S = 3


def encoded(text: str) -> str:
    """A key or value as the JSON gateway wants it."""
    return base64.b64encode(text.encode()).decode()


class Member:
    """One etcd server: its ports, its folder, its process."""

    def __init__(self, binary: Path, folder: Path, name: str, port: int) -> None:
        self.name, self._binary, self._folder = name, binary, folder
        self.client, self.peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, members: list[Member], state: str = "new", *extra: str) -> None:
        """Start it with those members as its cluster."""
        command = [
            str(self._binary), "--name", self.name, "--data-dir", str(self._folder / self.name),
            "--listen-client-urls", self.client, "--advertise-client-urls", self.client,
            "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
            "--initial-cluster", ",".join(f"{one.name}={one.peer}" for one in members),
            "--initial-cluster-state", state, "--log-level", "debug", "--log-format", "console",
            "--snapshot-count", "200", "--auto-compaction-retention", "10s",
            "--heartbeat-interval", "50", "--election-timeout", "500", *extra,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()

    def call(self, path: str, token: str = "", **body: object) -> dict[str, object]:
        """Ask it something; what fails is logged by the server, and answered with nothing."""
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(  # noqa: S310 -- a port of this machine
            f"{self.client}/v3/{path}", json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 -- as above
                found: dict[str, object] = json.loads(answer.read())
        except (OSError, ValueError):
            return {}
        return found

    def get(self, path: str) -> None:
        """Fetch a page: metrics, health, version."""
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{self.client}/{path}", timeout=TIMEOUT_S).read()  # noqa: S310


def requests(member: Member, number: int) -> None:
    """Ask for everything once, right and wrong."""
    for index in range(60):
        key = encoded(f"/services/shop-{index}/node-{number}")
        member.call("kv/put", key=key, value=encoded("x" * index * 50))
        member.call("kv/range", key=key, range_end=encoded("/services/t"), limit=10)
    member.call("kv/put", key="")
    member.call("kv/put", key=encoded("a"), lease=str(7000 + number))
    member.call("kv/put", key=encoded("big"), value=encoded("x" * 2_000_000))
    member.call("kv/range", key=encoded("a"), revision=str(10**9))
    lease = member.call("lease/grant", TTL="1", ID=str(1000 + number))
    member.call("lease/keepalive", ID=str(lease.get("ID", 0)))
    member.call("lease/revoke", ID=str(9000 + number))
    member.call("lease/leases")
    member.call("kv/deleterange", key=encoded("/services/shop-1"), range_end=encoded("/s/z"))
    member.call("kv/txn", compare=[{"key": encoded("a"), "target": "VERSION", "version": "1"}],
                success=[{"requestPut": {"key": encoded("a"), "value": encoded("b")}}])  # fmt: skip
    revision = member.call("kv/range", key=encoded("a")).get("header")
    if isinstance(revision, dict):
        member.call("kv/compaction", revision=revision["revision"], physical=True)
    member.call("kv/compaction", revision="1")
    member.call("maintenance/defragment")
    member.call("maintenance/status")
    member.call("maintenance/hash")
    member.call("maintenance/hashkv", revision="0")
    member.call("maintenance/snapshot")
    member.call("maintenance/alarm", action="ACTIVATE", alarm="NOSPACE", memberID="0")
    member.call("kv/put", key=encoded("full"), value=encoded("x"))
    member.call("maintenance/alarm", action="DEACTIVATE", alarm="NOSPACE", memberID="0")
    member.call("maintenance/transfer-leadership", targetID="12345")
    member.call("maintenance/downgrade", action="VALIDATE", version=f"3.{number}.0")
    member.call("cluster/member/list")
    member.call("cluster/member/update", ID=str(number), peerURLs=["http://127.0.0.1:1"])
    member.call("cluster/member/remove", ID=str(number))
    member.call("watch", create_request={"key": encoded("/services"), "progress_notify": True})
    member.call("election/campaign", name=encoded("e"), lease="0", value=encoded("v"))
    member.call("lock/lock", name=encoded(f"l{number}"), lease="0")
    for page in ("metrics", "health", "version", "livez", "readyz?verbose", "nothing", "health?x"):
        member.get(page)


def accounts(member: Member) -> None:
    """Switch authentication on, use it well and badly, and switch it off."""
    member.call("auth/role/add", name="root")
    member.call("auth/user/add", name="root", password="secret")  # noqa: S106 -- of this server
    member.call("auth/user/grant", user="root", role="root")
    member.call("auth/enable")
    for password in ("secret", "wrong"):
        token = str(member.call("auth/authenticate", name="root", password=password).get("token"))
    token = str(member.call("auth/authenticate", name="root", password="secret").get("token"))  # noqa: S106 -- of this server
    for name in ("ann", "bob", "eve"):
        member.call("auth/user/add", token, name=name, password=name)
        member.call("auth/user/add", token, name=name, password=name)
        member.call("auth/role/add", token, name=f"{name}-role")
        member.call("auth/role/grant", token, name=f"{name}-role",
                    perm={"permType": "READ", "key": encoded(name)})  # fmt: skip
        member.call("auth/role/revoke", token, role=f"{name}-role", key=encoded("no"))
        member.call("auth/user/grant", token, user=name, role=f"{name}-role")
        member.call("auth/user/grant", token, user=name, role="missing")
        member.call("auth/user/changepw", token, name=name, password="new")  # noqa: S106 -- of this server
        other = str(member.call("auth/authenticate", name=name, password="new").get("token"))  # noqa: S106 -- of this server
        member.call("kv/put", other, key=encoded("x"), value=encoded("y"))
        member.call("kv/put", "no-token", key=encoded("x"), value=encoded("y"))
        member.call("auth/user/revoke", token, name=name, role=f"{name}-role")
        member.call("auth/user/delete", token, name=name)
        member.call("auth/role/delete", token, role=f"{name}-role")
    member.call("auth/disable", token)
    member.call("auth/user/delete", name="root")
    member.call("auth/role/delete", role="root")


def work(members: list[Member], rounds: int) -> None:
    """Run the cluster through what happens to clusters."""
    for member in members:
        member.start(members)
    time.sleep(4)
    for number in range(rounds):
        requests(members[number % 3], number)
        accounts(members[number % 3])
        broken = members[(number + 1) % 3]
        broken.stop(signal.SIGKILL if number % 2 else signal.SIGTERM)
        requests(members[number % 3], number + 100)
        if number % 3 == 1:  # without a majority
            members[(number + 2) % 3].stop()
            requests(members[number % 3], number + 200)
            members[(number + 2) % 3].start(members, "existing")
        time.sleep(2)
        broken.start(members, "existing")
        time.sleep(3)
    for member in members:
        member.stop()
    members[0].start(members, "existing", "--force-new-cluster")
    time.sleep(3)
    requests(members[0], 300)
    members[0].stop()
    members[1].start(members[:1], "new", "--quota-backend-bytes", "1")
    time.sleep(2)
    members[1].stop()


def lines_of(path: Path) -> Iterator[Line]:
    """Yield level, message and fields of each line: time, level, place, message, JSON, by tabs.

    What gRPC and raft log through a wrapper is left out: it all comes from the wrapper's place.
    """
    for row in path.read_text("utf-8", "replace").splitlines():
        _, level, place, *rest = (*row.split("\t"), "", "")
        if ".go:" in place and not place.startswith("zap") and rest:
            yield Line(place, "\t".join([level, *(part for part in rest if part)]))


def main() -> None:
    """Write `Etcd.tsv.gz`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("etcd", type=Path, help="the server's binary")
    parser.add_argument("folder", type=Path, help="where to write the set")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--port", type=int, default=23790, help="the first of six")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        binary = str(options.etcd.resolve())
        members = [
            Member(Path(binary), Path(name), one, options.port + 2 * number)
            for number, one in enumerate(NAMES)
        ]
        work(members, options.rounds)
        lines = (
            line._replace(
                text=line.text.replace(name, "/var/lib/etcd").replace(binary, "/usr/bin/etcd")
            )
            for member in members
            for line in lines_of(member.log)
        )
        print(write_set(options.folder, "Etcd", lines, [socket.gethostname()]), "lines")


if __name__ == "__main__":
    main()
