"""The index: its port, and its forms."""
