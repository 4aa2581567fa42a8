"""The load generator: the command ``stream-dedup produce``."""
