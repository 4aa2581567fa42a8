"""Other people's tools on the same lines, and how to time them.

Each peer is imported only inside its function, so that this module, and every bench that can do
without them, works where they are not installed: `pip install drain3 simhash`.

Drain3 (https://github.com/logpai/Drain3) is measured twice:

* `drain3_default`: its `TemplateMinerConfig` as constructed: similarity threshold 0.4, depth 4,
  at most 100 children a node, clusters unbounded, no masks, no extra delimiter.
* `drain3_masked`: the settings its project shows in `examples/drain3.ini`. That file is in the
  project's repository but not in its packages on PyPI (the source archive of 0.9.11 holds only
  `drain3/`), so pip cannot bring it, and it is not copied here. What it sets is said again below:
  `DRAIN3_MASKS` and `DRAIN3_MASKED`.

The masks are the seven that `examples/drain3.ini` sets and that the comment at the end of the
packaged `drain3/masking.py` lists too, in the same order, written again to match the same text:
where the original spells "a character that is not alphanumeric, or the start" as
`((?<=[^A-Za-z0-9])|^)`, a negative lookbehind says the same; likewise at the end. The labels come
out the same as with that file; the time does not: this spelling is quicker, by some 30 % of the
whole on LogHub's lines, so figures of its speed err in Drain3's favour.

Left out on purpose: persistence (the miner is given no handler), and the profiler, which only
slows the miner down and prints.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from statistics import median
from types import ModuleType
from typing import Any

PEERS = ("drain3", "simhash", "logparser3")

_START = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"

# (what it matches, its replacement), applied in this order.
DRAIN3_MASKS = (
    (_START + r"(?:[0-9a-f]{2,}:){3,}[0-9a-f]{2,}" + _END, "ID"),
    (_START + r"\d{1,3}(?:\.\d{1,3}){3}" + _END, "IP"),
    (_START + r"(?:[0-9a-f]{6,} ?){3,}" + _END, "SEQ"),
    (_START + r"(?:[0-9A-F]{4} ?){4,}" + _END, "SEQ"),
    (_START + r"0x[0-9A-Fa-f]+" + _END, "HEX"),
    (_START + r"[-+]?\d+" + _END, "NUM"),
    (r'(?<=executed cmd )".+?"', "CMD"),
)

# Attributes of `TemplateMinerConfig`. The first three equal its defaults; they are set there, so
# they are set here.
DRAIN3_MASKED: dict[str, object] = {
    "drain_sim_th": 0.4,
    "drain_depth": 4,
    "drain_max_children": 100,
    "drain_max_clusters": 1024,
    "drain_extra_delimiters": ["_"],
    "mask_prefix": "<:",
    "mask_suffix": ":>",
}


class PeerMissingError(Exception):
    """A peer is not installed; the message names it and how to install it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds an item, over several runs of the same work.

    Attributes:
        min_s: The best run: the nearest to the work itself, with the least of the machine's noise.
        median_s: The middle run: what to expect.
    """

    min_s: float
    median_s: float


def drain3_default(lines: Sequence[bytes]) -> list[int]:
    """Groups lines with Drain3 as it comes.

    Args:
        lines: The lines, in the order of the stream.

    Returns:
        The cluster id of each line, as answered when the line was added.

    Raises:
        PeerMissingError: Drain3 is not installed.
    """
    return add_lines(drain3_miner(), lines)


def drain3_masked(lines: Sequence[bytes]) -> list[int]:
    """Groups lines with Drain3 and the masks and settings of its project's example.

    Args:
        lines: The lines, in the order of the stream.

    Returns:
        The cluster id of each line, as answered when the line was added.

    Raises:
        PeerMissingError: Drain3 is not installed.
    """
    return add_lines(drain3_miner(DRAIN3_MASKED, DRAIN3_MASKS), lines)


def drain3_miner(
    settings: Mapping[str, object] | None = None, masks: Iterable[tuple[str, str]] = ()
) -> Any:  # noqa: ANN401 -- Drain3 carries no types
    """Makes a `TemplateMiner` of Drain3.

    Args:
        settings: Attributes of its configuration; its defaults without.
        masks: What is replaced before a line is added, and by which name.

    Raises:
        PeerMissingError: Drain3 is not installed.
    """
    instruction = import_peer("drain3.masking").MaskingInstruction
    # Given explicitly: without a configuration the miner would read a `drain3.ini` of the working
    # folder.
    config = import_peer("drain3.template_miner_config").TemplateMinerConfig()
    for name, value in (settings or {}).items():
        # Drain3 takes any attribute: one that it renamed would be set in silence.
        if not hasattr(config, name):
            raise AttributeError(f"this Drain3 has no setting {name!r}")
        setattr(config, name, value)
    config.masking_instructions = [instruction(pattern, mask) for pattern, mask in masks]
    return import_peer("drain3.template_miner").TemplateMiner(config=config)


def add_lines(miner: Any, lines: Iterable[bytes]) -> list[int]:  # noqa: ANN401 -- as above
    """Adds lines to a miner of Drain3, and returns the cluster id of each as answered then."""
    return [int(miner.add_log_message(text_of(line))["cluster_id"]) for line in lines]


def pypi_simhash_fingerprints(lines: Sequence[bytes]) -> list[int]:
    """Fingerprints lines with the `simhash` package of PyPI, as its first example shows.

    Its defaults: 64 bits, MD5, overlapping 4-grams of the lower-cased word characters.

    Args:
        lines: The lines.

    Returns:
        The fingerprint of each line, below 2**64.

    Raises:
        PeerMissingError: The package is not installed.
    """
    simhash = import_peer("simhash").Simhash
    return [int(simhash(text_of(line)).value) for line in lines]


def peer_versions() -> dict[str, str]:
    """The version of each peer, by its name on PyPI; "not installed" where it is missing."""
    versions: dict[str, str] = {}
    for name in PEERS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def time_per_item(fn: Callable[[], object], n: int, repeat: int = 5) -> Timing:
    """Times a piece of work several times over.

    The garbage collector stays on, other than in `timeit`: a stream pays for it too.

    Args:
        fn: Does the whole work once, from a fresh start each time (each peer here does).
        n: How many items one call handles.
        repeat: How many times to call it.

    Returns:
        The least and the median time, divided by `n`.

    Raises:
        ValueError: `n` or `repeat` is below 1.
    """
    if n < 1 or repeat < 1:
        raise ValueError(f"nothing to time: n={n}, repeat={repeat}")
    seconds: list[float] = []
    for _ in range(repeat):
        start = time.perf_counter()
        fn()
        seconds.append(time.perf_counter() - start)
    return Timing(min_s=min(seconds) / n, median_s=median(seconds) / n)


def text_of(line: bytes) -> str:
    """The text of a line, for peers that take no bytes; what is not UTF-8 is replaced."""
    return line.decode("utf-8", "replace")


def import_peer(module: str, package: str = "") -> ModuleType:
    """Imports by name: no peer carries types, and a plain import would fail to check without it.

    Args:
        module: Its name.
        package: Its package's name on PyPI, where that is not the module's.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        # A peer that is there but lacks something of its own is another fault: let it show.
        if error.name != top:
            raise
        package = package or top
        raise PeerMissingError(f"{package} is not installed: pip install {package}") from error
