"""Lasting decisions of people about patterns: merge, keep apart, name, mute, limit."""
