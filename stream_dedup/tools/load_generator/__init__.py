"""The load generator behind ``stream-dedup produce``."""
