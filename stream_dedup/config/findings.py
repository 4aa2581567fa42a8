"""What a check of the configuration finds."""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        level: whether it is as it should be.
        subject: what was looked at.
        text: what was found; if it is not ok, with a remedy behind a semicolon.
    """

    level: Level
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    """All is well."""
    return Finding("ok", subject, text)


def warning(subject: str, text: str) -> Finding:
    """A worker would run, but perhaps not as it is meant."""
    return Finding("warning", subject, text)


def error(subject: str, text: str) -> Finding:
    """A worker would stop, or not start."""
    return Finding("error", subject, text)
