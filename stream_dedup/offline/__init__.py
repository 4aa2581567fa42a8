"""Matching whole files of fingerprints at once: pairs, and what pairs connect."""
