"""Reading fingerprints from files and pipes, in bounded memory.

Text has one decimal or hexadecimal number a line. Binary input has words in the machine's byte
order: eight bytes each, or sixteen where fingerprints have more than 64 bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO, Literal

from stream_dedup.errors import InputError
from stream_dedup.features.patterns import readable
from stream_dedup.offline import kernel
from stream_dedup.offline.reference import Bytes, unpacked, word_bytes

Format = Literal["decimal", "hex", "binary"]

PIECE_BYTES = 1 << 20
"""Bytes read at once."""

MAX_LINE_BYTES = 4096
"""A longer line is an error."""


class BadFingerprintError(InputError):
    """The input has something that is not a fingerprint, or no fingerprint at all."""


def read_words(path: str, form: Format, width: int) -> Iterator[Bytes]:
    """Read all fingerprints of an input as words, in pieces.

    Args:
        path: a file's path; ``-`` for standard input.
        form: how numbers are written.
        width: the most bits of a fingerprint.

    Raises:
        InputError: the input cannot be read.
        BadFingerprintError: something in it is not a fingerprint, or it is empty.
    """
    name = "standard input" if path == "-" else path
    try:
        with _opened(path) as file:
            empty = True
            pieces = _binary(file, name, width) if form == "binary" else (
                _text(file, name, form, width)
            )  # fmt: skip
            for words in pieces:
                empty = empty and not len(words)
                yield words
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from error
    if empty:
        raise BadFingerprintError(f"{name}: holds no fingerprints; give one a line")


def _opened(path: str) -> BinaryIO:
    if path != "-":
        return open(path, "rb", buffering=0)  # noqa: PTH123 -- the caller closes it
    if sys.stdin is None:
        raise InputError("standard input: is closed; give --input FILE, or something to read")
    return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)


def _text(file: BinaryIO, name: str, form: Format, width: int) -> Iterator[Bytes]:
    left = b""
    line = 1  # number of the first line in `left`
    while piece := file.read(PIECE_BYTES):
        text = left + piece
        end = text.rfind(b"\n") + 1
        left = text[end:]
        if len(left) > MAX_LINE_BYTES:
            end = len(text)  # too long for a number: let `parse` find the line
        words, bad = kernel.parse(memoryview(text)[:end], form == "hex", width)
        if bad >= 0:
            raise _no_number(name, line + bad, text.split(b"\n", bad + 1)[bad], form, width)
        if len(left) > MAX_LINE_BYTES:
            raise _no_number(name, line + text.count(b"\n"), left, form, width)
        line += text.count(b"\n", 0, end)
        yield words
    words, bad = kernel.parse(left, form == "hex", width)
    if bad >= 0:
        raise _no_number(name, line + bad, left, form, width)
    yield words


def _no_number(name: str, line: int, text: bytes, form: Format, width: int) -> BadFingerprintError:
    bare = text.strip(b" \t\r")
    shown = readable(bare[:60], 60)
    negative = bare[1:] if bare.startswith(b"-") else b""
    if not bare:
        problem = "is empty"
    elif negative.isdigit():
        problem = f"{shown} is negative; write it as an unsigned number"
    elif len(text) > MAX_LINE_BYTES:
        problem = f"{shown}… is not a fingerprint: the line has more than {MAX_LINE_BYTES} bytes"
    elif form == "decimal" and bare.isdigit():
        problem = f"{shown} takes more than {width} bits; give a larger --width, if there is one"
    elif _is_hexadecimal(bare):
        problem = (
            f"{shown} is hexadecimal; give --input-format hex"
            if form == "decimal"
            else f"{shown} takes more than {width} bits; give a larger --width, if there is one"
        )
    else:
        written = "a decimal" if form == "decimal" else "a hexadecimal"
        problem = f"'{shown}' is not {written} number"
    return BadFingerprintError(f"{name}: line {line}: {problem}")


def _is_hexadecimal(text: bytes) -> bool:
    digits = text[2:] if text[:2].lower() == b"0x" else text
    return bool(digits) and all(digit in b"0123456789abcdefABCDEF" for digit in digits)


def _binary(file: BinaryIO, name: str, width: int) -> Iterator[Bytes]:
    size = word_bytes(width)
    left = b""
    count = 0
    while piece := file.read(PIECE_BYTES):
        data = left + piece
        end = len(data) // size * size
        left = data[end:]
        words = data[:end]
        if width not in {64, 128}:
            for at, number in enumerate(unpacked(words, width)):
                if number >> width:
                    raise BadFingerprintError(
                        f"{name}: fingerprint {count + at + 1}: {number} takes more than {width} "
                        "bits; give a larger --width, if there is one"
                    )
        count += len(words) // size
        yield words
    if left:
        raise BadFingerprintError(
            f"{name}: ends after {len(left)} of the {size} bytes of a fingerprint; is it cut "
            "short, or not binary?"
        )
