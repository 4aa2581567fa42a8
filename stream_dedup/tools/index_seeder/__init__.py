"""Teaches an index over Redis what a backfill found: `stream-dedup index seed`."""
