"""The engine: from batches of events to decisions, counts and summaries, over any index.

`engine` is the batch loop, `segment` decides a part of a batch, `near_cache` holds what the index
decided lately, and `hashing` computes what needs no index. Read them in this order.
"""

from stream_dedup.engine.engine import Engine

__all__ = ["Engine"]
