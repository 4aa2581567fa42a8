"""Fuzz the native extensions, built with sanitisers: ``python -m tests.fuzz --seconds 60``.

Builds the extensions with AddressSanitizer and UndefinedBehaviorSanitizer into ``build/fuzz``, and
gives each target of `targets` a share of the time; as many run at once as there are processors.
Atheris (libFuzzer) changes the inputs; what the references do with them, which it can watch, says
which inputs are new. An input that fails is written to ``build/fuzz/failed``, and the command to
repeat it is printed.

With ``--seed`` the same inputs are tried each time, as far as the time and the targets allow.
``--keep`` copies the new inputs that reach something new into ``tests/fuzz/corpus``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
CORPUS = Path(__file__).with_name("corpus")

SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"

COVERAGE = BUILD / "coverage.so"
"""See ``coverage.c``; it is loaded before libasan, which would otherwise object."""

ASAN = "detect_leaks=0:allocator_may_return_null=1:handle_segv=1:verify_asan_link_order=0"

MAX_BYTES = 4_096
"""Of an input."""

KEPT_BYTES = 512
"""Of an input that `--keep` adds to the repository."""


def build() -> None:
    """Build the package with sanitisers; what is up to date is not built again."""
    environment = {**os.environ, "CFLAGS": f"-g -O1 {SANITIZE}", "LDFLAGS": SANITIZE}
    lib, temp = BUILD / "lib", BUILD / "temp"
    command = [sys.executable, "setup.py", "-q", "build", "--parallel", str(os.cpu_count())]
    command += ["--build-lib", str(lib), "--build-temp", str(temp)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    built = len(list(lib.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}")))
    if not built:
        sys.exit("fuzz: nothing was built; a C compiler with libasan and libubsan is needed (gcc)")
    source = Path(__file__).with_name("coverage.c")
    shared = ["-shared", "-fPIC", "-O1", "-o", str(COVERAGE), str(source), "-ldl"]
    subprocess.run([os.environ.get("CC", "gcc"), *shared], check=True)


def _library(name: str) -> str:
    found = subprocess.run(
        [os.environ.get("CC", "gcc"), f"-print-file-name={name}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.strip()


def _libfuzzer() -> str:
    """Return where Atheris has libFuzzer."""
    found = importlib.util.find_spec("atheris")
    assert found is not None
    assert found.origin is not None
    return str(next(Path(found.origin).parent.glob("core_with_libfuzzer.*")))


def fuzz(target: str, seconds: int, seed: int, *, keep: bool) -> bool:
    """Fuzz one target; return whether it held."""
    found, failed = BUILD / "corpus" / target, BUILD / "failed"
    for folder in (found, failed, CORPUS / target):
        folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{COVERAGE} {_library('libasan.so')} {_library('libubsan.so')}",
        "FUZZ_LIBFUZZER": _libfuzzer(),
        "ASAN_OPTIONS": ASAN,
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",  # each object by itself, so that reading beyond it is seen
    }
    command = [sys.executable, "-m", "tests.fuzz.run", target]
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={MAX_BYTES}",
        f"-artifact_prefix={failed}/{target}-",
        "-timeout=120",  # a machine may stall
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
    ]
    before = set(found.iterdir())
    started = time.monotonic()
    done = subprocess.run(
        [*command, *options, str(found), str(CORPUS / target)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    executed = next(
        (line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed" in line), "?"
    )
    new = len(set(found.iterdir()) - before)
    took = f"{time.monotonic() - started:.0f} s"
    print(f"{target:14} {executed:>9} inputs in {took}, {new} reach something new", flush=True)
    if done.returncode:
        print(done.stdout[-2_000:], done.stderr[-6_000:], sep="\n")
        preload = (
            f"LD_PRELOAD='{environment['LD_PRELOAD']}' PYTHONMALLOC=malloc ASAN_OPTIONS={ASAN}"
        )
        print(f"{target}: FAILED; repeat: {preload} {' '.join(command)} FILE-IN-{failed}")
    elif keep:
        for path in set(found.iterdir()) - before:
            if path.stat().st_size <= KEPT_BYTES:
                (CORPUS / target / path.name).write_bytes(path.read_bytes())
    return not done.returncode


def main() -> None:
    """Build, then fuzz all targets, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0, help="try the same inputs again; 0: others")
    parser.add_argument("--keep", action="store_true", help="add new inputs to the repository")
    known = sorted(path.name for path in CORPUS.iterdir())
    parser.add_argument("target", nargs="*", help=f"of {', '.join(known)}; all by default")
    options = parser.parse_args()
    names = options.target or known
    if unknown := ", ".join(sorted(set(names).difference(known))):
        parser.error(f"no such target: {unknown}")
    build()
    each = max(1, options.seconds // len(names))
    with ThreadPoolExecutor(os.cpu_count()) as at_once:  # each waits for a process of its own
        held = list(
            at_once.map(lambda name: fuzz(name, each, options.seed, keep=options.keep), names)
        )
    print(f"{sum(held)} passed, {len(held) - sum(held)} failed")
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
