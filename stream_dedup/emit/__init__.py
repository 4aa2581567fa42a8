"""Output as bytes: events with their decisions, and summaries of clusters. Pure functions."""
