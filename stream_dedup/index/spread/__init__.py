"""Clusters of one group over many nodes: what callers ask nodes, and what nodes answer.

`docs/giant-domain.md` describes the protocol and proves it.
"""

from stream_dedup.index.spread.counting import Counter, Owner
from stream_dedup.index.spread.node import Node
from stream_dedup.index.spread.protocol import Call, Places

__all__ = ["Call", "Counter", "Node", "Owner", "Places"]
