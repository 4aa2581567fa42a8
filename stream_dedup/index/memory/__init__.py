"""The index in memory."""

from stream_dedup.index.memory.store import MemoryIndex, run

__all__ = ["MemoryIndex", "run"]
