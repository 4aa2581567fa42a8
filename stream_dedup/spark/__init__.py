"""Near-duplicates on Apache Spark, by the recipes and the rules of the engine.

Needs the extra ``spark``. `dedup` adds clusters to a DataFrame, `fingerprint` fingerprints, and
`find_pairs` finds the near pairs. The executors need stream-dedup too.
"""

from stream_dedup.spark.frames import dedup, find_pairs, fingerprint

__all__ = ["dedup", "find_pairs", "fingerprint"]
