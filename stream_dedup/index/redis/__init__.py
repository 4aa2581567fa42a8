"""The index over Redis: one truth for many workers; see `store.RedisIndex`."""
