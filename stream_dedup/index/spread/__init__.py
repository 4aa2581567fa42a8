"""Clusters of one group over many nodes: what callers ask nodes, and what nodes answer.

`docs/sharding-by-fingerprint.md` describes the protocol and proves it.
"""
