"""The Kafka worker: what `stream-dedup run` runs."""
