"""The command ``stream-dedup``, a file a command."""
