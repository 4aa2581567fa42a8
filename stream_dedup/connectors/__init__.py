"""Connectors: where events come from."""
