"""Labelled log lines from a folder of `*.tsv` and `*.tsv.gz` files.

Each file is one dataset: the first line is the header `event_id<TAB>content`, every further line
one event, where `event_id` names the template that wrote it. This is the shape to which the
labelled 2k samples of LogHub (https://github.com/logpai/loghub) are easily cut down; any folder of
the same shape will do.

Beside `NAME.tsv`, a file `NAME.log_templates.csv` may give the true template of each `event_id`, as
LogHub's files of that name do: columns `EventId` and `EventTemplate`, `<*>` for each variable.
Events that it does not name have no template. It may be compressed too.

The content is kept as bytes, unchanged, as it is in the file: it is what a pipeline would hand
to the deduplicator, and decoding is each contestant's own business.
"""

import csv
import gzip
from dataclasses import dataclass, field
from pathlib import Path

HEADER = b"event_id\tcontent"
_REMEDY = (
    "give a folder of labelled samples, one *.tsv or *.tsv.gz a dataset, "
    "each with the header 'event_id<TAB>content' and one event a line"
)


class DatasetError(Exception):
    """A folder or a file is not what the quality bench reads; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One labelled sample.

    Attributes:
        name: The file's name without its ending.
        truth: The true template of each line.
        lines: The text of each line, without its newline; as many as `truth`.
        templates: Label to template text, where it is known.
    """

    name: str
    truth: list[str]
    lines: list[bytes]
    templates: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.lines)


def load_datasets(folder: Path) -> list[Dataset]:
    """Reads every `*.tsv` and `*.tsv.gz` of a folder.

    Args:
        folder: Where the files lie; folders inside it are not looked into.

    Returns:
        The datasets in the order of their names, at least one.

    Raises:
        DatasetError: The folder is missing or holds no `*.tsv`, or a file has another shape.
    """
    if not folder.is_dir():
        raise DatasetError(f"no folder {folder}: {_REMEDY}")
    paths = sorted([*folder.glob("*.tsv"), *folder.glob("*.tsv.gz")])
    if not paths:
        raise DatasetError(f"no *.tsv or *.tsv.gz in {folder}: {_REMEDY}")
    return [load_dataset(path) for path in paths]


def load_dataset(path: Path) -> Dataset:
    """Reads one file.

    Args:
        path: A file of the shape described above.

    Returns:
        Its events, in the order of the file, at least one.

    Raises:
        DatasetError: The header is another, a line has no tab, or there are no events.
    """
    # Split on the newline alone: `splitlines` would also cut at a stray carriage return or form
    # feed inside an event.
    header, *rows = _content(path).removesuffix(b"\n").split(b"\n")
    if header != HEADER:
        raise DatasetError(f"{path}: the first line is not 'event_id<TAB>content'; {_REMEDY}")
    if not rows:
        raise DatasetError(f"{path}: no events after the header; {_REMEDY}")
    truth: list[str] = []
    lines: list[bytes] = []
    for number, row in enumerate(rows, start=2):
        event_id, tab, content = row.partition(b"\t")
        if not tab:
            raise DatasetError(f"{path}, line {number}: no tab after the event id; {_REMEDY}")
        truth.append(event_id.decode())
        lines.append(content)
    name = path.name.removesuffix(".gz").removesuffix(".tsv")
    return Dataset(name, truth, lines, _templates(path.parent, name))


def _templates(folder: Path, name: str) -> dict[str, str]:
    """Reads the true templates of a dataset; none without such a file."""
    for path in (folder / f"{name}.log_templates.csv", folder / f"{name}.log_templates.csv.gz"):
        if path.exists():
            rows = csv.DictReader(_content(path).decode().splitlines())
            try:
                return {row["EventId"]: row["EventTemplate"] for row in rows}
            except KeyError as error:
                raise DatasetError(f"{path}: no column {error} in the first line") from error
    return {}


def _content(path: Path) -> bytes:
    """The bytes of a file, decompressed."""
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content
