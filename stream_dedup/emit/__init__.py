"""Emit: what leaves, as bytes. Pure functions."""
