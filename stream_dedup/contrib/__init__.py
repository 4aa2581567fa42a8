"""stream-dedup inside other frameworks."""
