"""The demonstration: real logs of eight programs, de-duplicated and explained.

Run by ``make demo``. It only calls the command, as a person would, and shows what it printed.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
COMMAND = str(Path(sys.executable).with_name("stream-dedup"))
SESSIONS = HERE.parents[1] / "docs" / "examples" / "sessions.log"
EXCERPT = 10


def main() -> None:
    """Merge all logs, show an excerpt of one before and after, and explain a merge."""
    logs = sorted(HERE.glob("*.log.gz"))
    lines = {path.name: _lines(path) for path in logs}
    total = sum(map(len, lines.values()))
    _title(f"{total:,} real lines from {len(logs)} programs")
    for name, content in lines.items():
        print(f"  {len(content):7,}  {name}")

    with tempfile.TemporaryDirectory() as folder:
        merged = Path(folder) / "merged.log"
        started = time.perf_counter()
        _say("dedup", "--stats", "examples/logs/*.log.gz", ">", "merged.log")
        with merged.open("wb") as out:
            statistics = _run("dedup", "--stats", *map(str, logs), out=out)
        seconds = time.perf_counter() - started
        left = merged.read_bytes().count(b"\n")
        print(statistics)
        print(f"{total:,} lines in, {left:,} lines out, in {seconds:.1f} s, start-up included.")
        print("Nothing is hidden: the lines out say how often each was repeated.")

    redis = lines["redis.log.gz"]
    start = next(i for i, line in enumerate(redis) if b"Background saving started" in line)
    excerpt = redis[start : start + 400]
    _title(f"{len(excerpt)} consecutive lines from the Redis server, its first {EXCERPT}")
    _show(excerpt[:EXCERPT])
    _say("dedup", "redis.log")
    shown = _run("dedup", stdin=b"\n".join(excerpt) + b"\n").splitlines()
    repeated = [line for line in shown if line.startswith("…")]
    print(f"{len(excerpt)} lines became {len(shown)}: {len(shown) - len(repeated)} as they came, "
          f"{len(repeated)} counts such as these:\n")  # fmt: skip
    _show([line.encode() for line in repeated[:EXCERPT]])

    sessions = SESSIONS.read_bytes()
    _title("Words that turn out to be variables")
    print("Sessions of six users, as a system log has them:")
    _say("dedup", "docs/examples/sessions.log")
    _show(_run("dedup", stdin=sessions).encode().splitlines())
    print(
        "\nFive names in one place, between the same words, and the place is a variable. The names:"
    )
    _say("dedup", "--top", "2", "docs/examples/sessions.log")
    _show(_run("dedup", "--top", "2", stdin=sessions).encode().splitlines())

    first, second = "disk sda1 on web-3 is 91% full", "disk sdb7 on web-12 is 64% full"
    _title("Why two lines merge")
    _say("explain", f'"{first}"', f'"{second}"')
    print(_run("explain", first, second))
    ended = "nightly backup of web-3 finished with status"
    _say("explain", f'"{ended} OK"', f'"{ended} FAILED"')
    print(_run("explain", f"{ended} OK", f"{ended} FAILED"))


def _lines(path: Path) -> list[bytes]:
    with gzip.open(path) as file:
        return file.read().splitlines()


def _run(*arguments: str, stdin: bytes = b"", out: object = subprocess.PIPE) -> str:
    done = subprocess.run(
        [COMMAND, *arguments], input=stdin, stdout=out, stderr=subprocess.PIPE, check=False
    )
    if done.returncode not in (0, 3):  # explain says 3 for "they do not merge"
        sys.exit(done.stderr.decode())
    return ((done.stdout or b"") + done.stderr).decode()


def _show(lines: list[bytes]) -> None:
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip()
        print("  " + (text if len(text) <= 116 else text[:115] + "…"))


def _say(*words: str) -> None:
    print("\n$ stream-dedup " + " ".join(words) + "\n")


def _title(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")


if __name__ == "__main__":
    main()
