"""Labelled log lines from a folder of `*.tsv` files.

Each file is one dataset: the first line is the header `event_id<TAB>content`, every further line
one event, where `event_id` names the template that wrote it. This is the shape to which the
labelled 2k samples of LogHub (https://github.com/logpai/loghub) are easily cut down; any folder of
the same shape will do.

The content is kept as bytes, unchanged, as it is in the file: it is what a pipeline would hand
to the deduplicator, and decoding is each contestant's own business.
"""

from dataclasses import dataclass
from pathlib import Path

HEADER = b"event_id\tcontent"
_REMEDY = (
    "give a folder of labelled samples, one *.tsv a dataset, "
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
    """

    name: str
    truth: list[str]
    lines: list[bytes]

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.lines)


def load_datasets(folder: Path) -> list[Dataset]:
    """Reads every `*.tsv` of a folder.

    Args:
        folder: Where the files lie; folders inside it are not looked into.

    Returns:
        The datasets in the order of their names, at least one.

    Raises:
        DatasetError: The folder is missing or holds no `*.tsv`, or a file has another shape.
    """
    if not folder.is_dir():
        raise DatasetError(f"no folder {folder}: {_REMEDY}")
    paths = sorted(folder.glob("*.tsv"))
    if not paths:
        raise DatasetError(f"no *.tsv in {folder}: {_REMEDY}")
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
    header, *rows = path.read_bytes().removesuffix(b"\n").split(b"\n")
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
    return Dataset(name=path.stem, truth=truth, lines=lines)
