"""Merge near-duplicate log lines and events as they stream by.

>>> from stream_dedup import Deduplicator
>>> [d.kind.value for d in Deduplicator().process(["GET /a took 3 ms", "GET /b took 5 ms"])]
['new', 'duplicate']
"""

from stream_dedup._version import __version__
from stream_dedup.clustering.summaries import Summaries
from stream_dedup.clustering.windows import Windows
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.features.recipe import Recipe, load_recipe
from stream_dedup.index.base import Limits
from stream_dedup.model import Decision, Kind, Summary

__all__ = [
    "Decision",
    "Deduplicator",
    "Kind",
    "Limits",
    "Recipe",
    "Summaries",
    "Summary",
    "Windows",
    "__version__",
    "load_recipe",
]
