"""The inspector of a Redis index behind ``stream-dedup index``."""
