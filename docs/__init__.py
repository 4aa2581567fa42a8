"""The documentation, and what keeps it true: see `docs.generate` and ``tests/docs``."""
