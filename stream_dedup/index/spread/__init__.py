"""Clusters of one group over many nodes: what callers ask nodes, and what nodes answer.

`docs/giant-domain.md` describes the protocol and proves it.
"""
