"""The engine: one batch of events, from hashes to decisions and counts."""

from stream_dedup.engine.engine import Engine

__all__ = ["Engine"]
