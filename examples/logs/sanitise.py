#!/usr/bin/env python3
"""Remove what identifies the capturing machine from a log (stdin to stdout).

Replaced, and nothing else:

* the path of the temporary Debian tree (``--root``) by nothing, so that
  ``/var/tmp/capture.x/rootfs/opt/kafka`` reads ``/opt/kafka``, and the
  temporary directory around it (``--work``) by ``/tmp/capture``;
* the home directory of the invoking user by ``/home/demo``;
* the kernel release of the machine by ``6.1.0-amd64``;
* this machine's own addresses and those of its name servers by ``192.0.2.1``;
* the hosts of proxies and of package mirrors configured on this machine
  (environment, pip, apt, Maven) by ``mirror.example``;
* with ``--mirrors``, the host of every URL in the log by ``mirror.example``,
  wherever it is named: for logs of package installs, whose hosts say nothing
  about the programs;
* user names and passwords in URLs (``//user:pw@host``) by nothing.

The host name needs no replacement: the programs run in a UTS namespace where
it is ``demo``.  Lines are neither added, removed, nor reordered.
"""

from __future__ import annotations

import argparse
import glob
import io
import os
import platform
import re
import subprocess
import sys
from urllib.parse import urlsplit

MIRROR = "mirror.example"
LOCAL = ("localhost", "127.0.0.1")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True,
                              timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _hosts(text: str) -> set[str]:
    """Host names (with a port, if one is given) of the URLs in a text."""
    found = set()
    for url in re.findall(r"https?://[^\s'\"<>;,]+", text):
        netloc = urlsplit(url).netloc.rpartition("@")[2]
        host = netloc.partition(":")[0]
        if host and host not in LOCAL:
            found.add(netloc)
    return found


def replacements(root: str, work: str, log: str) -> list[tuple[re.Pattern[str], str]]:
    rules: list[tuple[re.Pattern[str], str]] = []

    def literal(old: str, new: str, before: str = "", after: str = "") -> None:
        if old:
            rules.append((re.compile(before + re.escape(old) + after), new))

    literal(root, "")
    literal(work, "/tmp/capture")
    home = os.path.expanduser("~")
    if len(home) > 2:
        literal(home, "/home/demo", r"(?<![\w./-])", r"(?![\w.-])")
    literal(platform.release(), "6.1.0-amd64", r"(?<![\w.-])", r"(?![\w.-])")

    addresses = set(_output("hostname", "-I").split())
    addresses |= set(re.findall(r"^nameserver\s+(\S+)",
                                _text("/etc/resolv.conf"), re.M))
    for address in sorted(addresses, key=len, reverse=True):
        if not address.startswith("127.") and address != "::1":
            literal(address, "192.0.2.1", r"(?<![\w.:])", r"(?![\w.]|:\w*:)")

    env = os.environ
    pip = _output(sys.executable, "-m", "pip", "config", "list")
    pip += " ".join(v for k, v in env.items() if k.startswith("PIP_"))
    apt = "\n".join(_text(p) for pattern in (
        "/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list",
        "/etc/apt/sources.list.d/*.sources",
        "/etc/apt/apt.conf", "/etc/apt/apt.conf.d/*")
        for p in glob.glob(pattern))
    apt = "\n".join(re.findall(r"(?m)^(?:deb\s|URIs:|\s*Acquire::).*", apt))
    apt += "\n" + env.get("MIRROR", "")
    maven = _text(os.path.join(home, ".m2", "settings.xml"))
    maven = re.sub(r"(?is)xmlns\S*=\s*\"[^\"]*\"|xsi:\S*=\s*\"[^\"]*\"", "", maven)
    proxy = " ".join(v for k, v in env.items() if k.lower().endswith("_proxy"))
    for host in sorted(_hosts("\n".join((pip, maven, proxy, apt, log))),
                       key=len, reverse=True):
        literal(host, MIRROR, r"(?<![\w.-])", r"(?![\w-]|\.\w)")

    rules.append((re.compile(r"(?<=//)[^\s/@:'\"]+:[^\s/@'\"]+@"), ""))
    return rules


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="", help="path of the temporary tree")
    parser.add_argument("--work", default="", help="temporary directory")
    parser.add_argument("--mirrors", action="store_true",
                        help="replace the hosts of all URLs")
    options = parser.parse_args()
    # Bytes which are not UTF-8 (a damaged file in an error message) survive.
    source = open(sys.stdin.fileno(), encoding="utf-8",
                  errors="surrogateescape", newline="\n")
    target = open(sys.stdout.fileno(), "w", encoding="utf-8",
                  errors="surrogateescape", newline="")
    text = source.read()
    rules = replacements(options.root, options.work,
                         text if options.mirrors else "")
    for line in io.StringIO(text, newline="\n"):
        for pattern, new in rules:
            line = pattern.sub(new, line)
        target.write(line)
    target.flush()


if __name__ == "__main__":
    main()
