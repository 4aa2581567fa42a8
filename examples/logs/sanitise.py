"""Remove what identifies the capturing machine from a log (stdin to stdout).

Replaced, and nothing else:

* the path of the temporary Debian tree (``--root``) by nothing, so that
  ``/var/tmp/capture.x/rootfs/opt/kafka`` reads ``/opt/kafka``, and the temporary directory around
  it (``--work``) by ``/tmp/capture``;
* the home directory of the invoking user by ``/home/demo``;
* the kernel release of the machine by ``6.1.0-amd64``;
* this machine's own addresses and those of its name servers by ``192.0.2.1``;
* the hosts of proxies and of package mirrors configured on this machine (environment, pip, apt,
  Maven) by ``mirror.example``;
* with ``--mirrors``, the host of every URL in the log by ``mirror.example``, wherever it is named:
  for logs of package installs, whose hosts say nothing about the programs;
* user names and passwords in URLs (``//user:pw@host``) by nothing.

The host name needs no replacement: the programs run in a UTS namespace where it is ``demo``. Lines
are neither added, removed, nor reordered.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

MIRROR = "mirror.example"
LOCAL = ("localhost", "127.0.0.1")

Rule = tuple[re.Pattern[str], str]


def rules(root: str, work: str, log: str) -> Iterator[Rule]:
    """What is replaced by what, in order.

    Args:
        root: the temporary tree.
        work: the temporary directory around it.
        log: text whose URLs' hosts are replaced; empty for none.
    """
    home = str(Path.home())
    if root:
        yield re.compile(re.escape(root)), ""
    if work:
        yield re.compile(re.escape(work)), "/tmp/capture"  # noqa: S108 -- a text, not a file
    if len(home) > 2:
        yield re.compile(rf"(?<![\w./-]){re.escape(home)}(?![\w.-])"), "/home/demo"
    yield re.compile(rf"(?<![\w.-]){re.escape(platform.release())}(?![\w.-])"), "6.1.0-amd64"
    for address in _longest_first(_addresses()):
        yield re.compile(rf"(?<![\w.:]){re.escape(address)}(?![\w.]|:\w*:)"), "192.0.2.1"
    for host in _longest_first(_hosts(_settings(home) + "\n" + log)):
        yield re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-]|\.\w)"), MIRROR
    yield re.compile(r"(?<=//)[^\s/@:'\"]+:[^\s/@'\"]+@"), ""


def _addresses() -> set[str]:
    found = set(_output("hostname", "-I").split())
    found |= set(re.findall(r"(?m)^nameserver\s+(\S+)", _text(Path("/etc/resolv.conf"))))
    return {address for address in found if not address.startswith("127.") and address != "::1"}


def _settings(home: str) -> str:
    """Everything on this machine that may name a mirror or proxy."""
    env = os.environ
    pip = _output(sys.executable, "-m", "pip", "config", "list")
    pip += " ".join(value for key, value in env.items() if key.startswith("PIP_"))
    apt_files = [Path("/etc/apt/sources.list"), Path("/etc/apt/apt.conf")]
    for pattern in ("sources.list.d/*.list", "sources.list.d/*.sources", "apt.conf.d/*"):
        apt_files += Path("/etc/apt").glob(pattern)
    apt = "\n".join(map(_text, apt_files))
    apt = "\n".join(re.findall(r"(?m)^(?:deb\s|URIs:|\s*Acquire::).*", apt))
    maven = _text(Path(home, ".m2", "settings.xml"))
    maven = re.sub(r"(?is)xmlns\S*=\s*\"[^\"]*\"|xsi:\S*=\s*\"[^\"]*\"", "", maven)
    proxy = " ".join(value for key, value in env.items() if key.lower().endswith("_proxy"))
    return f"{pip}\n{maven}\n{proxy}\n{apt}\n{env.get('MIRROR', '')}"


def _hosts(text: str) -> set[str]:
    """Host names (with a port, if one is given) of the URLs in a text."""
    found = set()
    for url in re.findall(r"https?://[^\s'\"<>;,]+", text):
        netloc = urlsplit(url).netloc.rpartition("@")[2]
        host = netloc.partition(":")[0]
        if host and host not in LOCAL:
            found.add(netloc)
    return found


def _longest_first(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (-len(name), name))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def main() -> None:
    """Read the log whole, write it changed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default="", help="path of the temporary tree")
    parser.add_argument("--work", default="", help="temporary directory")
    parser.add_argument("--mirrors", action="store_true", help="replace the hosts of all URLs")
    options = parser.parse_args()
    # Bytes which are not UTF-8 (a damaged file in an error message) survive.
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    for pattern, new in rules(options.root, options.work, text if options.mirrors else ""):
        text = pattern.sub(new, text)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main()
