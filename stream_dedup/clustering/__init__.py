"""Clustering: which events belong together, and for how long. Pure logic."""
