"""Fingerprints: features folded into bits, by the native kernel or its reference."""
